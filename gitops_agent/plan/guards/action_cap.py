"""Cap of actions per pass: the first so many go, the rest waits for the next pass. Stands last in the list."""

from collections import Counter

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.verdicts import due, let_pass, trim
from gitops_agent.plan.reasons import Hold


def action_cap(plan: Plan, context: PlanContext) -> Verdict:
    """Hold the live actions past ``actionsPerPass``, of the fleet or (stricter) of a tenant.
    Both caps keep a prefix of what is in order, so no later step of an agent overtakes an earlier one."""
    waiting = due(plan)
    fleet = context.limits().actions_per_pass
    caps = {name: context.limits(name).actions_per_pass for name in context.policy.tenants}
    if len(waiting) <= fleet and not caps:
        return let_pass("action_cap")
    held: list[ResourceKey] = []
    used: Counter[str] = Counter()
    left = fleet
    for action in waiting:
        tenant = action.key.agent.tenant
        if left == 0 or used[tenant] >= caps.get(tenant, fleet):
            held.append(action.key)
        else:
            used[tenant] += 1
            left -= 1
    return trim("action_cap", held, (_finding(plan, len(held), len(waiting), fleet),) if held else ())


def _finding(plan: Plan, held: int, wanted: int, cap: int) -> Finding:
    return Finding(
        Severity.INFO,
        Hold.ACTION_CAP,
        plan.commit[:10],
        f"{held} of {wanted} actions wait for the next pass",
        f"actionsPerPass is {cap} for the fleet (a tenant may have less). The rest follows by itself; to do more "
        "at once, raise actionsPerPass in the Policy document.",
    )
