"""Events in the cluster, so that ``kubectl describe`` tells what we did, why, and for which commit.

They are told in the background, at a bounded rate and when no more is done for a moment: reports never take
requests away from repairs.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime

from gitops_agent.drivers.api import Record, Verb
from gitops_agent.drivers.kubernetes.cache import Entry
from gitops_agent.drivers.kubernetes.cluster import Cluster
from gitops_agent.drivers.kubernetes.kinds import EVENT
from gitops_agent.drivers.kubernetes.observe import kinds_of
from gitops_agent.drivers.kubernetes.pods import own_objects

MAX_WAITING = 10_000
PER_SECOND = 25.0
QUIET_SECONDS, HELD_SECONDS = 0.2, 10.0
"""For how long nothing is to be done before events are posted, and for how long at most they wait for that."""

MAX_TEXT = 1000
_DONE = {
    Verb.CREATE: "Created",
    Verb.UPDATE: "Updated",
    Verb.RESTART: "Restarted",
    Verb.STOP: "Stopped",
    Verb.DELETE: "Deleted",
}


class Events:
    """Posts events on the objects of agents. ``record`` returns at once; of too many the oldest are lost."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._instance = cluster.instance
        self._waiting: deque[tuple[float, dict[str, object]]] = deque(maxlen=MAX_WAITING)
        self._news = threading.Condition()
        self._ended = False
        self._heard = 0.0
        self._thread: threading.Thread | None = None

    def record(self, done: Record) -> None:
        """Keep an event for what was done to the workload of an agent, or failed for any of its objects."""
        self._heard = time.monotonic()
        if done.ok and done.action.key.kind != "runtime":
            return
        entry = self._about(done)
        if entry is None:
            return
        with self._news:
            self._waiting.append((self._heard, self._event(done, entry)))
            if self._thread is None and not self._ended:
                self._thread = threading.Thread(target=self._post_all, name="kubernetes-events", daemon=True)
                self._thread.start()
            self._news.notify()

    def close(self, wait: float = 1.0) -> None:
        """Post what is left within a moment."""
        with self._news:
            self._ended = True
            self._news.notify()
        if self._thread is not None:
            self._thread.join(wait)

    def _about(self, done: Record) -> Entry | None:
        kinds = (*kinds_of("runtime"), *kinds_of(done.action.key.kind))
        return next(iter(own_objects(self._cluster.cache, done.action.key.agent, kinds)), None)

    def _event(self, done: Record, entry: Entry) -> dict[str, object]:
        action, now = (
            done.action,
            datetime.fromtimestamp(self._cluster.clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        said = action.message if done.ok else f"{action.verb} failed: {done.message}"
        commit = f" (commit {done.commit[:10]}, {action.reason}, instance {self._instance})"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{entry.name}.", "namespace": entry.namespace},
            "involvedObject": {
                "apiVersion": entry.kind.api_version,
                "kind": entry.kind.kind,
                "namespace": entry.namespace,
                "name": entry.name,
                "uid": entry.uid,
                "resourceVersion": entry.resource_version,
            },
            "reason": _DONE.get(action.verb, str(action.verb)) if done.ok else "Failed",
            "message": self._cluster.redactor(said)[: MAX_TEXT - len(commit)] + commit,
            "type": "Normal" if done.ok else "Warning",
            "source": {"component": f"gitops-agent/{self._instance}"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }

    def _await_quiet(self) -> None:
        """Wait until nothing was done for a moment, but not for ever. The caller holds the lock, and gives it up
        meanwhile."""
        while self._waiting and not self._ended:
            quiet_at, latest = self._heard + QUIET_SECONDS, self._waiting[0][0] + HELD_SECONDS
            if (left := min(quiet_at, latest) - time.monotonic()) <= 0:
                return
            self._news.wait(left)

    def _post_all(self) -> None:
        pace = threading.Event()
        while True:
            with self._news:
                while not self._waiting and not self._ended:
                    self._news.wait()
                self._await_quiet()
                if not self._waiting:
                    return
                _, event = self._waiting.popleft()
            metadata = event["metadata"]
            assert isinstance(metadata, dict)
            # The journal and the note have it: whatever keeps a cluster from taking an event (refused, no
            # credentials, another process leads by now) keeps nothing from going on.
            with suppress(Exception):
                self._cluster.client.request("POST", EVENT.path(metadata["namespace"]), body=event)
            if not self._ended:
                pace.wait(1 / PER_SECOND)
