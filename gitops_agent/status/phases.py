"""Where a commit stands: how it enters the record, and what a pass makes of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gitops_agent.model.finding import Finding, Severity, errors
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Action, Plan
from gitops_agent.model.quantity import counted
from gitops_agent.model.revision import Revision
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.status import AgentStatus, CommitRecord, Phase

APPROVED_BY = "ApprovedBy"
"""The code of a finding that says who let a commit pass."""


@dataclass(frozen=True, slots=True)
class CommitProgress:
    """What the end of a pass knows about the newest commit.

    ``touched``: agents this commit (or one it superseded before that was judged) changed. ``owed``: actions a
    commit asks for that are not done yet. ``overdue``: agents that had their whole ``healthTimeout``.
    ``frozen``: a freeze holds back some of what is owed. ``rollout``: how far it has got.
    """

    plan: Plan
    touched: Collection[AgentKey]
    owed: Sequence[Action]
    overdue: Collection[AgentKey]
    statuses: Mapping[AgentKey, AgentStatus]
    findings: tuple[Finding, ...] = ()
    frozen: bool = False
    rollout: Rollout | None = None

    @property
    def unready(self) -> list[AgentKey]:
        """The agents it touched that are not Ready."""
        return sorted(key for key in self.touched if not _is_ready(self.statuses.get(key)))

    @property
    def is_open(self) -> bool:
        """Whether its gate is open: all that it touched is as it should be."""
        return not self.unready and not self.owed

    @property
    def gate_is_open(self) -> bool:
        """Whether the next wave may follow: what the waves so far have changed is as it should be.

        What the commit creates counts for the commit, not for the gate: a new agent may have to wait for the port
        of an old one that goes with a later wave.
        """
        if self.rollout is None:
            return self.is_open
        moving = set(self.rollout.moving)
        return moving.isdisjoint(self.unready) and not any(action.key.agent in moving for action in self.owed)

    @property
    def failure(self) -> str:
        """Why its gate failed, "" when it did not (yet)."""
        if self.rollout is not None and self.rollout.failed:  # found before a crash could write the record
            return self.rollout.failed
        if self.is_open or self.frozen:
            return ""
        late = sorted(set(self.overdue) & ({*self.unready} | {action.key.agent for action in self.owed}))
        return _why(late, self) if late else ""


def entered(revisions: Sequence[Revision], position: int, now: float) -> list[CommitRecord]:
    """Records for commits that one push brought, oldest first; all but the last are superseded at once."""
    newest = len(revisions) - 1
    return [
        CommitRecord(
            sha=revision.sha,
            tree=revision.tree,
            subject=revision.subject,
            author=revision.author,
            committed_at=revision.committed_at,
            position=position + index,
            phase=Phase.PENDING if index == newest else Phase.SUPERSEDED,
            seen_at=now,
            finished_at=None if index == newest else now,
            summary="" if index == newest else f"superseded by {revisions[newest].short}",
        )
        for index, revision in enumerate(revisions)
    ]


def superseded(records: Sequence[CommitRecord], by: Revision, now: float) -> list[CommitRecord]:
    """The records that a newer commit takes the place of: those that were still open."""
    return [
        replace(record, phase=Phase.SUPERSEDED, finished_at=now, summary=f"superseded by {by.short}")
        for record in records
        if not record.phase.terminal and record.sha != by.sha
    ]


def stopped(
    record: CommitRecord, phase: Phase, findings: tuple[Finding, ...], now: float, plan: str = ""
) -> CommitRecord:
    """A commit that is not enforced: Invalid, Refused or Blocked."""
    reasons = errors(findings) or findings
    first = f"{reasons[0].address}: {reasons[0].summary}" if reasons else phase.value
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return replace(
        record,
        phase=phase,
        findings=findings,
        summary=first + more,
        plan=plan,
        started_at=record.started_at or now,
        finished_at=(record.finished_at or now) if phase.terminal else None,
    )


def judged(record: CommitRecord, standing: CommitProgress, now: float) -> CommitRecord:
    """The record of an enforced commit after a pass. A terminal phase stays as it is."""
    if record.phase.terminal:
        return record
    started = record.started_at or now
    running = replace(
        record,
        phase=Phase.RECONCILING,
        plan=record.plan or standing.plan.digest,
        started_at=started,
        agents=len(standing.statuses),
        findings=_with_approvals(record, standing.findings),
    )
    unready, rollout = standing.unready, standing.rollout
    held = len(rollout.waiting) if rollout is not None else 0
    if why := standing.failure:
        said = (*running.findings, _held(record, why, held)) if held else running.findings
        keep = f"; the rollout is held, {_keep(held, 'what it has', 'what they have')}" if held else ""
        return replace(running, phase=Phase.DEGRADED, finished_at=now, summary=why + keep, findings=said)
    if standing.gate_is_open and rollout is not None and held:
        wave = f"wave {rollout.released} of {len(rollout.waves)} is Ready"
        return replace(running, summary=f"{wave}, {counted(held, 'agent')} to follow")
    if standing.is_open:
        text = f"{record.changed} changed" if record.changed else "nothing to change"
        return replace(running, phase=Phase.CONVERGED, finished_at=now, summary=text)
    if standing.frozen:
        return replace(running, phase=Phase.BLOCKED, summary="frozen with work waiting")
    waiting = len({*unready, *(action.key.agent for action in standing.owed)})
    wave = f"wave {rollout.released} of {len(rollout.waves)}, " if rollout is not None and held else ""
    return replace(running, summary=f"{wave}waiting for {waiting} of {len(standing.statuses)} agents")


def _with_approvals(record: CommitRecord, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Who approved a commit stays on its record, also when all that was approved is done."""
    earlier = {finding.summary: finding for finding in record.findings if finding.code == APPROVED_BY}
    fresh = tuple(finding for finding in findings if finding.summary not in earlier)
    return (*earlier.values(), *fresh)


def _held(record: CommitRecord, why: str, untouched: int) -> Finding:
    sha = record.sha[:10]
    return Finding(
        Severity.ERROR,
        "RolloutHeld",
        sha,
        f"the rollout is held: {why}",
        f"{_keep(untouched, 'the spec it had, and is', 'the spec they had, and are')} repaired by it. "
        f"This tree is not tried again by itself, "
        f"not even after a restart. Push a fix or a revert (gitops-agent rollback); or, when what was "
        f"wrong is not in Git, gitops-agent retry {sha}.",
    )


def _keep(count: int, one: str, several: str) -> str:
    return f"{counted(count, 'agent')} {f'keeps {one}' if count == 1 else f'keep {several}'}"


def reopened(record: CommitRecord) -> CommitRecord:
    """A commit that a person asked to try again."""
    return replace(record, phase=Phase.RECONCILING, finished_at=None, summary="tried again", findings=())


def _is_ready(status: AgentStatus | None) -> bool:
    # No status: the commit removed the agent, and nothing is owed for it any more.
    return status is None or status.ready


def _why(late: Sequence[AgentKey], standing: CommitProgress) -> str:
    status = standing.statuses.get(late[0])
    message = ""
    if status is not None and status.conditions:
        stalled = next((c for c in status.conditions if c.type == "Stalled"), status.conditions[0])
        message = f"{stalled.reason}: {stalled.message}"
    more = f" (and {len(late) - 1} more)" if len(late) > 1 else ""
    is_ready = status is not None and status.ready  # it may be Ready, and a hook of it has failed
    return f"{late[0]} {'has failed' if is_ready else 'is not Ready'}: {message}{more}"
