"""From what a pass saw and did to the conditions of each agent. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from gitops_agent.model.agent import Agent, Lifecycle, Pause, Resource
from gitops_agent.model.key import Kind, ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.outcome import MAX_DELAY_SECONDS, Attempt
from gitops_agent.model.plan import Action, Decision
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.status import (
    OBSERVE_FAILED,
    REPEATED_DRIFT,
    AgentStatus,
    Condition,
    ConditionType,
    Health,
    HealthState,
    ResourceStatus,
)
from gitops_agent.plan.guards.verdicts import is_from_commit
from gitops_agent.plan.reasons import ONLY_REPORTED, Hold

_Statement = tuple[ConditionType, bool, str, str]
_READY_STATES = (HealthState.HEALTHY, HealthState.STOPPED)
_FOR_PEOPLE = (Decision.ASK, Decision.QUARANTINE, Decision.ALERT)

ABANDONED = "ProvisioningTimedOut"
"""The reason of an agent that did not become Ready in time and was taken down again."""

ROLLOUT_HELD = "RolloutHeld"
"""The reason of an agent that was not touched, because a rollout is held before its wave."""

RESTING = "Stopped"
"""The reason of an agent that is Ready because nothing is meant to run."""


UNKNOWN = "Unknown"
"""The state of a resource that could not be looked at: it may be there or not."""

RETIRED = "Retired"
_AT_REST = (RESTING, RETIRED)


class AgentView(NamedTuple):
    """Everything known about one agent at the end of a pass.

    ``pending`` are the actions that are still to be done (held, failed or not decided to be done);
    ``attempts``: the retry states of its resources; ``unreachable``: its drivers that could not be asked, and why
    ("": something else of it could not be looked at);
    ``deadline_passed``: the seconds in which it did not become healthy, once they are over. ``held``: a guard that
    only people release holds something of it; ``frozen``: and that guard is a freeze. ``busy``: an action on it is
    under way. ``halted``: the rollout whose failed gate keeps it from the newest commit. ``longest_delay``: the
    furthest that a next try may be away. ``due_at``: when a guard lets it be tried again, at the latest.
    ``blocked_by``: the code of the guard that holds what a commit asks of it until people decide. ``repeated``:
    its drift was repaired too often, and rests. ``waits``: the code of what it waits for: agents that
    it depends on, or another gitops-agent. ``moves``: where it runs until it has moved, in words. ``returning``:
    the code of what took it away together with many others: it comes back in its turn. ``left``: the commit of
    which it was left out, while a wave of its own is still to come. ``pause``: the one in force.
    """

    agent: Agent
    seen: Mapping[ResourceKey, Observation]
    bases: Mapping[ResourceKey, Base]
    health: Health | None
    pending: Sequence[Action] = ()
    attempts: Sequence[Attempt] = ()
    unreachable: Mapping[str, str] = MappingProxyType({})
    deadline_passed: float | None = None
    held: bool = False
    frozen: bool = False
    busy: bool = False
    halted: Rollout | None = None
    longest_delay: float = MAX_DELAY_SECONDS
    due_at: float | None = None
    blocked_by: str = ""
    repeated: bool = False
    waits: str = ""
    moves: str = ""
    returning: str = ""
    left: str = ""
    pause: Pause | None = None


def agent_status(view: AgentView, previous: AgentStatus | None, commit: str, now: float) -> AgentStatus:
    """The status of one agent; conditions that did not change keep their transition time."""
    if previous is not None and _still_says_it(previous, view, commit):
        return previous
    ready, reason, message = _readiness(view)
    stalled = _stalled(view)
    statements: list[_Statement] = [(ConditionType.READY, ready, reason, message)]
    # It becomes as desired without a person: it starts, or an action is done by itself, perhaps at a later time.
    owed = next((a for a in view.pending if a.decision in (Decision.REPAIR, Decision.WAIT)), None)
    starting = view.busy or (view.health is not None and view.health.state is HealthState.STARTING)
    moving = stalled is None and not view.held and (starting or owed is not None)
    if moving and (why := _on_its_way(view, owed, None if ready else (reason, message))) is not None:
        statements.append((ConditionType.RECONCILING, True, *why))
    if stalled is not None:
        statements.append((ConditionType.STALLED, True, *stalled))
    if view.health is not None and view.health.state is HealthState.STUCK:
        statements.append((ConditionType.STUCK, True, view.health.reason, view.health.message))
    if view.frozen:
        statements.append((ConditionType.FROZEN, True, "Frozen", "a freeze holds work back"))
    if view.halted is not None:
        statements.append((ConditionType.HALTED, True, ROLLOUT_HELD, _halted(view.halted)))
    if (drift := next((action for action in view.pending if action.drift_class.is_drift), None)) is not None:
        statements.append((ConditionType.DRIFTED, True, drift.reason, drift.message))
    tries = [attempt.next_at for attempt in view.attempts if not attempt.is_due(now, view.longest_delay)]
    return AgentStatus(
        agent=view.agent.key,
        ready=ready,
        lifecycle=view.agent.lifecycle,
        conditions=_conditions(previous, statements, commit, now),
        observed_commit=commit,
        resources=tuple(_resources(view)),
        origin=str(view.agent.origin),
        next_try_at=view.due_at or (min(tries, default=None) if view.pending or not ready else None),
        mode=view.agent.mode,
        pause=view.pause,
        failing_since=_failing_since(previous, commit, ready=ready),
        progress=view.health.progress if view.health is not None else (),
        behind_at=_behind_at(view),
    )


def _on_its_way(view: AgentView, owed: Action | None, unready: tuple[str, str] | None) -> tuple[str, str] | None:
    """The code and the words for how an agent becomes as desired by itself; None when there is nothing to say.
    ``unready``: why it is not Ready, if it is not."""
    if owed is not None and view.repeated:
        return REPEATED_DRIFT, owed.message
    if owed is not None and view.waits:
        return view.waits, owed.message
    if owed is not None and view.moves:
        return Hold.HANDOVER_WAITS, view.moves
    if unready is not None:
        return view.returning or unready[0], unready[1]
    # Healthy, and its drift waits for its time.
    return (owed.reason, owed.message) if owed is not None else None


def _failing_since(previous: AgentStatus | None, commit: str, *, ready: bool) -> str:
    """The commit in force when an agent stopped being Ready, or at which it was first seen without being so."""
    if ready:
        return ""
    return previous.failing_since if previous is not None and previous.failing_since else commit


def _behind_at(view: AgentView) -> str | None:
    """The commit last applied to an agent that owes something to a later one; None where it owes nothing."""
    bases = [base for each in view.agent.resources if (base := view.bases.get(each.key)) is not None]
    owes = view.left or any(is_from_commit(each) for each in view.pending if each.key.kind != Kind.HOOK)
    if not (owes or (view.unreachable and not bases)):  # what could not be looked at has nothing pending
        return None
    applied = max(bases, key=lambda base: base.applied_at).commit if bases else ""
    return None if view.left and view.left == applied else applied


def _still_says_it(status: AgentStatus, view: AgentView, commit: str) -> bool:
    """Whether nothing is new about a Ready agent: most agents in most passes, so it is asked first.
    It may say no where the long way gives an equal status; never yes where it gives another one."""
    health = view.health
    return (
        health is not None
        and health.state in _READY_STATES
        and not (view.pending or view.unreachable or view.frozen or view.busy or view.halted or view.left)
        and status.ready
        and status.observed_commit == commit
        and status.lifecycle is view.agent.lifecycle is not Lifecycle.RETIRED
        and len(status.conditions) == 1
        and (known := status.conditions[0]).message == health.message
        and known.observed_commit == commit
        and known.reason == _ready_word(health)
        and status.origin == str(view.agent.origin)
        and status.progress == health.progress
        and status.next_try_at is None
        and status.behind_at is None
        and not view.attempts
        and status.mode is view.agent.mode
        and status.pause == view.pause
        and _are_resources(status.resources, view)
    )


def _are_resources(known: Sequence[ResourceStatus], view: AgentView) -> bool:
    """Whether these are the resources of an agent, as they were seen."""
    if len(known) != len(view.agent.resources):
        return False
    for status, resource in zip(known, view.agent.resources, strict=True):
        seen = view.seen.get(resource.key)
        if seen is None or seen.state != status.state or seen.live != status.live:
            return False
        if status.key != resource.key or status.driver != resource.driver:
            return False
    return True


def _readiness(view: AgentView) -> tuple[bool, str, str]:
    if view.unreachable:
        return False, OBSERVE_FAILED, next(iter(view.unreachable.values()))
    if view.busy:
        return False, "InProgress", "an action on it is under way"
    if view.agent.abandoned:
        return False, ABANDONED, _given_up(view.agent)
    if view.agent.lifecycle is Lifecycle.RETIRED:
        return not view.pending, RETIRED, "retired, as desired" if not view.pending else "being retired"
    # Hooks wait for Ready, so Ready does not wait for them.
    pending = [action for action in view.pending if action.key.kind != Kind.HOOK]
    owed = next((action for action in pending if action.decision is Decision.REPAIR), None)
    doubtful = next((action for action in pending if action.decision is not Decision.REPAIR), None)
    health = view.health
    if health is not None and health.state not in _READY_STATES:
        return False, health.reason, health.message
    if owed is not None and owed.verb.touches_live and owed.key not in view.bases:
        return False, owed.reason, owed.message
    if doubtful is not None and doubtful.key not in view.bases:
        return False, doubtful.reason, doubtful.message
    if health is None:
        return False, "Unknown", "health is not known yet"
    return True, _ready_word(health), health.message


def _ready_word(health: Health) -> str:
    """Healthy, as a rule; well but disputed says so."""
    return RESTING if health.state is HealthState.STOPPED else health.reason


def halted(status: AgentStatus, rollout: Rollout | None, now: float) -> AgentStatus:
    """A status that says which rollout is held before its agent's wave came; None: none is any more."""
    others = tuple(condition for condition in status.conditions if condition.type is not ConditionType.HALTED)
    if rollout is None:
        return replace(status, conditions=others)
    held = Condition(ConditionType.HALTED, True, ROLLOUT_HELD, _halted(rollout), now, status.observed_commit)
    return replace(status, conditions=(*others, held))


