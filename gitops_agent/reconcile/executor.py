"""Execute a plan: precheck, intent, apply, outcome.

Each agent is a lane: its actions run in order, and the first that fails ends the lane. Lanes run side by side, as
many as there are workers; what takes away goes before what builds. All journal writes are on the calling thread,
and what is due at one moment is written in one transaction, so a hundred agents cost a few dozen durable writes
rather than four hundred.

A slow agent must not keep its siblings from being repaired: after a while the pass goes on without it, its action
is running, and what became of it is collected by a later pass.
"""

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures import Executor as Pool
from dataclasses import dataclass, field, replace
from random import Random

from gitops_agent.drivers.api import Driver, is_unchanged
from gitops_agent.errors import ApplyError, EffectSpent, GitopsAgentError
from gitops_agent.journal.store import SqlJournal
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import EMPTY
from gitops_agent.model.one_shot import OneShot, generation_of
from gitops_agent.model.outcome import Intent, Outcome, Result
from gitops_agent.model.passes import Executed
from gitops_agent.model.plan import Action, Plan, Verb
from gitops_agent.model.state import State
from gitops_agent.plan.order import TEARDOWN
from gitops_agent.ports import Clock, Leases
from gitops_agent.reconcile.bases import base_after
from gitops_agent.reconcile.retry import attempts_after
from gitops_agent.support.token_bucket import Rate

PATIENCE_SECONDS = 2.0
"""How long a pass waits for an action that is under way before it goes on without it."""


@dataclass(frozen=True, slots=True)
class ExecutorContext:
    """What execution needs around the plan. ``interrupted`` is asked before each new action; ``workers``: how many
    actions run side by side on ``apply_pool``; ``rates``: how many actions a second some drivers take at most."""

    drivers: Mapping[str, Driver]
    journal: SqlJournal
    clock: Clock
    random: Random
    apply_pool: Pool
    workers: int = 8
    patience: float = PATIENCE_SECONDS
    interrupted: Callable[[], bool] = lambda: False
    on_unexpected: Callable[[BaseException, Action], None] = lambda _problem, _action: None
    leases: Leases | None = None
    rates: Mapping[str, Rate] = field(default_factory=dict)


Lane = deque[Action]


class RateLimiter:
    """Hands out the next actions of lanes, no faster than their drivers take them."""

    def __init__(self, rates: Mapping[str, Rate], clock: Clock) -> None:
        self._clock = clock
        self._buckets = {name: rate.full(clock.monotonic()) for name, rate in rates.items()}

    def take_heads(self, lanes: deque[Lane], room: int) -> list[Action]:
        """The first actions of up to ``room`` lanes, taken out; lanes whose driver has no token stay, in order."""
        heads: list[Action] = []
        kept: list[Lane] = []
        while lanes and len(heads) < room:
            lane = lanes.popleft()
            if self._may_act(lane[0]):
                heads.append(lane.popleft())
            else:
                kept.append(lane)
        lanes.extendleft(reversed(kept))
        return heads

    def next_due(self) -> float | None:
        """Seconds until some driver that has no token now has one again; None when all have."""
        now = self._clock.monotonic()
        return min((wait for each in self._buckets.values() if (wait := each.wait(now)) > 0), default=None)

    def _may_act(self, action: Action) -> bool:
        bucket = self._buckets.get(action.driver) if action.verb.touches_live else None
        if bucket is None:
            return True
        left = bucket.take(self._clock.monotonic())
        if left is not None:
            self._buckets[action.driver] = left
        return left is not None


