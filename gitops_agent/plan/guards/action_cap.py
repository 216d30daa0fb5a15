"""Cap of actions per pass: the first so many go, the rest waits for the next pass. Stands last in the list."""

from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.verdicts import due, let_pass, trim
from gitops_agent.plan.order import within_limits
from gitops_agent.plan.reasons import Hold


def action_cap(plan: Plan, context: PlanContext) -> Verdict:
    """Hold the live actions past ``actionsPerPass``, of the fleet or (stricter) of a tenant.
    Both caps keep a prefix of what is in order, so no later step of an agent overtakes an earlier one."""
    waiting, fleet = due(plan), context.limits().actions_per_pass
    caps = {name: context.limits(name).actions_per_pass for name in context.policy.tenants}
    if len(waiting) <= fleet and not caps:
        return let_pass("action_cap")
    tenants = ((action.key, action.key.agent.tenant) for action in waiting)
    go = within_limits(tenants, fleet, lambda tenant: caps.get(tenant, fleet))
    held = [action for action in waiting if action.key not in go]
    finding = Hold.ACTION_CAP.finding(
        plan.commit[:10],
        f"{len(held)} of {len(waiting)} actions wait for the next pass",
        f"actionsPerPass is {fleet} for the fleet (a tenant may have less). The rest follows by itself; to do "
        "more at once, raise actionsPerPass in the Policy document.",
    )
    return trim("action_cap", held, (finding,) if held else ())
