"""Guards: pure rules that let a plan through, trim it or block it. All are evaluated; none adds an action.

A later rule joins by its place in ``GUARDS``. A guard sees the plan with what the guards before it hold, so the
cap, which counts what is left, stands last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.plan import Action, Decision, Effect, Plan, Verdict
from gitops_agent.plan.guards.action_cap import action_cap
from gitops_agent.plan.guards.backoff import backoff
from gitops_agent.plan.guards.dependencies import dependencies
from gitops_agent.plan.guards.empty_source import empty_source
from gitops_agent.plan.guards.freeze import freeze
from gitops_agent.plan.guards.mass_delete import mass_delete
from gitops_agent.plan.guards.observe_mode import observe_mode
from gitops_agent.plan.guards.paused import paused
from gitops_agent.plan.situation import Situation

Guard = Callable[[Plan, Situation], Verdict]

GUARDS: tuple[Guard, ...] = (
    freeze,
    observe_mode,
    paused,
    empty_source,
    mass_delete,
    backoff,
    dependencies,
    action_cap,
)


def evaluate(plan: Plan, situation: Situation, guards: Sequence[Guard] = GUARDS) -> Plan:
    """The plan with the verdict of every guard, what they hold, and all their findings added to its own."""
    if not plan.actions and not situation.blind:
        return plan  # with a driver that cannot be asked, an empty plan is no proof that nothing would be lost
    decisions: dict[ResourceKey, Decision] = {}
    for guard in guards:
        verdict = guard(plan, situation)
        held = _with_followers(plan.actions, plan.held, verdict.held)
        for key in held - plan.held:
            decisions[key] = _decision(verdict)
        plan = replace(
            plan,
            held=held,
            verdicts=(*plan.verdicts, verdict),
            findings=(*plan.findings, *verdict.findings),
        )
    return replace(plan, actions=_marked(plan.actions, decisions)) if decisions else plan


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


def _decision(verdict: Verdict) -> Decision:
    """What a held action waits for: people (a block, Observe mode) or time."""
    if verdict.effect is Effect.BLOCK:
        return Decision.ASK
    return Decision.ALERT if verdict.guard == observe_mode.__name__ else Decision.WAIT


def _marked(actions: Sequence[Action], decisions: dict[ResourceKey, Decision]) -> tuple[Action, ...]:
    """The actions, those held with the decision that this makes of them."""
    return tuple(
        replace(action, decision=decisions[action.key]) if action.key in decisions else action
        for action in actions
    )
