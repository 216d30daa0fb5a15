"""UnannouncedChanges: which changes of live nobody told us of. Written by watchers and passes, read by scrapes.

An event and the look that finds its cause race each other, so a change counts as untold only when no event about
its agent came since the agent was looked at before, nor shortly after. No lock: every step is one operation on a
dictionary or replaces a value whole.
"""

from __future__ import annotations

from collections.abc import Iterable

from gitops_agent.model.key import AgentKey
from gitops_agent.ports import Scope

PATIENCE = 5.0
"""Seconds that an event may come after the look that found its cause."""


class UnannouncedChanges:
    """Compares what was found with what was told. Time is monotonic, and an argument."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._heard: dict[AgentKey, float] = {}
        self._open: tuple[tuple[AgentKey, float], ...] = ()
        self._settled = 0

    def hear(self, agent: AgentKey, now: float) -> None:
        """An event about this agent came."""
        self._heard[agent] = now

    def found(self, changed: Iterable[AgentKey], scope: Scope, since: float, now: float) -> None:
        """A pass that began at ``since`` looked at the scope and found live changes of these agents."""
        self._settle(now)
        self._open += tuple((agent, now) for agent in changed if agent not in self._heard)
        # What was said before this look has been answered by it.
        for agent, at in list(self._heard.items()):
            if at < since and (scope is None or agent in scope):
                self._heard.pop(agent, None)

    def count(self, now: float) -> int:
        """How many changes nobody told us of."""
        return self._settled + sum(
            agent not in self._heard and now - at > self._patience for agent, at in self._open
        )

    def _settle(self, now: float) -> None:
        waiting = [(agent, at) for agent, at in self._open if agent not in self._heard]
        self._open = tuple((agent, at) for agent, at in waiting if now - at <= self._patience)
        self._settled += len(waiting) - len(self._open)
