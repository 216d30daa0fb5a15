"""The Protocols between stages that may not import each other, and the values on record that they share."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Evidence, Observation
from gitops_agent.model.plan import Action
from gitops_agent.model.status import AgentStatus, CommitRecord

if TYPE_CHECKING:  # what no value on record holds; verbs that only read do without it
    from gitops_agent.model.passes import PassResult
    from gitops_agent.model.state import State


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

    def changed(self, old_sha: str, new_sha: str) -> Sequence[TreeEntry]:
        """What differs below the path: the new entries; the blob of one that is gone is ""."""

    def blobs(self, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """The contents of blobs, each id once."""


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
class PlanRecord:
    """One plan on record. ``waiting``: how many of its actions a guard held or people are asked about."""

    digest: str
    commit: str
    at: float
    actions: int
    waiting: int
    agents: int = 0


class JournalReader(Protocol):
    """The read side of the journal; safe to use while a daemon writes."""

    def state(self) -> State:
        """The state as last committed, with the controls that other processes have added since.
        Cheap: it is kept in memory, and bases, retry states, statuses, records of commits and open intents are
        read when they are first looked at. A read-only journal follows all that other processes commit."""

    def commit_record(self, sha: str) -> CommitRecord | None:
        """The record of one commit, also of one that ``state().commits`` no longer holds."""

    def commits(
        self, limit: int | None = None, *, tree: str | None = None, sha: str = ""
    ) -> Sequence[CommitRecord]:
        """Records of commits, newest first: all, those of one tree, those whose sha begins so."""

    def owed(self) -> Mapping[str, Mapping[str, int]]:
        """What sinks have not delivered: by the name of the sink, the shas of commits and the newest versions."""

    def entries(
        self, *, agent: AgentKey | None = None, commit: str | None = None, limit: int = 100
    ) -> Sequence[ActionRecord]:
        """Executed actions, newest first."""

    def changed_agents(self, commit: str) -> int:
        """How many agents were changed for a commit."""

    def plans(self, digest: str = "", commits: Collection[str] | None = None) -> Sequence[PlanRecord]:
        """The plans on record whose digest begins so, of some commits or of all, newest first."""

    def planned(self, digest: str) -> frozenset[str]:
        """The digests of the actions of a plan on record; empty when there is none."""

    def carried_out(self, digest: str, since: float) -> frozenset[str]:
        """The digests of the actions of a plan that were done since a moment."""

    def recently_repaired(self, since: float) -> Sequence[tuple[Action, float]]:
        """The newest actions against drift that were done since a moment, and when."""

    def repairs(self, key: ResourceKey, since: float) -> Sequence[float]:
        """When drift of a resource was repaired since a moment. What recovery settled is not counted."""

    def observations(self, agent: AgentKey, *, limit: int = 100) -> Sequence[Observation]:
        """What was seen of an agent each time it changed, newest first."""


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
