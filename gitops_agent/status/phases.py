"""The phase of a commit, by what a pass found. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Action, Plan
from gitops_agent.model.quantity import counted
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.status import APPROVED_BY, AgentStatus, CommitRecord, Phase


@dataclass(frozen=True, slots=True)
class CommitProgress:
    """What the end of a pass knows about the newest commit.
    ``judged_agents``: changed by this commit (or by one it superseded before that was judged). ``owed``: actions a
    commit asks for that are not done yet. ``overdue``: agents that had their whole ``healthTimeout``.
    ``frozen``: a freeze holds back some of what is owed. ``rollout``: how far it has got."""

    plan: Plan
    judged_agents: Collection[AgentKey]
    owed: Sequence[Action]
    overdue: Collection[AgentKey]
    statuses: Mapping[AgentKey, AgentStatus]
    findings: tuple[Finding, ...] = ()
    frozen: bool = False
    rollout: Rollout | None = None

    @property
    def unready(self) -> list[AgentKey]:
        """The agents it changed that are not Ready."""
        return sorted(key for key in self.judged_agents if not _is_ready(self.statuses.get(key)))

    @property
    def is_open(self) -> bool:
        """Whether its gate is open: all that it changed is as it should be."""
        return not self.unready and not self.owed

    @property
    def gate_is_open(self) -> bool:
        """Whether the next wave may follow: what the waves so far have changed is as it should be.
        What the commit creates counts for the commit, not for the gate: a new agent may have to wait for the port
        of an old one that goes with a later wave."""
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


def progressed(record: CommitRecord, progress: CommitProgress, now: float) -> CommitRecord:
    """The record of an enforced commit after a pass. A terminal phase stays as it is."""
    if record.phase.terminal:
        return record
    started = record.started_at or now
    running = replace(
        record,
        phase=Phase.RECONCILING,
        plan=record.plan or progress.plan.digest,
        started_at=started,
        agents=len(progress.statuses),
        findings=_with_approvals(record, progress.findings),
    )
    unready, rollout = progress.unready, progress.rollout
    held = len(rollout.waiting) if rollout is not None else 0
    if why := progress.failure:
        found = (*running.findings, _held(record, why, held)) if held else running.findings
        keep = f"; the rollout is held, {_keep(held, 'what it has', 'what they have')}" if held else ""
        return replace(running, phase=Phase.DEGRADED, finished_at=now, summary=why + keep, findings=found)
    if progress.gate_is_open and rollout is not None and held:
        wave = f"wave {rollout.released} of {len(rollout.waves)} is Ready"
        return replace(running, summary=f"{wave}, {counted(held, 'agent')} to follow")
    if progress.is_open:
        text = f"{record.changed} changed" if record.changed else "nothing to change"
        return replace(running, phase=Phase.CONVERGED, finished_at=now, summary=text)
    if progress.frozen:
        return replace(running, phase=Phase.BLOCKED, summary="frozen with work waiting")
    waiting = len({*unready, *(action.key.agent for action in progress.owed)})
    wave = f"wave {rollout.released} of {len(rollout.waves)}, " if rollout is not None and held else ""
    return replace(running, summary=f"{wave}waiting for {waiting} of {len(progress.statuses)} agents")


def _with_approvals(record: CommitRecord, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings with the approvals on record, which stay when all that was approved is done."""
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


def _is_ready(status: AgentStatus | None) -> bool:
    # No status: the commit removed the agent, and nothing is owed for it any more.
    return status is None or status.ready


def _why(late: Sequence[AgentKey], progress: CommitProgress) -> str:
    status = progress.statuses.get(late[0])
    message = ""
    if status is not None and status.conditions:
        stalled = next((c for c in status.conditions if c.type == "Stalled"), status.conditions[0])
        message = f"{stalled.reason}: {stalled.message}"
    more = f" (and {len(late) - 1} more)" if len(late) > 1 else ""
    is_ready = status is not None and status.ready  # it may be Ready, and a hook of it has failed
    return f"{late[0]} {'has failed' if is_ready else 'is not Ready'}: {message}{more}"
