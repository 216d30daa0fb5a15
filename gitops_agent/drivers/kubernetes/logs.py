"""What the pods of agents print, through the API server."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from gitops_agent.drivers.api import AgentKey, LogLine, ObserveError
from gitops_agent.drivers.kubernetes.cache import Entry
from gitops_agent.drivers.kubernetes.cluster import Cluster
from gitops_agent.drivers.kubernetes.errors import ApiError, observe_error
from gitops_agent.drivers.kubernetes.kinds import POD
from gitops_agent.drivers.kubernetes.marks import CONTAINER
from gitops_agent.drivers.kubernetes.pods import pods_of, workloads_of

SILENCE_SECONDS = 10.0
FOLLOW_SILENCE_SECONDS = 3600.0
LOOK_SECONDS = 1.0
"""How often new pods are looked for, and a log that ended is opened again."""

MAX_WAITING = 1000
_ENDED = ("Succeeded", "Failed")
_REFUSED = (401, 403)

Query = Mapping[str, str | int | bool]


class Logs:
    """Reads the logs of the pods of agents."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._cache = cluster.cache

    def read(self, agent: AgentKey, lines: int, *, follow: bool = False) -> Iterator[LogLine]:
        """The last lines of every pod, and with ``follow`` what they and those that come later add."""
        if not pods_of(self._cache, agent):
            raise ObserveError(f"there is no pod of {agent}", hint=f"gitops-agent explain {agent}")
        return self._followed(agent, lines) if follow else self._last(agent, lines)

    def _last(self, agent: AgentKey, lines: int) -> Iterator[LogLine]:
        """The last lines of each pod. One that cannot be read says so; ObserveError when none can."""
        problems: list[ApiError] = []
        pods = pods_of(self._cache, agent)
        for pod in pods:
            try:
                yield from self._lines(pod, {"tailLines": lines}, SILENCE_SECONDS)
            except ApiError as problem:
                problems.append(problem)
                yield LogLine(pod.name, f"({problem.message})")
        unread = [each for each in problems if each.status != 400]  # 400: it has not started yet
        if unread and len(problems) == len(pods):
            raise observe_error(unread[0], f"read the logs of {agent}") from unread[0]

    def _followed(self, agent: AgentKey, lines: int) -> Iterator[LogLine]:
        """The lines of all pods as they come, until the agent is gone. Each pod is read by a thread of its own."""
        found: queue.Queue[LogLine | ApiError] = queue.Queue(MAX_WAITING)
        over = threading.Event()
        readers: dict[str, threading.Thread] = {}
        query: Query = {"tailLines": lines}
        look = 0.0
        try:
            while True:
                if time.monotonic() >= look:
                    look = time.monotonic() + LOOK_SECONDS
                    for pod in pods_of(self._cache, agent):
                        if pod.uid not in readers:
                            asked = (agent, pod, query, found, over)
                            readers[pod.uid] = threading.Thread(target=self._follow, args=asked, daemon=True)
                            readers[pod.uid].start()
                    query = {}  # of those that come later nothing was seen yet
                try:
                    line = found.get(timeout=LOOK_SECONDS)
                except queue.Empty:
                    if not workloads_of(self._cache, agent) and not any(
                        map(threading.Thread.is_alive, readers.values())
                    ):
                        return
                    continue
                if isinstance(line, ApiError):
                    raise observe_error(line, f"read the logs of {agent}") from line
                yield line
        finally:
            over.set()

    def _follow(
        self,
        agent: AgentKey,
        pod: Entry,
        query: Query,
        found: queue.Queue[LogLine | ApiError],
        over: threading.Event,
    ) -> None:
        """Put what a pod prints, over restarts of its container and cuts of the connection, until it is gone."""
        told = ""
        while not over.is_set():
            ended = _is_ended(pod)
            try:
                for line in self._lines(pod, query, FOLLOW_SILENCE_SECONDS, follow=True):
                    _put(found, line, over)
                query = {"sinceTime": _moment(self._cluster.clock.now())}
            except ApiError as problem:
                if problem.status in _REFUSED:
                    return _put(found, problem, over)
                if problem.answered and problem.message != told:
                    told = problem.message
                    _put(found, LogLine(pod.name, f"({told})"), over)
            over.wait(LOOK_SECONDS)
            left = [each for each in pods_of(self._cache, agent) if each.uid == pod.uid]
            if ended or not left:
                return None
            pod = left[0]
        return None

    def _lines(self, pod: Entry, query: Query, silence: float, *, follow: bool = False) -> Iterator[LogLine]:
        path = POD.path(pod.namespace, pod.name) + "/log"
        asked: dict[str, str | int | bool] = {"container": CONTAINER, "follow": follow, **query}
        stream = self._cluster.client.stream("GET", path, asked, silence)
        try:
            for line in stream:
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                yield LogLine(pod.name, self._cluster.redactor(text))
        finally:
            stream.close()


def _put(found: queue.Queue[LogLine | ApiError], line: LogLine | ApiError, over: threading.Event) -> None:
    """Put a line, waiting for the one that reads as long as there is one."""
    while not over.is_set():
        try:
            return found.put(line, timeout=LOOK_SECONDS)
        except queue.Full:
            continue
    return None


def _is_ended(pod: Entry) -> bool:
    return (pod.object().get("status") or {}).get("phase") in _ENDED


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
