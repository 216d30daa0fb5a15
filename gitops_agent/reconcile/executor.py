"""Execute a plan: precheck, intent, apply, outcome.

Each agent is a lane: its actions run in order, and the first that fails ends the lane. Lanes run side by side, as
many as there are workers in each place (``lanes``); what takes away goes before what builds. All journal writes
are on the calling thread, and what is due at one moment is written in one transaction. Where much waits, intents
are on record ahead of their actions where some have ended, and outcomes are gathered while the next ones run: a
thousand agents cost a hundred durable writes rather than four thousand. An intent that never began is taken back.

A slow agent must not keep its siblings from being repaired: after a while the pass goes on without it, its action
is running, gives up its room, and what became of it is collected by a later pass. An operator's word counts at
once: no action begins after a control that the pass has not read, but for what begins by itself while the journal
is written, for a moment, and only as long as nothing asks the pass to make way.
"""

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, wait
from concurrent.futures import Executor as Pool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import cast

import structlog

from gitops_agent.drivers.api import Driver, Record, Recording, has, is_unchanged
from gitops_agent.errors import ApplyError, EffectSpent, GitopsAgentError, NotYet
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
from gitops_agent.ports import Clock, Leases
from gitops_agent.reconcile.bases import base_after
from gitops_agent.reconcile.lanes import (
    Lane,
    Opened,
    Place,
    RateLimiter,
    WaitingLanes,
    lanes_of,
    place_of,
    room_left,
)
from gitops_agent.reconcile.retry import attempts_after
from gitops_agent.support.token_bucket import Rate

PATIENCE_SECONDS = 2.0
"""How long a pass waits for an action that is under way before it goes on without it."""

MAX_EXECUTE_SECONDS = 10.0
"""How long a pass begins actions; the next pass, which has heard of what happened meanwhile, goes on."""

CLOSE_SECONDS = 10.0
"""How long actions under way are waited for at the end."""

GATHER_SECONDS = 0.02
"""How long a pass with much to do waits for another action to end before it writes down that some have."""

AHEAD = 48
"""How many intents of each place are on record before there is room for their actions, at most, and how many
outcomes are gathered. None are where nothing has ended yet: they would be taken back if nothing does."""

