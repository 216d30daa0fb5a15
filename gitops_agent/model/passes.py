"""One pass as values: what asked for it, what its stages found and did, and what it ended with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gitops_agent.model.control import EVERYTHING, Control, frozen_scopes
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.key import Scope as Scope
from gitops_agent.model.observation import Observation
from gitops_agent.model.outcome import Outcome, Result
from gitops_agent.model.pace import Now as Now
from gitops_agent.model.plan import Action, Decision, Plan
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.state import State
from gitops_agent.model.status import Health, Phase

Executed = tuple[Action, Outcome]


@dataclass(frozen=True, slots=True)
class Request:
    """One pass to run: over some agents or (None) all, asking the remote first or not, on whose account."""

    scope: Scope = None
    fetch: bool = True
    actor: str = "once"
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceResult:
    """What the source gives a pass. ``target``: what the newest commit asks for that may be followed.
    ``in_force``: the spec each agent follows before this pass. ``changed``: the agents for which the two differ.
    ``policy``: that of the newest valid commit: a freeze that Git asked for holds while its own commit is still on
    the way, and whatever is pushed on top of it. ``unavailable``: why the source could not be asked or read, with
    ``retry_after`` seconds if it named them."""

    head: Revision | None = None
    target: Snapshot | None = None
    in_force: Snapshot | None = None
    changed: frozenset[AgentKey] = frozenset()
    policy: PolicySpec | None = None
    unavailable: Finding | None = None
    retry_after: float | None = None

    @property
    def desired(self) -> Snapshot | None:
        """The furthest there is to look at."""
        return self.target or self.in_force


@dataclass(frozen=True, slots=True)
class Approval:
    """One approval of a plan: its digest, by which person, where (cli, note, trailer) and when we first saw it.
    ``commit`` carries the trailer or the note; "" for the command line. ``stated_in``: the commit whose author
    gave it; of a note, one of the notes."""

    digest: str
    by: str
    where: str
    at: float = 0.0
    commit: str = ""
    stated_in: str = ""


@dataclass(frozen=True, slots=True)
class Directives:
    """The freezes and approvals in force. ``approved`` holds the digests of actions still to be done;
    ``approvals``: the approver of each plan; ``open_actions``: for each approved plan on record, the digests of
    its actions still to be done; ``all_approved`` those of all its actions, done or not. ``findings`` say which
    approvals do not count, and why."""

    freezes: tuple[Control, ...] = ()
    approved: frozenset[str] = frozenset()
    approvals: tuple[Approval, ...] = ()
    open_actions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    all_approved: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()

    def ends_in(self, wall: float) -> float | None:
        """Seconds until the first freeze ends by itself; None when none does."""
        return min((max(0.0, each.until - wall) for each in self.freezes if each.until is not None), default=None)


@dataclass(frozen=True)
class Observed:
    """What was seen, which drivers were unreachable, and which resources a driver that answered could not look at,
    with the reasons. Nothing may be concluded about what could not be looked at: not that it is there, not that it
    is gone."""

    seen: Mapping[ResourceKey, Observation]
    unreachable: Mapping[str, str]
    unseen: Mapping[ResourceKey, str] = field(default_factory=dict)

    @property
    def is_partial(self) -> bool:
        """Whether something could not be looked at."""
        return bool(self.unreachable or self.unseen)

    @cached_property
    def unseen_agents(self) -> frozenset[AgentKey]:
        """The agents of which something could not be looked at, though its driver answered."""
        return frozenset(key.agent for key in self.unseen)


@dataclass(frozen=True, slots=True)
class Live:
    """What one observation of the live systems gave, how healthy it is, and how much of the fleet it covered.
    ``unanswered``: the agents of which a probe was asked and has not answered once."""

    observed: Observed
    health: Mapping[AgentKey, Health]
    scope: Scope
    unanswered: frozenset[AgentKey] = frozenset()


@dataclass(frozen=True, slots=True)
class RolloutDecision:
    """What the rollout stage decided. ``in_force``: the spec each agent follows now, under the newest valid
    policy. ``earlier_policy``: that of the last commit that converged, or of the one in force while none did;
    ``policy``: the stricter of the two. ``blocked``: the candidate plan of a newest commit that a guard stops.
    ``released``: the agents that follow the newest commit from this pass on. ``overdue_since``: the
    ``passed_at`` of a rollout whose next wave was due in this pass, and did not go. ``explained``: the codes of
    absences that are not the agent's own doing."""

    in_force: Snapshot
    policy: PolicySpec
    earlier_policy: PolicySpec | None = None
    blocked: Plan | None = None
    released: frozenset[AgentKey] = frozenset()
    overdue_since: float | None = None
    explained: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ProposalProgress:
    """How the commits that we push get on. ``reverting``: a revert is on its way; ``reverted``: one just ended,
    so that the source has something new. ``wait``: seconds until a proposal is due, if one is."""

    reverting: bool = False
    reverted: bool = False
    wait: float | None = None


