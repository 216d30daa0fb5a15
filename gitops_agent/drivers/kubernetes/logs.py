"""What the pods of agents print, through the API server."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

from gitops_agent.drivers.api import AgentKey, LogLine, ObserveError
from gitops_agent.drivers.kubernetes.cache import Entry
from gitops_agent.drivers.kubernetes.client import LineStream
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
        found = _Lines()
        readers: dict[str, threading.Thread] = {}
        query: Query = {"tailLines": lines}
        look = 0.0
        try:
            while True:
                if time.monotonic() >= look:
                    look = time.monotonic() + LOOK_SECONDS
                    for pod in pods_of(self._cache, agent):
                        if pod.uid not in readers:
                            asked = (agent, pod, query, found)
                            name = f"logs-{pod.name}"
                            reader = threading.Thread(target=self._follow, args=asked, name=name, daemon=True)
                            readers[pod.uid] = reader
                            reader.start()
                    query = {}  # of those that come later nothing was seen yet
                try:
                    line = found.waiting.get(timeout=LOOK_SECONDS)
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
            found.close()

    def _follow(self, agent: AgentKey, pod: Entry, query: Query, found: _Lines) -> None:
        """Put what a pod prints, over restarts of its container and cuts of the connection, until it is gone."""
        told, last = "", _Last()
        while not found.over.is_set():
            ended = _is_ended(pod)
            try:
                self._put_all(pod, last.query() or query, found, last)
            except ApiError as problem:
                if problem.status in _REFUSED:
                    return found.put(problem)
                if problem.answered and problem.message != told:
                    told = problem.message
                    found.put(LogLine(pod.name, f"({told})"))
            found.over.wait(LOOK_SECONDS)
            left = [each for each in pods_of(self._cache, agent) if each.uid == pod.uid]
            if ended or not left:
                return None
            pod = left[0]
        return None

    def _put_all(self, pod: Entry, query: Query, found: _Lines, last: _Last) -> None:
        """Put what a pod prints until its log ends or is cut, without what was put before."""
        stream = self._opened(pod, {**query, "follow": True, "timestamps": True}, FOLLOW_SILENCE_SECONDS)
        last.resume()
        with found.reading(stream):
            for line in stream:
                moment, text = _split(line)
                if moment is None or last.is_new(moment):
                    found.put(self._line(pod, text))

    def _lines(self, pod: Entry, query: Query, silence: float) -> Iterator[LogLine]:
        stream = self._opened(pod, query, silence)
        try:
            for line in stream:
                yield self._line(pod, line)
        finally:
            stream.close()

    def _opened(self, pod: Entry, query: Query, silence: float) -> LineStream:
        path = POD.path(pod.namespace, pod.name) + "/log"
        return self._cluster.client.stream("GET", path, {"container": CONTAINER, **query}, silence)

    def _line(self, pod: Entry, line: bytes) -> LogLine:
        return LogLine(pod.name, self._cluster.redactor(line.decode("utf-8", "replace").rstrip("\r\n")))


class _Moment(NamedTuple):
    """When a line was printed, in seconds since the epoch, and as it says: to the nanosecond."""

    seconds: float
    text: str


class _Last:
    """Where the log of a pod was left: the newest moment of its lines, and how many of them have it. A log is
    asked for from a moment on, to the second, and so begins with lines that are known."""

    def __init__(self) -> None:
        self._moment, self._count = _Moment(0.0, ""), 0
        self._left, self._to_skip = self._moment, 0

    def query(self) -> Query:
        """What asks for the log from there on; empty before the first line."""
        return {"sinceTime": self._moment.text} if self._count else {}

    def resume(self) -> None:
        """Begin anew: what is known comes once more."""
        self._left, self._to_skip = self._moment, self._count

    def is_new(self, moment: _Moment) -> bool:
        """Whether the next line, of this moment, did not come before."""
        if self._to_skip and moment < self._left:
            return False
        if self._to_skip and moment == self._left:
            self._to_skip -= 1
            return False
        self._to_skip = 0
        if moment >= self._moment:
            self._count = self._count + 1 if moment == self._moment else 1
            self._moment = moment
        return True


class _Lines:
    """What the threads of the pods read, for the one that shows it; closed, all of them end."""

    def __init__(self) -> None:
        self.waiting: queue.Queue[LogLine | ApiError] = queue.Queue(MAX_WAITING)
        self.over = threading.Event()
        self._streams: set[LineStream] = set()
        self._lock = threading.Lock()

    def put(self, line: LogLine | ApiError) -> None:
        """Put a line, waiting for the one that reads as long as there is one."""
        while not self.over.is_set():
            try:
                return self.waiting.put(line, timeout=LOOK_SECONDS)
            except queue.Full:
                continue
        return None

    @contextmanager
    def reading(self, stream: LineStream) -> Iterator[None]:
        """Inside, the stream is read; it is closed at the end, or with all others."""
        with self._lock:
            self._streams.add(stream)
            if self.over.is_set():
                stream.close()
        try:
            yield
        finally:
            stream.close()
            with self._lock:
                self._streams.discard(stream)

    def close(self) -> None:
        """End all reading."""
        with self._lock:
            self.over.set()
            streams = tuple(self._streams)
        for stream in streams:
            stream.close()


def _is_ended(pod: Entry) -> bool:
    return (pod.object().get("status") or {}).get("phase") in _ENDED


def _split(line: bytes) -> tuple[_Moment | None, bytes]:
    """The moment of a line and the rest of it; no moment, and all of it, where it begins with none."""
    stamp, _, rest = line.partition(b" ")
    try:
        text = stamp.decode("ascii")
        return _Moment(datetime.fromisoformat(text).timestamp(), text), rest
    except ValueError:
        return None, line
