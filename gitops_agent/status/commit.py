"""What a pass means for the newest commit: its phase, and the gate of its rollout. Pure step of ``summarize``."""

from collections.abc import Sequence
from dataclasses import replace

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Class, Decision, Effect, Plan
from gitops_agent.model.status import CommitRecord, Phase
from gitops_agent.plan.context import is_hands_off
from gitops_agent.plan.guards.verdicts import is_from_commit
from gitops_agent.plan.reasons import ReasonCode
from gitops_agent.rollout import deadlines
from gitops_agent.rollout import state as transitions
from gitops_agent.source.commits import stopped
from gitops_agent.status.phases import CommitProgress, progressed
from gitops_agent.status.summary import Summary


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
        return _with_record(summary, replace(record, phase=Phase.RECONCILING, summary=f"could not look: {why}"))
    progress = _progress(summary)
    updated = progressed(record, progress, summary.now.wall)
    summary = _with_record(_with_gate(summary, progress), updated)
    if updated.phase is Phase.CONVERGED:
        summary = _converged(summary, forward=record.rolls_back_to is None)
    return summary.with_rollout(judged_agents=frozenset()) if updated.phase.terminal else summary


def _gate_of_superseded(summary: Summary, record: CommitRecord) -> Summary:
    """A commit superseded by one that may not be followed goes on with its rollout, gate by gate."""
    rollout = summary.state.rollout.rollout
    is_mine = rollout is not None and rollout.commit == record.sha and not rollout.done and not rollout.failed
    if not is_mine or summary.record.decision.blocked is not None or summary.record.live.observed.unreachable:
        return summary
    return _with_gate(summary, _progress(summary))


def _with_record(summary: Summary, record: CommitRecord) -> Summary:
    return summary.with_state(commits=summary.state.commits.updated([record]))


def _with_gate(summary: Summary, progress: CommitProgress) -> Summary:
    rollout, now = summary.state.rollout, summary.now
    if progress.failure:
        rollout = transitions.after_failure(rollout, progress.failure, now, for_people=_is_undecided(progress))
    rollout = transitions.after_gate(rollout, now, ready=progress.gate_is_open)
    return summary if rollout == summary.state.rollout else summary.with_state(rollout=rollout)


def _converged(summary: Summary, *, forward: bool) -> Summary:
    """What is there now is there to stay, and its loss would be one; the policy counts for the next commit."""
    target = summary.record.source.target
    assert target is not None
    summary = summary.with_state(
        rollout=transitions.after_convergence(summary.state.rollout, target, forward=forward)
    )
    bases = summary.state.reconcile.bases
    young = {key: replace(base, established=True) for key, base in bases.items() if not base.established}
    return summary.with_reconcile(bases={**bases, **young}) if young else summary


def _progress(summary: Summary) -> CommitProgress:
    record, rollout, wall = summary.record, summary.state.rollout, summary.now.wall
    agents, under_way = record.snapshot.agents, summary.state.rollout.rollout
    # An agent that waits for a later wave may still suffer from an earlier commit: this one has not reached it.
    later = frozenset(under_way.waiting) if under_way is not None else frozenset[AgentKey]()
    # Of an agent that left Git, only what is still to be taken away counts.
    judged = rollout.judged_agents
    exempt = later | {key for key in judged if key not in agents or is_hands_off(agents[key], wall)}
    open_ = (action for action in (*record.pending, *record.running) if action.key.agent not in later)
    owed = [a for a in open_ if is_from_commit(a) and not is_hands_off(agents.get(a.key.agent), wall)]
    late = deadlines.late(rollout.unready_since, agents, summary.policy, summary.now.active)
    # What only people can decide does not get better with time; what an earlier commit left is its own.
    doubtful = (a for a in record.pending if a.decision not in (Decision.REPAIR, Decision.WAIT))
    late += [a.key.agent for a in doubtful if a.drift_class is not Class.LAG]
    late += _waiting_in_vain(summary, late)
    frozen = record.held_by("freeze", "mass_drift")
    warnings = tuple(f for f in record.snapshot.findings if f.severity is Severity.WARNING)
    return CommitProgress(
        record.plan,
        judged - exempt,
        owed,
        late,
        summary.state.status.agents,
        warnings + record.plan.findings,
        frozen=any(action.key.agent in frozen for action in owed),
        rollout=under_way,
    )


def _waiting_in_vain(summary: Summary, late: Sequence[AgentKey]) -> list[AgentKey]:
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


def _is_undecided(progress: CommitProgress) -> bool:
    """Whether nothing has failed for certain: all are Ready, and the end of a one-shot effect is not known.
    It may have been our own end that interrupted it, so taking the commit back by ourselves would be a guess."""
    late = [action for action in progress.owed if action.key.agent in progress.overdue]
    return not progress.unready and bool(late) and all(a.reason == ReasonCode.HOOK_UNKNOWN for a in late)


def _block_findings(plan: Plan) -> tuple[Finding, ...]:
    found = tuple(f for verdict in plan.verdicts if verdict.effect is Effect.BLOCK for f in verdict.findings)
    # An approval through Git that does not count is explained in Git too.
    objections = tuple(finding for finding in plan.findings if finding.code.startswith("Approval"))
    return found + objections if found else plan.findings
