"""The cross-check of an agent that is alive: which sources report that it is stuck, and which that it is not.

Three kinds of sources see the same agent from different sides: its driver (a process that was suspended), the
heartbeat, and the probes. One that suspects it starts the check, the probes are run afresh, and the majority of
those that report decides. So one wrong source repairs nothing where others are asked for; alone it is believed,
because its author asked for exactly that. That an agent runs proves nothing here: one that hangs runs as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gitops_agent.model.observation import Evidence
from gitops_agent.model.quantity import seconds
from gitops_agent.observe.health.history import ClockReading, HealthHistory, HealthTarget, ProbeSpec, ProbeState

LIVENESS_FAILED, HEARTBEAT_STALE = "LivenessFailed", "HeartbeatStale"


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What one source reports. ``healthy`` None: it does not count, but is kept as evidence."""

    source: str
    healthy: bool | None
    said: str
    at: float

    @property
    def evidence(self) -> Evidence:
        """The same, to be kept with the decision."""
        return Evidence(self.source, self.said, self.at)


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """A suspicion and every report about it."""

    suspicion: str
    reports: tuple[SourceReport, ...]

    @property
    def agree(self) -> int:
        """How many sources report that the agent is stuck."""
        return sum(report.healthy is False for report in self.reports)

    @property
    def oppose(self) -> int:
        """How many sources report that it is healthy."""
        return sum(report.healthy is True for report in self.reports)

    @property
    def holds(self) -> bool:
        """Whether the majority supports the suspicion. A tie does not."""
        return self.agree > self.oppose

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Which source reported what, and when."""
        return tuple(report.evidence for report in self.reports)

    def __str__(self) -> str:
        return "; ".join(f"{report.source}: {report.said}" for report in self.reports)


def suspicion(
    target: HealthTarget, history: HealthHistory, proven: ProbeSpec | None, monotonic: float
) -> str | None:
    """The reason code by which some source finds a live agent stuck, the driver's first; None when none does.
    ``proven`` is the newest definition of the liveness probe that ever passed."""
    if target.suspicion is not None:
        return target.suspicion
    if not history.probes and history.heartbeat is None:
        return None
    if history.uptime(monotonic) < seconds(target.spec.get("minUptime", "1s")):
        return None
    liveness = history.probes.get("liveness")
    if liveness is not None and liveness.failed_too_often and is_believed(history, liveness, proven):
        return LIVENESS_FAILED
    if history.heartbeat is not None and history.heartbeat.stale and not history.heartbeat.calls:
        return HEARTBEAT_STALE
    return None


def is_believed(history: HealthHistory, liveness: ProbeState, proven: ProbeSpec | None) -> bool:
    """Whether a liveness probe that fails is to be believed at all.
    One that never passed under its present definition may be wrong itself: a typo in its path. Where an earlier
    definition passed, or the agent was healthy before this one came into force, the definition is in doubt."""
    if liveness.passed or proven == liveness.spec:
        return True
    if proven is not None or history.was_healthy:
        return False
    return liveness.from_start


def cross_check(
    target: HealthTarget, history: HealthHistory, suspected: str, proven: ProbeSpec | None, now: ClockReading
) -> CrossCheck:
    """Collect the report of every source about the suspected failure."""
    return CrossCheck(suspected, tuple(_reports(target, history, proven, now)))


def _reports(
    target: HealthTarget, history: HealthHistory, proven: ProbeSpec | None, now: ClockReading
) -> Iterator[SourceReport]:
    seen = target.runtime
    if seen is not None and target.suspicion is not None:
        yield SourceReport(f"{seen.driver} driver", False, seen.message or target.suspicion, seen.observed_at)
    if (heartbeat := _heartbeat(history, target, now)) is not None:
        yield heartbeat
    for name in sorted(history.probes):
        state = history.probes[name]
        trusted = state.passed or (name == "liveness" and is_believed(history, state, proven))
        yield _probe(name, state, trusted=trusted)


def _heartbeat(history: HealthHistory, target: HealthTarget, now: ClockReading) -> SourceReport | None:
    heartbeat = history.heartbeat
    if heartbeat is None:
        return None
    if not heartbeat.stale:
        said = f"written within {heartbeat.limit:g} s" if heartbeat.all_wrote else "none yet"
        return SourceReport("heartbeat", True if heartbeat.all_wrote else None, said, now.wall)
    if not heartbeat.calls:
        return SourceReport("heartbeat", False, f"none within {heartbeat.limit:g} s", now.wall)
    # A restart could run the tool twice, so it counts against one; to be resumed harms no tool call.
    said = f"none within {heartbeat.limit:g} s, but a tool call is in progress ({', '.join(heartbeat.calls[:3])})"
    return SourceReport("heartbeat", None if target.suspicion is not None else True, said, now.wall)


def _probe(name: str, state: ProbeState, *, trusted: bool) -> SourceReport:
    if state.fails and not trusted:
        return SourceReport(
            f"{name} probe", None, f"has never passed as it is now defined ({state.said})", state.asked.wall
        )
    said = f"fails ({state.said})" if state.fails else f"passes ({state.said})"
    return SourceReport(f"{name} probe", not state.fails, said, state.asked.wall)