def ended(status: AgentStatus, left: Action | None, now: float) -> AgentStatus:
    """The status of an agent that left Git, once nothing of it runs: only ``left`` keeps it on record."""
    reason, message = (left.reason, left.message) if left is not None else ("Ended", "ended, as desired")
    statements: list[_Statement] = [(ConditionType.READY, False, reason, f"It has ended. {message}")]
    if left is not None and left.decision in _FOR_PEOPLE:
        statements.append((ConditionType.STALLED, True, reason, message))
    return replace(
        status,
        ready=False,
        lifecycle=Lifecycle.RETIRED,
        conditions=_conditions(status, statements, status.observed_commit, now),
        resources=tuple(replace(each, state="Ended", health="", live={}) for each in status.resources),
        next_try_at=None,
    )


def out_of_sight(status: AgentStatus, now: float) -> AgentStatus:
    """The status of an agent that left Git and cannot be looked at: it may still be there."""
    message = "it is in Git no more, and goes when it can be looked at again"
    statements: list[_Statement] = [(ConditionType.READY, False, OBSERVE_FAILED, message)]
    conditions = _conditions(status, statements, status.observed_commit, now)
    resources = tuple(replace(each, state=UNKNOWN, health="", live={}) for each in status.resources)
    return replace(status, ready=False, conditions=conditions, resources=resources, next_try_at=None)


