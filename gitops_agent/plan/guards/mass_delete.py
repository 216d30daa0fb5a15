"""Mass delete: too many agents would lose their runtime at once.

The count is that of the whole record against the whole snapshot, also in a scoped pass: a deletion that is held
as one of many must not slip through alone when an event later brings a pass for its agent only.
"""

from collections.abc import Iterable, Iterator

from gitops_agent.model.agent import DeletionPolicy
from gitops_agent.model.finding import Finding, Severity
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
    lost = losing | set(_losses(context))
    excused = {*_never_there(lost, context), *_excused(lost, context)}
    lost -= excused
    taking = [action for action in taking if action.key.agent not in excused]
    tripped = tuple(trips(lost, context, lambda limits: limits.mass_delete))
    if not tripped or _is_approved(taking, lost, context):
        return let_pass("mass_delete")
    return block("mass_delete", plan, (_finding(plan, trip, way_out=trip is tripped[0]) for trip in tripped))


def _is_approved(taking: Iterable[Action], lost: Iterable[AgentKey], context: PlanContext) -> bool:
    """Whether everything that this plan would take away was approved as it stands.
    What lies outside a scope is not taken away. What a driver hides was in no plan that could be approved."""
    if not context.approved or _is_hidden(frozenset(lost), context):
        return False
    return all(action.digest in context.approved for action in taking)


def _is_hidden(lost: frozenset[AgentKey], context: PlanContext) -> bool:
    concerned = lost if context.scope is None else lost & context.scope
    return bool(context.unreachable) and any(
        base.driver in context.unreachable for key, base in context.bases.items() if key.agent in concerned
    )


def _losses(context: PlanContext) -> Iterator[AgentKey]:
    """The agents whose recorded runtime is no longer desired: removed, retired, stopped or moved."""
    return (
        key.agent
        for key, base in context.bases.items()
        if key.kind == Kind.RUNTIME and not base.retained and _loses(base, context)
    )


def _loses(base: Base, context: PlanContext) -> bool:
    agent = context.snapshot.agents.get(base.key.agent)
    if agent is None:
        return base.deletion_policy is DeletionPolicy.DELETE and not _is_stopped(base)
    for resource in agent.resources:
        if resource.key == base.key:
            return resource.stopped and not _is_stopped(base)
    return not _is_stopped(base)


def _is_stopped(base: Base) -> bool:
    """Whether it was stopped by Git already: then there is no runtime to lose."""
    return base.fields.value.get(STOPPED) is True


def _excused(agents: Iterable[AgentKey], context: PlanContext) -> Iterator[AgentKey]:
    """Agents that never became Ready and are taken down again, which is no loss; and those whose documents ask us
    not to act: what waits there is counted when it may happen."""
    for key in agents:
        agent = context.snapshot.agents.get(key)
        if agent is not None and (agent.abandoned or is_hands_off(agent, context.now)):
            yield key


def _never_there(agents: Iterable[AgentKey], context: PlanContext) -> Iterator[AgentKey]:
    """Agents made by a commit that this one rolls back, and that never converged: undoing it loses nothing."""
    if not context.rolled_back_commits:
        return
    runtimes: dict[AgentKey, list[Base]] = {}
    for key, base in context.bases.items():
        if key.kind == Kind.RUNTIME:
            runtimes.setdefault(key.agent, []).append(base)
    for agent in agents:
        known = runtimes.get(agent)
        if known and all(not base.established and base.commit in context.rolled_back_commits for base in known):
            yield agent


def _finding(plan: Plan, trip: Trip, *, way_out: bool) -> Finding:
    """One number that tripped; the way out is the same for all of them, so the first one says it."""
    found = f"{trip.allows('massDelete')}. Lost would be: {named(trip.agents)}."
    return Finding(
        Severity.ERROR,
        Hold.MASS_DELETE,
        plan.commit[:10],
        f"{trip.count} would lose their runtime",
        f"{found} {_way_out(plan)}" if way_out else found,
    )


def _way_out(plan: Plan) -> str:
    return (
        "Nothing this commit asks for is done.\n"
        f"If it is meant, approve this plan: {how_to_approve(plan)}.\n"
        "Or split the commit, and push the parts one after the other.\n"
        "Or raise massDelete in the Policy document in an earlier commit, and push this one when that has "
        "converged.\n"
        "If it is not meant: gitops-agent rollback."
    )