MIN_LOOK_SECONDS, MAX_LOOK_SECONDS = 0.25, 2.0
"""How soon a pass looks whether an action under way has ended: as long as it takes already, within these."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExecutorContext:
    """What execution needs around the plan. ``interrupted`` is asked before each new action; ``workers``: how many
    quick actions of one place run side by side on ``apply_pool``, which has threads for all of them and for the
    slow ones; ``rates``: how many actions a second some drivers take at most."""

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


@dataclass(frozen=True, slots=True)
class _Running:
    """One action under way. ``began``: monotonic seconds."""

    intent: Intent
    began: float


@dataclass(slots=True)
class _Work:
    """Some lanes of a plan on their way. ``heard``: the number of the newest control that the pass has read;
    ``until``: when it begins nothing more; ``moving``: the places where some action has ended."""

    lanes: dict[AgentKey, Lane]
    plan: Plan
    actor: str
    heard: int
    until: float
    waiting: WaitingLanes = field(init=False)
    moving: set[Place] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.waiting = WaitingLanes(self.lanes)

    def go_on(self, action: Action, outcome: Outcome) -> None:
        """An action has ended: after a success the next one of its agent may begin."""
        self.moving.add(place_of(action))
        if outcome.result is Result.DONE:
            self.waiting.put_back(self.lanes[action.key.agent])


class Executor:
    """Carries out plans. Remembers what is under way from one pass to the next.
    Writes: intents and outcomes, with the bases and retry states they imply (``ReconcileState``)."""

    def __init__(self, context: ExecutorContext) -> None:
        self._context = context
        self._policy = PolicySpec()
        self._running: dict[Future[Outcome], _Running] = {}
        self._opened = Opened()
        self._guard = threading.RLock()  # of what is opened and what runs: the end of an action begins the next
        self._relayed: set[Future[Outcome]] | None = None  # what began while the journal was written
        self._collected: list[Executed] = []
        self._limiter = RateLimiter(context.rates, context.clock)

    @property
    def running(self) -> tuple[Action, ...]:
        """The actions that an earlier pass began and whose end is not known yet."""
        return tuple(each.intent.action for each in self._running.values())

    def collect_finished(self) -> None:
        """Record what has ended since the last pass; the next ``execute`` returns it."""
        self._collected += self._finish([future for future in self._running if future.done()])

    def execute(self, state: State, plan: Plan, policy: PolicySpec, actor: str) -> tuple[State, list[Executed]]:
        """Carry out what the plan allows: the state afterwards, and one outcome per action that ended in time.
        ``policy``: what says how long a failure rests."""
        self._policy = policy
        done, self._collected = self._collected, []
        self._take_back()  # a journal that could not be written may have left some
        begin_until = self._context.clock.monotonic() + MAX_EXECUTE_SECONDS
        for lanes in lanes_of(plan):
            done += self._work(_Work(lanes, plan, actor, _newest(state), begin_until))
        return replace(state, reconcile=self._context.journal.state().reconcile), done

    def next_due(self) -> float | None:
        """Seconds until a driver whose rate was used up takes actions again, or what is under way is looked at
        again: soon at first, rarely once it takes long. None when none waits for that."""
        now = self._context.clock.monotonic()
        ages = (max(MIN_LOOK_SECONDS, min(MAX_LOOK_SECONDS, now - each.began)) for each in self._running.values())
        return min((due for due in (self._limiter.next_due(), *ages) if due is not None), default=None)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Wait a while for what is under way, and record what has ended. What has not keeps its intent, so that
        the next process looks how it ended."""
        if self._running:
            log.warning("waiting for what is under way", seconds=timeout, actions=self._listed())
        ended, left = wait(self._running, timeout)
        self._finish(ended)
        if left:
            log.warning("not waited for any longer; the next start looks how it ended", actions=self._listed())

    def _listed(self) -> list[str]:
        now = self._context.clock.monotonic()
        return [
            f"{each.intent.action.verb} {each.intent.action.key} ({now - each.began:.0f} s)"
            for each in self._running.values()
        ]

    def _may_begin(self, work: "_Work") -> bool:
        """Whether another action may begin: the pass has not lasted too long, and no operator spoke meanwhile."""
        context = self._context
        if context.interrupted() or context.clock.monotonic() > work.until:
            return False
        return _newest(context.journal.state()) == work.heard

    def _room(self) -> dict[Place, int]:
        """How many more actions may begin in each place; what takes long no longer counts."""
        late = self._context.clock.monotonic() - self._context.patience
        quick, slow = Counter[Place](), Counter[Place]()
        for each in (each for future, each in self._running.items() if not future.done()):
            (slow if each.began <= late else quick)[place_of(each.intent.action)] += 1
        return room_left(quick, slow, self._context.workers)

    def _work(self, work: "_Work") -> list[Executed]:
        done, begun = list[Executed](), set[Future[Outcome]]()
        # What a crash left open is tried again under the same idempotency key.
        open_intents = self._context.journal.state().reconcile.open_intents.values() if work.waiting else ()
        reused = {_same(intent.action): intent.id for intent in open_intents}
        try:
            while work.waiting or self._opened or begun:
                if self._may_begin(work):
                    self._open(work, reused, begun)
                    begun |= self._start()
                else:
                    self._take_back()
                ended = self._next_ended(begun, work)
                if not ended:
                    break
                with self._relaying(begun):
                    round_ = self._finish(ended)
                done += round_
                for action, outcome in round_:
                    work.go_on(action, outcome)
            self._take_back()
        except Exception:
            wait(begun, CLOSE_SECONDS)  # a journal that cannot be written: let what acts end before the next look
            raise
        return done

    def _next_ended(self, begun: set[Future[Outcome]], work: "_Work") -> set[Future[Outcome]]:
        """What ends next, taken out of what has begun; nothing when all of it takes long. While others wait for
        room, also what ends right after it: a transaction for several costs hardly more than for one. What is on
        record begins meanwhile."""
        ended = _ended(begun, self._context.patience)
        while self._opened and 0 < len(ended) < AHEAD and self._may_begin(work):
            begun |= self._start()
            if not (more := _ended(begun, GATHER_SECONDS)):
                return ended
            ended |= more
        return ended | _ended(begun, GATHER_SECONDS, ALL_COMPLETED) if ended and work.waiting else ended

    def _open(self, work: "_Work", reused: dict["_Same", str], begun: set[Future[Outcome]]) -> None:
        """Write the intents of what there is room for, and of more when few are ahead in a place that moves."""
        room, opened = self._room(), self._opened.counts()
        ahead = {place: AHEAD for place in work.moving if opened[place] < AHEAD // 2}
        for place, count in opened.items():
            room[place] -= count

        def may_be_ahead(action: Action) -> bool:
            # What was ahead may be taken back, so it must be certain that nothing was done. It is not for what a
            # crash left open; and of what must not be done twice, only looking could tell after another crash.
            return action.idempotent and _same(action) not in reused

        heads = work.waiting.take_heads(room, self._limiter, ahead, may_be_ahead)
        now, plan = self._context.clock.now(), work.plan
        intents = [
            Intent(
                reused.pop(_same(action), "") or uuid.uuid4().hex,
                action,
                plan.commit,
                plan.digest,
                work.actor,
                now,
            )
            for action in heads
        ]
        if intents:
            with self._relaying(begun):
                self._context.journal.begin(intents)
        with self._guard:
            self._opened.add(intents)

    def _start(self) -> set[Future[Outcome]]:
        """Begin what is on record, as far as there is room."""
        with self._guard:
            if not self._opened:
                return set()
            context, began = self._context, self._context.clock.monotonic()
            started = {
                context.apply_pool.submit(_carry_out, intent, context): _Running(intent, began)
                for intent in self._opened.take(self._room())
            }
            self._running |= started
        for future in started:
            future.add_done_callback(self._relay)
        return set(started)

    @contextmanager
    def _relaying(self, begun: set[Future[Outcome]]) -> Iterator[None]:
        """Let the end of an action begin the next one on record meanwhile, for while the journal is written this
        thread cannot, and workers would have nothing to do."""
        with self._guard:
            self._relayed = set()
        try:
            yield
        finally:
            with self._guard:
                begun |= self._relayed
                self._relayed = None

    def _relay(self, _ended: Future[Outcome]) -> None:
        with self._guard:
            if self._relayed is not None and self._opened and not self._context.interrupted():
                self._relayed |= self._start()

    def _take_back(self) -> None:
        """Take the intents off the record whose actions have not begun and will not in this pass."""
        if self._opened:
            self._context.journal.take_back({intent.id for intent in self._opened})
            self._opened = Opened()

    def _finish(self, ended: Iterable[Future[Outcome]]) -> list[Executed]:
        """Write outcomes with the bases and retry states they imply, in one transaction."""
        ended = list(ended)
        if not ended:
            return []
        ends = [(self._running[future].intent, future.result()) for future in ended]
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
        with self._guard:
            for future in ended:
                del self._running[future]
        return executed


def _ended(begun: set[Future[Outcome]], seconds: float, until: str = FIRST_COMPLETED) -> set[Future[Outcome]]:
    """What has ended within some seconds, taken out of what has begun."""
    ended = wait(begun, seconds, until).done
    begun -= ended
    return ended


def _newest(state: State) -> int:
    """The number of the newest control; 0 when there is none."""
    controls = state.control.controls
    return controls[-1].seq if controls else 0


_Same = tuple[ResourceKey, Verb, Fields | None]


def _same(action: Action) -> _Same:
    """What makes two actions the same effect."""
    return action.key, action.verb, action.desired


def _carry_out(intent: Intent, context: ExecutorContext) -> Outcome:
    """One driver call; whatever happens becomes an Outcome."""
    outcome = _outcome_of(intent, context)
    if intent.action.verb.touches_live and outcome.result is not Result.SKIPPED:
        try:
            _record(intent, outcome, context)
        except (GitopsAgentError, KeyError):
            pass  # no such driver, or out of reach: then nothing was done there
        except (Exception, SystemExit) as problem:  # what became of the action is known all the same
            driver, error = intent.action.driver, f"{type(problem).__name__}: {problem}"
            log.warning("a driver did not take the record of an action", driver=driver, error=error)
    return outcome


def _record(intent: Intent, outcome: Outcome, context: ExecutorContext) -> None:
    """Hand what was done to the driver, if it keeps a record of that in its live system."""
    driver = context.drivers[intent.action.driver]
    if has(driver, "record"):
        done = Record(intent.action, intent.commit, outcome.result is Result.DONE, outcome.message)
        cast("Recording", driver).record(done)


def _outcome_of(intent: Intent, context: ExecutorContext) -> Outcome:
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
    except NotYet as problem:
        return replace(outcome(Result.SKIPPED, _sentence(problem)), retry_after=problem.retry_after or 0.0)
    except GitopsAgentError as problem:
        failed = outcome(Result.FAILED, _sentence(problem))
        if not isinstance(problem, ApplyError):
            return failed
        return replace(failed, permanent=problem.permanent, of_system=problem.of_system)
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
