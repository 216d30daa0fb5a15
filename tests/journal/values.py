"""Values of every kind, by hand and by Hypothesis."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from gitops_agent.journal.store import SqlJournal
from gitops_agent.model.agent import DeletionPolicy, Lifecycle
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.fields import Fields
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.health import Evidence, Health, HealthState
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.observation import AgentInstance, Base, Heartbeat, Observation, Owner
from gitops_agent.model.outcome import Attempt, Circuit, Intent, Outcome, Result
from gitops_agent.model.plan import Action, Class, Confidence, Decision, Plan, Verb
from gitops_agent.model.rollout import FailedTree, Rollout
from gitops_agent.model.state import (
    AgentStatuses,
    CommitsState,
    ControlState,
    GivenUpAgent,
    LiveImport,
    ProposalState,
    ReconcileState,
    RevertProposal,
    RolloutState,
    SourceState,
    State,
    StatusState,
)
from gitops_agent.model.status import AgentStatus, CommitRecord, Condition, ConditionType, Phase, ResourceStatus

BOT = AgentKey("acme", "bot")
RUNTIME = ResourceKey(BOT, "runtime", "main")
CONFIG = ResourceKey(BOT, "config", "bundle")
SHA = "a" * 40
WANTED = Fields.of({"command": ["serve"], "replicas": 1})


def a_base(key: ResourceKey = RUNTIME, fields: Fields = WANTED, **more: Any) -> Base:
    return Base(key, "memory", fields, more.pop("commit", SHA), more.pop("applied_at", 10.0), **more)


def an_action(key: ResourceKey = RUNTIME, verb: Verb = Verb.CREATE, **more: Any) -> Action:
    more.setdefault("desired", WANTED)
    return Action(
        key, "memory", verb, more.pop("drift_class", Class.CHANGE), "Created",
        more.pop("message", "new in Git"), Confidence.HIGH,
        more.pop("decision", Decision.REPAIR), **more,
    )  # fmt: skip


def an_intent(identity: str = "i1", action: Action | None = None, at: float = 20.0, commit: str = SHA) -> Intent:
    return Intent(identity, action or an_action(), commit, "digest", "once", at)


def an_outcome(identity: str = "i1", result: Result = Result.DONE, at: float = 21.0) -> Outcome:
    return Outcome(identity, result, "started", at, 0.5, Fields.of({"pid": 7}))


def an_observation(key: ResourceKey = RUNTIME, **more: Any) -> Observation:
    more = {"owner": Owner.OURS, "fields": WANTED, "state": "Running", "observed_at": 30.0, **more}
    return Observation(key=key, driver="memory", **more)


def a_commit(sha: str = SHA, position: int = 1, phase: Phase = Phase.CONVERGED, **more: Any) -> CommitRecord:
    return CommitRecord(sha, "t" * 40, "subject", "Ada <ada@example.com>", 1.0, position, phase, 2.0, **more)


def a_status(agent: AgentKey = BOT, *, ready: bool = True) -> AgentStatus:
    condition = Condition(ConditionType.READY, ready, "Alive", "it runs", 3.0, SHA)
    resource = ResourceStatus(ResourceKey(agent, "runtime", "main"), "memory", "Running", "Healthy", {"pid": 7})
    return AgentStatus(agent, ready, Lifecycle.RUNNING, (condition,), SHA, (resource,), "agents/acme/bot.yaml:1")


def a_plan(*actions: Action, digest: str = "digest", commit: str = SHA, **more: Any) -> Plan:
    return Plan(commit, actions or (an_action(),), digest, **more)


def with_records(state: State, *records: CommitRecord, head: str | None = None) -> State:
    """A state with some records of commits, and perhaps another head."""
    source = state.source if head is None else replace(state.source, head=head)
    return replace(state, source=source, commits=state.commits.updated(records))


def with_statuses(state: State, *changed: AgentStatus, removed: Collection[AgentKey] = ()) -> State:
    """A state with some statuses replaced and some gone."""
    return replace(state, status=replace(state.status, agents=state.status.agents.updated(changed, removed)))


def with_controls(state: State, *controls: Control) -> State:
    """A state to which guards added controls."""
    return replace(state, control=replace(state.control, controls=(*state.control.controls, *controls)))


def with_head(state: State, sha: str | None) -> State:
    """A state with another head."""
    return replace(state, source=replace(state.source, head=sha))


def observe(journal: SqlJournal, *observations: Observation) -> None:
    """Commit some observations and nothing else."""
    journal.commit(journal.state(), observations=observations)


names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
times = st.floats(min_value=0, max_value=4e9, allow_nan=False)
agent_keys = st.builds(AgentKey, names, names)
identities = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
resource_keys = st.builds(ResourceKey, agent_keys, st.sampled_from([kind.value for kind in Kind]), identities)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(texts, json_values, max_size=4)
fields = json_objects.map(Fields.of)
evidences = st.lists(st.builds(Evidence, texts, texts, times), max_size=2).map(tuple)
deletions = st.sampled_from(DeletionPolicy)

bases = st.builds(
    Base, resource_keys, texts, fields, texts, times, deletions, st.booleans(), st.booleans(), fields
)
attempts = st.builds(Attempt, st.integers(0, 10**6), times | st.just(float("inf")), texts, st.booleans())
actions = st.builds(
    Action,
    key=resource_keys,
    driver=texts,
    verb=st.sampled_from(Verb),
    drift_class=st.sampled_from(Class),
    reason=texts,
    message=texts,
    confidence=st.sampled_from(Confidence),
    decision=st.sampled_from(Decision),
    base=st.none() | fields,
    desired=st.none() | fields,
    live=st.none() | fields,
    patch=st.lists(json_objects, max_size=2).map(tuple),
    handle=st.none() | fields,
    deletion_policy=deletions,
    idempotent=st.booleans(),
    evidence=evidences,
)
intents = st.builds(Intent, st.uuids().map(lambda uuid: uuid.hex), actions, texts, texts, texts, times)
heartbeats = st.none() | st.builds(
    Heartbeat, times, st.none() | st.integers(0, 10**9), st.lists(texts, max_size=2).map(tuple)
)
instances = st.builds(AgentInstance, texts, st.none() | times, st.none() | st.booleans(), heartbeats, texts)
healths = st.builds(
    Health,
    st.sampled_from(HealthState),
    texts,
    texts,
    st.booleans(),
    st.none() | times,
    evidences,
    texts,
    st.integers(0, 3),
    st.integers(0, 3),
)
observations = st.builds(
    Observation,
    key=resource_keys,
    driver=texts,
    owner=st.sampled_from(Owner),
    fields=st.none() | fields,
    state=texts,
    observed_at=times,
    reason=st.none() | texts,
    message=texts,
    live=json_objects,
    handle=fields,
    evidence=evidences,
    authoritative=st.booleans(),
    health=st.none() | healths,
    instances=st.lists(instances, max_size=2).map(tuple),
    address=texts,
)
conditions = st.builds(Condition, st.sampled_from(ConditionType), st.booleans(), texts, texts, times, texts)
statuses = st.builds(
    AgentStatus,
    agent_keys,
    st.booleans(),
    st.sampled_from(Lifecycle),
    st.lists(conditions, max_size=3).map(tuple),
    texts,
    st.lists(st.builds(ResourceStatus, resource_keys, texts, texts, texts, json_objects), max_size=2).map(tuple),
    texts,
    st.none() | times,
)
findings = st.builds(Finding, st.sampled_from(Severity), texts, texts, texts, texts)
commits = st.builds(
    CommitRecord,
    st.uuids().map(lambda uuid: uuid.hex),
    texts,
    texts,
    texts,
    times,
    st.integers(0, 10**9),
    st.sampled_from(Phase),
    times,
    st.none() | times,
    st.none() | times,
    texts,
    texts,
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.none() | texts,
    st.none() | texts,
    st.lists(findings, max_size=3).map(tuple),
)
controls = st.builds(Control, st.sampled_from(ControlVerb), texts, texts, times, texts, st.none() | times, texts)
rollouts = st.builds(
    Rollout,
    texts,
    texts,
    st.lists(st.lists(agent_keys, max_size=3).map(tuple), max_size=3).map(tuple),
    st.integers(0, 3),
    st.none() | times,
    texts,
    st.lists(times, max_size=3).map(tuple),
    texts,
)
policies = st.sampled_from(
    [
        PolicySpec(),
        PolicySpec.model_validate({"rollout": {"canary": 2, "pause": "5s"}, "tenants": {"acme": {}}}),
        PolicySpec.model_validate({"freeze": {"scope": "acme", "reason": "audit"}}),
    ]
)
moments = st.dictionaries(agent_keys, times, max_size=3)
source_states = st.builds(
    SourceState,
    st.none() | texts,
    st.none() | texts,
    st.none() | texts,
    st.none() | findings,
    st.none() | times,
    st.dictionaries(texts, times, max_size=3),
)
rollout_states = st.builds(
    RolloutState,
    st.none() | texts,
    st.dictionaries(agent_keys, texts, max_size=3),
    st.none() | rollouts,
    st.lists(st.builds(FailedTree, texts, texts, texts, times), max_size=2).map(tuple),
    st.none() | texts,
    st.none() | policies,
    st.frozensets(agent_keys, max_size=3),
    moments,
    moments,
    st.dictionaries(
        agent_keys, st.builds(GivenUpAgent, texts, texts, texts, times, st.none() | times), max_size=2
    ),
    moments,
)
circuits = st.builds(
    Circuit,
    texts,
    st.lists(texts, max_size=2).map(tuple),
    st.none() | times | st.just(float("inf")),
    st.integers(0, 9),
    texts,
)
reconcile_states = st.builds(
    ReconcileState,
    st.lists(bases, max_size=3).map(lambda found: {each.key: each for each in found}),
    st.dictionaries(resource_keys, attempts, max_size=3),
    st.dictionaries(texts, circuits, max_size=2),
)
control_states = st.builds(ControlState, st.lists(controls, max_size=3).map(tuple), st.integers(0, 10**6), moments)
status_states = st.builds(
    StatusState,
    st.lists(statuses, max_size=3).map(lambda found: AgentStatuses({each.agent: each for each in found})),
    st.lists(findings, max_size=3).map(tuple),
    st.none() | times,
    times,
)
proposal_states = st.builds(
    ProposalState,
    st.dictionaries(texts, st.builds(RevertProposal, texts, texts, texts, st.booleans(), texts), max_size=2),
    st.dictionaries(
        texts,
        st.builds(LiveImport, resource_keys, times, st.booleans(), texts, st.none() | findings, times),
        max_size=2,
    ),
)
commits_states = st.lists(commits, max_size=3).map(lambda found: CommitsState({each.sha: each for each in found}))
states = st.builds(
    State,
    source_states,
    commits_states,
    rollout_states,
    reconcile_states,
    control_states,
    status_states,
    proposal_states,
)
