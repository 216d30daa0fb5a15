"""Ends: when freezes and pauses end by themselves, and what has to be looked at then. Pure."""

from collections.abc import Iterator

from gitops_agent.model.control import ControlVerb, git_freezes
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.key import Scope
from gitops_agent.model.passes import SourceResult
from gitops_agent.model.quantity import epoch
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.state import State


def next_end(snapshot: Snapshot, wall: float) -> float | None:
    """Seconds until the first freeze or pause that is in Git ends; None when none does."""
    pauses = (agent.pause.until for agent in snapshot.agents.values() if agent.pause is not None)
    ends = [*(until for until in pauses if until is not None), *_freezes(snapshot.policy, wall)]
    return min((until - wall for until in ends if until > wall), default=None)


def ended_since(state: State, source: SourceResult, wall: float) -> Scope:
    """The agents whose pause has ended since the last pass; None (all of them) when a freeze has."""
    last, desired = state.status.last_pass, source.desired
    if last is None or desired is None or wall <= last:
        return frozenset()
    lifted = [each.until for each in state.control.controls if each.verb is ControlVerb.FREEZE and each.until]
    if any(last < until <= wall for until in (*lifted, *_freezes(source.policy or desired.policy, last))):
        return None
    paused = (agent for agent in desired.agents.values() if agent.pause is not None)
    return frozenset(
        each.key for each in paused if each.pause and each.pause.until and last < each.pause.until <= wall
    )


def _freezes(policy: PolicySpec, wall: float) -> Iterator[float]:
    return (epoch(freeze.until) for _, freeze in git_freezes(policy, wall) if freeze.until is not None)
