"""DriftCounter: which deviations began, which were repaired, which stand, told from one pass to the next. Pure.

A deviation is one resource with one class of drift. It begins when a pass finds it and stands until a pass that
looked there no longer does, or until it is repaired; found again after that, it is another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.outcome import Outcome, Result
from gitops_agent.model.plan import Action, Class
from gitops_agent.ports import Scope

Deviations = Mapping[tuple[ResourceKey, Class], Action]
"""The deviations that stand, each with the action that was decided when it began."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What one pass says about drift. Nothing is known of ``blind`` drivers and of ``busy`` agents."""

    actions: Sequence[Action]
    executed: Sequence[tuple[Action, Outcome]] = ()
    scope: Scope = None
    unreachable: AbstractSet[str] = frozenset()
    busy: AbstractSet[AgentKey] = frozenset()

    def covers(self, action: Action) -> bool:
        """Whether this pass would have found a deviation again that stood before."""
        agent = action.key.agent
        looked_at = self.scope is None or agent in self.scope
        return looked_at and action.driver not in self.unreachable and agent not in self.busy


@dataclass(frozen=True, slots=True)
class DriftCounter:
    """What a pass adds: deviations that began, repairs that were done, and all that stand after it."""

    began: tuple[Action, ...] = ()
    repaired: tuple[Action, ...] = ()
    standing: Deviations = field(default_factory=dict)


def tally(before: Deviations, sight: Sight) -> DriftCounter:
    """What changed since ``before``."""
    found = {_name(action): action for action in sight.actions if action.drift_class.is_drift}
    done = [
        action
        for action, outcome in sight.executed
        if outcome.result is Result.DONE and action.drift_class.is_drift
    ]
    planned = {id(action) for action in sight.actions}
    # An action that this pass did not plan was begun by an earlier one: what is found again happened again.
    earlier = {_name(action) for action in done if id(action) not in planned}
    now = {_name(action) for action in done} - earlier
    stood = {name: action for name, action in before.items() if name not in earlier}
    began = tuple(action for name, action in found.items() if name not in stood)
    kept = {name: action for name, action in stood.items() if name in found or not sight.covers(action)}
    standing = {name: action for name, action in {**found, **kept}.items() if name not in now}
    return DriftCounter(began, tuple(done), standing)


def by_class(actions: Iterable[Action]) -> dict[Class, int]:
    """How many of each class of drift, those without any included."""
    counted = Counter(action.drift_class for action in actions)
    return {cls: counted[cls] for cls in Class if cls.is_drift}


def _name(action: Action) -> tuple[ResourceKey, Class]:
    return action.key, action.drift_class
