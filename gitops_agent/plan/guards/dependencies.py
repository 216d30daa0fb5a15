"""Dependencies: an agent is built or changed only after the agents it depends on are Ready."""

from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Action, Class, Decision, Plan, Verb, Verdict
from gitops_agent.plan.context import PlanContext, is_hands_off
from gitops_agent.plan.guards.verdicts import due_in_git, let_pass, takes_away, trim
from gitops_agent.plan.reasons import Hold


def dependencies(plan: Plan, context: PlanContext) -> Verdict:
    """Hold what builds or changes an agent while one it depends on is not Ready or still has work to do."""
    waiting = [(each, agent) for each, agent in due_in_git(plan, context) if agent.depends_on and _may_wait(each)]
    if not waiting:
        return let_pass("dependencies")
    busy = _busy(plan, context)
    missing = {
        agent.key: [other for other in agent.depends_on if other not in context.ready or other in busy]
        for _, agent in waiting
    }
    held = (action for action, agent in waiting if missing[agent.key])
    return trim("dependencies", held, (_finding(key, others) for key, others in missing.items() if others))


def _may_wait(action: Action) -> bool:
    """Whether an action waits at all: deletions never do, nor repairs of what is already there."""
    return not takes_away(action) and (action.verb is Verb.CREATE or action.drift_class is Class.CHANGE)


def _busy(plan: Plan, context: PlanContext) -> frozenset[AgentKey]:
    """Agents with live work in this plan, held or not; not those we are asked to leave alone."""
    agents = context.snapshot.agents
    work = (a.key.agent for a in plan.actions if a.verb.touches_live and a.decision is Decision.REPAIR)
    return frozenset(key for key in work if not is_hands_off(agents.get(key), context.now))


def _finding(agent: AgentKey, others: list[AgentKey]) -> Finding:
    names = ", ".join(map(str, others))
    detail = f"It goes on as soon as these are Ready: {names}. See gitops-agent explain {others[0]}."
    return Hold.WAITING_FOR_DEPENDENCY.finding(agent, f"waits for {names}", detail)
