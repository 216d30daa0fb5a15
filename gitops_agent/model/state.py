"""State: what an instance remembers between passes, as one frozen value in parts. Each part has one writer.

A pass reads it once, hands it from stage to stage, and commits what differs at three points. A stage returns the
part it owns and changes no other:

=============  =======================================  ==========================================
part           what it holds                            written by, and only by
=============  =======================================  ==========================================
``source``     heads seen, the source's last answer     ``source.tracker``
``commits``    the newest records of commits            ``source.commits``, ``status.summarize``
``rollout``    which spec each agent follows, and gate  ``rollout``
``reconcile``  bases, retry states, circuits, intents   ``reconcile``
``control``    what operators and guards asked for      ``control``
``status``     statuses of agents, findings             ``status.summarize``
``proposals``  commits that we made and push            ``proposals``
=============  =======================================  ==========================================
"""

from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TypeVar

from gitops_agent.model.control import Control
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey, ResourceKey, Scope
from gitops_agent.model.observation import Base
from gitops_agent.model.outcome import Attempt, Circuit, Intent
from gitops_agent.model.pace import Debt, MassReturn
from gitops_agent.model.rollout import FailedTree, Rollout
from gitops_agent.model.status import AgentStatus, CommitRecord, ConditionType, Standing

K = TypeVar("K")
V = TypeVar("V")

MAX_RECORDS = 500
"""How many records of commits the state holds at most, apart from the ones that others refer to."""


class LazyMap(Mapping[K, V]):
    """A map that is read when it is first looked at, and then has the speed of a dict."""

    def __init__(self, read: Callable[[], Mapping[K, V]]) -> None:
        self._read = read

    @cached_property
    def _known(self) -> Mapping[K, V]:
        return self._read()

    def keys(self) -> KeysView[K]:
        """As of a dict."""
        return self._known.keys()

    def values(self) -> ValuesView[V]:
        """As of a dict."""
        return self._known.values()

    def items(self) -> ItemsView[K, V]:
        """As of a dict."""
        return self._known.items()

    def __getitem__(self, key: K) -> V:
        return self._known[key]

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def __iter__(self) -> Iterator[K]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class Bases(LazyMap[ResourceKey, Base]):
    """What was last applied, by resource; what there is of one agent is found without a look at all of it."""

    @classmethod
    def of(cls, known: Mapping[ResourceKey, Base]) -> "Bases":
        """The same map, with that question answered."""
        return known if isinstance(known, cls) else cls(lambda: known)

    @cached_property
    def _by_agent(self) -> Mapping[AgentKey, frozenset[ResourceKey]]:
        return _by_agent(self._known)

    def within(self, scope: Scope) -> Iterable[ResourceKey]:
        """The resources on record of the agents in a scope (None: of all)."""
        if scope is None:
            return self._known.keys()
        return [key for agent in scope for key in self._by_agent.get(agent, ())]

    def updated(self, changed: Mapping[ResourceKey, Base | None]) -> "Bases":
        """The same with some replaced and some (None) gone; costs what changed, and a copy of two maps."""
        if not changed:
            return self
        known = {**self._known, **{key: base for key, base in changed.items() if base is not None}}
        for key in (key for key, base in changed.items() if base is None):
            known.pop(key, None)
        made = Bases(lambda: known)
        if "_by_agent" in self.__dict__:
            made._by_agent = self._regrouped(changed)
        return made

    def _regrouped(self, changed: Mapping[ResourceKey, Base | None]) -> Mapping[AgentKey, frozenset[ResourceKey]]:
        moved = {key for key, base in changed.items() if (base is None) is (key in self._known)}
        if not moved:
            return self._by_agent
        groups = dict(self._by_agent)
        for agent, keys in _by_agent(moved).items():
            groups[agent] = groups.get(agent, frozenset()) ^ keys
        return groups


def _by_agent(keys: Iterable[ResourceKey]) -> dict[AgentKey, frozenset[ResourceKey]]:
    """Resources by the agent that they belong to."""
    groups: dict[AgentKey, list[ResourceKey]] = {}
    for key in keys:
        groups.setdefault(key.agent, []).append(key)
    return {agent: frozenset(own) for agent, own in groups.items()}


