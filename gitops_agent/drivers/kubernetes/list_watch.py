"""One list and the watch that follows it, for as long as we run: how one kind of object gets into the store.

A watch is resumed where it ended. Only when the server no longer has what happened since (410) is everything
listed again, and compared, so that what vanished meanwhile is noticed. The server sends a sign of life about once
a minute (a bookmark); a connection that is silent for longer is taken to be dead, although nothing closed it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from gitops_agent.drivers.api import Clock
from gitops_agent.drivers.kubernetes.client import Client, LineStream
from gitops_agent.drivers.kubernetes.errors import CUT, TIMEOUT, ApiError, from_status_object
from gitops_agent.drivers.kubernetes.store import Change, Entry, Scope, Store, as_served
from gitops_agent.support.backoff import delay
from gitops_agent.support.gc import gc_paused

_METADATA = "application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long is long. ``silence_seconds``: a watch that says nothing for this long is dead. ``watch_seconds``:
    how long one request may last, so that not all end at once. ``steady_seconds``: a watch that lived this long is
    resumed at once when it ends."""

    page: int = 500
    list_seconds: float = 30.0
    silence_seconds: float = 75.0
    watch_seconds: tuple[int, int] = (240, 360)
    steady_seconds: float = 1.0
    first_pause_seconds: float = 0.25
    max_pause_seconds: float = 30.0


