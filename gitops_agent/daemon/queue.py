"""Requests for passes, merged while one is running: triggers never queue up behind each other."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from gitops_agent.model.key import AgentKey
from gitops_agent.ports import Scope


@dataclass(frozen=True, slots=True)
class Request:
    """One pass to run: over some agents or (None) all, asking the remote first or not."""

    scope: Scope
    fetch: bool
    reasons: tuple[str, ...]


class WorkQueue:
    """Where poll, watch, resync and exits leave their wishes; one reader takes them all at once."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._agents: set[AgentKey] = set()
        self._everything = False
        self._fetch = False
        self._urgent = False
        self._reasons: dict[str, None] = {}
        self._closed = False

    def agent(self, key: AgentKey, reason: str) -> None:
        """Something happened to one agent."""
        with self._changed:
            self._agents.add(key)
            self._wake(reason)

    def fetch(self, reason: str, *, urgent: bool = False) -> None:
        """The source may have moved; ``urgent`` when it certainly has, so that a running pass makes way."""
        with self._changed:
            self._fetch = True
            self._urgent = self._urgent or urgent
            self._wake(reason)

    def news(self, reason: str) -> None:
        """The source said something new: look at what it changes."""
        with self._changed:
            self._wake(reason)

    def everything(self, reason: str, *, urgent: bool = False) -> None:
        """Look at the whole fleet; ``urgent`` when a running pass should make way (an operator said stop)."""
        with self._changed:
            self._everything = True
            self._urgent = self._urgent or urgent
            self._wake(reason)

    def close(self) -> None:
        """No more passes: the reader wakes up and gets None from now on."""
        with self._changed:
            self._closed = True
            self._wake("close")

    @property
    def closed(self) -> bool:
        """Whether the end was asked for."""
        return self._closed

    @property
    def depth(self) -> int:
        """How many agents and wishes wait for the next pass; asked without a lock, so that nobody waits."""
        return len(self._agents) + self._everything + self._fetch

    def is_urgent(self) -> bool:
        """Whether a running pass should make way at the next safe point."""
        return self._urgent or self._closed

    def take(self, timeout: float | None) -> Request | None:
        """Everything asked for so far; None after the timeout, or once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._reasons or self._closed, timeout)
            if self._closed or not self._reasons:
                return None
            scope: Scope = None if self._everything else frozenset(self._agents)
            request = Request(scope, self._fetch, tuple(self._reasons))
            self._agents = set()
            self._everything = self._fetch = self._urgent = False
            self._reasons = {}
            return request

    def _wake(self, reason: str) -> None:
        self._reasons[reason] = None
        self._changed.notify_all()
