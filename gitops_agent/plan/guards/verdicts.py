"""What guards share: what may still be done, what a commit asks for, and how a verdict is made."""

from collections.abc import Iterable

from gitops_agent.model.agent import Agent
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Action, Class, Decision, Effect, Plan, Verb, Verdict
from gitops_agent.plan.context import PlanContext

NAMES_SHOWN = 20


def due(plan: Plan) -> tuple[Action, ...]:
    """The actions that would touch the live system as things stand, in order."""
    return tuple(action for action in plan.allowed if action.verb.touches_live)


def due_in_git(plan: Plan, context: PlanContext) -> list[tuple[Action, Agent]]:
    """The same for agents that Git knows, each action with its agent."""
    agents = context.snapshot.agents
    return [(action, agents[action.key.agent]) for action in due(plan) if action.key.agent in agents]


def is_from_commit(action: Action) -> bool:
    """Whether doing it would carry a commit into effect: a change, or a repair towards something new."""
    return action.drift_class is Class.CHANGE or (action.verb.touches_live and action.base != action.desired)


def takes_away(action: Action) -> bool:
    """Whether it ends something rather than building it."""
    return action.verb in (Verb.DELETE, Verb.STOP)


def trim(
    guard: str,
    held: Iterable[Action],
    findings: Iterable[Finding],
    *,
    for_people: bool = False,
    freeze: str = "",
    decision: Decision = Decision.WAIT,
) -> Verdict:
    """Hold some actions; a verdict that holds none lets the plan pass."""
    keys = frozenset(action.key for action in held)
    effect = Effect.TRIM if keys else Effect.PASS
    return Verdict(guard, effect, keys, tuple(findings), for_people, freeze, decision)


def block(guard: str, plan: Plan, findings: Iterable[Finding]) -> Verdict:
    """Hold everything a commit asked for, if anything was found; repairs of what it did not touch go on."""
    found = tuple(findings)
    if not found:
        return let_pass(guard)
    asked = (action for action in plan.actions if action.decision is Decision.REPAIR and is_from_commit(action))
    held = frozenset(action.key for action in asked)
    return Verdict(guard, Effect.BLOCK, held, found, for_people=True, decision=Decision.ASK)


def let_pass(guard: str) -> Verdict:
    """Nothing to object to."""
    return Verdict(guard, Effect.PASS)


def named(agents: Iterable[AgentKey]) -> str:
    """The names of some agents, sorted; of very many the first ones."""
    names = sorted(map(str, agents))
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def how_to_approve(plan: Plan) -> str:
    """Every way to approve a plan: at the machine, and through Git alone."""
    trailer = f'"Gitops-Approve: {plan.digest}"'
    return (
        f"gitops-agent approve {plan.digest};\nor, through Git alone, a note on refs/notes/gitops-agent-approvals "
        f"(git notes --ref=gitops-agent-approvals add -m {trailer} {plan.commit[:10]}, then git push origin "
        f"refs/notes/gitops-agent-approvals);\nor an empty commit with the trailer {trailer} by another author "
        "than the change's"
    )


def how_to_unfreeze(scope: str) -> str:
    """The command that lifts a freeze; quoted, because a shell would read a star."""
    return f"gitops-agent unfreeze --scope '{scope}' --reason …"
