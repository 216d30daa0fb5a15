"""Health: probes, heartbeat and minimum uptime decide whether an agent is Ready, and whether it is stuck.

Agents are held to the enforced spec, the one last applied (the field ``health`` of the runtime's base), never to
HEAD. A probe is believed under the definition it has passed under: one that was changed starts anew.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gitops_agent.model.agent import Lifecycle
from gitops_agent.model.health import Health, HealthState, Progress
from gitops_agent.model.key import AgentKey, Scope
from gitops_agent.model.observation import Observation, Owner, listed_instances
from gitops_agent.model.status import AgentStatus, ConditionType
from gitops_agent.observe.health.evaluate import (
    LIVENESS_FAILED,
    REPLICAS_FOLLOW,
    aggregate,
    alive,
    combined,
    cross_checked,
    doubted,
    known_health,
    suspicion,
)
from gitops_agent.observe.health.history import STARTING_PERIOD_SECONDS, ClockReading, HealthHistory
from gitops_agent.observe.health.probe_runs import ProbePools, ProbeRuns
from gitops_agent.observe.health.targets import START_MARGIN_SECONDS, HealthTarget, ProbeSpec
from gitops_agent.ports import Clock

MIN_RECHECK_SECONDS = 0.05
"""Two looks are at least this far apart, so that no mistake about what is due can become a hot loop."""

DRIVER_RECHECK_SECONDS = 2.0
"""When an agent that its driver reports not to be healthy is looked at again."""

_PROBES = {LIVENESS_FAILED: "liveness"}
"""The probe whose answer raises a suspicion."""

_SETTLED = (HealthState.HEALTHY, HealthState.STOPPED)
Statuses = Mapping[AgentKey, AgentStatus]


class Copy(NamedTuple):
    """One running copy whose health core has to find out, with what is remembered of it."""

    target: HealthTarget
    history: HealthHistory

    @property
    def is_watched(self) -> bool:
        """Whether some source finds it stuck, or could, or did when it was last asked."""
        history, suspicion = self.history, self.target.suspicion
        return suspicion is not None or history.is_asked or history.doubted_at is not None


class HealthMonitor:
    """Evaluates the health of agents; remembers probe results and first sightings between passes.
    Waits for no probe: a later evaluation finds its answer; ``on_news`` is called with the agent when one is due.
    ``reported``: the statuses of agents as they were last reported, also before this process began."""

    def __init__(
        self,
        clock: Clock,
        pools: ProbePools,
        reported: Callable[[], Statuses] = dict,
        on_news: Callable[[AgentKey], None] = lambda _agent: None,
    ) -> None:
        self._clock = clock
        self._runs = ProbeRuns(clock, pools, on_news)
        self._reported = reported
        self._met: set[AgentKey] = set()
        self._histories: dict[AgentKey, dict[str, HealthHistory]] = {}  # of each running copy, by its id
        self._following: dict[AgentKey, frozenset[str]] = {}
        self._proven: dict[AgentKey, ProbeSpec | None] = {}
        self._recheck: dict[AgentKey, float] = {}

    def due(self) -> frozenset[AgentKey]:
        """The agents whose health must be looked at again now: a probe is due, or time has decided something."""
        now = self._clock.monotonic()
        return frozenset(key for key, at in self._recheck.items() if at <= now)

    def next_due(self) -> float | None:
        """Seconds until there is something to look at again."""
        first = min(self._recheck.values(), default=None)
        return None if first is None else max(MIN_RECHECK_SECONDS, first - self._clock.monotonic())

    def evaluate(self, targets: Sequence[HealthTarget], scope: Scope = None) -> dict[AgentKey, Health]:
        """The health of each target by the answers that are there; probes that are due are started.
        Agents of the scope that are not among the targets (retired, removed) are not to be looked at again."""
        now, strangers = self._now(), self._strangers(targets)
        copies = {target.agent: self._remember(target, strangers.get(target.agent), now) for target in targets}
        watched = [copy for each in copies.values() for copy in each if copy.is_watched]
        self._remember_proven(watched)
        self._take_answers()
        self._ask_due(watched, now)
        undecided = {id(copy.history): copy.target.agent for copy in watched if self._is_undecided(copy, now)}
        ended = self._now()
        verdicts = {each.agent: self._verdict(each, copies[each.agent], ended, undecided) for each in targets}
        for agent in tuple(self._recheck) if scope is None else scope:
            self._recheck.pop(agent, None)
        asked = set(undecided.values())
        for target in targets:
            at = verdicts[target.agent].recheck_at
            if _is_unsettled(target):
                at = _earlier(at, ended.monotonic + DRIVER_RECHECK_SECONDS)
            if target.agent in asked:
                at = _earlier(at, ended.monotonic + STARTING_PERIOD_SECONDS)
            if at is not None:
                self._recheck[target.agent] = at
        return verdicts

    def unanswered(self, agents: Iterable[AgentKey]) -> frozenset[AgentKey]:
        """Those of some agents of which a probe has not answered since this process began."""
        known = self._histories
        return frozenset(
            agent for agent in agents if agent in known for each in known[agent].values() if each.unanswered
        )

    def forget(self, agents: Iterable[AgentKey]) -> None:
        """Agents that left Git are not looked at again."""
        for agent in agents:
            self._histories.pop(agent, None)
            self._following.pop(agent, None)
            self._proven.pop(agent, None)
            self._recheck.pop(agent, None)
            self._met.discard(agent)
            self._runs.forget(agent)

    def _strangers(self, targets: Sequence[HealthTarget]) -> Statuses:
        """What was last reported of the agents that this process has not met yet."""
        new = {target.agent for target in targets} - self._met
        self._met |= new
        reported = self._reported() if new else {}
        return {agent: known for agent in new if (known := reported.get(agent)) is not None}

    def _remember(self, target: HealthTarget, reported: AgentStatus | None, now: ClockReading) -> list[Copy]:
        """The copies whose health core has to find out, each with what is remembered of it."""
        seen = target.runtime
        ours = seen is not None and seen.fields is not None and seen.owner is Owner.OURS and seen.health is None
        if seen is None or not ours or seen.started_at is None:
            self._histories.pop(target.agent, None)
            return []
        known = self._histories.get(target.agent, {})
        found = [
            Copy(copy, self._followed_up(known.get(copy.instance), copy, reported, now)) for copy in target.copies
        ]
        self._histories[target.agent] = {copy.instance: history for copy, history in found}
        return found

    def _followed_up(
        self, known: HealthHistory | None, copy: HealthTarget, reported: AgentStatus | None, now: ClockReading
    ) -> HealthHistory:
        """What is remembered of one copy, with what was just seen of it; anew when it was started again."""
        seen = copy.runtime
        assert seen is not None
        history = known if known is not None and known.is_of(seen) else None
        if history is None:
            history = HealthHistory.begin(seen, now)
            history.was_ready = reported is not None and _was_ready(reported, seen)
            if known is None and copy.spec.get("heartbeat"):
                self._recall(history, copy, seen, now)
        history.set_probes(copy)
        history.read_heartbeat(copy, now)
        return history

    def _recall(self, history: HealthHistory, copy: HealthTarget, seen: Observation, now: ClockReading) -> None:
        """Take over what was last reported of this very copy, perhaps by an earlier process."""
        status = self._reported().get(copy.agent)
        for report in status.progress if status is not None else ():
            if report.instance == copy.instance and _is_since(seen, report):
                history.recall(report, now)

    def _remember_proven(self, copies: Iterable[Copy]) -> None:
        """An agent that was Ready before we began had passed its probes as they are defined."""
        liveness = {copy.agent: history.probes.get("liveness") for copy, history in copies if history.probes}
        strangers = {agent: each.spec for agent, each in liveness.items() if each and agent not in self._proven}
        if strangers:
            reported = self._reported()
            for agent, spec in strangers.items():
                known = reported.get(agent)
                ready = known is not None and known.ready and known.lifecycle is Lifecycle.RUNNING
                self._proven[agent] = spec if ready else None

    def _ask_due(self, copies: Iterable[Copy], now: ClockReading) -> None:
        for copy, history in copies:
            for name, state in history.probes.items():
                if state.due_at <= now.monotonic:
                    self._runs.start(copy, name, history, now, urgent=state.last is None or state.fails)
        self._take_answers()  # what took no time

    def _take_answers(self) -> None:
        """Keep the answers of probes, whatever the scope; those of an earlier run or definition are dropped."""
        for answer in self._runs.collect():
            current = self._histories.get(answer.agent, {}).values()
            for history in (each for each in answer.about if any(each is other for other in current)):
                state = history.probes.get(answer.name)
                if state is None or state.spec != answer.spec:
                    continue
                is_news = state.last is None or state.last.ok != answer.result.ok
                state.take(answer.result, answer.asked, answer.answered)
                at = answer.answered if is_news else state.due_at
                self._recheck[answer.agent] = min(at, self._recheck.get(answer.agent, at))
                if state.passed and answer.name == "liveness":
                    self._proven[answer.agent] = state.spec

    def _is_undecided(self, copy: Copy, now: ClockReading) -> bool:
        """Whether a source suspects a copy and not all others have been asked since: what a probe answered a
        period ago says nothing about a suspicion of now. Once decided, they are asked again all the same."""
        history, reason = copy.history, self._suspicion(copy)
        if reason is None:
            history.doubted_at = None
            return False
        if history.doubted_at is None:
            # The answer that raised the suspicion is fresh itself.
            accuser = history.probes.get(_PROBES.get(reason, ""))
            history.doubted_at = now.monotonic if accuser is None else accuser.asked.monotonic
        since = history.doubted_at
        urgent = bool(history.stale_probes(since))
        for name in history.stale_probes(max(since, now.monotonic - STARTING_PERIOD_SECONDS)):
            self._runs.start(copy.target, name, history, now, urgent=urgent)
        self._take_answers()
        return bool(history.stale_probes(since))

    def _suspicion(self, copy: Copy) -> str | None:
        if not copy.is_watched:
            return None
        return suspicion(*copy, self._proven.get(copy.target.agent), self._clock.monotonic())

    def _verdict(
        self, target: HealthTarget, copies: Sequence[Copy], now: ClockReading, undecided: Container[int]
    ) -> Health:
        known = known_health(target) if target.stopped or not copies else None
        if known is not None:
            return aggregate(known, target.others)
        found = [self._copy_verdict(copy, now, id(copy.history) in undecided) for copy in copies]
        together = combined([copy.target for copy in copies], found)
        if together.reason == REPLICAS_FOLLOW:
            together = self._followed(target.agent, together, now)
        return aggregate(together, target.others)

    def _copy_verdict(self, each: Copy, now: ClockReading, undecided: bool) -> Health:
        copy, history = each
        # Asked afresh, the source may report otherwise.
        if not undecided and (reason := self._suspicion(each)) is not None:
            health = cross_checked(copy, history, reason, self._proven.get(copy.agent), now)
        else:
            health = alive(copy, history, now)
        if undecided and copy.suspicion is not None:
            health = doubted(health, copy.suspicion)
        history.was_healthy = history.was_healthy or health.state is HealthState.HEALTHY
        report = history.progress(copy.instance, now)
        return health if report is None else replace(health, progress=(report,))

    def _followed(self, agent: AgentKey, health: Health, now: ClockReading) -> Health:
        """The next copies may follow now: looked at again at once, and once only, should a guard hold them."""
        known = frozenset(self._histories[agent])
        if self._following.get(agent) == known:
            return health
        self._following[agent] = known
        return replace(health, recheck_at=now.monotonic)

    def _now(self) -> ClockReading:
        return ClockReading(self._clock.monotonic(), self._clock.now())


def _is_since(seen: Observation, report: Progress) -> bool:
    """Whether a report is about the process that runs now, and not about an earlier one of the same number."""
    return seen.started_at is None or report.at >= seen.started_at


def _earlier(at: float | None, other: float) -> float:
    return other if at is None else min(at, other)


def _is_unsettled(target: HealthTarget) -> bool:
    """Whether some driver reports an object of an agent not to be healthy, and not when to look again."""
    own = target.runtime.health if target.runtime is not None else None
    reported = target.others if own is None else (own, *target.others)
    return bool(reported) and any(
        health.state not in _SETTLED and health.recheck_at is None for health in reported
    )


def _was_ready(reported: AgentStatus, seen: Observation) -> bool:
    """Whether an earlier process reported this very run of an agent to be Ready: as the same copies, not as ones
    that it may have replaced just before it ended, without a report."""
    since = [each.last_transition_at for each in reported.conditions if each.type is ConditionType.READY]
    started, running = seen.started_at or 0.0, reported.lifecycle is Lifecycle.RUNNING
    listed = {each.id for resource in reported.resources for each in listed_instances(resource.live)}
    same = not listed or listed.issuperset(each.id for each in seen.instances)
    return same and reported.ready and running and any(started <= at + START_MARGIN_SECONDS for at in since)