@dataclass(frozen=True)
class PassRecord:
    """Everything one pass saw, decided and did. ``running``: actions that are still under way. ``changed``: how
    many agents were changed so far for the commit of the plan, asked only while that is open."""

    source: SourceResult
    decision: RolloutDecision
    directives: Directives
    plan: Plan
    executed: Sequence[Executed]
    live: Live
    running: tuple[Action, ...] = ()
    changed: Callable[[], int] = lambda: 0

    @property
    def snapshot(self) -> Snapshot:
        """The spec that was in force."""
        return self.decision.in_force

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

    @cached_property
    def frozen(self) -> frozenset[AgentKey]:
        """The agents of which a freeze holds something, or a guard that has just asked for one."""
        stops = (each for each in self.plan.verdicts if each.guard == "freeze" or each.freeze)
        return frozenset(key.agent for verdict in stops for key in verdict.held)

    def held_by(self, *guards: str) -> frozenset[AgentKey]:
        """The agents some of these guards hold something of."""
        return frozenset(key.agent for v in self.plan.verdicts if v.guard in guards for key in v.held)


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a pass ended with. ``wait``: seconds until there is something to do, if known. ``busy``: some agent is
    on its way. ``frozen``: a freeze holds work back. ``source_changed``: a commit of ours was just pushed.
    ``record``: what the pass saw and did; None when nothing is desired yet."""

    state: State
    findings: tuple[Finding, ...] = ()
    unavailable: bool = False
    retry_after: float | None = None
    busy: bool = False
    frozen: bool = False
    wait: float | None = None
    source_changed: bool = False
    record: PassRecord | None = None

    @property
    def phase(self) -> Phase | None:
        """The phase of the newest commit seen."""
        return self.state.head.phase if self.state.head is not None else None

    @property
    def standing(self) -> Phase | None:
        """How the fleet stands under the newest commit now, which may be another matter than its verdict."""
        head = self.state.head
        return head.now.phase if head is not None and head.now is not None else self.phase

    @property
    def executed(self) -> Sequence[Executed]:
        """What was done."""
        return () if self.record is None else self.record.executed


KINDS_OF_SCOPE = ("fleet", "tenant", "agent")


def frozen_kinds(record: PassRecord, now: float) -> tuple[str, ...]:
    """Which kinds of scopes are frozen after a pass, without names: some of ``KINDS_OF_SCOPE``."""
    tripped = (verdict.freeze for verdict in record.plan.verdicts if verdict.freeze)
    scopes = (*frozen_scopes(record.snapshot.policy, record.directives.freezes, now), *tripped)
    kinds = {"fleet" if scope == EVERYTHING else "agent" if "/" in scope else "tenant" for scope in scopes}
    return tuple(kind for kind in KINDS_OF_SCOPE if kind in kinds)


def is_settled(result: PassResult) -> bool:
    """Whether another pass could not change the answer: the commit is terminal or held, no agent is on its way."""
    unread = result.unavailable and result.phase is Phase.PENDING
    held = result.phase is None or result.phase is Phase.BLOCKED or result.phase.terminal or unread
    return held and not result.busy
