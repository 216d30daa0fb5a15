"""Directives: the freezes and approvals in force for a pass.

Operators write controls into the journal, beside a running daemon; approvals also come through Git alone. A quiet
pass asks the journal nothing: all is remembered until a control is added, the branch moves or a note is pushed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gitops_agent.model.control import Control, approved_plans, freezes
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.passes import Approval, Directives, Now
from gitops_agent.model.plan import Plan
from gitops_agent.model.quantity import iso
from gitops_agent.model.revision import Revision
from gitops_agent.model.state import State
from gitops_agent.model.status import APPROVED_BY, CommitRecord
from gitops_agent.ports import JournalReader
from gitops_agent.source.approvals import UNREADABLE, GitApprovals

_PLACES = {"cli": "on the command line", "note": "by a note on {}", "trailer": "by a trailer in {}"}


class Controls:
    """Reads the freezes and approvals in force for a head. Remembers what cannot change: the actions of plans."""

    def __init__(self, journal: JournalReader, approvals: GitApprovals | None = None) -> None:
        self._journal = journal
        self._approvals = approvals
        self._planned: dict[str, frozenset[str]] = {}
        self._open: dict[tuple[str, float], frozenset[str]] = {}

    def in_force(self, state: State, head: Revision | None, now: Now) -> tuple[State, Directives]:
        """The state with the approvals that were seen for the first time, and the freezes and approvals in force
        for a pass over this head."""
        controls = state.control.controls
        # Not since the enforced commit: one is in force from its first wave on, and its approval must hold until
        # the last. What was approved until the last convergence was done, or is past.
        converged = state.commits.converged_before(head.sha) if head is not None else None
        approvals = list(_still_valid(approved_plans(controls), converged))
        findings: Sequence[Finding] = ()
        if head is not None and self._approvals is not None:
            since = converged.sha if converged else state.rollout.enforced
            given, findings = self._approvals.since(since, head)
            state, dated = _dated(state, given, findings, now)
            approvals += dated
        open_actions: dict[str, frozenset[str]] = {}
        for approval in approvals:
            known = open_actions.get(approval.digest, frozenset())
            open_actions[approval.digest] = known | self._open_actions(approval)
        return state, Directives(
            freezes=freezes(controls, now.wall),
            approved=frozenset[str]().union(*open_actions.values()),
            approvals=tuple(approvals),
            open_actions=open_actions,
            all_approved=frozenset[str]().union(*(self._planned[each.digest] for each in approvals)),
            findings=(*findings, *_unmatched(approvals, self._planned)),
        )

    def _open_actions(self, approval: Approval) -> frozenset[str]:
        """What is still to be done of a plan; a plan that is not on record covers nothing. What was done since it
        was approved is spent: should the same agents fall over once more, that is asked about once more. (Since
        the approval, not since the plan: the same plan may come, and be approved, again.)"""
        digest, mark = approval.digest, (approval.digest, approval.at)
        if not self._planned.get(digest):
            self._planned[digest] = self._journal.planned(digest)
        left = self._open.get(mark, self._planned[digest])
        if left:
            left = self._open[mark] = left - self._journal.carried_out(*mark)
        return left


def _dated(
    state: State, given: Sequence[Approval], findings: Sequence[Finding], now: Now
) -> tuple[State, list[Approval]]:
    """The approvals in Git, each as of when it was first seen; one that is taken back and given again is new."""
    known = state.control.approvals_first_seen
    seen = {each: known.get(_name(each), now.wall) for each in given}
    first_seen = {_name(each): at for each, at in seen.items()}
    if any(each.code == UNREADABLE for each in findings):  # what cannot be read now was not taken back
        first_seen = {**known, **first_seen}
    if first_seen != known:
        state = replace(state, control=replace(state.control, approvals_first_seen=first_seen))
    return state, [replace(each, at=at) for each, at in seen.items()]


def _name(approval: Approval) -> str:
    return f"{approval.stated_in}:{approval.digest}"


def with_approvals(plan: Plan, directives: Directives) -> Plan:
    """The plan with findings that name its approvers, for the note and the status of its commit."""
    if not directives.approvals and not directives.findings:
        return plan
    wanted = {action.digest for action in plan.actions}
    approved = [
        _finding(approval, plan)
        for approval in directives.approvals
        if wanted & directives.open_actions.get(approval.digest, frozenset())
    ]
    return replace(plan, findings=(*plan.findings, *directives.findings, *approved))


def _still_valid(approved: Mapping[str, Control], converged: CommitRecord | None) -> Iterator[Approval]:
    """Approvals on the command line, since the last commit converged. One that is older was meant for a plan that
    was carried out; should the same be planned once more, it is asked about once more."""
    since = (converged.finished_at or 0.0) if converged else 0.0
    for digest, control in approved.items():
        if control.at >= since:
            yield Approval(digest, control.actor, "cli", control.at)


def _finding(approval: Approval, plan: Plan) -> Finding:
    where = _PLACES.get(approval.where, approval.where).format(approval.commit[:10])
    when = f" at {iso(approval.at)}" if approval.at else ""
    return Finding(
        Severity.INFO,
        APPROVED_BY,
        plan.commit[:10],
        f"plan {approval.digest[:12]} was approved by {approval.by} {where}{when}",
        f"It covers the actions of that plan, each as long as what is desired and what is live stay as they were. "
        f"The whole digest is {approval.digest}.",
    )


def _unmatched(approvals: Sequence[Approval], planned: Mapping[str, frozenset[str]]) -> Iterator[Finding]:
    """An approval in Git of a plan that this instance never made: another's, mistyped, or void by now."""
    for approval in approvals:
        if approval.where != "cli" and not planned[approval.digest]:
            yield Finding(
                Severity.INFO,
                "ApprovalUnmatched",
                approval.commit[:10],
                f"no plan on record has the digest {approval.digest} that {approval.by} approved",
                "It may be meant for another instance, or what is desired or live has moved since. "
                "gitops-agent plan shows the plan as it is now, and its digest.",
            )