@dataclass(frozen=True, slots=True)
class SourceState:
    """The last answer of the source. ``head``: the newest commit seen. ``verified``: the last head that passed the
    checks. ``valid``: the newest commit whose documents are valid. ``problem``: why the source did not answer when
    it was last asked. ``freezes_first_seen``: when each freeze of the valid policy was first seen, by its scope.
    """

    head: str | None = None
    verified: str | None = None
    valid: str | None = None
    problem: Finding | None = None
    fetched_at: float | None = None
    freezes_first_seen: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CommitsState:
    """The newest records of commits, by sha: back to the last that converged before the head, and whatever these
    roll back. Older ones are in the journal, so that a pass costs the same however long the history is."""

    records: Mapping[str, CommitRecord] = field(default_factory=dict)

    @cached_property
    def newest_first(self) -> tuple[CommitRecord, ...]:
        """The records in the order of the branch, newest first."""
        return tuple(sorted(self.records.values(), key=lambda record: -record.position))

    def converged_before(self, head: str | None) -> CommitRecord | None:
        """The newest commit whose own changes are all in, apart from the head itself."""
        return next((each for each in self.newest_first if each.sha != head and each.is_in), None)

    def updated(self, records: Iterable[CommitRecord]) -> "CommitsState":
        """The same with some records added or replaced."""
        changed = {record.sha: record for record in records if self.records.get(record.sha) != record}
        return CommitsState({**self.records, **changed}) if changed else self


def trimmed(commits: CommitsState, head: str | None) -> CommitsState:
    """The records that a pass needs: back to the last commit that converged before the head, and what these roll
    back; at most ``MAX_RECORDS`` of the newest."""
    converged = commits.converged_before(head)
    newest = commits.newest_first[:MAX_RECORDS]
    kept = {each.sha for each in newest if converged is None or each.position >= converged.position}
    kept |= {sha for sha in (head, converged and converged.sha) if sha and sha in commits.records}
    records = {sha: each for sha, each in commits.records.items() if sha in kept or each.rolled_back_by in kept}
    return commits if len(records) == len(commits.records) else CommitsState(records)


@dataclass(frozen=True, slots=True)
class GivenUpAgent:
    """An agent whose provisioning was given up: at which commit and spec, why, and when (seconds since the
    epoch). ``retried_at``: when a retry had last been asked for by then; a later one gives it another chance."""

    commit: str
    spec: str
    why: str
    at: float
    retried_at: float | None = None


@dataclass(frozen=True, slots=True)
class RolloutState:
    """Which spec is in force for each agent, and how far the newest commit has got.

    ``enforced``: the last commit that every agent follows. ``released``: agents that follow another one, with its
    sha. ``rollout``: the newest rollout, under way, held or done. ``failed_trees``: not tried again by themselves.
    ``converged`` and ``converged_policy``: the last commit whose own changes are all in. ``judged_agents``: those
    that must be Ready before that is so of the newest commit. ``unready_since``, ``final_since`` (that
    waiting does not help) and ``provisioning_since``: in seconds of active time (``model.passes.Now``)."""

    enforced: str | None = None
    released: Mapping[AgentKey, str] = field(default_factory=dict)
    rollout: Rollout | None = None
    failed_trees: tuple[FailedTree, ...] = ()
    converged: str | None = None
    converged_policy: PolicySpec | None = None
    judged_agents: frozenset[AgentKey] = frozenset()
    unready_since: Mapping[AgentKey, float] = field(default_factory=dict)
    provisioning_since: Mapping[AgentKey, float] = field(default_factory=dict)
    given_up: Mapping[AgentKey, GivenUpAgent] = field(default_factory=dict)
    final_since: Mapping[AgentKey, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReconcileState:
    """Our record of the live systems. ``open_intents``, by id: effects that were begun and have no outcome yet.
    ``debts``: what the cap of actions a minute has not paid back. ``returning``: agents that were gone together,
    while they come back."""

    bases: Bases = field(default_factory=lambda: Bases(dict))
    attempts: Mapping[ResourceKey, Attempt] = field(default_factory=dict)
    circuits: Mapping[str, Circuit] = field(default_factory=dict)
    open_intents: Mapping[str, Intent] = field(default_factory=dict)
    debts: Mapping[str, Debt] = field(default_factory=dict)
    returning: MassReturn | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "bases", Bases.of(self.bases))


@dataclass(frozen=True, slots=True)
class ControlState:
    """What operators and guards asked for. ``controls``: append-only, oldest first; operators add to them beside
    a running daemon. ``handled_seq``: the newest one whose retry was carried out. ``retried_at``: when a retry of
    an agent was last asked for. ``approvals_first_seen``: when each approval in Git was first seen, by the commit
    that states it and its digest: what an author dates is up to the author."""

    controls: tuple[Control, ...] = ()
    handled_seq: int = 0
    retried_at: Mapping[AgentKey, float] = field(default_factory=dict)
    approvals_first_seen: Mapping[str, float] = field(default_factory=dict)


_INDEXED = (
    ConditionType.DRIFTED,
    ConditionType.FROZEN,
    ConditionType.HALTED,
    ConditionType.RECONCILING,
    ConditionType.STALLED,
    ConditionType.STUCK,
)


