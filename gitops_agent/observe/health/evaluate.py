"""From what we remember of an agent to its health. No clock, no I/O.

Three kinds of sources see the same agent from different sides: its driver (a process that was suspended), the
heartbeat, and the probes. One that suspects a live agent to be stuck starts the cross-check, the probes are run
afresh, and the majority of those that report decides. So one wrong source repairs nothing where others are asked
for; alone it is believed, because its author asked for exactly that. That an agent runs proves nothing here: one
that hangs runs as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gitops_agent.model.health import HEALTHY, Evidence, Health, HealthState, rank, worst
from gitops_agent.model.health_spec import EARLIER
from gitops_agent.model.observation import Owner
from gitops_agent.model.quantity import seconds
from gitops_agent.observe.health.history import ClockReading, HealthHistory, HeartbeatState, ProbeState
from gitops_agent.observe.health.targets import HealthTarget, ProbeSpec

STOPPED = Health(HealthState.STOPPED, "Stopped", "stopped, as desired")
REPLICAS_FOLLOW = "ReplicasFollow"
TOOL_CALL_STUCK, TURN_STUCK = "ToolCallStuck", "TurnStuck"
LIVENESS_FAILED, HEARTBEAT_STALE, SOURCES_DISAGREE = "LivenessFailed", "HeartbeatStale", "SourcesDisagree"

Report = tuple[bool | None, Evidence]
"""What one source reports: whether the agent is healthy; None: it does not count, but is kept as evidence."""


def known_health(target: HealthTarget) -> Health | None:
    """The health that needs no probe: of an agent that is not there as a whole, or that its driver reports."""
    seen = target.runtime
    if target.stopped:
        running = seen is not None and seen.fields is not None and (seen.instances or not target.kept)
        return Health(HealthState.STARTING, "Stopping", "still running") if running else STOPPED
    # What is not ours says nothing about the health of our agent.
    if seen is None or seen.fields is None or seen.owner is not Owner.OURS:
        reason = (seen.reason if seen else None) or "NotRunning"
        return Health(HealthState.UNHEALTHY, reason, (seen.message if seen else "") or "not running")
    if seen.health is not None:
        return seen.health
    if seen.started_at is not None:
        return None
    return Health(HealthState.STUCK, target.suspicion, seen.message) if target.suspicion else HEALTHY


def aggregate(runtime: Health, others: Sequence[Health]) -> Health:
    """The health of the agent as a whole: the worst of its resources; a restart asked for by the runtime first."""
    if not others:
        return runtime
    listed = (runtime, *others)
    decides = runtime if runtime.restart else worst(listed)
    dues = [health.recheck_at for health in listed if health.recheck_at is not None]
    return replace(decides, recheck_at=min(dues, default=None))


def combined(copies: Sequence[HealthTarget], found: Sequence[Health]) -> Health:
    """The health of an agent by that of its copies: the worst, one that asks for a restart first.
    Copies that are behind, or not well themselves, are replaced once all that were replaced before are Ready."""
    if len(copies) == 1 and not _is_behind(copies[0]):
        return found[0]
    each = list(zip(copies, found, strict=True))
    asking = [(copy, health) for copy, health in each if health.restart]
    unready = [(copy, health) for copy, health in each if health.state is not HealthState.HEALTHY]
    concerned = asking or unready
    behind = [copy for copy, _ in each if _is_behind(copy)]
    dues = [health.recheck_at for health in found if health.recheck_at is not None]
    decides = max((health for _, health in concerned or each), key=lambda health: rank(health.state))
    of = next(copy for copy, health in each if health is decides)
    if concerned and len(copies) > 1:
        decides = replace(decides, message=f"{of.instance}: {decides.message}")
    # A copy to be replaced that is not well itself is no loss, so it keeps none waiting.
    if behind and not asking and all(_is_behind(copy) for copy, _ in unready):
        message = f"{len(behind)} of {len(copies)} copies are still to be replaced, one after the other"
        decides = Health(HealthState.STARTING, REPLICAS_FOLLOW, message)
    ids = tuple(copy.instance for copy, _ in concerned)
    progress = tuple(report for health in found for report in health.progress)
    return replace(decides, instances=ids, recheck_at=min(dues, default=None), progress=progress)


def _is_behind(copy: HealthTarget) -> bool:
    return copy.runtime is not None and bool(copy.runtime.instances) and copy.runtime.instances[0].behind


def alive(target: HealthTarget, history: HealthHistory, now: ClockReading) -> Health:
    """The health of an agent that is there and that no source suspects: what keeps it from being Ready."""
    if (unready := _unready(target, history, now)) is not None:
        return unready
    look = history.next_look(now.monotonic)
    heartbeat = history.heartbeat
    if heartbeat is not None and heartbeat.stale and heartbeat.calls:
        said = f"no heartbeat within {heartbeat.limit:g} s, but a tool call is in progress ({heartbeat.names})"
        return Health(HealthState.HEALTHY, "ToolCallInProgress", f"{said}: not restarted", recheck_at=look)
    return HEALTHY if look is None else replace(HEALTHY, recheck_at=look)


def doubted(health: Health, reason: str) -> Health:
    """The health of an agent that its driver reports to be stuck while the other sources are being asked.
    It is not Ready whatever they will answer, and nothing is repaired before they have."""
    state = HealthState.STUCK if health.state is HealthState.HEALTHY else health.state
    message = "its other sources are being asked"
    return replace(health, state=state, reason=reason, message=message, disputes=reason, asking=True)


def suspicion(
    target: HealthTarget, history: HealthHistory, proven: ProbeSpec | None, monotonic: float
) -> str | None:
    """The reason code by which some source finds a live agent stuck, the driver's first; None when none does.
    ``proven`` is the newest definition of the liveness probe that ever passed."""
    if target.suspicion is not None:
        return target.suspicion
    if not history.is_asked:
        return None
    if history.uptime(monotonic) < seconds(target.spec.get("minUptime", "1s")):
        return None
    liveness = history.probes.get("liveness")
    if liveness is not None and liveness.failed_too_often and _is_believed(history, liveness, proven):
        return LIVENESS_FAILED
    if history.heartbeat is not None and history.heartbeat.stale and not history.heartbeat.calls:
        return HEARTBEAT_STALE
    return None


def _is_believed(history: HealthHistory, liveness: ProbeState, proven: ProbeSpec | None) -> bool:
    """Whether a liveness probe that fails is to be believed at all.
    One that never passed under its present definition may be wrong itself: a typo in its path. Where an earlier
    definition passed, or the agent was healthy before this one came into force, the definition is in doubt."""
    if liveness.passed or proven == liveness.spec:
        return True
    if proven is not None or history.was_healthy:
        return False
    return liveness.from_start


def cross_checked(
    target: HealthTarget, history: HealthHistory, suspected: str, proven: ProbeSpec | None, now: ClockReading
) -> Health:
    """The health of an agent that some source reports to be stuck, by the majority of the sources."""
    reports = tuple(_reports(target, history, proven, now))
    votes, evidence = [healthy for healthy, _ in reports], tuple(each for _, each in reports)
    agree, oppose, look = votes.count(False), votes.count(True), history.next_look(now.monotonic)
    if agree <= oppose:
        # Nothing is repaired. Whether the agent is Ready is then only for its readiness to say; but of what its
        # driver reports no probe proves the contrary: one that is suspended does no work.
        readiness = _unready(target, history, now) or HEALTHY
        if target.suspicion is not None and readiness.state is HealthState.HEALTHY:
            readiness = replace(readiness, state=HealthState.STUCK)
        looks = [at for at in (look, readiness.recheck_at) if at is not None]
        said = "; ".join(f"{each.source}: {each.said}" for each in evidence)
        message = f"not repaired, because the sources disagree: {said}"
        look, state = min(looks, default=None), readiness.state
        return Health(state, SOURCES_DISAGREE, message, False, look, evidence, suspected, agree, oppose)
    # Of what its driver reports the observation tells the plan as well.
    state = HealthState.UNHEALTHY if target.suspicion is None else HealthState.STUCK
    restart, message = False, evidence[0].said
    if suspected == LIVENESS_FAILED:
        probe = history.probes["liveness"]
        restart, message = True, f"liveness probe failed {probe.failures} times: {probe.answer}"
    elif suspected == HEARTBEAT_STALE and history.heartbeat is not None:
        state, restart = HealthState.STUCK, target.spec["heartbeat"].get("onStale", "Restart") == "Restart"
        message = f"no heartbeat for {history.heartbeat.age:.0f} s (limit {history.heartbeat.limit:.0f} s)"
    return Health(state, suspected, message, restart, look, evidence, agree=agree, oppose=oppose)


def _reports(
    target: HealthTarget, history: HealthHistory, proven: ProbeSpec | None, now: ClockReading
) -> Iterator[Report]:
    seen = target.runtime
    if seen is not None and target.suspicion is not None:
        yield False, Evidence(f"{seen.driver} driver", seen.message or target.suspicion, seen.observed_at)
    if history.heartbeat is not None:
        healthy, text = _heartbeat(history, history.heartbeat, now.monotonic)
        yield healthy, Evidence("heartbeat", text, now.wall)
    for name in sorted(name for name in history.probes if not name.startswith(EARLIER)):
        state = history.probes[name]
        trusted = state.passed or (name == "liveness" and _is_believed(history, state, proven))
        healthy, text = _probe(state, trusted=trusted)
        yield healthy, Evidence(f"{name} probe", text, state.asked.wall)


def _heartbeat(history: HealthHistory, heartbeat: HeartbeatState, monotonic: float) -> tuple[bool | None, str]:
    within, suspected_at = f"within {heartbeat.limit:g} s", history.suspected_at
    if not heartbeat.stale:
        if suspected_at is not None and heartbeat.age > monotonic - suspected_at:
            return None, "none since then"  # one from before says nothing about a suspicion of now
        return (True, f"written {within}") if heartbeat.wrote else (None, "none yet")
    if not heartbeat.calls:
        return False, f"none {within}"
    # A restart could run the tool twice, so it counts against one; to be resumed harms no tool call.
    text = f"none {within}, but a tool call is in progress ({heartbeat.names})"
    return None if suspected_at is not None else True, text


def _probe(state: ProbeState, *, trusted: bool) -> tuple[bool | None, str]:
    if state.last is None:
        return None, "has not answered yet"
    if state.fails and not trusted:
        return None, f"has never passed as it is now defined ({state.answer})"
    return not state.fails, f"{'fails' if state.fails else 'passes'} ({state.answer})"


def _unready(target: HealthTarget, history: HealthHistory, now: ClockReading) -> Health | None:
    """Why an agent that no source suspects is not Ready."""
    waits = _too_young(target, history, now.monotonic) or _stuck(history, now)
    return waits or (_failing_probe(history) if history.probes else None)


def _too_young(target: HealthTarget, history: HealthHistory, monotonic: float) -> Health | None:
    wanted = seconds(target.spec.get("minUptime", "1s"))
    uptime = history.uptime(monotonic)
    if uptime >= wanted:
        return None
    message = f"up for {uptime:.1f} s of {wanted:g} s"
    return Health(HealthState.STARTING, "MinUptime", message, recheck_at=monotonic + wanted - uptime)


def _stuck(history: HealthHistory, now: ClockReading) -> Health | None:
    """A tool call or a turn that lasts for too long. Restarting is for people: the tool might run twice."""
    heartbeat = history.heartbeat
    if heartbeat is None or not (heartbeat.call_is_stuck or heartbeat.turn_is_stuck):
        return None
    reason, limit = TURN_STUCK, heartbeat.turn_limit
    message = f"its turn has not changed for more than {_minutes(limit)} (heartbeat.maxTurn)"
    if heartbeat.call_is_stuck:
        reason, limit = TOOL_CALL_STUCK, heartbeat.call_limit
        name = heartbeat.calls[0][0]
        message = f"the tool call {name} is open for more than {_minutes(limit)} (heartbeat.maxToolCall)"
    said = Evidence("heartbeat", message, now.wall)
    look = history.next_look(now.monotonic)
    return Health(HealthState.STUCK, reason, message, recheck_at=look, evidence=(said,))


def _minutes(limit: float) -> str:
    return f"{limit / 60:g} min" if limit >= 60 else f"{limit:g} s"


def _failing_probe(history: HealthHistory) -> Health | None:
    """A probe decides only once it has passed: it may be wrong itself, and then a rollout must not go on."""
    for name, reason in (("liveness", "NotLiveYet"), ("readiness", "NotReadyYet")):
        state = history.probes.get(name)
        if state is not None and state.unproven:
            message = f"the {name} probe has not passed yet: {state.answer or 'no answer so far'}"
            return _because(state, name, HealthState.STARTING, reason, message)
    ready = history.probes.get("readiness")
    if ready is None or not (ready.fails and ready.failed_too_often):
        return _failing_earlier_probe(history)
    message = f"readiness probe failed {ready.failures} times: {ready.answer}"
    return _because(ready, "readiness", HealthState.UNHEALTHY, "ReadinessFailed", message)


def _failing_earlier_probe(history: HealthHistory) -> Health | None:
    """A probe that the commit on trial takes away or weakens must pass as it was, until the wave is through."""
    for name, state in history.probes.items():
        if name.startswith(EARLIER) and (state.unproven or (state.fails and state.failed_too_often)):
            message = (
                f"the {name} probe, which this commit removes or weakens, does not pass: "
                f"{state.answer or 'no answer so far'}; to change the program and its probe, change the probe in "
                "a commit of its own first"
            )
            return _because(state, name, HealthState.STARTING, "EarlierProbeFails", message)
    return None


def _because(state: ProbeState, name: str, health: HealthState, reason: str, message: str) -> Health:
    said = () if state.last is None else (Evidence(f"{name} probe", f"fails ({state.answer})", state.asked.wall),)
    return Health(health, reason, message, recheck_at=state.due_at, evidence=said)
