"""What a plan lets through, on record before any of it is done: actions on the account of the cap, and agents that
come back in waves. So a crash in the middle lets no more through than no crash would. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from gitops_agent.model.control import EVERYTHING
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.key import AgentKey
from gitops_agent.model.pace import Debt, Debts, MassReturn, Now, owed
from gitops_agent.model.plan import Action, Plan
from gitops_agent.model.policy_merge import limits_of
from gitops_agent.model.state import State
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.absence import is_on_its_way, returning_now
from gitops_agent.plan.guards.drifts import explained_agents, gone_agents
from gitops_agent.plan.reasons import Hold


def admitted(state: State, plan: Plan, context: PlanContext, now: Now) -> State:
    """The state when all that the plan allows is about to be done."""
    reconcile = state.reconcile
    debts = charged(reconcile.debts, plan.allowed, context.policy, now)
    returning = _returning(plan, context)
    if debts == reconcile.debts and returning == reconcile.returning:
        return state
    return replace(state, reconcile=replace(reconcile, debts=debts, returning=returning))


def charged(debts: Debts, actions: Iterable[Action], policy: PolicySpec, now: Now, sign: int = 1) -> Debts:
    """The debts with the live actions of the fleet and of each tenant added, or (``sign`` -1) taken off again."""
    live = [action for action in actions if action.verb.touches_live]
    if not live:
        return debts
    counts = Counter({EVERYTHING: len(live), **Counter(action.key.agent.tenant for action in live)})
    after: dict[str, Debt] = {}
    for scope in debts.keys() | counts.keys():
        cap = limits_of(policy, None if scope == EVERYTHING else scope).actions_per_minute
        left = max(0.0, owed(debts, now, scope, cap) + sign * counts[scope])
        if left:
            after[scope] = Debt(left, now.active, now.wall)
    return after


def _returning(plan: Plan, context: PlanContext) -> MassReturn | None:
    """Who is on the way back when this plan is done; None when there is no such thing (any more)."""
    verdict = next((each for each in plan.verdicts if each.guard == "absence"), None)
    held = frozenset(key.agent for key in verdict.held) if verdict is not None else frozenset[AgentKey]()
    going = gone_agents(plan.allowed, context)
    explained = explained_agents(plan.allowed, context)
    if not (held or context.returning):  # few are gone: only those whose host was restarted are counted
        going = [key for key in going if key in explained]
    if (verdict is not None and verdict.freeze) or not (held or going or context.returning):
        return None
    known = returning_now(context)
    released = dict(known.released)
    for key in going:  # one that falls over again has the time that is left of its turn
        if key not in released or not is_on_its_way(key, released[key], context):
            released[key] = context.active
    unseen = known.waiting - context.scope if context.scope is not None else frozenset[AgentKey]()
    waiting = held | unseen - released.keys()
    if not waiting and not any(is_on_its_way(key, at, context) for key, at in released.items()):
        return None
    held_for = verdict.findings[0].code if verdict is not None and verdict.findings else ""
    likely = Hold.HOST_RESTARTED if going and explained.issuperset(going) else Hold.MASS_ABSENCE
    return MassReturn(released, waiting, known.proven, held_for or known.cause or str(likely))
