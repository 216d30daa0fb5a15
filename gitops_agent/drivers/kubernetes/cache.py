"""The live cache: every object of ours in a cluster, kept up to date by watches.

In a quiet cluster nothing is asked: reading the cache costs no request. It is complete or it says so: ``synced``
waits for the first lists, and ``blind`` names the namespaces of which a watch has been down for too long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gitops_agent.drivers.api import AgentKey, Clock, ObserveError
from gitops_agent.drivers.kubernetes.client import Client
from gitops_agent.drivers.kubernetes.errors import ApiError, observe_error
from gitops_agent.drivers.kubernetes.kinds import NAMESPACE, ObjectKind
from gitops_agent.drivers.kubernetes.list_watch import Limits, ListWatch
from gitops_agent.drivers.kubernetes.marks import TENANT
from gitops_agent.drivers.kubernetes.store import Change, Entry, Scope, Store, as_served, keep_raw
from gitops_agent.support.clock import SystemClock

__all__ = ["MAX_AGE_SECONDS", "Entry", "Limits", "ObjectCache", "OnChange", "keep_raw"]

MAX_AGE_SECONDS = 45.0
STOP_SECONDS = 2.0
_HOPELESS = (401, 403, 404, 405, 406)
"""Answers to a list that waiting does not change."""

OnChange = Callable[[ObjectKind, AgentKey | None, str], None]


def _ignore(_kind: ObjectKind, _agent: AgentKey | None, _word: str) -> None:
    """Nothing."""


class ObjectCache:
    """The objects that ``selector`` finds (namespaces: those of any tenant), in ``namespaces`` or everywhere.
    ``applied``: what objects that stand for a resource must have beyond that, and pods need not.

    ``on_change``: called from the threads of the watches with the kind, the agent that the labels name, and a word
    for people; not for the first list, and not for what ``note_object`` said already."""

    def __init__(  # noqa: PLR0913 - the parts of a cache
        self,
        client: Client,
        kinds: Sequence[ObjectKind],
        *,
        selector: str,
        applied: str = "",
        namespaces: Sequence[str] = (),
        on_change: OnChange = _ignore,
        clock: Clock | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._state = threading.Condition()
        scopes = [Scope(kind, namespace) for kind in kinds for namespace in (namespaces or ("",))]
        self._store = Store(scopes)
        self._watches = [
            ListWatch(
                client,
                scope,
                _selectors(scope, selector, applied),
                self._store,
                keep=_of_kind(scope.kind),
                on_change=_to(on_change, scope.kind),
                on_state=self._state_changed,
                on_up=self._server_answers,
                clock=clock or SystemClock(),
                limits=limits or Limits(),
            )
            for scope in scopes
        ]
        self._parts: dict[str, list[ListWatch]] = {}  # by namespace, "" where all are one
        for watch in self._watches:
            self._parts.setdefault(watch.scope.namespace, []).append(watch)
        self._started = False
        self._waited = False

    def start(self) -> None:
        """Begin to list and watch; a second start changes nothing."""
        with self._state:
            if self._started:
                return
            self._started = True
        for watch in self._watches:
            watch.start()

    def stop(self) -> None:
        """End all watches, within two seconds."""
        for watch in self._watches:
            watch.ask_to_stop()
        with self._state:
            if not self._started:
                return
        end = SystemClock().monotonic() + STOP_SECONDS
        for watch in self._watches:
            watch.join(max(0.0, end - SystemClock().monotonic()))

    # -- reading

    def get(self, kind: ObjectKind, namespace: str, name: str) -> Entry | None:
        """One object, if it is there."""
        return self._store.get(kind, namespace, name)

    def of_agent(self, agent: AgentKey, kind: ObjectKind) -> tuple[Entry, ...]:
        """The objects of an agent of one kind, by name."""
        return self._store.of_agent(agent, kind)

    def objects_of(self, agent: AgentKey) -> tuple[Entry, ...]:
        """All objects of an agent, pods included."""
        return self._store.objects_of(agent)

    def all(self, kind: ObjectKind) -> tuple[Entry, ...]:
        """All objects of one kind."""
        return self._store.all(kind)

    def agents(self) -> frozenset[AgentKey]:
        """The agents that have any object."""
        return self._store.agents()

    def is_of(self, tenant: str, namespace: str) -> bool:
        """Whether a namespace is labelled as one of a tenant."""
        entry = self._store.get(NAMESPACE, "", namespace)
        return entry is not None and (entry.object()["metadata"].get("labels") or {}).get(TENANT) == tenant

    # -- whether it can be trusted

    def synced(self, timeout: float) -> None:
        """Wait until everything was listed once, or cannot be; ``blind`` says what was not. A server that fails
        (5xx, 429) may soon do better, so it is waited for once; after that no pass waits for it."""
        with self._state:
            self._state.wait_for(self._decided, timeout)
            self._waited = True

    def stale(self) -> Mapping[str, float]:
        """What is without a watch now, and for how many seconds."""
        return {str(watch.scope): watch.down_seconds() for watch in self._watches if not watch.up}

    def blind(self, max_age: float = MAX_AGE_SECONDS) -> dict[str, ObserveError]:
        """The namespaces of which something was never listed, or of which a watch has been without contact for
        longer, each with the first reason; ObserveError when nothing of the cluster can be trusted."""
        found = {name: why for name, own in self._parts.items() if (why := _doubt(own, max_age)) is not None}
        if len(found) == len(self._parts):
            raise next(iter(found.values()))
        return found

    def doubt(self, namespace: str, max_age: float = MAX_AGE_SECONDS) -> ObserveError | None:
        """Why what is known of one namespace does not count, if it does not."""
        return _doubt(self._parts.get(namespace, self._parts.get("", [])), max_age)

    # -- our own writes

    def note_object(self, kind: ObjectKind, answer: Mapping[str, Any]) -> Entry:
        """The entry of the object that a write answered, noted."""
        entry = keep_raw(kind, as_served(kind, answer))
        self._store.note(entry)
        return entry

    def note_gone(self, entry: Entry) -> None:
        """Take it that this very object is gone, as the answer to our delete said."""
        self._store.gone(entry)

    # -- inside

    def _state_changed(self) -> None:
        with self._state:
            self._state.notify_all()

    def _server_answers(self) -> None:
        # After an outage each watch waits by itself, up to half a minute: the first that is back wakes the rest.
        for watch in self._watches:
            watch.try_now()

    def _decided(self) -> bool:
        return all(self._is_decided(watches) for watches in self._parts.values())

    def _is_decided(self, watches: Sequence[ListWatch]) -> bool:
        late = [watch.problem for watch in watches if not watch.listed]
        return not late or any(_is_hopeless(each) or (self._waited and each is not None) for each in late)


def _selectors(scope: Scope, selector: str, applied: str) -> dict[str, str]:
    if scope.kind != NAMESPACE:
        return {"labelSelector": f"{selector},{applied}" if applied and scope.kind.resource else selector}
    # By name where only some are watched: a role can allow that without allowing to see all.
    named = {"fieldSelector": f"metadata.name={scope.namespace}"} if scope.namespace else {}
    return {"labelSelector": TENANT, **named}


def _of_kind(kind: ObjectKind) -> Callable[[dict[str, Any]], Entry]:
    return lambda found: keep_raw(kind, found)


def _to(on_change: OnChange, kind: ObjectKind) -> Callable[[Change], None]:
    return lambda change: on_change(kind, change.agent, change.word)


def _is_hopeless(problem: ApiError | None) -> bool:
    # A server that cannot be reached is asked again in the background; no pass waits for it.
    return problem is not None and (problem.status in _HOPELESS or not problem.answered)


def _not_listed(watches: Sequence[ListWatch]) -> ListWatch | None:
    """Something that was never listed, if there is any; first of all what waiting does not help."""
    late = [watch for watch in watches if not watch.listed]
    return min(late, key=lambda watch: not _is_hopeless(watch.problem), default=None)


def _doubt(watches: Sequence[ListWatch], max_age: float) -> ObserveError | None:
    """Why what some watches say does not count, if it does not."""
    late = _not_listed(watches)
    if late is not None:
        if late.problem is not None:
            return observe_error(late.problem, f"list {late.scope}")
        waited = f"list {late.scope}: not done after {late.down_seconds():.0f} s"
        return ObserveError(waited, hint="check the network and the API server's load")
    for watch in watches:
        problem, down = watch.problem, watch.down_seconds()
        if down > max_age:
            what = f"no news of {watch.scope} for {down:.0f} s"
            if problem is None:
                return ObserveError(what, hint="check the connection to the API server")
            told = observe_error(problem, f"watch {watch.scope}")
            return ObserveError(f"{what}: {told.message}", hint=told.hint)
    return None
