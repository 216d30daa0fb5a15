"""What a pass means for the newest commit: its phase. Pure step of ``summarize``."""

from dataclasses import replace

from gitops_agent.model.agent import hands_off_words
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.plan import Effect, Plan
from gitops_agent.model.quantity import counted
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.status import APPROVED_BY, INHERITED, CommitRecord, Phase
from gitops_agent.plan.context import is_hands_off
from gitops_agent.plan.guards.verdicts import is_from_commit
from gitops_agent.rollout import state as transitions
from gitops_agent.source.commits import stopped
from gitops_agent.status import standing
from gitops_agent.status.gate import GATE_RECOVERED, Progress, progress_of, with_gate, with_recovery
from gitops_agent.status.summary import Summary


def commit_phase(summary: Summary) -> Summary:
    """With the phase of the newest commit that may be followed, and its gate opened, shut or failed."""
    target = summary.record.source.target
    record = summary.state.commits.records.get(target.revision.sha) if target is not None else None
    if record is None:
        return summary
    if _goes_on(record, summary.state.rollout.rollout):
        record = replace(record, phase=Phase.RECONCILING, finished_at=None)
    if record.phase.terminal:
        return _gate_of_superseded(summary, record)
    blocked = summary.record.decision.blocked
    if blocked is not None:
        found = _block_findings(blocked)
        return _with_record(summary, stopped(record, Phase.BLOCKED, found, summary.now.wall, blocked.digest))
    progress = progress_of(summary)
    summary = with_gate(summary, progress)
    updated = _progressed(record, summary, progress)
    if updated.phase is Phase.RECONCILING and (silent := standing.silent(summary)):
        updated = replace(updated, summary=f"{updated.summary}; {silent}")
    summary = _with_record(summary, updated)
    # Where only the end of a hook is unknown, everything else is in: a later revert must not take this back too.
    in_doubt = progress.for_people and progress.rollout is not None and progress.rollout.done
    if updated.is_in or in_doubt:
        # Where somebody is still down, the trees that failed stay on record.
        summary = _converged(summary, forward=not (record.reverts or updated.cause or in_doubt))
    return summary.with_rollout(judged_agents=frozenset()) if updated.phase.terminal else summary


def _goes_on(record: CommitRecord, rollout: Rollout | None) -> bool:
    """Whether a commit was in but for agents that were paused, and these follow in waves of their own now."""
    is_mine = rollout is not None and rollout.commit == record.sha and not rollout.failed
    return record.phase is Phase.CONVERGED and is_mine and rollout is not None and not rollout.done


def _gate_of_superseded(summary: Summary, record: CommitRecord) -> Summary:
    """A commit superseded by one that may not be followed goes on with its rollout, gate by gate; and a gate that
    failed may open after all."""
    rollout = summary.state.rollout.rollout
    is_mine = (
        rollout is not None and rollout.commit == record.sha and (rollout.is_on_trial or bool(rollout.failed))
    )
    if not is_mine or summary.record.decision.blocked is not None:
        return summary
    summary = with_recovery(with_gate(summary, progress_of(summary)), record)
    is_open_again = not summary.state.commits.records[record.sha].phase.terminal
    return commit_phase(summary) if is_open_again else summary


def _with_record(summary: Summary, record: CommitRecord) -> Summary:
    return summary.with_state(commits=summary.state.commits.updated([record]))


def _converged(summary: Summary, *, forward: bool) -> Summary:
    """What is there now is there to stay, and its loss would be one; the policy counts for the next commit."""
    target = summary.record.source.target
    assert target is not None
    rollout = transitions.after_convergence(summary.state.rollout, target, forward=forward)
    summary = summary.with_state(rollout=rollout)
    bases = summary.state.reconcile.bases
    young = {key: replace(base, established=True) for key, base in bases.items() if not base.established}
    return summary.with_reconcile(bases=bases.updated(young)) if young else summary


