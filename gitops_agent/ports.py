"""The Protocols between stages. Reading and writing are different ones, so that ``plan`` cannot write."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol

from gitops_agent.model.agent import Resource
from gitops_agent.model.control import Control
from gitops_agent.model.fields import Fields
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base, Evidence, Observation
from gitops_agent.model.outcome import Attempt, Intent, Outcome
from gitops_agent.model.plan import Action, Plan
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.status import AgentStatus, CommitRecord

Scope = frozenset[AgentKey] | None
"""Which agents a pass looks at: some, or (None) all of them."""

Claims = Mapping[ResourceKey, Resource]
"""What is desired and was never applied, as far as our record knows: something foreign may stand in its place."""

NO_CLAIMS: Claims = MappingProxyType({})


class Clock(Protocol):
    """Time, as an argument."""

    def now(self) -> float:
        """Seconds since the epoch (may jump)."""

    def monotonic(self) -> float:
        """Seconds that never go back."""


class Source(Protocol):
    """The Git repository, read side. Never a work tree."""

    def refresh(self) -> Revision:
        """Ask the remote and fetch if it moved; the head of the tracked branch.

        SourceUnavailable when it does not answer, SourceRefused when the answer is not acceptable.
        """

    def revision(self, ref: str) -> Revision:
        """One commit by sha or ref; SourceRefused when there is none."""

    def between(self, old: str | None, new: str) -> tuple[Revision, ...]:
        """The commits reachable from new and not from old, oldest first (old None: only new)."""

    def history(self, sha: str, limit: int) -> tuple[Revision, ...]:
        """A commit and its ancestors, newest first."""

    def is_ancestor(self, old: str, new: str) -> bool:
        """Whether new contains old: if not, the branch was rewritten."""

    def undoes(self, later: str, earlier: str) -> bool:
        """Whether the difference a commit makes is the inverse of that of an earlier one (below the path)."""


class NoteStore(Protocol):
    """Notes on commits, kept on one ref of the mirror that only this instance writes."""

    def write(self, notes: Mapping[str, str]) -> None:
        """Set the notes of some commits (sha to text) in the mirror; local, atomic."""

    def push(self) -> None:
        """Send the ref to the remote, merging what is there; SourceUnavailable when it cannot be."""


class HistoryWriter(Protocol):
    """New commits on top of the branch, made without a work tree."""

    def revert(self, shas: Sequence[str], message: str) -> str:
        """A commit on the head that undoes these (newest first, merges by first parent); its sha.

        SourceRefused, naming the paths, when they do not revert cleanly.
        """

    def restore(self, to: str, message: str) -> str:
        """A commit on the head whose tree below the path is exactly that of ``to``; its sha."""

    def check_push(self, branch: str) -> None:
        """SourceRefused, with a way out, when it is known beforehand that the remote takes no push to a branch."""

    def push(self, sha: str, branch: str) -> None:
        """Send a commit to a branch of the remote, fast-forward only."""


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
class Entry:
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


class JournalReader(Protocol):
    """The read side of the journal; safe to use while a daemon writes."""

    def bases(self) -> Mapping[ResourceKey, Base]:
        """What we last applied, for every resource (a live view: do not keep it across writes)."""

    def attempts(self) -> Mapping[ResourceKey, Attempt]:
        """The retry state of the resources that failed."""

    def open_intents(self) -> Sequence[Intent]:
        """Intents without an outcome."""

    def statuses(self, agents: Collection[AgentKey] | None = None) -> Mapping[AgentKey, AgentStatus]:
        """The last reported status of some agents, or of all."""

    def commit(self, sha: str) -> CommitRecord | None:
        """The record of one commit."""

    def commits(self, limit: int | None = None) -> Sequence[CommitRecord]:
        """Records of commits, newest first."""

    def get(self, name: str) -> str | None:
        """A named value: ``head`` (newest seen sha), ``enforced`` (last good), ``last_pass``, ``last_fetch``."""

    def controls(self) -> Sequence[Control]:
        """What operators and guards said (freeze, unfreeze, approve, retry), oldest first."""

    def last_control(self) -> int:
        """The number of the newest control, 0 when there is none: cheap, for whoever waits for news."""

    def planned(self, digest: str) -> frozenset[str]:
        """The digests of the actions of a plan on record; empty when there is none."""

    def carried_out(self, digest: str, since: float) -> frozenset[str]:
        """The digests of the actions of a plan that were done since a moment."""

    def recently_repaired(self, since: float) -> Sequence[tuple[Action, float]]:
        """The newest actions against drift that were done since a moment, and when."""

    def repairs(self, key: ResourceKey, since: float) -> Sequence[float]:
        """When drift of a resource was repaired since a moment."""

    def observations(self, agent: AgentKey, *, limit: int = 100) -> Sequence[Observation]:
        """What was seen of an agent each time it changed, newest first."""

    def entries(
        self, *, agent: AgentKey | None = None, commit: str | None = None, limit: int = 100
    ) -> Sequence[Entry]:
        """Executed actions, newest first."""


class Journal(JournalReader, Protocol):
    """The write side. Every method is one durable transaction."""

    def control(self, control: Control) -> None:
        """Write down what an operator or a guard said; the only write allowed beside a running daemon."""

    def put(self, values: Mapping[str, str | None]) -> None:
        """Set named values; None removes one."""

    def put_commits(self, records: Sequence[CommitRecord]) -> None:
        """Insert or replace the records of commits."""

    def record_plan(self, plan: Plan, at: float) -> None:
        """Keep the decisions of a plan (once per digest and commit)."""

    def record_observations(self, observations: Sequence[Observation]) -> None:
        """Keep observations that differ from the last one of the same resource."""

    def begin(self, intents: Sequence[Intent]) -> None:
        """Write intents, before any of their effects."""

    def finish(
        self,
        outcomes: Sequence[Outcome],
        *,
        bases: Sequence[Base] = (),
        forgotten: Sequence[ResourceKey] = (),
        attempts: Mapping[ResourceKey, Attempt | None] | None = None,
    ) -> None:
        """Write outcomes together with the bases and retry states they imply, in one transaction."""

    def put_statuses(self, changed: Sequence[AgentStatus], removed: Sequence[AgentKey] = ()) -> None:
        """Write the statuses that changed."""

    def prune(self, before: float) -> int:
        """Retention: drop observations, decisions and finished intents older than a moment."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a sink is told after a pass: the commits whose record changed, and the state of the fleet."""

    instance: str
    commits: tuple[CommitRecord, ...]
    statuses: Mapping[AgentKey, AgentStatus]
    entries: Mapping[str, Sequence[Entry]]  # by commit sha


