"""What stages know of each other that may not import each other, and the values on record that they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from gitops_agent.model.fields import Fields
    from gitops_agent.model.key import AgentKey, ResourceKey
    from gitops_agent.model.observation import Evidence
    from gitops_agent.model.passes import PassResult
    from gitops_agent.model.plan import Action
    from gitops_agent.model.revision import Revision
    from gitops_agent.model.snapshot import Snapshot
    from gitops_agent.model.status import AgentStatus, CommitRecord


class Clock(Protocol):
    """Time, as an argument."""

    def now(self) -> float:
        """Seconds since the epoch (may jump)."""

    def monotonic(self) -> float:
        """Seconds that never go back."""


class TreeEntry(NamedTuple):
    """One entry of a commit's tree. ``path`` is relative to the instance's path; ``size`` None: not known."""

    mode: str
    type: str
    blob: str
    size: int | None
    path: str


class BlobReader(Protocol):
    """What the snapshot stage needs of the source: names first, contents only of what it asks for."""

    def entries(self, sha: str) -> Sequence[TreeEntry]:
        """Every entry of the commit below the instance's path, folders left out."""

    def changed(self, old_sha: str, new_sha: str) -> Sequence[tuple[str, str | None, str | None, str]]:
        """What differs below the path: path, old blob, new blob (None: not there), new mode."""

    def blobs(self, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """The contents of blobs, each id once."""


class SnapshotLoader(Protocol):
    """Commit in, snapshot out."""

    def load(self, revision: Revision) -> Snapshot:
        """The snapshot of a revision; InvalidDesiredState with every finding otherwise."""


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """One executed action as the journal keeps it: the answer to "what was done and why"."""

    at: float
    intent: str
    key: ResourceKey
    driver: str
    verb: str
    drift_class: str
    reason: str
    message: str
    confidence: str
    actor: str
    commit: str
    plan: str
    before: Fields | None
    after: Fields | None
    result: str | None
    outcome: str
    duration: float | None
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One decision of a plan, executed or not. ``held``: a guard stopped it. The action has no fields of base,
    desired and live."""

    at: float
    plan: str
    commit: str
    held: bool
    action: Action


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """One plan on record. ``waiting``: how many of its actions a guard held or people are asked about."""

    digest: str
    commit: str
    at: float
    actions: int
    waiting: int
    agents: int = 0


class RepairHistory(Protocol):
    """What a plan asks of the journal: how often the same was repaired before."""

    def repairs(self, key: ResourceKey, since: float) -> Sequence[float]:
        """When drift of a resource was repaired since a moment. What recovery settled is not counted."""

    def recently_repaired(self, since: float) -> Sequence[tuple[Action, float]]:
        """The newest actions against drift that were done since a moment, and when."""


@dataclass(frozen=True, slots=True)
class CommitChange:
    """The record of one commit as a sink has not delivered it yet. ``statuses``: those of the fleet when the
    record was written. ``entries``: the newest actions executed for it. ``version``: what the journal owes the
    sink."""

    record: CommitRecord
    statuses: Mapping[AgentKey, AgentStatus]
    entries: Sequence[ActionRecord]
    version: int


class Sink:
    """Somewhere reports go. Subclass it and override what is needed; ``report.outbox`` queues, limits the rate,
    tries again and remembers what was delivered.

    ``name`` is stable: the journal keeps what is owed under it. ``durable``: every changed commit must be
    delivered, also after a restart. ``min_interval_seconds``: the least time between two deliveries. ``complete``:
    False where a delivery cannot be all of it now, so that a later process makes another.
    """

    name: ClassVar[str] = ""
    durable: ClassVar[bool] = False
    min_interval_seconds: ClassVar[float] = 0.0
    complete: bool = True

    def on_pass(self, result: PassResult) -> None:
        """Called after every pass, on its thread; must return at once."""

    def has_work(self) -> bool:
        """Whether there is something to deliver besides changed commits; asked after ``on_pass``."""
        return False

    def deliver(self, changes: Sequence[CommitChange]) -> None:
        """Send these changes, and what else there is; called on the delivery thread, again until it returns.
        SourceUnavailable names the time to wait (``retry_after``). What was sent before may come again."""


class Leases(Protocol):
    """One reconciler at a time acts on an agent. A lease lives with the live system, not with our journal."""

    def claim(self, agents: Mapping[AgentKey, Collection[str]]) -> Mapping[AgentKey, str]:
        """Take or keep the leases of some agents, each with the drivers that would act on it; for those that
        another reconciler holds, which one, in a sentence."""

    def holds(self, agent: AgentKey) -> bool:
        """Whether our lease is still ours (the fence): asked again right before a driver is called."""
