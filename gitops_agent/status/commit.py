"""What a pass means for the newest commit: its phase, and the gate of its rollout. Pure step of ``summarize``."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Class, Decision, Effect, Plan
from gitops_agent.model.quantity import counted
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.status import APPROVED_BY, AgentStatus, CommitRecord, Phase
from gitops_agent.plan.context import is_hands_off
from gitops_agent.plan.guards.verdicts import is_from_commit
from gitops_agent.plan.reasons import ReasonCode
from gitops_agent.rollout import deadlines
from gitops_agent.rollout import state as transitions
from gitops_agent.rollout.waves import gated
from gitops_agent.source.commits import stopped
from gitops_agent.status.summary import Summary


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far the newest commit has got. ``open_agents``: those that it changed (or one that it superseded before
    that was judged) and that are not Ready, and those with actions still to be done that a commit asks for.
    ``failure``: why its gate failed, "" when it did not (yet); ``for_people``: but not for certain. ``frozen``: a
    freeze holds back some of what is to be done. ``rollout``: its waves."""

    open_agents: frozenset[AgentKey]
    failure: str
    for_people: bool
    frozen: bool
    rollout: Rollout | None

    @property
    def gate_is_open(self) -> bool:
        """Whether the next wave may follow: what the waves so far have changed is as it should be.
        What the commit creates counts for the commit, not for the gate: a new agent may have to wait for the port
        of an old one that goes with a later wave."""
        if self.rollout is None:
            return not self.open_agents
        return self.open_agents.isdisjoint(self.rollout.moving)


def commit_phase(summary: Summary) -> Summary:
    """With the phase of the newest commit that may be followed, and its gate opened, shut or failed."""
    target = summary.record.source.target
    record = summary.state.commits.records.get(target.revision.sha) if target is not None else None
    if record is None:
        return summary
    if record.phase.terminal:
        return _gate_of_superseded(summary, record)
    blocked, unreachable = summary.record.decision.blocked, summary.record.live.observed.unreachable
    if blocked is not None:
        found = _block_findings(blocked)
        return _with_record(summary, stopped(record, Phase.BLOCKED, found, summary.now.wall, blocked.digest))
    if unreachable:
        # Nothing is known about some resources, so nothing is concluded about the commit either.
        why = "; ".join(f"driver {name}: {reason}" for name, reason in sorted(unreachable.items()))
        looked = replace(record, phase=Phase.RECONCILING, summary=f"could not look: {why}")
        return _with_record(_with_shut_gate(summary), looked)
    progress = _progress(summary)
    updated = _progressed(record, summary, progress)
    summary = _with_record(_with_gate(summary, progress), updated)
    if updated.phase is Phase.CONVERGED:
        summary = _converged(summary, forward=record.rolls_back_to is None)
    return summary.with_rollout(judged_agents=frozenset()) if updated.phase.terminal else summary


def _gate_of_superseded(summary: Summary, record: CommitRecord) -> Summary:
    """A commit superseded by one that may not be followed goes on with its rollout, gate by gate."""
    rollout = summary.state.rollout.rollout
    is_mine = rollout is not None and rollout.commit == record.sha and not rollout.done and not rollout.failed
    if not is_mine or summary.record.decision.blocked is not None:
        return summary
    return (
        _with_shut_gate(summary)
        if summary.record.live.observed.unreachable
        else _with_gate(summary, _progress(summary))
    )


def _with_shut_gate(summary: Summary) -> Summary:
    """With a gate that was open and has to be found open again: what was Ready may have died unseen."""
    rollout = summary.state.rollout.rollout
    if rollout is None or rollout.passed_at is None:
        return summary
    return summary.with_rollout(rollout=gated(rollout, summary.now.active, ready=False))


def _with_record(summary: Summary, record: CommitRecord) -> Summary:
    return summary.with_state(commits=summary.state.commits.updated([record]))


def _with_gate(summary: Summary, progress: _Progress) -> Summary:
    rollout, now = summary.state.rollout, summary.now
    if progress.failure:
        rollout = transitions.after_failure(rollout, progress.failure, now, for_people=progress.for_people)
    if rollout.rollout is not None and not rollout.rollout.done:
        rollout = replace(rollout, rollout=gated(rollout.rollout, now.active, ready=progress.gate_is_open))
    return summary if rollout == summary.state.rollout else summary.with_state(rollout=rollout)


def _converged(summary: Summary, *, forward: bool) -> Summary:
    """What is there now is there to stay, and its loss would be one; the policy counts for the next commit."""
    target = summary.record.source.target
    assert target is not None
    rollout = transitions.after_convergence(summary.state.rollout, target, forward=forward)
    summary = summary.with_state(rollout=rollout)
    bases = summary.state.reconcile.bases
    young = {key: replace(base, established=True) for key, base in bases.items() if not base.established}
    return summary.with_reconcile(bases={**bases, **young}) if young else summary