class Sink(Protocol):
    """Somewhere reports go. A sink queues and retries by itself and never fails a pass."""

    def publish(self, report: Report) -> None:
        """Take a report; return quickly."""

    def flush(self, timeout: float) -> bool:
        """Write what is queued; whether all of it was written."""


@dataclass(frozen=True, slots=True)
class Approval:
    """Somebody approved a plan: its digest, who, where it was said (cli, note, trailer) and when.

    ``commit`` is the one that carries the trailer or the note; "" for what was said on the command line.
    """

    digest: str
    by: str
    where: str
    at: float = 0.0
    commit: str = ""


class Approvals(Protocol):
    """Approvals given through Git alone. Never raises: what cannot be read approves nothing."""

    def since(self, enforced: str | None, head: Revision) -> Sequence[Approval]:
        """Valid approvals among the commits after the enforced one, and in the notes on them."""

    def objections(self, enforced: str | None, head: Revision) -> Sequence[Finding]:
        """What was said there and does not count: a warning for each, with the reason."""


class Leases(Protocol):
    """One reconciler at a time acts on an agent. A lease lives with the live system, not with our journal."""

    def claim(self, agents: Mapping[AgentKey, Collection[str]]) -> Mapping[AgentKey, str]:
        """Take or keep the leases of some agents, each with the drivers that would act on it; for those that
        another reconciler holds, which one, in a sentence."""

    def holds(self, agent: AgentKey) -> bool:
        """Whether our lease still stands (the fence): asked again right before a driver is called."""
