"""What is in force, in numbers and without names: kinds of frozen scopes, waves of a rollout. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gitops_agent.model.control import EVERYTHING
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.freezes import git_freezes
from gitops_agent.model.rollout import Rollout


def frozen_scopes(policy: PolicySpec, others: Iterable[str], now: float) -> frozenset[str]:
    """Whether the fleet, some tenant, some agent is frozen: by the policy, or by these other scopes."""
    return frozenset(map(_kind, (*(scope for scope, _ in git_freezes(policy, now)), *others)))


def _kind(scope: str) -> str:
    """A scope without names: the whole fleet, a tenant, or one agent."""
    if scope == EVERYTHING:
        return "fleet"
    return "agent" if "/" in scope else "tenant"


def waves(rollout: Rollout | None) -> Mapping[str, int]:
    """How many there are, how many were released, how many a failed gate holds."""
    if rollout is None:
        return {"total": 0, "released": 0, "held": 0}
    total, released = len(rollout.waves), rollout.released
    return {"total": total, "released": released, "held": total - released if rollout.failed else 0}
