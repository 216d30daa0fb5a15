"""WorkQueue: requests for passes, merged while one is running; triggers never queue up behind each other."""

import threading
from collections.abc import Callable

from gitops_agent.model.key import AgentKey
from gitops_agent.model.passes import Request


class WorkQueue:
    """Collects requests from poll, watch, resync and exits; one reader takes them all at once.
    ``on_agent`` is called with the agent of each event of a driver; ``on_close`` when the end was asked for."""

    def __init__(self) -> None:
        self.on_agent: Callable[[AgentKey], None] = lambda _key: None
        self.on_close: Callable[[], None] = lambda: None
        self._changed = threading.Condition()
        self._agents: set[AgentKey] = set()
        self._everything = False
        self._fetch = False
        self._urgent = False
        self._reasons: dict[str, None] = {}
        self._closed = False

    def agent(self, key: AgentKey, reason: str) -> None:
        """Ask for a pass over one agent."""
        with self._changed:
            self._agents.add(key)
            self._wake(reason)
        self.on_agent(key)

    def probed(self, key: AgentKey) -> None:
        """Ask for a pass over an agent of which a probe has news. No event of a driver, so none is counted."""
        with self._changed:
            self._agents.add(key)
            self._wake("probe")

    def fetch(self, reason: str, *, urgent: bool = False) -> None:
        """Ask for a fetch; ``urgent`` when the source certainly moved, so that a running pass makes way."""
        with self._changed:
            self._fetch = True
            self._urgent = self._urgent or urgent
            self._wake(reason)

    def source_changed(self, reason: str) -> None:
        """Ask for a pass over what the source's new answer changes."""
        with self._changed:
            self._wake(reason)

    def everything(self, reason: str, *, urgent: bool = False) -> None:
        """Ask for a pass over the whole fleet; ``urgent``: a running pass makes way (an operator's freeze)."""
        with self._changed:
            self._everything = True
            self._urgent = self._urgent or urgent
            self._wake(reason)

    def close(self) -> None:
        """Ask for the end: the reader wakes up and gets None from now on."""
        with self._changed:
            self._closed = True
            self._wake("close")
        self.on_close()

    @property
    def closed(self) -> bool:
        """Whether the end was asked for."""
        return self._closed

    @property
    def depth(self) -> int:
        """How many agents and requests wait for a pass; read without a lock, so that a scrape never waits."""
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
            scope = None if self._everything else frozenset(self._agents)
            request = Request(scope, self._fetch, reasons=tuple(self._reasons))
            self._agents = set()
            self._everything = self._fetch = self._urgent = False
            self._reasons = {}
            return request

    def _wake(self, reason: str) -> None:
        self._reasons[reason] = None
        self._changed.notify_all()
