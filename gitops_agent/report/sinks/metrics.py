"""MetricsSink: counts what passes find and do. Told by the loops of ``run``, read by whoever scrapes.

Called at the end of every pass with its proceedings, on the thread of the pass; whatever needs the journal is read
there, so that a scrape only ever reads values that are already in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec

import structlog

from gitops_agent.daemon.liveness import LastPass, Liveness
from gitops_agent.daemon.onlooker import Onlooker
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Action, Class
from gitops_agent.model.status import AgentStatus, CommitRecord, ConditionType, Phase
from gitops_agent.plan.reasons import ReasonCode
from gitops_agent.ports import Clock, Scope
from gitops_agent.report.sinks.drift_counter import Deviations, DriftCounter, Sight, by_class, tally
from gitops_agent.report.sinks.frozen_scopes import frozen_scopes, waves
from gitops_agent.report.sinks.registry import COMMITS, SCOPES, SURENESS, Registry
from gitops_agent.report.sinks.repeat_rate import RepeatRate
from gitops_agent.report.sinks.unannounced_changes import UnannouncedChanges
from gitops_agent.status.proceedings import PassRecord, PassResult

STUCK_PERIOD = 60.0
"""Seconds between two counts of stuck workflows, unless a pass looks at everything anyway."""

_MOVED = frozenset({Class.MISSING_EXTERNAL, Class.MISSING_INTERNAL, Class.CONFLICTING})


log = structlog.get_logger(__name__)

P = ParamSpec("P")


def _harmless(step: Callable[P, None]) -> Callable[P, None]:
    """Whatever goes wrong in counting is said, and never ends what is counted."""

    @wraps(step)
    def attempt(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            step(*args, **kwargs)
        except Exception:
            log.exception("metrics are incomplete", step=step.__name__)

    return attempt


def is_live_change(action: Action, explained: frozenset[str]) -> bool:
    """Whether somebody or something changed live: not our record, not a lack of progress, not a reboot."""
    return action.drift_class in _MOVED and action.verb.touches_live and action.reason not in explained


@dataclass(frozen=True, slots=True)
class Wires:
    """Where the meter reads what no pass tells it.

    The first two are asked by scrapes and take no lock; the others on the thread of the passes: workflows that are
    stuck, records of commits (newest first).
    """

    queue_depth: Callable[[], int] = lambda: 0
    notes_pending: Callable[[], bool] = lambda: False
    stuck: Callable[[], int] = lambda: 0
    commits: Callable[[], Sequence[CommitRecord]] = tuple


@dataclass(frozen=True, slots=True)
class Label:
    """What stays the same for as long as we run. ``longest_question``: seconds that asking the source may
    take. ``explained``: reason codes of absences that no change of live caused."""

    instance: str
    version: str
    drivers: tuple[str, ...] = ()
    longest_question: float = 0.0
    explained: frozenset[str] = frozenset()


class MetricsSink(Onlooker):
    """The metrics of one instance."""

    def __init__(self, label: Label, clock: Clock, vitals: Liveness, wires: Wires | None = None) -> None:
        self._label = label
        self._clock = clock
        self._vitals = vitals
        self._wires = wires or Wires()
        self._values = Registry()
        self._standing: Deviations = {}
        self._recurrence = RepeatRate()
        self._hearsay = UnannouncedChanges()
        self._times: deque[float] = deque(maxlen=COMMITS)
        self._converged: set[str] | None = None
        self._statuses: tuple[AgentStatus, ...] = ()
        self._failing = False
        self._stuck_at = float("-inf")
        self._began_at = self._passed_at = self._fetched_at = clock.monotonic()
        self._follow()

    # -- told by the loops

    def resting(self, seconds: float) -> None:
        """The next pass begins in so many seconds at the latest."""
        if not self._failing:
            self._vitals.passes.beat("waiting for something to do", seconds)

    @_harmless
    def began(self) -> None:
        """A pass begins."""
        if not self._failing:
            self._vitals.passes.beat("running a pass")
        self._began_at = self._clock.monotonic()
        if self._converged is None:
            # Before the first pass adds to them, so that what it brings is not taken for old.
            self._converged = set()
            for record in reversed(self._wires.commits()):
                self._note_convergence(record)

    @_harmless
    def passed(self, result: PassResult) -> None:
        """A pass was completed; it has no proceedings when nothing is desired yet."""
        now = self._passed_at = self._clock.monotonic()
        self._failing = False
        self._vitals.passes.beat("ending a pass")
        self._values.count("gitops_agent_passes_total", result="completed")
        self._values.observe("gitops_agent_pass_duration_seconds", now - self._began_at)
        self._statuses = tuple(result.statuses.values())
        for phase in Phase:
            self._values.put("gitops_agent_commit_phase", phase is result.phase, phase=phase)
        if result.proceedings is None:
            self._vitals.not_ready("no valid commit of the source is known yet")
            return
        self._count_drift(result.proceedings, now)
        self._count_commit(result.record)
        self._show_state(result.proceedings, result)

    def failed(self) -> None:
        """A pass ended in an error that nobody foresaw."""
        self._values.count("gitops_agent_passes_total", result="failed")
        if not self._failing:
            # From here on only a completed pass is a sign of life.
            self._failing = True
            self._vitals.passes.beat("failing one after the other")
        self._vitals.not_ready("the last pass failed; the log says why")

    def asking(self) -> None:
        """The source is being asked."""
        self._vitals.polls.beat("asking the source", self._label.longest_question)

    def asked(self, *, answered: bool, next_in: float) -> None:
        """The source was asked, and is asked again in so many seconds."""
        self._vitals.polls.beat("waiting for the next poll", next_in)
        if answered:
            self._fetched_at = self._clock.monotonic()

    def told(self, agent: AgentKey) -> None:
        """A watcher reported something about this agent."""
        self._hearsay.hear(agent, self._clock.monotonic())

    # -- read by scrapes

    def text(self) -> bytes:
        """All metrics, as scrapers read them."""
        return self._values.text()

    # -- what a pass adds

    def _count_drift(self, pass_: PassRecord, now: float) -> None:
        change = tally(self._standing, _sight(pass_))
        self._standing = change.standing
        for cls, number in by_class(change.began).items():
            self._values.count("drift_detected_total", number, type=cls)
        for action in change.began:
            self._values.observe("repair_confidence_distribution", SURENESS[action.confidence])
        self._count_repairs(change, pass_.order.approved)
        self._recurrence.began((action.key for action in change.began), now)
        moved = (action.key.agent for action in change.began if is_live_change(action, self._label.explained))
        self._hearsay.found(moved, pass_.look.scope, self._began_at, now)
        standing = tuple(change.standing.values())
        for cls, number in by_class(standing).items():
            self._values.put("gitops_agent_drift_standing", number, type=cls)
        orphans = sum(action.reason == ReasonCode.ORPHAN for action in standing)
        self._values.put("orphan_resource_count", orphans)
        self._values.put("repeated_drift_rate", self._recurrence.rate(now))

    def _count_repairs(self, change: DriftCounter, approved: AbstractSet[str]) -> None:
        for action in change.repaired:
            policy = "approved" if action.digest in approved else "automatic"
            self._values.count("drift_repaired_total", policy=policy)

    def _count_commit(self, record: CommitRecord | None) -> None:
        if record is not None and (seconds := self._note_convergence(record)) is not None:
            self._values.observe("gitops_agent_time_to_converge_seconds", seconds)
        mean = sum(self._times) / len(self._times) if self._times else 0.0
        self._values.put("mean_time_to_converge", mean)

    def _note_convergence(self, record: CommitRecord) -> float | None:
        """How long a commit took, when it has converged and was not noted before."""
        known = self._converged if self._converged is not None else set()
        if record.phase is not Phase.CONVERGED or record.finished_at is None or record.sha in known:
            return None
        known.add(record.sha)
        seconds = max(0.0, record.finished_at - record.seen_at)
        self._times.append(seconds)
        return seconds

    def _show_state(self, pass_: PassRecord, result: PassResult) -> None:
        tripped = (verdict.freeze for verdict in pass_.plan.verdicts if verdict.freeze)
        others = (*tripped, *(each.target for each in pass_.order.freezes))
        frozen = frozen_scopes(pass_.snapshot.policy, others, self._clock.now())
        for scope in SCOPES:
            self._values.put("gitops_agent_frozen", scope in frozen, scope=scope)
        for driver in self._label.drivers:
            circuit = pass_.circuits.get(driver)
            is_open = circuit is not None and circuit.open_until is not None
            self._values.put("gitops_agent_breaker_open", is_open, driver=driver)
        self._count_stuck(pass_.look.scope)
        for state, number in waves(pass_.rollout).items():
            self._values.put("gitops_agent_rollout_wave", number, state=state)
        scopes = tuple(scope for scope in SCOPES if scope in frozen)
        self._vitals.completed(
            LastPass(result.phase, self._statuses, scopes, source_answers=not result.unavailable)
        )

    def _count_stuck(self, scope: Scope) -> None:
        """It takes a look at the whole record, so a small pass soon after another does without."""
        now = self._clock.monotonic()
        if scope is None or now - self._stuck_at >= STUCK_PERIOD:
            self._stuck_at = now
            self._values.put("stuck_workflow_count", self._wires.stuck())

    def _follow(self) -> None:
        """What is computed when somebody asks, so that it is right also when nobody passes any more."""
        values, clock = self._values, self._clock
        label = self._label
        values.put("gitops_agent_info", 1, name=label.instance, version=label.version)
        for driver in label.drivers:
            values.put("gitops_agent_breaker_open", 0, driver=driver)
        values.follow("gitops_agent_last_pass_age_seconds", lambda: clock.monotonic() - self._passed_at)
        values.follow("gitops_agent_last_fetch_age_seconds", lambda: clock.monotonic() - self._fetched_at)
        values.follow("gitops_agent_queue_depth", self._wires.queue_depth)
        values.follow("gitops_agent_notes_pending", self._wires.notes_pending)
        values.follow("manual_patch_without_event_count", lambda: self._hearsay.count(clock.monotonic()))
        values.follow("gitops_agent_fleet_size", lambda: len(self._statuses))
        for condition in ConditionType:
            values.follow("gitops_agent_agents", self._counting(condition), condition=condition)

    def _counting(self, condition: ConditionType) -> Callable[[], int]:
        return lambda: sum(
            any(each.type is condition and each.status for each in status.conditions) for status in self._statuses
        )


def _sight(pass_: PassRecord) -> Sight:
    return Sight(
        actions=pass_.plan.actions,
        executed=pass_.executed,
        scope=pass_.look.scope,
        unreachable=frozenset(pass_.look.observed.unreachable),
        busy=frozenset(action.key.agent for action in pass_.busy),
    )
