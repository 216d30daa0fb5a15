"""The cross-check of an agent that is alive: who says that it is stuck, who says that it is not, who decides.

Three kinds of sources see the same agent from different sides: the process table (suspended or not), the
heartbeat, and the probes. One that accuses it starts the check, the probes are asked afresh, and the majority of
those that speak decides. So one lying source repairs nothing where others are asked for; alone it is believed,
because its author asked for exactly that. That a process runs says nothing here: one that hangs runs as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gitops_agent.model.observation import Evidence
from gitops_agent.model.quantity import seconds
from gitops_agent.observe.health.history import MARGIN, Life, Moment, ProbeSpec, ProbeState, Subject

SUSPENDED, LIVENESS_FAILED, HEARTBEAT_STALE = "Suspended", "LivenessFailed", "HeartbeatStale"


@dataclass(frozen=True, slots=True)
class Voice:
    """What one source says. ``well`` None: it does not take part, but is kept as evidence."""

    source: str
    well: bool | None
    said: str
    at: float

    @property
    def evidence(self) -> Evidence:
        """The same, to be kept with the decision."""
        return Evidence(self.source, self.said, self.at)


@dataclass(frozen=True, slots=True)
class Check:
    """A suspicion and everything that was said about it."""

    accusation: str
    voices: tuple[Voice, ...]

    @property
    def against(self) -> int:
        """How many sources say that the agent is stuck."""
        return sum(voice.well is False for voice in self.voices)

    @property
    def in_favour(self) -> int:
        """How many sources say that it is well."""
        return sum(voice.well is True for voice in self.voices)

    @property
    def holds(self) -> bool:
        """Whether the majority supports the suspicion. A tie does not."""
        return self.against > self.in_favour

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Which source said what, and when."""
        return tuple(voice.evidence for voice in self.voices)

    def __str__(self) -> str:
        return "; ".join(f"{voice.source}: {voice.said}" for voice in self.voices)


def accusation(subject: Subject, life: Life, proven: ProbeSpec | None, monotonic: float) -> str | None:
    """What somebody accuses a live agent of, as a reason code; the process table is heard first.

    ``proven`` is the newest definition of the liveness probe that ever passed.
    """
    if subject.runtime is not None and subject.runtime.state == SUSPENDED:
        return SUSPENDED
    if not life.probes and life.pulse is None:
        return None
    if life.uptime(monotonic) < seconds(subject.spec.get("minUptime", "1s")):
        return None
    liveness = life.probes.get("liveness")
    if liveness is not None and liveness.failed_too_often and may_accuse(subject, life, liveness, proven):
        return LIVENESS_FAILED
    if life.pulse is not None and life.pulse.stale and not life.pulse.calls:
        return HEARTBEAT_STALE
    return None


def may_accuse(subject: Subject, life: Life, liveness: ProbeState, proven: ProbeSpec | None) -> bool:
    """Whether a liveness probe that fails is to be believed at all.

    One that never passed under its present definition may be wrong itself: a typo in its path. Where an earlier
    definition passed, or the agent was well before this one came into force, the definition is in doubt.
    """
    if liveness.passed or proven == liveness.spec:
        return True
    if proven is not None or life.was_well:
        return False
    return subject.asked_since is None or life.started_at >= subject.asked_since - MARGIN


def check(subject: Subject, life: Life, accused: str, proven: ProbeSpec | None, now: Moment) -> Check:
    """Everybody is heard on an accusation."""
    return Check(accused, tuple(_voices(subject, life, accused, proven, now)))


def _voices(subject: Subject, life: Life, accused: str, proven: ProbeSpec | None, now: Moment) -> Iterator[Voice]:
    seen = subject.runtime
    if seen is not None and seen.state == SUSPENDED:
        yield Voice("process table", False, seen.message or "suspended by a signal", seen.observed_at)
    if (heard := _heartbeat(life, accused, now)) is not None:
        yield heard
    for name in sorted(life.probes):
        state = life.probes[name]
        trusted = state.passed or (name == "liveness" and may_accuse(subject, life, state, proven))
        yield _probe(name, state, trusted=trusted)


def _heartbeat(life: Life, accused: str, now: Moment) -> Voice | None:
    pulse = life.pulse
    if pulse is None:
        return None
    if not pulse.stale:
        said = f"written within {pulse.limit:g} s" if pulse.spoke else "none yet"
        return Voice("heartbeat", True if pulse.spoke else None, said, now.wall)
    if not pulse.calls:
        return Voice("heartbeat", False, f"none within {pulse.limit:g} s", now.wall)
    # A restart could run the tool twice, so it counts against one; to be resumed harms no tool call.
    said = f"none within {pulse.limit:g} s, but a tool call is in progress ({_some(pulse.calls)})"
    return Voice("heartbeat", None if accused == SUSPENDED else True, said, now.wall)


def _probe(name: str, state: ProbeState, *, trusted: bool) -> Voice:
    if state.fails and not trusted:
        return Voice(
            f"{name} probe", None, f"has never passed as it is now defined ({state.said})", state.asked.wall
        )
    said = f"fails ({state.said})" if state.fails else f"passes ({state.said})"
    return Voice(f"{name} probe", not state.fails, said, state.asked.wall)


def _some(calls: Sequence[str]) -> str:
    return ", ".join(calls[:3])
