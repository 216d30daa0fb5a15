"""Cap of actions a minute: a token bucket over passes and restarts, so that a wrong repair reaches a bounded slice
before people notice. Stands last in the list. What it lets go is on record first (``reconcile/pace.py``)."""

from gitops_agent.model.control import EVERYTHING
from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.verdicts import due, let_pass, trim
from gitops_agent.plan.order import within_limits
from gitops_agent.plan.reasons import Hold


def action_cap(plan: Plan, context: PlanContext) -> Verdict:
    """Hold the live actions past ``actionsPerMinute``, of the fleet or (stricter) of a tenant.
    Both caps keep a prefix of what is in order, so no later step of an agent overtakes an earlier one."""
    waiting = due(plan)
    if not waiting:
        return let_pass("action_cap")
    tenants = {action.key.agent.tenant for action in waiting}
    room = {name: _room(context, name) for name in tenants if name in context.policy.tenants}
    fleet = _room(context, None)
    ordered = ((action.key, action.key.agent.tenant) for action in waiting)
    go = within_limits(ordered, fleet, lambda tenant: room.get(tenant, fleet))
    held = [action for action in waiting if action.key not in go]
    finding = Hold.ACTION_CAP.finding(
        plan.commit[:10],
        f"{len(held)} of {len(waiting)} actions wait for their turn",
        f"actionsPerMinute is {context.limits().actions_per_minute} for the fleet (a tenant may have less). The "
        "rest follows by itself; to do more at once, raise actionsPerMinute in the Policy document.",
    )
    return trim("action_cap", held, (finding,) if held else ())


def _room(context: PlanContext, tenant: str | None) -> int:
    """How many actions of the fleet or a tenant may go now."""
    cap = context.limits(tenant).actions_per_minute
    # A token that is a rounding error away is there: the wait for it was computed from the same numbers.
    return max(0, int(cap - context.owed(tenant or EVERYTHING, cap) + 1e-6))