def _progress(summary: Summary) -> _Progress:
    record, state, wall = summary.record, summary.state, summary.now.wall
    agents, statuses, rollout = record.snapshot.agents, state.status.agents, state.rollout.rollout
    # An agent that waits for a later wave may still suffer from an earlier commit: this one has not reached it.
    later = frozenset(rollout.waiting) if rollout is not None else frozenset[AgentKey]()
    open_ = (action for action in (*record.pending, *record.running) if action.key.agent not in later)
    owed = [a for a in open_ if is_from_commit(a) and not is_hands_off(agents.get(a.key.agent), wall)]
    # Of an agent that left Git, only what is still to be taken away counts.
    unready = {
        key
        for key in state.rollout.judged_agents - later
        if key in agents and key in statuses and not (statuses[key].ready or is_hands_off(agents[key], wall))
    }
    late = set(deadlines.late(state.rollout.unready_since, agents, summary.policy, summary.now.active))
    # What only people can decide does not get better with time; what an earlier commit left is its own.
    doubtful = (a for a in record.pending if a.decision not in (Decision.REPAIR, Decision.WAIT))
    late.update(a.key.agent for a in doubtful if a.drift_class is not Class.LAG)
    late.update(_waiting_in_vain(summary, late))
    # All may be Ready, and the end of a one-shot effect is not known. It may have been our own end that
    # interrupted it, so taking the commit back by ourselves would be a guess.
    in_doubt = [action.reason == ReasonCode.HOOK_UNKNOWN for action in owed if action.key.agent in late]
    frozen_agents = record.held_by("freeze", "mass_drift")
    frozen = any(action.key.agent in frozen_agents for action in owed)
    open_agents = frozenset(unready | {action.key.agent for action in owed})
    failure = rollout.failed if rollout is not None else ""  # found before a crash could write the record
    if not (failure or frozen or late.isdisjoint(open_agents)):
        failure = _why(sorted(late & open_agents), statuses)
    return _Progress(open_agents, failure, not unready and bool(in_doubt) and all(in_doubt), frozen, rollout)


def _progressed(record: CommitRecord, summary: Summary, progress: _Progress) -> CommitRecord:
    """The record of an enforced commit after a pass."""
    now, rollout, total = summary.now.wall, progress.rollout, len(summary.state.status.agents)
    warnings = tuple(f for f in summary.record.snapshot.findings if f.severity is Severity.WARNING)
    running = replace(
        record,
        phase=Phase.RECONCILING,
        plan=record.plan or summary.record.plan.digest,
        started_at=record.started_at or now,
        agents=total,
        findings=_with_approvals(record, warnings + summary.record.plan.findings),
    )
    held = len(rollout.waiting) if rollout is not None else 0
    wave = f"wave {rollout.released} of {len(rollout.waves)}" if rollout is not None and held else ""
    if why := progress.failure:
        found = (*running.findings, _held(record, why, held)) if held else running.findings
        keep = f"; the rollout is held, {_keep(held, 'what it has', 'what they have')}" if held else ""
        return replace(running, phase=Phase.DEGRADED, finished_at=now, summary=why + keep, findings=found)
    if progress.gate_is_open and wave:
        return replace(running, summary=f"{wave} is Ready, {counted(held, 'agent')} to follow")
    if not progress.open_agents:
        text = f"{record.changed} changed" if record.changed else "nothing to change"
        return replace(running, phase=Phase.CONVERGED, finished_at=now, summary=text)
    if progress.frozen:
        return replace(running, phase=Phase.BLOCKED, summary="frozen with work waiting")
    waiting = f"waiting for {len(progress.open_agents)} of {total} agents"
    return replace(running, summary=f"{wave}, {waiting}" if wave else waiting)


def _waiting_in_vain(summary: Summary, late: Collection[AgentKey]) -> list[AgentKey]:
    """Agents that wait for one that will not become Ready by itself: late, or not ours to act on for now."""
    waiting, agents = summary.record.held_by("dependencies"), summary.record.snapshot.agents
    if not waiting:
        return []
    known, wall = summary.state.status.agents, summary.now.wall
    unready = (key for key in agents if key not in known or not known[key].ready)
    hopeless = {*late, *(key for key in unready if is_hands_off(agents[key], wall))}
    found: list[AgentKey] = []
    while more := [
        key
        for key in waiting
        if key not in hopeless and any(other in hopeless for other in agents[key].depends_on)
    ]:
        hopeless.update(more)
        found += more
    return found


def _with_approvals(record: CommitRecord, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings with the approvals on record, which stay when all that was approved is done."""
    earlier = {finding.summary: finding for finding in record.findings if finding.code == APPROVED_BY}
    fresh = tuple(finding for finding in findings if finding.summary not in earlier)
    return (*earlier.values(), *fresh)


def _held(record: CommitRecord, why: str, untouched: int) -> Finding:
    sha = record.sha[:10]
    detail = (
        f"{_keep(untouched, 'the spec it had, and is', 'the spec they had, and are')} repaired by it. This tree "
        "is not tried again by itself, not even after a restart. Push a fix or a revert (gitops-agent rollback); "
        f"or, when what was wrong is not in Git, gitops-agent retry {sha}."
    )
    return Finding(Severity.ERROR, "RolloutHeld", sha, f"the rollout is held: {why}", detail)


def _keep(count: int, one: str, several: str) -> str:
    return f"{counted(count, 'agent')} {f'keeps {one}' if count == 1 else f'keep {several}'}"


def _why(late: Sequence[AgentKey], statuses: Mapping[AgentKey, AgentStatus]) -> str:
    status = statuses.get(late[0])
    message = ""
    if status is not None and status.conditions:
        stalled = next((c for c in status.conditions if c.type == "Stalled"), status.conditions[0])
        message = f"{stalled.reason}: {stalled.message}"
    more = f" (and {len(late) - 1} more)" if len(late) > 1 else ""
    is_ready = status is not None and status.ready  # it may be Ready, and a hook of it has failed
    return f"{late[0]} {'has failed' if is_ready else 'is not Ready'}: {message}{more}"


def _block_findings(plan: Plan) -> tuple[Finding, ...]:
    found = tuple(f for verdict in plan.verdicts if verdict.effect is Effect.BLOCK for f in verdict.findings)
    # An approval through Git that does not count is explained in Git too.
    objections = tuple(finding for finding in plan.findings if finding.code.startswith("Approval"))
    return found + objections if found else plan.findings
