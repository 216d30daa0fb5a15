"""Hooks wait for their agent: what is called when it is provisioned needs it Ready, with nothing left to do."""

from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.plan import Action, Decision, Plan, Verdict
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.verdicts import let_pass, trim
from gitops_agent.plan.reasons import Hold


def hook_ready(plan: Plan, context: PlanContext) -> Verdict:
    """Hold the first record or call of a hook until its agent is Ready and nothing else is done to it.
    An agent that never was Ready is not provisioned, so neither hook of it is armed: its end calls nothing."""
    waiting = [action for action in plan.allowed if _begins(action)]
    if not waiting:
        return let_pass("hook_ready")
    busy = {action.key.agent for action in plan.actions if _builds(action)}
    held = [action for action in waiting if not _may_begin(action.key.agent, busy, context)]
    findings = (
        Hold.WAITING_TO_BE_READY.finding(
            agent,
            "its hooks wait until it is Ready",
            f"They follow by themselves. See gitops-agent explain {agent} for what keeps it.",
        )
        for agent in dict.fromkeys(action.key.agent for action in held)
    )
    return trim("hook_ready", held, findings)


def _begins(action: Action) -> bool:
    first = action.verb.touches_live or action.base is None
    return action.key.kind == Kind.HOOK and action.desired is not None and first


def _builds(action: Action) -> bool:
    """Live work on an agent, held or not."""
    return action.key.kind != Kind.HOOK and action.verb.touches_live and action.decision is Decision.REPAIR


def _may_begin(agent: AgentKey, busy: set[AgentKey], context: PlanContext) -> bool:
    """Whether it is Ready by our doing: what is only observed may be Ready without us."""
    known = context.snapshot.agents.get(agent)
    runtimes = [each.key for each in known.resources if each.key.kind == Kind.RUNTIME] if known else []
    return agent in context.ready and agent not in busy and any(key in context.bases for key in runtimes)