class ListWatch:
    """What keeps one scope of the store up to date, on a thread of its own.

    ``query``: the selectors. ``keep``: what is kept of an object. ``on_change``: called for what happens after the
    first list. ``on_state``: called when ``listed``, ``up`` or ``problem`` changed; ``on_up``: when it is up
    again."""

    def __init__(  # noqa: PLR0913 - made in one place, from the cache's own parts
        self,
        client: Client,
        scope: Scope,
        query: dict[str, str],
        store: Store,
        *,
        keep: Callable[[dict[str, Any]], Entry],
        on_change: Callable[[Change], None],
        on_state: Callable[[], None],
        on_up: Callable[[], None],
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._client, self.scope, self._query, self._store = client, scope, query, store
        self._keep, self._on_change, self._on_state = keep, on_change, on_state
        self._on_up, self._clock, self._limits = on_up, clock, limits
        watched = scope.namespace if scope.kind.namespaced else ""
        self._path = scope.kind.path(watched or None)
        self._version: str | None = None
        self._stream: LineStream | None = None
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{scope.kind.plural}", daemon=True)
        self._contact = clock.monotonic()
        self._opened: float | None = None  # when the request under way became a watch, if it did
        self.listed = False
        self.up = False
        self.problem: ApiError | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Cut the stream and return at once; ``join`` waits."""
        self._stopping.set()
        self._wake.set()
        stream = self._stream
        if stream is not None:
            stream.close()

    def try_now(self) -> None:
        """Do not wait any longer, if it is for a server that did not answer."""
        problem = self.problem
        if not self.up and problem is not None and not problem.answered:
            self._wake.set()

    def join(self, timeout: float) -> None:
        """Wait for the thread, for some seconds at most: a request under way has its own limit."""
        if self._thread.is_alive():
            self._thread.join(timeout)

    def down_seconds(self) -> float:
        """For how long there has been no contact; 0 while the watch is up."""
        return 0.0 if self.up else max(0.0, self._clock.monotonic() - self._contact)

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            self._opened = None
            problem = self._until_it_ends()
            if self._stopping.is_set():
                return
            now, opened = self._clock.monotonic(), self._opened
            # The list before it does not count: it may take long, and be too old for a watch when it is there.
            if opened is not None and now - opened >= self._limits.steady_seconds:
                failures = 0
            silent = opened is not None and problem is not None and problem.reason == TIMEOUT
            if not silent:
                # Whether silence means anything, the next try says: until then nothing is known to be wrong.
                self._contact = now if opened is not None else self._contact
                self._set_state(up=False, problem=problem)
            if failures > 0 or not _harmless(problem):
                self._wake.wait(self._pause(failures, problem))
                self._wake.clear()
            failures += 1

    def _pause(self, failures: int, problem: ApiError | None) -> float:
        asked = problem.retry_after if problem is not None else None
        first, cap = self._limits.first_pause_seconds, self._limits.max_pause_seconds
        return delay(failures, first, cap, asked, random.random())  # noqa: S311 - only spreads requests

    def _until_it_ends(self) -> ApiError | None:
        """List if need be, and watch; what ended it, None for the end that every watch has."""
        try:
            if self._version is None:
                self._list()
            self._watch()
        except ApiError as problem:
            if problem.expired or _unknown_version(problem):
                self._version = None
            return problem
        except Exception as problem:  # a thread that dies would leave the cache as it is for ever
            self._version = None
            return ApiError(0, "Unexpected", f"{type(problem).__name__}: {problem}")
        return None

    # -- list

    def _list(self) -> None:
        first = not self.listed
        with gc_paused():  # of the thousands of objects that are parsed none is garbage before it is kept as bytes
            entries, version = self._pages(self._limits.page)
        changes = self._store.listed(self.scope, entries, version)
        self._version = version
        self._contact = self._clock.monotonic()
        self.listed = True
        self._set_state(up=False, problem=None)
        for change in () if first else changes:
            self._on_change(change)

    def _pages(self, limit: int) -> tuple[Sequence[Entry], str]:
        """All objects, and the version of the whole. Without a version in the query: the newest state there is,
        for with one the answer might be older than what we have seen already."""
        entries: list[Entry] = []
        query: dict[str, str | int] = {**self._query, **({"limit": limit} if limit else {})}
        while not self._stopping.is_set():
            try:
                page = self._client.request(
                    "GET", self._path, query=query, timeout=self._limits.list_seconds, headers=self._accept("List")
                )
            except ApiError as problem:
                if problem.expired and "continue" in query:
                    return self._pages(0)  # the list changes faster than we turn the pages: all in one
                raise
            entries += (self._entry(each) for each in page.get("items") or ())
            meta = page["metadata"]
            if not meta.get("continue"):
                return entries, meta["resourceVersion"]
            query["continue"] = meta["continue"]
        raise ApiError(0, CUT, "we are stopping")

    # -- watch

    def _watch(self) -> None:
        limits = self._limits
        lasting = random.randint(*limits.watch_seconds)  # noqa: S311 - as above
        query: dict[str, str | int | bool] = {
            **self._query,
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": self._version or "",
            "timeoutSeconds": lasting,
        }
        stream = self._client.stream("GET", self._path, query, limits.silence_seconds, headers=self._accept(""))
        self._stream = stream
        if self._stopping.is_set():
            stream.close()
        self._opened = self._contact = self._clock.monotonic()
        was_down = not self.up
        self._set_state(up=True, problem=None)
        if was_down:
            self._on_up()
        for kind, found in _events(stream):
            self._contact = self._clock.monotonic()
            for change in self._take(kind, found):
                self._on_change(change)

    def _take(self, kind: str, found: dict[str, Any]) -> Sequence[Change]:
        """Take one event into the store; what changed."""
        if kind == "ERROR":
            raise from_status_object(found)
        version = found["metadata"]["resourceVersion"]
        changes: Sequence[Change] = ()
        if kind == "BOOKMARK":
            self._store.reached(self.scope, version)
        elif kind == "DELETED":
            changes = self._store.deleted(self.scope, self._entry(found))
        else:
            changes = self._store.changed(self.scope, self._entry(found))
        self._version = version
        return changes

    def _entry(self, found: dict[str, Any]) -> Entry:
        return self._keep(as_served(self.scope.kind, found))

    def _accept(self, suffix: str) -> dict[str, str]:
        return {"Accept": _METADATA.format(list=suffix)} if self.scope.kind.metadata_only else {}

    def _set_state(self, *, up: bool, problem: ApiError | None) -> None:
        self.up, self.problem = up, problem
        self._on_state()


def _events(stream: LineStream) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in stream:
        if not line:
            continue
        try:
            event = orjson.loads(line)
        except orjson.JSONDecodeError:
            raise ApiError(0, CUT, "the connection was cut in the middle of an event") from None
        yield event["type"], event["object"]


def _harmless(problem: ApiError | None) -> bool:
    """Whether a watch is resumed at once after it: it ended, was cut or silent, or is to begin with a list."""
    return problem is None or problem.reason in (CUT, TIMEOUT) or problem.expired


def _unknown_version(problem: ApiError) -> bool:
    """Whether the server has not come as far as we have: it was restored from a backup."""
    return any(cause.reason == "ResourceVersionTooLarge" for cause in problem.causes)
