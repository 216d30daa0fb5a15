"""Guards: pure rules that let a plan through, trim it or block it. All are evaluated; none adds an action.

A later rule joins by its place in ``GUARDS``. A guard sees the plan with what the guards before it hold, so those
that count what is left (the agents that come back next, the one action of a driver half open, the cap) stand last.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.plan import Action, Decision, Plan, Verdict
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.absence import absence
from gitops_agent.plan.guards.action_cap import action_cap
from gitops_agent.plan.guards.backoff import backoff
from gitops_agent.plan.guards.breaker import breaker
from gitops_agent.plan.guards.dependencies import dependencies
from gitops_agent.plan.guards.empty_source import empty_source
from gitops_agent.plan.guards.failed_tree import failed_tree
from gitops_agent.plan.guards.freeze import freeze
from gitops_agent.plan.guards.handover import handover
from gitops_agent.plan.guards.hook_ready import hook_ready
from gitops_agent.plan.guards.mass_change import mass_change
from gitops_agent.plan.guards.mass_delete import mass_delete
from gitops_agent.plan.guards.mass_drift import mass_drift
from gitops_agent.plan.guards.observe_mode import observe_mode
from gitops_agent.plan.guards.oscillation import oscillation
from gitops_agent.plan.guards.own_wave import own_wave
from gitops_agent.plan.guards.paused import paused

Guard = Callable[[Plan, PlanContext], Verdict]
Decisions = dict[ResourceKey, Decision]

GUARDS: tuple[Guard, ...] = (
    # What people asked for. What is only observed waits for no freeze to be lifted.
    observe_mode,
    freeze,
    paused,
    # The commit as a whole.
    empty_source,
    failed_tree,
    mass_delete,
    mass_change,
    # The fleet as a whole.
    mass_drift,
    # What has to wait for its time.
    oscillation,
    backoff,
    handover,
    dependencies,
    hook_ready,
    own_wave,
    absence,
    breaker,
    action_cap,
)


def evaluate(plan: Plan, context: PlanContext, guards: Sequence[Guard] = GUARDS) -> Plan:
    """The plan with the verdict of every guard, what they hold, and all their findings added to its own."""
    if not plan.actions and not _is_worth_asking(context):
        return plan
    decisions: Decisions = {}
    for guard in guards:
        plan = _with(plan, guard(plan, context), decisions)
    return _marked(plan, decisions)


def with_verdict(plan: Plan, verdict: Verdict) -> Plan:
    """A finished plan with one more verdict, of something no pure rule can know (the holder of a lease)."""
    decisions: Decisions = {}
    return _marked(_with(plan, verdict, decisions), decisions)


def _is_worth_asking(context: PlanContext) -> bool:
    """Whether guards may have something to say of a plan without actions: where not all can be looked at it is
    no proof that nothing would be lost, a freeze may be forgotten, and a tree that failed stays where it is."""
    return bool(context.unreachable or context.unseen or context.freezes or context.frozen_since or context.failed)


def _with(plan: Plan, verdict: Verdict, decisions: Decisions) -> Plan:
    """The plan with one more verdict; the first that holds an action decides what becomes of it."""
    held = _with_followers(plan.actions, plan.held, verdict.held)
    decisions.update(dict.fromkeys(held - plan.held, verdict.decision))
    findings = (*plan.findings, *verdict.findings)
    return replace(plan, held=held, verdicts=(*plan.verdicts, verdict), findings=findings)


def _with_followers(
    actions: Sequence[Action], before: frozenset[ResourceKey], held: Collection[ResourceKey]
) -> frozenset[ResourceKey]:
    """What is held, with the later live actions of the same agents: no step overtakes one it builds on."""
    if before.issuperset(held):
        return before
    every = set(before)
    stopped: set[AgentKey] = set()
    for action in actions:
        if action.key in every or action.key in held:
            every.add(action.key)
            stopped.add(action.key.agent)
        elif action.key.agent in stopped and action.verb.touches_live and action.decision is Decision.REPAIR:
            every.add(action.key)
    return frozenset(every)


def _marked(plan: Plan, decisions: Decisions) -> Plan:
    """The plan, its held actions with the decision that this makes of them.
    Last of all, because guards look at what was decided of an action whether or not it is held."""
    if not decisions:
        return plan
    marked = (
        replace(action, decision=decisions[action.key]) if action.key in decisions else action
        for action in plan.actions
    )
    return replace(plan, actions=tuple(marked))
