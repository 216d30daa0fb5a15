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
from gitops_agent.observe.health.history import (
    ClockReading,
    HealthHistory,
    HealthTarget,
    HeartbeatState,
    ProbeSpec,
    ProbeState,
)

LIVENESS_FAILED, HEARTBEAT_STALE = "LivenessFailed", "HeartbeatStale"


Report = tuple[bool | None, Evidence]
"""What one source reports: whether the agent is healthy; None: it does not count, but is kept as evidence."""


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """A suspicion and the reports about it: how many sources agree that the agent is stuck, how many oppose it."""

    suspicion: str
    agree: int
    oppose: int
    evidence: tuple[Evidence, ...]

    @property
    def holds(self) -> bool:
        """Whether the majority supports the suspicion. A tie does not."""
        return self.agree > self.oppose


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
    reports = tuple(_reports(target, history, proven, now))
    votes = [healthy for healthy, _ in reports]
    return CrossCheck(suspected, votes.count(False), votes.count(True), tuple(each for _, each in reports))


def _reports(
    target: HealthTarget, history: HealthHistory, proven: ProbeSpec | None, now: ClockReading
) -> Iterator[Report]:
    seen = target.runtime
    if seen is not None and target.suspicion is not None:
        yield False, Evidence(f"{seen.driver} driver", seen.message or target.suspicion, seen.observed_at)
    if history.heartbeat is not None:
        healthy, text = _heartbeat(history.heartbeat, target)
        yield healthy, Evidence("heartbeat", text, now.wall)
    for name in sorted(history.probes):
        state = history.probes[name]
        trusted = state.passed or (name == "liveness" and is_believed(history, state, proven))
        healthy, text = _probe(state, trusted=trusted)
        yield healthy, Evidence(f"{name} probe", text, state.asked.wall)


def _heartbeat(heartbeat: HeartbeatState, target: HealthTarget) -> tuple[bool | None, str]:
    within = f"within {heartbeat.limit:g} s"
    if not heartbeat.stale:
        return (True, f"written {within}") if heartbeat.all_wrote else (None, "none yet")
    if not heartbeat.calls:
        return False, f"none {within}"
    # A restart could run the tool twice, so it counts against one; to be resumed harms no tool call.
    text = f"none {within}, but a tool call is in progress ({', '.join(heartbeat.calls[:3])})"
    return None if target.suspicion is not None else True, text


def _probe(state: ProbeState, *, trusted: bool) -> tuple[bool | None, str]:
    if state.fails and not trusted:
        return None, f"has never passed as it is now defined ({state.answer})"
    return not state.fails, f"{'fails' if state.fails else 'passes'} ({state.answer})"