def _halted(rollout: Rollout) -> str:
    return f"keeps its earlier spec: the rollout of {rollout.commit[:10]} is held"


def _given_up(agent: Agent) -> str:
    return (
        f"{agent.abandoned}, so what was built of it was taken down again; a commit that changes it, or "
        f"gitops-agent retry {agent.key}, gives it another chance"
    )


def _stalled(view: AgentView) -> tuple[str, str] | None:
    if view.agent.abandoned:
        return ABANDONED, _given_up(view.agent)
    if view.blocked_by:
        return view.blocked_by, "what a commit asks of it is held until people decide"
    for attempt in view.attempts:
        if attempt.permanent:
            return "CannotApply", attempt.error
        if attempt.stalled:
            return "Backoff", f"tried {attempt.failures} times; last: {attempt.error}"
    doubtful = (a for a in view.pending if a.decision in _FOR_PEOPLE and a.reason not in ONLY_REPORTED)
    if not view.held and (doubt := next(doubtful, None)):
        # Waiting for what only people can decide would be waiting for ever.
        return doubt.reason, doubt.message
    if view.deadline_passed is not None and view.health is not None and view.health.state not in _READY_STATES:
        return "HealthTimeout", f"not healthy within {view.deadline_passed:.0f} s: {view.health.message}"
    return None


def _conditions(
    previous: AgentStatus | None, statements: Sequence[_Statement], commit: str, now: float
) -> tuple[Condition, ...]:
    known = {condition.type: condition for condition in previous.conditions} if previous is not None else {}
    return tuple(_condition(known.get(each[0]), each, commit, now) for each in statements)


def _condition(known: Condition | None, statement: _Statement, commit: str, now: float) -> Condition:
    kind, status, reason, message = statement
    # To rest as desired, or to have ended, is another state than to run well, though all are Ready.
    rests = known is not None and (known.reason if known.reason in _AT_REST else "")
    same = known is not None and known.status == status and rests == (reason if reason in _AT_REST else "")
    since = known.last_transition_at if known is not None and same else now
    made = Condition(kind, status, reason, message, since, commit)
    # An unchanged statement is the same object, so that an unchanged status is cheap to recognise.
    return known if known is not None and known == made else made


def _resources(view: AgentView) -> list[ResourceStatus]:
    rows = []
    for resource in view.agent.resources:
        key, seen = resource.key, view.seen.get(resource.key)
        state, live = (seen.state, seen.live) if seen else (_state_unseen(resource, view), {})
        own = seen.health if seen is not None else None
        health = view.health if own is None and key.kind == "runtime" else own
        word = health.state if health else ""
        # What was not looked at is as unknown as whether it is there.
        rows.append(
            ResourceStatus(key, resource.driver, state, UNKNOWN if word and state == UNKNOWN else word, live)
        )
    return rows


def _state_unseen(resource: Resource, view: AgentView) -> str:
    """The word for a resource of which nothing was seen: not there, unless nothing could be looked at."""
    if resource.driver in view.unreachable:
        return UNKNOWN
    return "Stopped" if resource.stopped else "Missing"
