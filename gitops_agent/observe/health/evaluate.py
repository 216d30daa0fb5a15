"""From what we remember of an agent and what the cross-check found to its health. No clock, no I/O."""

from __future__ import annotations

from dataclasses import replace

from gitops_agent.model.observation import Evidence, Owner
from gitops_agent.model.quantity import seconds
from gitops_agent.model.status import Health, HealthState
from gitops_agent.observe.health.crosscheck import HEARTBEAT_STALE, LIVENESS_FAILED, Check
from gitops_agent.observe.health.history import Life, Moment, ProbeState, Subject

STOPPED = Health(HealthState.STOPPED, "Stopped", "stopped, as desired")
HEALTHY = Health(HealthState.HEALTHY, "Healthy", "")
SOURCES_DISAGREE = "SourcesDisagree"


def not_running(subject: Subject) -> Health | None:
    """What there is to say when the agent is not there as a whole: on existence the driver's word is enough."""
    seen = subject.runtime
    absent = seen is None or seen.fields is None
    if subject.dormant:
        return STOPPED if absent else Health(HealthState.STARTING, "Stopping", "still running")
    if seen is None or seen.fields is None:
        reason = (seen.reason if seen else None) or "NotRunning"
        return Health(HealthState.UNHEALTHY, reason, (seen.message if seen else "") or "not running")
    if seen.owner is not Owner.OURS:
        # Somebody else's, or nobody's: how well it does says nothing about our agent.
        return Health(HealthState.UNHEALTHY, seen.reason or "NotRunning", seen.message or "not running")
    if seen.fields != subject.fields:  # else all of it is as applied, and need not be decoded
        wanted = subject.fields.value.get("replicas", 1)
        replicas = seen.fields.value.get("replicas", wanted)
        if replicas < wanted:
            message = f"{replicas} of {wanted} replicas are running"
            return Health(HealthState.UNHEALTHY, "ReplicaMissing", message)
    if seen.started_at is None:
        suspended = seen.state == "Suspended"
        return Health(HealthState.UNHEALTHY, "Suspended", seen.message) if suspended else HEALTHY
    return None


def alive(subject: Subject, life: Life, found: Check | None, now: Moment) -> Health:
    """The health of an agent that is there: an accusation comes first, then what keeps it from being Ready."""
    unready = _unready(subject, life, now)
    look = life.next_look(now.monotonic)
    if found is not None and found.holds:
        return _guilty(subject, life, found, look)
    if found is not None:
        return _disputed(found, unready or HEALTHY, look)
    if unready is not None:
        return unready
    return HEALTHY if look is None else replace(HEALTHY, recheck_at=look)


def _guilty(subject: Subject, life: Life, found: Check, look: float | None) -> Health:
    """The majority says that it is stuck. A suspended one is the plan's business: the observation says so too."""
    state, restart, message = HealthState.UNHEALTHY, False, found.voices[0].said
    if found.accusation == LIVENESS_FAILED:
        probe = life.probes["liveness"]
        restart, message = True, f"liveness probe failed {probe.failures} times: {probe.said}"
    elif found.accusation == HEARTBEAT_STALE and life.pulse is not None:
        state, restart = HealthState.STUCK, subject.spec["heartbeat"].get("onStale", "Restart") == "Restart"
        message = f"no heartbeat for {life.pulse.age:.0f} s (limit {life.pulse.limit:.0f} s)"
    return Health(
        state,
        found.accusation,
        message,
        restart,
        look,
        found.evidence,
        agree=found.against,
        oppose=found.in_favour,
    )


def _disputed(found: Check, readiness: Health, look: float | None) -> Health:
    """Nothing is repaired. Whether the agent is Ready is then only for its readiness to say."""
    looks = [at for at in (look, readiness.recheck_at) if at is not None]
    return Health(
        readiness.state,
        SOURCES_DISAGREE,
        f"not repaired, because the sources disagree: {found}",
        recheck_at=min(looks, default=None),
        evidence=found.evidence,
        disputes=found.accusation,
        agree=found.against,
        oppose=found.in_favour,
    )


def _unready(subject: Subject, life: Life, now: Moment) -> Health | None:
    """Why an agent that nobody accuses is not Ready."""
    waits = _too_young(subject, life, now.monotonic) or _at_work(life, now)
    return waits or ((_unproven(life) or _readiness(life)) if life.probes else None)


def _too_young(subject: Subject, life: Life, monotonic: float) -> Health | None:
    wanted = seconds(subject.spec.get("minUptime", "1s"))
    uptime = life.uptime(monotonic)
    if uptime >= wanted:
        return None
    message = f"up for {uptime:.1f} s of {wanted:g} s"
    return Health(HealthState.STARTING, "MinUptime", message, recheck_at=monotonic + wanted - uptime)


def _at_work(life: Life, now: Moment) -> Health | None:
    pulse = life.pulse
    if pulse is None or not pulse.stale or not pulse.calls:
        return None
    calls = ", ".join(pulse.calls[:3])
    message = f"no heartbeat for {pulse.age:.0f} s, but a tool call is in progress ({calls}): not restarted"
    said = Evidence("heartbeat", message, now.wall)
    look = life.next_look(now.monotonic)
    return Health(HealthState.STUCK, "ToolCallInProgress", message, recheck_at=look, evidence=(said,))


def _unproven(life: Life) -> Health | None:
    """A probe decides only once it has passed: it may be wrong itself, and then a rollout must not go on."""
    for name, reason in (("liveness", "NotLiveYet"), ("readiness", "NotReadyYet")):
        state = life.probes.get(name)
        if state is not None and state.fails and not state.passed:
            message = f"the {name} probe has not passed yet: {state.said}"
            return _because(state, name, HealthState.STARTING, reason, message)
    return None


def _readiness(life: Life) -> Health | None:
    state = life.probes.get("readiness")
    if state is None or not (state.fails and state.failed_too_often):
        return None
    message = f"readiness probe failed {state.failures} times: {state.said}"
    return _because(state, "readiness", HealthState.UNHEALTHY, "ReadinessFailed", message)


def _because(state: ProbeState, name: str, health: HealthState, reason: str, message: str) -> Health:
    said = Evidence(f"{name} probe", f"fails ({state.said})", state.asked.wall)
    return Health(health, reason, message, recheck_at=state.due_at, evidence=(said,))