class Executor:
    """Carries out plans. Remembers what is under way from one pass to the next.
    Writes: intents and outcomes, with the bases and retry states they imply (``ReconcileState``)."""

    def __init__(self, context: ExecutorContext) -> None:
        self._context = context
        self._policy = PolicySpec()
        self._running: dict[Future[Outcome], Intent] = {}
        self._collected: list[Executed] = []
        self._limiter = RateLimiter(context.rates, context.clock)

    @property
    def running(self) -> tuple[Action, ...]:
        """The actions that an earlier pass began and whose end is not known yet."""
        return tuple(intent.action for intent in self._running.values())

    def collect_finished(self) -> None:
        """Record what has ended since the last pass; the next ``execute`` returns it."""
        self._collected += self._finish([future for future in self._running if future.done()])

    def execute(self, state: State, plan: Plan, policy: PolicySpec, actor: str) -> tuple[State, list[Executed]]:
        """Carry out what the plan allows: the state afterwards, and one outcome per action that ended in time.
        ``policy``: what says how long a failure rests."""
        self._policy = policy
        done, self._collected = self._collected, []
        for lanes in _lanes(plan):
            done += self._work(lanes, plan, actor)
        return replace(state, reconcile=self._context.journal.state().reconcile), done

    def next_due(self) -> float | None:
        """Seconds until a driver whose rate was used up takes actions again; None when none waits for that."""
        return self._limiter.next_due()

    def close(self) -> None:
        """Wait for what is under way, and record it."""
        wait(self._running)
        self._finish(list(self._running))

    def _work(self, lanes: dict[AgentKey, Lane], plan: Plan, actor: str) -> list[Executed]:
        if not lanes:
            return []
        context, waiting, done = self._context, deque(lanes.values()), list[Executed]()
        # What a crash left open is tried again under the same idempotency key.
        open_intents = context.journal.state().reconcile.open_intents.values()
        reused = {_same(intent.action): intent.id for intent in open_intents}
        begun: set[Future[Outcome]] = set()
        try:
            while waiting or begun:
                room = 0 if context.interrupted() else context.workers - len(self._running)
                heads = self._limiter.take_heads(waiting, room)
                begun |= self._begin(heads, reused, plan, actor)
                if not begun:
                    break
                ended, _ = wait(begun, timeout=context.patience, return_when=FIRST_COMPLETED)
                if not ended:
                    break
                begun -= ended
                round_ = self._finish(ended)
                done += round_
                good = (lanes[action.key.agent] for action, outcome in round_ if outcome.result is Result.DONE)
                waiting.extendleft(lane for lane in good if lane)
        except BaseException:
            wait(begun)  # a journal that cannot be written: nothing may still be acting when the next pass looks
            raise
        return done

    def _begin(
        self, actions: Sequence[Action], reused: dict["_Same", str], plan: Plan, actor: str
    ) -> set[Future[Outcome]]:
        context, now = self._context, self._context.clock.now()
        intents = [
            Intent(reused.pop(_same(action), "") or uuid.uuid4().hex, action, plan.commit, plan.digest, actor, now)
            for action in actions
        ]
        if intents:
            context.journal.begin(intents)
        started = {context.apply_pool.submit(_carry_out, intent, context): intent for intent in intents}
        self._running |= started
        return set(started)

    def _finish(self, ended: Iterable[Future[Outcome]]) -> list[Executed]:
        """Write outcomes with the bases and retry states they imply, in one transaction."""
        ended = list(ended)
        if not ended:
            return []
        ends = [(self._running[future], future.result()) for future in ended]
        journal, known = self._context.journal, self._context.journal.state().reconcile
        executed = [(intent.action, outcome) for intent, outcome in ends]
        after = {
            intent.action.key: base_after(intent, outcome, known.bases.get(intent.action.key))
            for intent, outcome in ends
            if outcome.spent or outcome.result is Result.DONE
        }
        journal.finish(
            [outcome for _, outcome in ends],
            bases=[base for base in after.values() if base is not None],
            forgotten=[key for key, base in after.items() if base is None],
            attempts=attempts_after(executed, known.attempts, self._policy, self._context.random),
        )
        # Only now: what could not be written down is collected by the next pass.
        for future in ended:
            del self._running[future]
        return executed


def _lanes(plan: Plan) -> Iterator[dict[AgentKey, Lane]]:
    """The actions of each agent in their order: first the agents that only lose something, then the others."""
    lanes: dict[AgentKey, Lane] = {}
    for action in plan.allowed:
        lanes.setdefault(action.key.agent, deque()).append(action)
    ending = {agent for agent, lane in lanes.items() if all(action.verb in TEARDOWN for action in lane)}
    yield {agent: lane for agent, lane in lanes.items() if agent in ending}
    yield {agent: lane for agent, lane in lanes.items() if agent not in ending}


_Same = tuple[ResourceKey, Verb, Fields | None]


def _same(action: Action) -> _Same:
    """What makes two actions the same effect."""
    return action.key, action.verb, action.desired


def _carry_out(intent: Intent, context: ExecutorContext) -> Outcome:
    """One driver call; whatever happens becomes an Outcome."""
    action, started = intent.action, context.clock.monotonic()

    def outcome(result: Result, message: str, handle: Fields | None = None, *, permanent: bool = False) -> Outcome:
        spent = context.clock.monotonic() - started
        kept = handle or action.handle or EMPTY
        return Outcome(intent.id, result, message, context.clock.now(), spent, kept, permanent)

    if not action.verb.touches_live:
        return outcome(Result.DONE, "recorded")
    try:
        driver = context.drivers[action.driver]
        if not is_unchanged(driver, action):
            return outcome(Result.SKIPPED, "live moved since the plan was made; planned again on the next pass")
        if context.leases is not None and not context.leases.holds(action.key.agent):
            return outcome(Result.SKIPPED, "its lease was lost since the plan was made; asked for again")
        applied = driver.apply(action, intent.id)
    except EffectSpent as problem:
        result = Result.UNKNOWN if problem.unknown else Result.FAILED
        return replace(outcome(result, _sentence(problem), problem.handle, permanent=True), spent=True)
    except GitopsAgentError as problem:
        permanent = isinstance(problem, ApplyError) and problem.permanent
        return outcome(Result.FAILED, _sentence(problem), permanent=permanent)
    except (Exception, SystemExit) as problem:  # a driver's bug must not stop its siblings, nor us
        context.on_unexpected(problem, action)
        problem_text = f"unexpected {type(problem).__name__} in driver {action.driver}"
        if not action.idempotent:
            # It may have happened, and it must not happen twice.
            handle = OneShot(generation_of(action.handle, intent.id), Result.UNKNOWN, problem_text).handle
            return replace(outcome(Result.UNKNOWN, problem_text, handle), spent=True)
        return outcome(Result.FAILED, problem_text)
    return outcome(Result.DONE, applied.message, applied.handle)


def _sentence(problem: GitopsAgentError) -> str:
    return f"{problem.message} ({problem.hint})" if problem.hint else problem.message
