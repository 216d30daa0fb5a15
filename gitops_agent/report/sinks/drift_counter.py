"""Counts drift from pass to pass: which deviations began and were repaired, which come back, which no event
announced.

A deviation is one resource with one class of drift. It begins when a pass finds it and is open until a pass that
observed it no longer does, or until it is repaired; found again after that, it is another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.outcome import Result
from gitops_agent.model.passes import Live, PassRecord, Scope
from gitops_agent.model.plan import Action, Class

_REPEAT_WINDOW_SECONDS = 3600.0  # deviations longer ago than this do not count as repeated
_MAX_REMEMBERED = 10_000  # deviations: beyond that the oldest are forgotten, whatever the window says
_LATE_EVENT_SECONDS = 5.0  # that an event may come after the observation that found its cause


@dataclass(frozen=True, slots=True)
class DriftCounter:
    """What the last pass added: deviations that began, repairs that were done; and all deviations that are open,
    each with the action that was decided when it began. Frozen."""

    began: tuple[Action, ...] = ()
    repaired: tuple[Action, ...] = ()
    open: Mapping[tuple[ResourceKey, Class], Action] = field(default_factory=dict)

    def after(self, record: PassRecord) -> DriftCounter:
        """The counter after one more pass."""
        actions = record.plan.actions
        found = {_name(action): action for action in actions if action.drift_class.is_drift}
        done = [a for a, outcome in record.executed if outcome.result is Result.DONE and a.drift_class.is_drift]
        planned = {id(action) for action in actions}
        # An action that this pass did not plan was begun by an earlier one: what is found again happened again.
        earlier = {_name(action) for action in done if id(action) not in planned}
        now = {_name(action) for action in done} - earlier
        before = {name: action for name, action in self.open.items() if name not in earlier}
        began = tuple(action for name, action in found.items() if name not in before)
        # Nothing is known of agents that an action is under way for.
        busy = {action.key.agent for action in record.running}
        kept = {
            name: action
            for name, action in before.items()
            if name in found or action.key.agent in busy or not _covers(record.live, action)
        }
        still = {name: action for name, action in {**found, **kept}.items() if name not in now}
        return DriftCounter(began, tuple(done), still)


def _covers(live: Live, action: Action) -> bool:
    """Whether an observation would have found a deviation again that was open before."""
    observed = live.scope is None or action.key.agent in live.scope
    hidden = action.driver in live.observed.unreachable or action.key in live.observed.unseen
    return observed and not hidden


def _name(action: Action) -> tuple[ResourceKey, Class]:
    return action.key, action.drift_class


class RepeatRate:
    """The share of recent drift that hit what had drifted before. Time is an argument. Written by passes and read
    by scrapes without a lock: a reader takes a copy in one operation."""

    def __init__(self, window: float = _REPEAT_WINDOW_SECONDS, remembered: int = _MAX_REMEMBERED) -> None:
        self._window = window
        self._seen: deque[tuple[float, ResourceKey]] = deque(maxlen=remembered)

    def began(self, keys: Iterable[ResourceKey], now: float) -> None:
        """Add resources that began to deviate."""
        self._seen.extend((now, key) for key in keys)

    def rate(self, now: float) -> float:
        """The share of deviations within the window that were not the first of their resource in it."""
        recent = [key for at, key in list(self._seen) if now - at <= self._window]
        return 1.0 - len(set(recent)) / len(recent) if recent else 0.0


class UnannouncedChanges:
    """Counts live changes that no event announced. Time is monotonic, and an argument.
    An event and the observation that finds its cause race each other, so a change counts only when no event
    about its agent came since the observation before, nor shortly after. Written by watchers and passes and read
    by scrapes without a lock: every step is one operation on a dictionary or replaces a value whole."""

    def __init__(self) -> None:
        self._events: dict[AgentKey, float] = {}
        self._open: tuple[tuple[AgentKey, float], ...] = ()
        self._settled = 0

    def event_seen(self, agent: AgentKey, now: float) -> None:
        """Note an event about an agent."""
        self._events[agent] = now

    def change_found(self, changed: Iterable[AgentKey], scope: Scope, since: float, now: float) -> None:
        """Note live changes that a pass found which began at ``since`` and observed the scope."""
        waiting = [(agent, at) for agent, at in self._open if agent not in self._events]
        self._open = tuple((agent, at) for agent, at in waiting if now - at <= _LATE_EVENT_SECONDS)
        self._settled += len(waiting) - len(self._open)
        self._open += tuple((agent, now) for agent in changed if agent not in self._events)
        # What was announced before this pass began is accounted for by it.
        for agent, at in list(self._events.items()):
            if at < since and (scope is None or agent in scope):
                self._events.pop(agent, None)

    def count(self, now: float) -> int:
        """How many changes no event announced."""
        late = (agent not in self._events and now - at > _LATE_EVENT_SECONDS for agent, at in self._open)
        return self._settled + sum(late)
