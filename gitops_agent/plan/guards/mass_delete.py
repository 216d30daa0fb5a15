"""Mass delete: too many agents would lose their runtime at once.

The count is that of the whole record against the whole snapshot, also in a scoped pass: a deletion that is held
as one of many must not slip through alone when an event later brings a pass for its agent only.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from gitops_agent.model.agent import DeletionPolicy
from gitops_agent.model.finding import Finding
from gitops_agent.model.health_spec import STOPPED
from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.observation import Base
from gitops_agent.model.plan import Action, Class, Plan, Verdict
from gitops_agent.plan.context import PlanContext, is_hands_off
from gitops_agent.plan.guards.threshold import Trip, trips
from gitops_agent.plan.guards.verdicts import block, how_to_approve, let_pass, named, takes_away
from gitops_agent.plan.reasons import Hold


def mass_delete(plan: Plan, context: PlanContext) -> Verdict:
    """Block when the losses reach ``min`` agents and exceed ``ratio`` of a tenant or of the fleet, unless people
    approved everything that this plan would take away."""
    taking = [action for action in plan.actions if action.drift_class is Class.CHANGE and takes_away(action)]
    losing = {action.key.agent for action in taking if action.key.kind == Kind.RUNTIME}
    if not losing and not context.unreachable:
        return let_pass("mass_delete")
    runtimes: defaultdict[AgentKey, list[Base]] = defaultdict(list)
    for key, base in context.bases.items():
        if key.kind == Kind.RUNTIME:
            runtimes[key.agent].append(base)
    losing.update(agent for agent, known in runtimes.items() if any(_is_lost(base, context) for base in known))
    excused = {agent for agent in losing if _is_excused(agent, runtimes[agent], context)}
    lost = losing - excused
    taking = [action for action in taking if action.key.agent not in excused]
    tripped = tuple(trips(lost, context, lambda limits: limits.mass_delete))
    if not tripped or _is_approved(taking, lost, context):
        return let_pass("mass_delete")
    return block("mass_delete", plan, (_finding(plan, trip, way_out=trip is tripped[0]) for trip in tripped))


def _is_approved(taking: Iterable[Action], lost: set[AgentKey], context: PlanContext) -> bool:
    """Whether everything that this plan would take away was approved as it stands.
    What lies outside a scope is not taken away. What a driver hides was in no plan that could be approved."""
    concerned = lost if context.scope is None else lost & context.scope
    hidden = context.unreachable and any(
        base.driver in context.unreachable for key, base in context.bases.items() if key.agent in concerned
    )
    return bool(context.approved) and not hidden and all(each.digest in context.approved for each in taking)


def _is_lost(base: Base, context: PlanContext) -> bool:
    """Whether a recorded runtime is no longer desired: removed, retired, stopped or moved."""
    agent = context.snapshot.agents.get(base.key.agent)
    if agent is not None:
        goes = all(resource.stopped for resource in agent.resources if resource.key == base.key)
    else:
        goes = base.deletion_policy is DeletionPolicy.DELETE
    # Where Git stopped it already, there is no runtime to lose.
    return goes and not base.retained and base.fields.value.get(STOPPED) is not True


def _is_excused(agent: AgentKey, runtimes: Sequence[Base], context: PlanContext) -> bool:
    """Whether it is no loss: it never became Ready and is taken down again; its document asks us not to act, and
    it is counted when it may happen; or a commit made it that this one rolls back, and it never converged."""
    known, undone = context.snapshot.agents.get(agent), context.rolled_back_commits
    if known is not None and (known.abandoned or is_hands_off(known, context.now)):
        return True
    return bool(runtimes) and all(not base.established and base.commit in undone for base in runtimes)


def _finding(plan: Plan, trip: Trip, *, way_out: bool) -> Finding:
    """One number that tripped; the way out is the same for all of them, so the first one says it."""
    found = f"{trip.allows('massDelete')}. Lost would be: {named(trip.agents)}."
    if way_out:
        found += (
            " Nothing this commit asks for is done.\n"
            f"If it is meant, approve this plan: {how_to_approve(plan)}.\n"
            "Or split the commit, and push the parts one after the other.\n"
            "Or raise massDelete in the Policy document in an earlier commit, and push this one when that has "
            "converged.\n"
            "If it is not meant: gitops-agent rollback."
        )
    return Hold.MASS_DELETE.finding(plan.commit[:10], f"{trip.count} would lose their runtime", found)
