"""What we say about agents and commits: conditions, phases and the record of a commit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gitops_agent.model.agent import Lifecycle, Mode, Pause
from gitops_agent.model.finding import Finding
from gitops_agent.model.health import Health as Health
from gitops_agent.model.health import HealthState as HealthState
from gitops_agent.model.health import Progress
from gitops_agent.model.key import AgentKey, ResourceKey

APPROVED_BY = "ApprovedBy"
"""The code of a finding that names the approver of a commit's plan."""


REPEATED_DRIFT = "RepeatedDrift"
"""The reason of an agent whose drift was repaired too often, and waits for its time."""

_AT_A_STOP = (REPEATED_DRIFT, "WaitingForDependency", "LeaseHeld")

OBSERVE_FAILED = "ObserveFailed"
"""The reason of an agent that could not be looked at."""

INHERITED = "Inherited"
"""The cause of a commit that is Degraded only because of agents that were not Ready before it."""


class ConditionType(StrEnum):
    """READY is always there; the others only while true."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    STUCK = "Stuck"
    DRIFTED = "Drifted"
    FROZEN = "Frozen"
    HALTED = "Halted"


@dataclass(frozen=True, slots=True)
class Condition:
    """One statement about an agent, with the moment it last changed."""

    type: ConditionType
    status: bool
    reason: str
    message: str
    last_transition_at: float
    observed_commit: str


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """One resource in status output."""

    key: ResourceKey
    driver: str
    state: str
    health: str
    live: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """One agent in status output. ``next_try_at`` is set while something waits to be tried again. ``pause``: the
    one in force. ``failing_since``: the commit in force when it last stopped being Ready; "" while it is.
    ``behind_at``: while what ``observed_commit`` asks of it waits, the commit last applied to it ("": none)."""

    agent: AgentKey
    ready: bool
    lifecycle: Lifecycle
    conditions: tuple[Condition, ...]
    observed_commit: str
    resources: tuple[ResourceStatus, ...] = ()
    origin: str = ""
    next_try_at: float | None = None
    mode: Mode = Mode.ENFORCE
    pause: Pause | None = None
    failing_since: str = ""
    progress: tuple[Progress, ...] = ()
    behind_at: str | None = None

    @property
    def applied_commit(self) -> str:
        """The commit that it runs; "" while nothing of it was ever applied."""
        return self.observed_commit if self.behind_at is None else self.behind_at

    @property
    def is_hands_off(self) -> bool:
        """Whether its document asks us not to act on it for now."""
        return self.pause is not None or self.mode is Mode.OBSERVE

    @property
    def is_on_its_way(self) -> bool:
        """Whether it becomes as desired by itself: without people, and without others that would come first."""
        moving = self.find(ConditionType.RECONCILING)
        return moving is not None and moving.reason not in _AT_A_STOP and not self.is_hands_off

    @property
    def is_out_of_sight(self) -> bool:
        """Whether something of it could not be looked at."""
        return any(each.reason == OBSERVE_FAILED for each in self.conditions if each.type is ConditionType.READY)

    def find(self, kind: ConditionType) -> Condition | None:
        """A condition, if it is there."""
        return next((condition for condition in self.conditions if condition.type is kind), None)

    def has(self, kind: ConditionType) -> bool:
        """Whether a condition is there."""
        return any(condition.type is kind for condition in self.conditions)


class Phase(StrEnum):
    """Where a commit stands."""

    PENDING = "Pending"
    RECONCILING = "Reconciling"
    BLOCKED = "Blocked"
    CONVERGED = "Converged"
    DEGRADED = "Degraded"
    INVALID = "Invalid"
    REFUSED = "Refused"
    SUPERSEDED = "Superseded"

    @property
    def terminal(self) -> bool:
        """Whether the phase can no longer change. BLOCKED can: it waits for people."""
        return self not in (Phase.PENDING, Phase.RECONCILING, Phase.BLOCKED)


@dataclass(frozen=True, slots=True)
class Standing:
    """How the fleet stands under the newest commit now, which may be another matter than its verdict.
    ``ready`` counts the agents whose condition Ready is true, ``on_their_way`` those that become so by themselves:
    on the record as of when it was written, in ``State.standing`` as of now. ``cause``: who or what is in the way,
    for people; "" when nothing is. ``frozen``: the scopes of the freezes in force."""

    phase: Phase
    since: float
    ready: int
    total: int
    cause: str = ""
    frozen: tuple[str, ...] = ()
    on_their_way: int = 0


class EventKind(StrEnum):
    """What happened to the fleet after the verdict on its newest commit."""

    REPAIRED = "Repaired"
    HELD = "Held"
    FROZEN = "Frozen"
    THAWED = "Thawed"
    DIED = "Died"
    RECOVERED = "Recovered"


@dataclass(frozen=True, slots=True)
class CommitEvent:
    """One thing that happened after the verdict. ``subject``: an agent, or the scope of a freeze."""

    at: float
    kind: EventKind
    subject: str
    text: str = ""


MAX_EVENTS = 20
"""How many events after the verdict a record keeps, newest first."""


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """What we know of one commit of the branch: the content of its note.
    ``phase`` is the verdict, ``cause`` the code of why it is Degraded, where there is one; ``now``: how the fleet
    stands, on the newest commit alone, once its verdict is known; ``since_verdict``: what happened since, newest
    first. ``changed``: how many agents were changed for it, whatever it asks for. ``reverts``: what it reverts."""

    sha: str
    tree: str
    subject: str
    author: str
    committed_at: float
    position: int  # order in which the branch brought them; newest highest
    phase: Phase
    seen_at: float
    started_at: float | None = None
    finished_at: float | None = None
    plan: str = ""
    summary: str = ""
    changed: int = 0
    agents: int = 0
    rolls_back_to: str | None = None
    rolled_back_by: str | None = None
    findings: tuple[Finding, ...] = ()
    cause: str = ""
    reverts: tuple[str, ...] = ()
    now: Standing | None = None
    since_verdict: tuple[CommitEvent, ...] = ()

    @property
    def is_in(self) -> bool:
        """Whether all that it asks for is done and Ready: Converged, or Degraded by what it inherited alone."""
        return self.phase is Phase.CONVERGED or (self.phase is Phase.DEGRADED and self.cause == INHERITED)
