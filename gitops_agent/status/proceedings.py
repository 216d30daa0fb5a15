"""PassRecord: everything one pass saw, decided and did, and what it ended with. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from gitops_agent.control.directives import NO_DIRECTIVES, Order
from gitops_agent.model.circuit import Circuit
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.outcome import Outcome, Result
from gitops_agent.model.plan import Action, Decision, Plan
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.status import AgentStatus, CommitRecord, Health, Phase
from gitops_agent.observe import Observed
from gitops_agent.plan.reasons import Hold, ReasonCode
from gitops_agent.ports import Scope
from gitops_agent.source.tracker import Intake


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the live systems gave, and how much of the fleet it covered."""

    observed: Observed
    health: Mapping[AgentKey, Health]
    scope: Scope


@dataclass(frozen=True)
class PassRecord:
    """One pass. ``snapshot`` is what was in force; ``blocked`` is the whole plan of a newest commit that a guard
    stops; ``rollout`` is how far the newest commit had got. ``busy``: actions that are still under way.
    """

    intake: Intake
    snapshot: Snapshot
    plan: Plan
    blocked: Plan | None
    executed: Sequence[tuple[Action, Outcome]]
    look: Look
    busy: tuple[Action, ...] = ()
    rollout: Rollout | None = None
    order: Order = NO_DIRECTIVES
    circuits: Mapping[str, Circuit] = field(default_factory=dict)

    @property
    def halted(self) -> bool:
        """Whether a failed gate holds back the waves that have not come."""
        target = self.intake.target
        mine = self.rollout is not None and target is not None and self.rollout.commit == target.revision.sha
        return mine and bool(self.rollout and self.rollout.failed)

    @cached_property
    def done(self) -> frozenset[ResourceKey]:
        """The resources on which an action succeeded."""
        return frozenset(action.key for action, outcome in self.executed if outcome.result is Result.DONE)

    @cached_property
    def pending(self) -> tuple[Action, ...]:
        """The actions still to be done: held, failed, or not for us to decide. What Git may follow is none."""
        return tuple(
            action
            for action in self.plan.actions
            if action.key not in self.done and action.decision is not Decision.IMPORT
        )

    @property
    def held_for_people(self) -> frozenset[AgentKey]:
        """The agents of which something is held that only people release."""
        return frozenset(key.agent for v in self.plan.verdicts if v.for_people for key in v.held)

    def held_by(self, *guards: str) -> frozenset[AgentKey]:
        """The agents some of these guards hold something of."""
        return frozenset(key.agent for v in self.plan.verdicts if v.guard in guards for key in v.held)


_OF_A_PASS = frozenset(map(str, (*ReasonCode, *Hold)))


def lasting(record: CommitRecord) -> tuple[Finding, ...]:
    """What the record of a commit says that holds whatever a later pass finds.

    What a plan said of an agent (``tenant/name…``) was true at that time; the last pass is right now.
    """
    if record.phase in (Phase.INVALID, Phase.REFUSED):
        return record.findings
    return tuple(each for each in record.findings if "/" not in each.address or each.code not in _OF_A_PASS)


class Witness(Protocol):
    """Somebody who looks at every pass before it is closed. Returns at once."""

    def witness(self, pass_: PassRecord) -> tuple[Finding, ...]:
        """What there is to say besides what the pass says itself."""

    def next_due(self) -> float | None:
        """Seconds until there should be another pass, if known."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a pass ended with. ``wait`` is how many seconds until there is something to do, if known.

    ``busy``: some agent is on its way. ``frozen``: a freeze holds work back. ``moved``: we push a revert, or just
    did, so the source has news. ``rollout``: how far the newest commit has got.
    """

    commit: str | None
    enforced: str | None
    record: CommitRecord | None
    statuses: Mapping[AgentKey, AgentStatus]
    findings: tuple[Finding, ...]
    plan: Plan | None = None
    executed: Sequence[tuple[Action, Outcome]] = ()
    unavailable: bool = False
    retry_after: float | None = None
    busy: bool = False
    frozen: bool = False
    wait: float | None = None
    moved: bool = False
    rollout: Rollout | None = None
    proceedings: PassRecord | None = None

    def no_later_than(self, seconds: float | None) -> PassResult:
        """The same result, with something to do in so many seconds at the latest."""
        if seconds is None or (self.wait is not None and self.wait <= seconds):
            return self
        return replace(self, wait=seconds)

    @property
    def phase(self) -> Phase | None:
        """The phase of the newest commit."""
        return self.record.phase if self.record else None