def _progressed(record: CommitRecord, summary: Summary, progress: Progress) -> CommitRecord:
    """The record of an enforced commit after a pass."""
    now, rollout, total = summary.now.wall, progress.rollout, len(summary.state.status.agents)
    warnings = tuple(f for f in summary.record.snapshot.findings if f.severity is Severity.WARNING)
    running = replace(
        record,
        phase=Phase.RECONCILING,
        plan=record.plan or summary.record.plan.digest,
        started_at=record.started_at or now,
        agents=total,
        changed=summary.record.changed(),
        findings=_with_approvals(record, warnings + summary.record.plan.findings),
    )
    held = len(rollout.waiting) if rollout is not None else 0
    wave = f"wave {rollout.released} of {len(rollout.waves)}" if rollout is not None and held else ""
    if why := progress.failure:
        behind = len(rollout.behind) if rollout is not None else 0
        held_finding = (_held(record, why, rollout),) if rollout is not None and behind else ()
        found = (*running.findings, *held_finding)
        keep = f"; the rollout is held, {_keep(behind, 'what it has', 'what they have')}" if behind else ""
        text = f"{why.rstrip('.')}{keep}"
        return replace(running, phase=Phase.DEGRADED, finished_at=now, summary=text, findings=found, cause="")
    if progress.gate_is_open and wave:
        return replace(running, summary=f"{wave} is Ready, {counted(held, 'agent')} to follow")
    if not progress.open_agents:
        trial = summary.state.rollout.rollout
        if trial is None or not trial.unproven:
            return _verdict(running, summary)
        return replace(
            running, summary=f"all that it changes is Ready, and has to stay so for {trial.pauses[-1]:g} s"
        )
    if progress.is_frozen:
        waits = not progress.open_agents.isdisjoint(summary.record.frozen)
        count = len(progress.open_agents)
        unready = f"{counted(count, 'agent')} {'was' if count == 1 else 'were'} Ready"
        why = "frozen with work waiting" if waits else f"frozen before {unready}"
        return replace(running, phase=Phase.BLOCKED, summary=why)
    waiting = f"waiting for {len(progress.open_agents)} of {total} agents"
    return replace(running, summary=f"{wave}, {waiting}" if wave else waiting)


def _verdict(record: CommitRecord, summary: Summary) -> CommitRecord:
    """The record of a commit whose own changes are all in: Converged, unless others are not Ready. Those that are
    on their way back are waited for, each for as long as it is given; so are, for one more look, those that were
    just lost from sight."""
    found, now = standing.obstacles_of(summary), summary.now.wall
    waiting = standing.on_their_way(summary) if not found else summary.hidden - summary.left_out
    if waiting:
        more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
        return replace(record, summary=f"its own changes are in; waiting for {min(waiting)}{more}")
    done, ended = _what_was_done(record, summary), replace(record, finished_at=now, cause="")
    if not found:
        return replace(ended, phase=Phase.CONVERGED, summary=done)
    who = "; ".join(filter(None, (standing.named(found), standing.silent(summary))))
    finding = standing.inherited(record.sha, who)
    return replace(
        ended,
        phase=Phase.DEGRADED,
        cause=INHERITED,
        summary=f"{done}; inherited: {who}",
        findings=(*record.findings, finding),
    )


def _what_was_done(record: CommitRecord, summary: Summary) -> str:
    """What was changed for a commit, and what was not because its document asks us not to act."""
    agents, now = summary.record.snapshot.agents, summary.now.wall
    asked = {
        a.key.agent for a in summary.record.pending if is_from_commit(a)
    } & summary.state.rollout.judged_agents
    left = sorted(key for key in asked if is_hands_off(agents.get(key), now))
    if not left:
        return f"{record.changed} changed" if record.changed else "nothing to change"
    done = f"{record.changed} changed; not done" if record.changed else "nothing done"
    more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
    return f"{done}: {left[0]} is {hands_off_words(agents[left[0]])}{more}"


def _with_approvals(record: CommitRecord, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings with the approvals on record, which stay when all that was approved is done; and with what
    became of a gate that failed."""
    kept = (APPROVED_BY, GATE_RECOVERED)
    earlier = {finding.summary: finding for finding in record.findings if finding.code in kept}
    fresh = tuple(finding for finding in findings if finding.summary not in earlier)
    return (*earlier.values(), *fresh)


def _held(record: CommitRecord, why: str, rollout: Rollout) -> Finding:
    sha, untouched = record.sha[:10], len(rollout.behind)
    detail = (
        f"{_keep(untouched, 'the spec it had, and is', 'the spec they had, and are')} repaired by it. It goes on "
        f"by itself once everything released has been Ready for {rollout.recovery:g} s, unless a revert was made. "
        "Otherwise push a fix or a revert (gitops-agent rollback); or, when what was wrong is not in Git and is "
        f"mended, gitops-agent retry {sha}."
    )
    return Finding(Severity.ERROR, "RolloutHeld", sha, f"the rollout is held: {why}", detail)


def _keep(count: int, one: str, several: str) -> str:
    return f"{counted(count, 'agent')} {f'keeps {one}' if count == 1 else f'keep {several}'}"


def _block_findings(plan: Plan) -> tuple[Finding, ...]:
    found = tuple(f for verdict in plan.verdicts if verdict.effect is Effect.BLOCK for f in verdict.findings)
    # An approval through Git that does not count is explained in Git too.
    objections = tuple(finding for finding in plan.findings if finding.code.startswith("Approval"))
    return found + objections if found else plan.findings
