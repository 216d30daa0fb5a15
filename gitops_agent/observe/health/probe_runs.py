"""ProbeRuns: probes under way. No pass waits for one: it starts what is due and takes the answers of earlier ones.

A probe that hangs holds its own place alone. At most one run of each probe of an agent is under way, and its time
is up with its timeout, whatever its driver does. One that was slow runs among the slow ones from then on, so that
many that hang, again and again, hold up none that answers.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import NamedTuple

from gitops_agent.drivers.api import ExecResult
from gitops_agent.model.key import AgentKey
from gitops_agent.observe.health.history import ClockReading, HealthHistory
from gitops_agent.observe.health.probe import probe, timeout_of
from gitops_agent.observe.health.targets import HealthTarget, ProbeSpec
from gitops_agent.ports import Clock

SLOW_SECONDS = 1.0
"""A probe that takes longer is slow."""

GRACE_SECONDS = 5.0
"""What a driver gets beyond the timeout of a probe to say that it was too slow."""

Name = tuple[AgentKey, str, object]
"""An agent, the name of a probe, and whom it asks: one copy, or the addresses that several copies share."""


class ProbePools(NamedTuple):
    """Where probes run: ``quick`` for most of them, ``slow`` for those that were slow before."""

    quick: Executor
    slow: Executor


class ProbeAnswer(NamedTuple):
    """The answer of one probe. ``about``: the runs of the copies that it is about; ``answered``: monotonic
    seconds."""

    agent: AgentKey
    name: str
    about: tuple[HealthHistory, ...]
    spec: ProbeSpec
    result: ExecResult
    asked: ClockReading
    answered: float


@dataclass(slots=True, eq=False)
class _Run:
    """One probe under way. ``urgent``: a pass is wanted whatever it answers, otherwise only when that is not
    ``expected``. ``given_up``: its time was up."""

    agent: AgentKey
    name: str
    about: tuple[HealthHistory, ...]
    spec: ProbeSpec
    asked: ClockReading
    urgent: bool
    expected: bool
    began: float | None = None
    ended: float = 0.0
    given_up: bool = False
    future: Future[ExecResult] | None = None

    def answer(self, result: ExecResult, at: float) -> ProbeAnswer:
        return ProbeAnswer(self.agent, self.name, self.about, self.spec, result, self.asked, at)

    def may_join(self, history: HealthHistory, spec: ProbeSpec) -> bool:
        """Whether its answer says something of a copy: it was there when the question was asked."""
        joined = any(each is history for each in self.about) or history.born_at <= self.asked.monotonic
        return joined and self.spec == spec


class ProbeRuns:
    """Starts probes and collects their answers; used by one thread. ``on_news`` is called, from any thread, with
    an agent of which a probe answered something that a pass should hear of at once."""

    def __init__(self, clock: Clock, pools: ProbePools, on_news: Callable[[AgentKey], None]) -> None:
        self._clock = clock
        self._pools = pools
        self._on_news = on_news
        self._under_way: dict[Name, _Run] = {}
        self._slow: set[Name] = set()

    def start(
        self, copy: HealthTarget, name: str, history: HealthHistory, now: ClockReading, *, urgent: bool
    ) -> None:
        """Start a probe of a copy, unless it is under way; copies that answer at one address are asked once.
        ``urgent``: also an answer like the last one is news. The next question is due when the time of this one
        is up for certain."""
        state = history.probes[name]
        key = (copy.agent, name, copy.addresses if state.spec.get("http") else copy.instance)
        state.due_at = now.monotonic + max(state.period, timeout_of(state.spec) + GRACE_SECONDS)
        known = self._under_way.get(key)
        if known is not None and known.may_join(history, state.spec):
            known.urgent = known.urgent or urgent
            known.about = (*(each for each in known.about if each is not history), history)
            if known.given_up:  # it still hangs: that is the answer to this question as well
                known.given_up, known.asked = False, now
            return
        run = _Run(copy.agent, name, (history,), state.spec, now, urgent, expected=not state.fails)
        self._under_way[key] = run
        pool = self._pools.slow if key in self._slow else self._pools.quick
        run.future = pool.submit(self._ask, run, copy)
        run.future.add_done_callback(lambda future: self._ended(run, future))

    def collect(self) -> Iterator[ProbeAnswer]:
        """The answers that have come since, and a failure for each run whose time is up."""
        now = self._clock.monotonic()
        for key, run in tuple(self._under_way.items()):
            limit = timeout_of(run.spec)
            overdue = run.began is not None and now > run.began + limit + GRACE_SECONDS / 2
            if run.future is not None and run.future.done():
                del self._under_way[key]
                if run.ended - (run.began or run.ended) > SLOW_SECONDS:
                    self._slow.add(key)
                else:
                    self._slow.discard(key)
                if not run.given_up:
                    yield run.answer(run.future.result(), run.ended)
            elif overdue and not run.given_up:
                run.given_up = True
                yield run.answer(ExecResult(False, f"no answer within {limit:g} s", ended=False), now)

    def forget(self, agent: AgentKey) -> None:
        """Drop what is known of the probes of an agent; those under way end by themselves."""
        for key in [key for key in self._under_way if key[0] == agent]:
            del self._under_way[key]
        self._slow = {key for key in self._slow if key[0] != agent}

    def _ask(self, run: _Run, target: HealthTarget) -> ExecResult:
        run.began = self._clock.monotonic()
        try:
            return probe(run.spec, target)
        finally:
            run.ended = self._clock.monotonic()

    def _ended(self, run: _Run, future: Future[ExecResult]) -> None:
        """Ask for a pass unless the answer is the one that was expected: that can wait for the next question."""
        if not future.cancelled() and (run.urgent or future.result().ok != run.expected):
            self._on_news(run.agent)
