"""Dependencies: an agent is built or changed only after the agents it depends on are Ready."""

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Action, Class, Decision, Plan, Verb, Verdict
from gitops_agent.plan.context import PlanContext, is_hands_off
from gitops_agent.plan.guards.verdicts import due, takes_away, trim
from gitops_agent.plan.reasons import Hold


def dependencies(plan: Plan, context: PlanContext) -> Verdict:
    """Hold what builds or changes an agent while one it depends on is not Ready or still has work to do."""
    agents = context.snapshot.agents
    waiting = [
        action
        for action in due(plan)
        if may_wait(action) and (agent := agents.get(action.key.agent)) is not None and agent.depends_on
    ]
    if not waiting:
        return trim("dependencies", (), ())
    busy = _busy(plan, context)
    missing = {
        key: tuple(other for other in agents[key].depends_on if other not in context.ready or other in busy)
        for key in dict.fromkeys(action.key.agent for action in waiting)
    }
    return trim(
        "dependencies",
        (action.key for action in waiting if missing[action.key.agent]),
        (_finding(key, others) for key, others in missing.items() if others),
    )


def may_wait(action: Action) -> bool:
    """Whether an action waits at all: deletions never do, nor repairs of what is already there."""
    return not takes_away(action) and (action.verb is Verb.CREATE or action.drift_class is Class.CHANGE)


def _busy(plan: Plan, context: PlanContext) -> frozenset[AgentKey]:
    """Agents with live work in this plan, held or not; not those we are asked to leave alone."""
    agents = context.snapshot.agents
    return frozenset(
        action.key.agent
        for action in plan.actions
        if action.verb.touches_live
        and action.decision is Decision.REPAIR
        and not is_hands_off(agents.get(action.key.agent), context.now)
    )


def _finding(agent: AgentKey, others: tuple[AgentKey, ...]) -> Finding:
    names = ", ".join(map(str, others))
    return Finding(
        Severity.INFO,
        Hold.WAITING_FOR_DEPENDENCY,
        str(agent),
        f"waits for {names}",
        f"It is built as soon as these are Ready: {names}. See gitops-agent explain {others[0]}.",
    )
