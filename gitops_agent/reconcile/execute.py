"""Execute a plan: precheck, intent, apply, outcome.

Each agent is a lane: its actions run in order, and the first that fails ends the lane. Lanes run side by side.
All journal writes happen on the calling thread, and everything that is due at one moment is written in one
transaction, so a hundred agents cost a few dozen durable writes rather than four hundred.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from random import Random

from gitops_agent.errors import ApplyError, GitopsAgentError
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import EMPTY
from gitops_agent.model.outcome import Attempt, Intent, Outcome, Result
from gitops_agent.model.plan import Action, Class, Plan, Verb
from gitops_agent.model.record import base_after
from gitops_agent.ports import Applier, Clock, Journal
from gitops_agent.reconcile.retry import after_failure


@dataclass(frozen=True, slots=True)
class Workbench:
    """What execution needs around the plan. ``interrupted`` is asked before each new action."""

    appliers: Mapping[str, Applier]
    journal: Journal
    clock: Clock
    random: Random
    pool: Executor
    interrupted: Callable[[], bool] = lambda: False
    on_unexpected: Callable[[Exception, Action], None] = lambda _problem, _action: None


Executed = tuple[Action, Outcome]


def execute(plan: Plan, bench: Workbench, actor: str) -> list[Executed]:
    """Carry out what the plan allows; one outcome per action that was begun."""
    lanes: dict[AgentKey, deque[Action]] = {}
    for action in plan.allowed:
        lanes.setdefault(action.key.agent, deque()).append(action)
    if not lanes:
        return []
    # What a crash left open is tried again under the same idempotency key.
    reused = {_same(intent.action): intent.id for intent in bench.journal.open_intents()}
    done: list[Executed] = []

    def begin(some: Iterable[deque[Action]]) -> dict[Future[Outcome], Intent]:
        now = bench.clock.now()
        heads = [lane.popleft() for lane in some if lane]
        ids = [reused.pop(_same(action), "") or uuid.uuid4().hex for action in heads]
        intents = [
            Intent(name, action, plan.commit, plan.digest, actor, now)
            for name, action in zip(ids, heads, strict=True)
        ]
        if intents:
            bench.journal.begin(intents)
        return {bench.pool.submit(_carry_out, intent, bench): intent for intent in intents}

    running = begin(lanes.values())
    while running:
        finished, _ = wait(running, return_when=FIRST_COMPLETED)
        round_: list[Executed] = [(running.pop(future).action, future.result()) for future in finished]
        _finish(round_, plan, bench)
        done += round_
        open_lanes = [lanes[action.key.agent] for action, outcome in round_ if outcome.result is Result.DONE]
        if not bench.interrupted():
            running |= begin(open_lanes)
    return done


def _same(action: Action) -> tuple[ResourceKey, Verb, Fields | None]:
    """What makes two actions the same effect."""
    return action.key, action.verb, action.desired


def _carry_out(intent: Intent, bench: Workbench) -> Outcome:
    """One driver call; whatever happens becomes an Outcome."""
    action, started = intent.action, bench.clock.monotonic()

    def outcome(result: Result, message: str, facts: object = None, *, permanent: bool = False) -> Outcome:
        kept = facts if facts is not None else action.facts or EMPTY
        spent = bench.clock.monotonic() - started
        return Outcome(intent.id, result, message, bench.clock.now(), spent, kept, permanent)  # type: ignore[arg-type]

    if not action.verb.touches_live:
        return outcome(Result.DONE, "recorded")
    try:
        applier = bench.appliers[action.driver]
        if not applier.unchanged(action):
            return outcome(Result.SKIPPED, "live moved since the plan was made; planned again on the next pass")
        applied = applier.apply(action, intent.id)
    except ApplyError as problem:
        return outcome(Result.FAILED, _sentence(problem), permanent=problem.permanent)
    except GitopsAgentError as problem:
        return outcome(Result.FAILED, _sentence(problem))
    except Exception as problem:  # a driver's bug must not stop its siblings
        bench.on_unexpected(problem, action)
        return outcome(Result.FAILED, f"unexpected {type(problem).__name__} in driver {action.driver}")
    return outcome(Result.DONE, applied.message, applied.facts)


def _sentence(problem: GitopsAgentError) -> str:
    return f"{problem.message} ({problem.hint})" if problem.hint else problem.message


def _finish(round_: Sequence[Executed], plan: Plan, bench: Workbench) -> None:
    """Write outcomes with the bases and retry states they imply, in one transaction."""
    known = bench.journal.bases()
    done = [(action, outcome) for action, outcome in round_ if outcome.result is Result.DONE]
    bench.journal.finish(
        [outcome for _, outcome in round_],
        bases=[
            base
            for action, outcome in done
            if (base := base_after(action, known.get(action.key), plan.commit, outcome.at, outcome.facts))
        ],
        forgotten=[action.key for action, _ in done if action.verb in (Verb.DELETE, Verb.FORGET)],
        attempts=_attempts_after(round_, bench),
    )


def _attempts_after(round_: Sequence[Executed], bench: Workbench) -> dict[ResourceKey, Attempt | None]:
    """Failures count, and so do repairs of drift: a crash loop is a repair that does not last."""
    known = bench.journal.attempts()
    after: dict[ResourceKey, Attempt | None] = {}
    for action, outcome in round_:
        previous = known.get(action.key)
        if outcome.result is Result.FAILED:
            after[action.key] = after_failure(
                previous, outcome.message, outcome.at, bench.random.random(), permanent=outcome.permanent
            )
        elif outcome.result is Result.DONE and action.verb.touches_live:
            if action.cls is Class.CHANGE:
                after[action.key] = None
            else:
                why = f"{action.reason}: {action.message}"
                after[action.key] = after_failure(previous, why, outcome.at, bench.random.random())
    return after
