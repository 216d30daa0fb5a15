"""Mass delete: a commit would take away too many agents, or too many of their replicas, at once.

The count is that of the whole record against the whole snapshot, also in a scoped pass: a deletion that is held
as one of many must not slip through alone when an event later brings a pass for its agent only.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from gitops_agent.model.agent import DeletionPolicy, live_paths
from gitops_agent.model.finding import Finding
from gitops_agent.model.health_spec import STOPPED
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.plan import Action, Class, Plan, Verdict
from gitops_agent.plan.context import PlanContext, is_hands_off
from gitops_agent.plan.guards.threshold import Trip, runtimes_on_record, trips, weighed_trips
from gitops_agent.plan.guards.verdicts import (
    block,
    how_to_approve,
    is_from_commit,
    let_pass,
    named,
    takes_away,
)
from gitops_agent.plan.handover import is_left, runtimes
from gitops_agent.plan.reasons import Hold


def mass_delete(plan: Plan, context: PlanContext) -> Verdict:
    """Block when the losses reach ``min`` and exceed ``ratio`` of a tenant or of the fleet, in agents or in their
    replicas, unless people approved everything that this plan would take away."""
    taking = [action for action in plan.actions if _takes_away(action, context)]
    losing = {action.key.agent for action in taking if action.key.kind == Kind.RUNTIME}
    if not (losing or context.unreachable or context.unseen):
        return let_pass("mass_delete")
    recorded, losses = runtimes_on_record(context), Counter[AgentKey]()
    for base in recorded:
        if count := _loss(base, context):
            losses[base.key.agent] += count
    concerned = {*losses, *(action.key.agent for action in taking)}
    runtimes = defaultdict[AgentKey, list[Base]](list)
    for base in recorded:
        if base.key.agent in concerned:
            runtimes[base.key.agent].append(base)
    excused = {agent for agent in concerned if _is_excused(agent, runtimes[agent], context)}
    lost = {agent: count for agent, count in losses.items() if agent not in excused}
    ended = {agent for agent in lost if any(_is_lost(base, context) for base in runtimes[agent])}
    ended |= {a.key.agent for a in taking if a.key.kind == Kind.RUNTIME and takes_away(a)} - excused
    tripped = tuple(_trips(ended, lost, recorded, context))
    taking = [action for action in taking if action.key.agent not in excused]
    if not tripped or _is_approved(taking, {*ended, *lost}, context):
        return let_pass("mass_delete")
    return block("mass_delete", plan, (_finding(plan, trip, way_out=trip is tripped[0]) for trip in tripped))


def _trips(
    ended: set[AgentKey], lost: dict[AgentKey, int], recorded: Sequence[Base], context: PlanContext
) -> Iterable[Trip]:
    """The numbers that trip, counted in agents; then those that trip in replicas alone."""

    def had() -> Counter[AgentKey]:
        counts = Counter[AgentKey]()
        for base in recorded:
            counts[base.key.agent] += _instances(base, context)
        return counts

    by_agents = list(trips(ended, context, lambda limits: limits.mass_delete))
    by_replicas = weighed_trips(lost, had, context, lambda limits: limits.mass_delete, "replicas")
    known = {trip.scope for trip in by_agents}
    return [*by_agents, *(trip for trip in by_replicas if trip.scope not in known)]


def _takes_away(action: Action, context: PlanContext) -> bool:
    """Whether a commit takes an object away by it, or some of its replicas."""
    if takes_away(action):
        return action.drift_class is Class.CHANGE and not _is_replaced(action.key, context)
    if action.base is None or action.desired is None or not is_from_commit(action):
        return False
    before, after = (context.catalog.instances(action.driver, each) for each in (action.base, action.desired))
    return after < before


def _is_approved(taking: Iterable[Action], lost: set[AgentKey], context: PlanContext) -> bool:
    """Whether everything that this plan would take away was approved as it stands.
    What lies outside a scope is not taken away. What could not be looked at was in no plan to be approved."""
    concerned = lost if context.scope is None else lost & context.scope
    hidden = not concerned.isdisjoint(context.unseen) or any(
        base.driver in context.unreachable for key, base in context.bases.items() if key.agent in concerned
    )
    return bool(context.approved) and not hidden and all(each.digest in context.approved for each in taking)


def _is_lost(base: Base, context: PlanContext) -> bool:
    """Whether a recorded runtime is no longer desired: removed, retired, stopped or moved."""
    agent = context.snapshot.agents.get(base.key.agent)
    if agent is not None:
        goes = all(resource.stopped for resource in agent.resources if resource.key == base.key)
        goes = goes and not _is_replaced(base.key, context)
    else:
        goes = base.deletion_policy is DeletionPolicy.DELETE
    return goes and _instances(base, context) > 0


def _is_replaced(key: ResourceKey, context: PlanContext) -> bool:
    """Whether an agent that moves runs in the other place already, or still: what it leaves behind is no loss."""
    agent = context.snapshot.agents.get(key.agent)
    if agent is None or not is_left(key, agent):
        return False
    return any((base := context.bases.get(each.key)) is not None and base.established for each in runtimes(agent))


def _instances(base: Base, context: PlanContext) -> int:
    """How many copies of an agent a recorded runtime has. Where Git stopped it already there are none to lose."""
    if base.fields.value.get(STOPPED) is True:
        return 0
    return context.catalog.instances(base.driver, base.fields)


def _loss(base: Base, context: PlanContext) -> int:
    """How many copies of a recorded runtime are no longer desired."""
    agent = context.snapshot.agents.get(base.key.agent)
    wanted = [each for each in agent.resources if each.key == base.key] if agent is not None else []
    if wanted and wanted[0].fields == base.fields and not wanted[0].stopped:
        return 0  # as of nearly every agent, so nothing is decoded for it
    if _is_lost(base, context):
        return _instances(base, context)
    field = context.catalog.instance_field(base.driver)
    if not wanted or (field,) in live_paths(agent, base.key.kind):  # what live decides is not Git's to take
        return 0
    return max(0, _instances(base, context) - context.catalog.instances(base.driver, wanted[0].fields))


def _is_excused(agent: AgentKey, runtimes: Sequence[Base], context: PlanContext) -> bool:
    """Whether it is no loss: it never became Ready, whatever becomes of its commit; or its document asks us not to
    act, and it is counted when it may happen."""
    known = context.snapshot.agents.get(agent)
    if known is not None and (known.abandoned or is_hands_off(known, context.now)):
        return True
    return bool(runtimes) and agent not in context.ready and not any(base.established for base in runtimes)


def _finding(plan: Plan, trip: Trip, *, way_out: bool) -> Finding:
    """One number that tripped; the way out is the same for all of them, so the first one says it."""
    found = f"{trip.allows('massDelete')}. Stopped or deleted: {named(trip.agents)}."
    if way_out:
        found += (
            " Nothing this commit asks for is done.\n"
            f"If intended, approve this plan: {how_to_approve(plan)}.\n"
            "Or split the commit, and push the parts one after the other.\n"
            "Or raise massDelete in the Policy document in an earlier commit, and push this one when that has "
            "converged.\n"
            "If not: gitops-agent rollback."
        )
    return Hold.MASS_DELETE.finding(plan.commit[:10], f"{trip.count} would be stopped or deleted", found)
