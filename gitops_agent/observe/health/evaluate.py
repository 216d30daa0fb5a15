"""From what we remember of an agent and what the cross-check found to its health. No clock, no I/O."""

from collections.abc import Iterable
from dataclasses import replace

from gitops_agent.model.health import HEALTHY, Health, HealthState, worst
from gitops_agent.model.observation import Evidence, Owner
from gitops_agent.model.quantity import seconds
from gitops_agent.observe.health.crosscheck import HEARTBEAT_STALE, LIVENESS_FAILED, CrossCheck
from gitops_agent.observe.health.history import ClockReading, HealthHistory, HealthTarget, ProbeState

STOPPED = Health(HealthState.STOPPED, "Stopped", "stopped, as desired")
SOURCES_DISAGREE = "SourcesDisagree"


def known_health(target: HealthTarget) -> Health | None:
    """The health that needs no probe: of an agent that is not there as a whole, or that its driver reports."""
    seen = target.runtime
    if target.stopped:
        running = seen is not None and seen.fields is not None and (seen.instances or not target.kept)
        return Health(HealthState.STARTING, "Stopping", "still running") if running else STOPPED
    if seen is None or seen.fields is None:
        reason = (seen.reason if seen else None) or "NotRunning"
        return Health(HealthState.UNHEALTHY, reason, (seen.message if seen else "") or "not running")
    if seen.owner is not Owner.OURS:
        # Not ours: its health says nothing about our agent.
        return Health(HealthState.UNHEALTHY, seen.reason or "NotRunning", seen.message or "not running")
    if seen.health is not None:
        return seen.health
    if seen.started_at is not None:
        return None
    return Health(HealthState.UNHEALTHY, target.suspicion, seen.message) if target.suspicion else HEALTHY


def aggregate(runtime: Health, others: Iterable[Health]) -> Health:
    """The health of the agent as a whole: the worst of its resources; a restart asked for by the runtime first."""
    listed = (runtime, *others)
    decides = worst(listed) if len(listed) > 1 and not runtime.restart else runtime
    assert decides is not None
    dues = [health.recheck_at for health in listed if health.recheck_at is not None]
    return decides if len(listed) == 1 else replace(decides, recheck_at=min(dues, default=None))


def alive(target: HealthTarget, history: HealthHistory, found: CrossCheck | None, now: ClockReading) -> Health:
    """The health of an agent that is there: a suspicion comes first, then what keeps it from being Ready."""
    unready = _unready(target, history, now)
    look = history.next_look(now.monotonic)
    if found is not None and found.holds:
        return _confirmed(target, history, found, look)
    if found is not None:
        return _disputed(found, unready or HEALTHY, look)
    if unready is not None:
        return unready
    return HEALTHY if look is None else replace(HEALTHY, recheck_at=look)


def _confirmed(target: HealthTarget, history: HealthHistory, found: CrossCheck, look: float | None) -> Health:
    """Most sources report that it is stuck. Of what its driver reports the observation tells the plan as well."""
    state, restart, message = HealthState.UNHEALTHY, False, found.evidence[0].said
    if found.suspicion == LIVENESS_FAILED:
        probe = history.probes["liveness"]
        restart, message = True, f"liveness probe failed {probe.failures} times: {probe.answer}"
    elif found.suspicion == HEARTBEAT_STALE and history.heartbeat is not None:
        state, restart = HealthState.STUCK, target.spec["heartbeat"].get("onStale", "Restart") == "Restart"
        message = f"no heartbeat for {history.heartbeat.age:.0f} s (limit {history.heartbeat.limit:.0f} s)"
    return Health(
        state,
        found.suspicion,
        message,
        restart,
        look,
        found.evidence,
        agree=found.agree,
        oppose=found.oppose,
    )


def _disputed(found: CrossCheck, readiness: Health, look: float | None) -> Health:
    """Nothing is repaired. Whether the agent is Ready is then only for its readiness to say."""
    reports = "; ".join(f"{each.source}: {each.said}" for each in found.evidence)
    looks = [at for at in (look, readiness.recheck_at) if at is not None]
    return Health(
        readiness.state,
        SOURCES_DISAGREE,
        f"not repaired, because the sources disagree: {reports}",
        recheck_at=min(looks, default=None),
        evidence=found.evidence,
        disputes=found.suspicion,
        agree=found.agree,
        oppose=found.oppose,
    )


def _unready(target: HealthTarget, history: HealthHistory, now: ClockReading) -> Health | None:
    """Why an agent that no source suspects is not Ready."""
    waits = _too_young(target, history, now.monotonic) or _at_work(history, now)
    return waits or ((_unproven(history) or _readiness(history)) if history.probes else None)


def _too_young(target: HealthTarget, history: HealthHistory, monotonic: float) -> Health | None:
    wanted = seconds(target.spec.get("minUptime", "1s"))
    uptime = history.uptime(monotonic)
    if uptime >= wanted:
        return None
    message = f"up for {uptime:.1f} s of {wanted:g} s"
    return Health(HealthState.STARTING, "MinUptime", message, recheck_at=monotonic + wanted - uptime)


def _at_work(history: HealthHistory, now: ClockReading) -> Health | None:
    heartbeat = history.heartbeat
    if heartbeat is None or not heartbeat.stale or not heartbeat.calls:
        return None
    calls = ", ".join(heartbeat.calls[:3])
    message = f"no heartbeat for {heartbeat.age:.0f} s, but a tool call is in progress ({calls}): not restarted"
    said = Evidence("heartbeat", message, now.wall)
    look = history.next_look(now.monotonic)
    return Health(HealthState.STUCK, "ToolCallInProgress", message, recheck_at=look, evidence=(said,))


def _unproven(history: HealthHistory) -> Health | None:
    """A probe decides only once it has passed: it may be wrong itself, and then a rollout must not go on."""
    for name, reason in (("liveness", "NotLiveYet"), ("readiness", "NotReadyYet")):
        state = history.probes.get(name)
        if state is not None and state.fails and not state.passed:
            message = f"the {name} probe has not passed yet: {state.answer}"
            return _because(state, name, HealthState.STARTING, reason, message)
    return None


def _readiness(history: HealthHistory) -> Health | None:
    state = history.probes.get("readiness")
    if state is None or not (state.fails and state.failed_too_often):
        return None
    message = f"readiness probe failed {state.failures} times: {state.answer}"
    return _because(state, "readiness", HealthState.UNHEALTHY, "ReadinessFailed", message)


def _because(state: ProbeState, name: str, health: HealthState, reason: str, message: str) -> Health:
    said = Evidence(f"{name} probe", f"fails ({state.answer})", state.asked.wall)
    return Health(health, reason, message, recheck_at=state.due_at, evidence=(said,))
