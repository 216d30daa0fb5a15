"""Build a plan: pair the legs of every resource in scope, classify what differs, order it, ask the guards.

In a quiet fleet nearly every resource is in sync, so the first look at one is three comparisons of bytes and
builds nothing; and a pass over some agents costs what these agents cost, not what the fleet does.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from gitops_agent.model.agent import Agent, Resource
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.observation import Base, Observation, Owner
from gitops_agent.model.plan import Action, Decision, Plan, plan_digest
from gitops_agent.model.snapshot import Snapshot, agents_in
from gitops_agent.model.state import Bases
from gitops_agent.model.status import Health, HealthState
from gitops_agent.plan.action import finding_for, make_action, retained
from gitops_agent.plan.classify import classify, is_young
from gitops_agent.plan.compare import Difference, compare
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards import evaluate
from gitops_agent.plan.guards.verdicts import is_from_commit
from gitops_agent.plan.handover import as_kept, as_rested
from gitops_agent.plan.hooks import as_hook
from gitops_agent.plan.order import order_actions
from gitops_agent.plan.reasons import ONLY_REPORTED, ReasonCode
from gitops_agent.plan.sight import hidden_agents, out_of_sight, places_in_sight
from gitops_agent.plan.three_way import ThreeWay

Healths = Mapping[AgentKey, Health]
Observed = dict[ResourceKey, Observation]
Differing = tuple[ThreeWay, Difference, Health | None]
"""A resource that is not in sync; and health, where it asks for a restart or casts doubt on the driver."""


def build(
    snapshot: Snapshot,
    observations: Iterable[Observation],
    context: PlanContext,
    healths: Healths,
    *,
    is_whole: bool = False,
) -> Plan:
    """The plan that takes what is observed to what the snapshot asks for.
    ``is_whole``: it decides about a commit, so its digest and findings are about what the commit asks for, also
    when agents drift. Observations must be complete for the scope: what is not among them does not exist."""
    if context.snapshot is not snapshot:
        context = replace(context, snapshot=snapshot)
    actions: list[Action] = []
    findings: list[Finding] = []
    for three_way, difference, health in _differing(context, _by_key(observations), healths):
        if difference is Difference.RETAINED:
            findings.append(retained(three_way))
            continue
        unwell = healths[three_way.key.agent].instances if three_way.key.agent in healths else ()
        action = make_action(three_way, classify(difference, three_way, context, health), health, unwell)
        action = as_hook(action, context) if action.key.kind == Kind.HOOK else action
        action = as_rested(action, context) if three_way.is_kept else action
        actions.append(_approved(action, three_way, context))
    ordered = order_actions(actions, snapshot.agents, context.catalog)
    # A commit that asks for nothing is not what is judged: then it is the drift.
    meant = [action for action in ordered if is_from_commit(action)] if is_whole else []
    meant = meant or list(ordered)
    digest = plan_digest(meant)
    findings += filter(None, (finding_for(action, digest, context.catalog) for action in meant))
    plan = Plan(snapshot.revision.sha, ordered, digest, findings=tuple(sorted(findings)))
    return evaluate(plan, context)


def _by_key(observations: Iterable[Observation]) -> Observed:
    """Observations by resource. Should a driver name one twice, the more doubtful owner is believed."""
    observed: Observed = {}
    for observation in observations:
        other = observed.setdefault(observation.key, observation)
        if other is not observation:
            observed[observation.key] = max(other, observation, key=_doubt)
    return observed


def _doubt(observation: Observation) -> tuple[int, bytes, float]:
    owner = (Owner.OURS, Owner.NONE, Owner.OTHER).index(observation.owner)
    raw = observation.fields.raw if observation.fields is not None else b""
    return (owner if raw else -1, raw, observation.observed_at)


def _differing(context: PlanContext, observed: Observed, healths: Healths) -> Iterator[Differing]:
    """What is not in sync, wanted resources first."""
    bases, paired = context.bases, 0
    unknown = unknown_agents(context)
    for agent in agents_in(context.snapshot, context.scope):
        if agent.key in unknown:
            continue
        health = healths.get(agent.key)
        ailing = health is not None and (health.restart or health.state is HealthState.STUCK)
        for resource in agent.resources:
            key = resource.key
            base, live = bases.get(key), observed.get(key)
            paired += (base is not None) + (live is not None)
            if not ailing and _is_quiet(agent, resource, base, live):
                continue
            yield from _compared(ThreeWay(key, agent, resource, base, live, context.catalog), health)
    # Everything on record and everything seen found its partner: nothing can be left over.
    if paired == len(bases) + len(observed):
        return
    agents = context.snapshot.agents
    behind = {key.agent for key in out_of_sight(bases, context.unreachable)}
    in_sight = places_in_sight(bases, context.unreachable) if behind else frozenset()
    for key in _unwanted(context, observed):
        base, name = bases.get(key), key.agent
        # Of an agent that has something out of sight, only what is in a place where it can be seen to run. All
        # else, such as a config or a hook, may belong to what nobody can see.
        if name in behind and (base is None or (name, base.driver) not in in_sight):
            continue
        legs = as_kept(ThreeWay(key, agents.get(name), None, base, observed.get(key), context.catalog), context)
        if name not in unknown or _is_kept_in_sight(legs, context):
            yield from _compared(legs, None)


def _is_kept_in_sight(legs: ThreeWay, context: PlanContext) -> bool:
    """Whether something is to be kept up though nothing else is planned for its agent: all that could not be
    looked at is in places where that is to run, or ran, and nothing that runs elsewhere depends on it."""
    agent, bases = legs.agent, context.bases
    if agent is None or not legs.is_kept or agent.key in context.busy | context.unseen:
        return False
    parts = [(each.key.kind, each.driver) for each in agent.resources]
    parts += [(key.kind, bases[key].driver) for key in Bases.of(bases).within(frozenset({agent.key}))]
    places = {driver for kind, driver in parts if kind == Kind.RUNTIME}
    return places.issuperset(driver for _, driver in parts if driver in context.unreachable)


def _is_quiet(agent: Agent, resource: Resource, base: Base | None, live: Observation | None) -> bool:
    """Whether one look at the bytes shows that a resource is in sync. No is not yet an answer."""
    if base is None or live is None or live.fields is None or live.reason is not None:
        return False
    raw = resource.fields.raw
    return (
        live.fields.raw == raw == base.fields.raw
        and live.owner is Owner.OURS
        and base.deletion_policy is agent.deletion_policy
        and not (resource.stopped or base.retained)
    )


def _compared(three_way: ThreeWay, health: Health | None) -> Iterator[Differing]:
    difference = compare(three_way)
    if health is not None and health.state is HealthState.STUCK and _is_only_reported(three_way, difference):
        # "Restart it when it suits" would hide that it is in the middle of something.
        difference = Difference.IN_SYNC
    if health is not None and not _concerns(health, three_way, difference):
        health = None
    if health is not None or difference is not Difference.IN_SYNC:
        yield three_way, difference, health


def _is_only_reported(three_way: ThreeWay, difference: Difference) -> bool:
    live = three_way.live
    return difference is Difference.DRIFT and live is not None and live.reason in ONLY_REPORTED


def _concerns(health: Health, three_way: ThreeWay, difference: Difference) -> bool:
    """Whether health decides about a resource: a runtime that is there, and nothing else."""
    if three_way.key.kind != Kind.RUNTIME or three_way.live is None or not three_way.present:
        return False
    if difference in (Difference.IN_SYNC, Difference.ADOPT):
        # A restart writes the record as well, so it takes the place of an adoption; a question does not.
        asks = health.state is HealthState.STUCK and difference is Difference.IN_SYNC
        return health.restart or asks
    reason = three_way.live.reason if difference is Difference.DRIFT and not health.restart else None
    return reason is not None and reason in (health.reason, health.disputes)


def unknown_agents(context: PlanContext) -> frozenset[AgentKey]:
    """The agents that no plan is made for: those out of sight, and those with an action under way."""
    hidden = hidden_agents(context.snapshot.agents, context.bases, context.unreachable, context.unseen)
    return hidden | context.busy


def _unwanted(context: PlanContext, observed: Observed) -> set[ResourceKey]:
    """The resources in scope that are on record or live, and not desired."""
    scope = context.scope
    wanted = {resource.key for agent in agents_in(context.snapshot, scope) for resource in agent.resources}
    live = (key for key in observed if scope is None or key.agent in scope)
    return {key for keys in (Bases.of(context.bases).within(scope), live) for key in keys if key not in wanted}


def _approved(action: Action, three_way: ThreeWay, context: PlanContext) -> Action:
    """The action, to be done if it asks and people approved it as it stands. So is the end of an orphan, once that
    is old enough. No other doubt is lifted that way."""
    if not context.approved or action.digest not in context.approved:
        return action
    live = three_way.live.instances if three_way.live is not None else ()
    may_end = action.reason == ReasonCode.ORPHAN and not is_young(live, action.key.agent.tenant, context)
    if action.decision is Decision.ASK or may_end:
        return replace(action, decision=Decision.REPAIR)
    return action
