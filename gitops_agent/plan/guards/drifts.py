"""What guards that count drift share: which of it counts, and which agents are simply gone.

An agent is gone when its runtime is absent for certain, nothing else is wrong with it, and what is desired has not
moved. Starting it again harms no other, so it is brought back where other drift would stop us.
"""

from collections.abc import Iterable

from gitops_agent.model.key import AgentKey, Kind
from gitops_agent.model.plan import Action, Class, Confidence, Decision
from gitops_agent.plan.context import PlanContext

_REPAIRABLE = (Decision.REPAIR, Decision.ASK, Decision.WAIT)


def is_unapproved_drift(action: Action, context: PlanContext) -> bool:
    """Whether it repairs drift that people have not approved."""
    drift = action.drift_class.is_drift and action.verb.touches_live and action.decision in _REPAIRABLE
    return drift and not (context.approved and action.digest in context.approved)


def is_being_built(action: Action, context: PlanContext) -> bool:
    """Whether it has never been Ready, and has not lived long, or never long at a time."""
    base = context.bases.get(action.key)
    if base is None or base.established:
        return False
    agent = context.snapshot.agents.get(action.key.agent)
    time = agent.health_timeout if agent is not None else 0.0
    return action.key in context.attempts or 0 <= context.now - base.applied_at < time


def is_absence(action: Action) -> bool:
    """Whether it brings back what is certainly not there."""
    certain = action.confidence is Confidence.HIGH and action.decision in (Decision.REPAIR, Decision.WAIT)
    return certain and action.drift_class is Class.MISSING_EXTERNAL


def explained_agents(actions: Iterable[Action], context: PlanContext) -> frozenset[AgentKey]:
    """The agents whose absence has a known cause: their host was restarted."""
    return frozenset(action.key.agent for action in actions if action.reason in context.catalog.explained)


def gone_agents(actions: Iterable[Action], context: PlanContext) -> list[AgentKey]:
    """The agents that are gone, in the order of the actions. Those still being built are for their commit's gate
    to judge; of those whose host was restarted it does not matter what else is wrong."""
    drifts = [each for each in actions if is_unapproved_drift(each, context)]
    others = {each.key.agent for each in drifts if not is_absence(each)} - explained_agents(drifts, context)
    absent = (each for each in drifts if each.key.kind == Kind.RUNTIME and is_absence(each))
    found = dict.fromkeys(each.key.agent for each in absent if not is_being_built(each, context))
    return [agent for agent in found if agent not in others]