class AgentStatuses(LazyMap[AgentKey, AgentStatus]):
    """The last reported status of every agent, with the questions a scoped pass asks of all of them answered."""

    def __init__(self, known: Mapping[AgentKey, AgentStatus] = MappingProxyType({})) -> None:
        super().__init__(lambda: known)

    @cached_property
    def not_ready(self) -> frozenset[AgentKey]:
        """The agents that are not Ready."""
        return frozenset(key for key, status in self._known.items() if not status.ready)

    @property
    def ready(self) -> int:
        """How many agents are Ready: the one count, wherever that word has a number. What rests as desired is."""
        return len(self) - len(self.not_ready)

    @property
    def on_their_way(self) -> int:
        """How many agents are not Ready and become so by themselves."""
        return sum(self[key].is_on_its_way for key in self.not_ready & self.having(ConditionType.RECONCILING))

    @cached_property
    def _having(self) -> dict[ConditionType, frozenset[AgentKey]]:
        return _by_condition(self._known)

    def having(self, condition: ConditionType) -> frozenset[AgentKey]:
        """The agents with a condition, whichever but Ready."""
        return self._having[condition]

    def updated(self, changed: Iterable[AgentStatus], removed: Collection[AgentKey] = ()) -> "AgentStatuses":
        """The same with some statuses replaced and some gone; costs what changed, and one copy of a map."""
        news = {status.agent: status for status in changed}
        if not news and not removed:
            return self
        known = {**self._known, **news}
        for key in removed:
            known.pop(key, None)
        made, concerned = AgentStatuses(known), {*news, *removed}
        made.not_ready = (self.not_ready - concerned) | {k for k, each in news.items() if not each.ready}
        new = _by_condition(news)
        made._having = {kind: (self.having(kind) - concerned) | new[kind] for kind in _INDEXED}
        return made


def _by_condition(statuses: Mapping[AgentKey, AgentStatus]) -> dict[ConditionType, frozenset[AgentKey]]:
    """The agents with each condition, in one look at all of them."""
    found: dict[ConditionType, set[AgentKey]] = {kind: set() for kind in _INDEXED}
    for key, status in statuses.items():
        for condition in status.conditions:
            if condition.type in found:
                found[condition.type].add(key)
    return {kind: frozenset(keys) for kind, keys in found.items()}


@dataclass(frozen=True, slots=True)
class StatusState:
    """What was last reported. ``findings`` are those of the last passes; ``last_pass``: when the last one ended
    (seconds since the epoch). ``active_seconds``: how long this instance has been at work, over all its lives."""

    agents: AgentStatuses = field(default_factory=AgentStatuses)
    findings: tuple[Finding, ...] = ()
    last_pass: float | None = None
    active_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RevertProposal:
    """The revert of one failed commit. ``sha``: the commit that was made. ``branch``: where it was pushed to.
    ``finished``: nothing more is done about it. ``message``: what became of it, for people."""

    failed: str
    sha: str = ""
    branch: str = ""
    finished: bool = False
    message: str = ""


@dataclass(frozen=True, slots=True)
class LiveImport:
    """One change that live made, to be proposed for Git. ``since``: when it was first seen. ``finished``: nothing
    more is done about it. ``refused_at``: the head at which it was refused; the next head may do better.
    ``next_at``: when it is tried again."""

    key: ResourceKey
    since: float
    finished: bool = False
    refused_at: str = ""
    finding: Finding | None = None
    next_at: float = 0.0


@dataclass(frozen=True, slots=True)
class ProposalState:
    """Commits that we make and push: reverts by the sha that failed, imports by the name of their branch."""

    reverts: Mapping[str, RevertProposal] = field(default_factory=dict)
    imports: Mapping[str, LiveImport] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class State:
    """All of it."""

    source: SourceState = field(default_factory=SourceState)
    commits: CommitsState = field(default_factory=CommitsState)
    rollout: RolloutState = field(default_factory=RolloutState)
    reconcile: ReconcileState = field(default_factory=ReconcileState)
    control: ControlState = field(default_factory=ControlState)
    status: StatusState = field(default_factory=StatusState)
    proposals: ProposalState = field(default_factory=ProposalState)

    @property
    def head(self) -> CommitRecord | None:
        """The record of the newest commit seen."""
        return self.commits.records.get(self.source.head or "")

    @property
    def standing(self) -> Standing | None:
        """How the fleet stands under the newest commit, with the agents that are Ready now: the record, and with
        it the note, follows when they have come to rest."""
        now, agents = self.head.now if self.head is not None else None, self.status.agents
        if now is None:
            return None
        return replace(now, ready=agents.ready, total=len(agents), on_their_way=agents.on_their_way)
