"""Orders: what people said that steers a pass: freezes and approvals. Asked anew for every pass.

Operators write controls into the journal, beside a running daemon; approvals also come through Git alone. A quiet
pass costs one small query: all else is remembered until a control is added, the branch moves or a note is pushed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gitops_agent.model.control import Control, approved_plans, freezes
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.plan import Plan
from gitops_agent.model.quantity import iso
from gitops_agent.model.revision import Revision
from gitops_agent.model.status import CommitRecord, Phase
from gitops_agent.ports import Approval, Approvals, Clock, JournalReader
from gitops_agent.status.phases import APPROVED_BY

SEARCHED = 500
"""How many of the newest commits are searched for the last one that converged."""

_PLACES = {"cli": "on the command line", "note": "by a note on {}", "trailer": "by a trailer in {}"}


@dataclass(frozen=True, slots=True)
class Order:
    """What is in force now. ``approved`` holds the digests of actions; ``approvals`` says who approved what.

    ``covered`` holds, for each approved plan on record, the digests of its actions that are still to be done;
    ``given`` holds those of all of them, done or not. ``findings`` say which
    approvals do not count, and why.
    """

    freezes: tuple[Control, ...] = ()
    approved: frozenset[str] = frozenset()
    approvals: tuple[Approval, ...] = ()
    covered: Mapping[str, frozenset[str]] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()

    def ends_in(self, now: float) -> float | None:
        """How many seconds until the first freeze ends by itself; None when none does."""
        return min((max(0.0, each.until - now) for each in self.freezes if each.until is not None), default=None)


NO_DIRECTIVES = Order()
"""Nobody said anything."""


class NoApprovals:
    """Git approves nothing."""

    def since(self, enforced: str | None, head: Revision) -> Sequence[Approval]:
        """Nothing."""
        del enforced, head
        return ()

    def objections(self, enforced: str | None, head: Revision) -> Sequence[Finding]:
        """None."""
        del enforced, head
        return ()


class Orders:
    """Reads what is in force."""

    def __init__(self, journal: JournalReader, clock: Clock, approvals: Approvals | None = None) -> None:
        self._journal = journal
        self._clock = clock
        self._approvals = approvals or NoApprovals()
        self._said: tuple[int, Sequence[Control]] = (0, ())
        self._before: tuple[str, CommitRecord | None] = ("", None)
        self._planned: dict[str, frozenset[str]] = {}
        self._open: dict[tuple[str, float], frozenset[str]] = {}

    def now(self, enforced: str | None, head: Revision | None) -> Order:
        """What is in force for a pass over this head."""
        controls = self._controls()
        in_force = freezes(controls, self._clock.now())
        settled = self._settled(head.sha) if head is not None else None
        said = list(_still_meant(approved_plans(controls), settled))
        findings: Sequence[Finding] = ()
        if head is not None:
            since = settled.sha if settled else enforced
            said += self._approvals.since(since, head)
            findings = self._approvals.objections(since, head)
        covered: dict[str, frozenset[str]] = {}
        for approval in said:
            covered[approval.digest] = covered.get(approval.digest, frozenset()) | self._left(approval)
        return Order(
            freezes=in_force,
            approved=frozenset[str]().union(*covered.values()),
            approvals=tuple(said),
            covered=covered,
            given=frozenset[str]().union(*(self._planned[approval.digest] for approval in said)),
            findings=(*findings, *_unmatched(said, self._planned)),
        )

    def _controls(self) -> Sequence[Control]:
        newest = self._journal.last_control()
        if newest != self._said[0]:
            self._said = (newest, self._journal.controls())
        return self._said[1]

    def _settled(self, head: str) -> CommitRecord | None:
        """The last commit before the newest that converged: what was approved until then was done, or is past.

        Not the enforced one, because a commit is in force from its first wave on, and its approval must hold
        until the last.
        """
        if head != self._before[0]:
            self._before = (head, settled_before(self._journal, head))
        return self._before[1]

    def _left(self, approval: Approval) -> frozenset[str]:
        """What is still to be done of a plan; a plan nobody has on record covers nothing.

        What was done since it was approved is spent: should the same agents fall over once more, that is asked
        about once more. (Since the approval, not since the plan: the same plan may come, and be approved, again.)
        """
        digest, mark = approval.digest, (approval.digest, approval.at)
        if not self._planned.get(digest):
            self._planned[digest] = self._journal.planned(digest)
        left = self._open.get(mark, self._planned[digest])
        if left:
            left = self._open[mark] = left - self._journal.carried_out(*mark)
        return left


def settled_before(journal: JournalReader, head: str) -> CommitRecord | None:
    """The newest commit that converged, apart from the head itself."""
    records = journal.commits(SEARCHED)
    return next((each for each in records if each.phase is Phase.CONVERGED and each.sha != head), None)


def approved_by(order: Order, plan: Plan) -> tuple[Finding, ...]:
    """Who approved some of a plan, for the note and the status of its commit."""
    if not order.approvals:
        return ()
    wanted = {action.digest for action in plan.actions}
    return tuple(
        _finding(approval, plan)
        for approval in order.approvals
        if wanted & order.covered.get(approval.digest, frozenset())
    )


def _still_meant(approved: Mapping[str, Control], settled: CommitRecord | None) -> Iterator[Approval]:
    """Approvals on the command line, since the last commit converged. One that is older was meant for a plan that
    was carried out; should the same be planned once more, it is asked about once more."""
    since = (settled.finished_at or 0.0) if settled else 0.0
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


def _unmatched(said: Sequence[Approval], planned: Mapping[str, frozenset[str]]) -> Iterator[Finding]:
    """An approval in Git of a plan that this instance never made: another's, mistyped, or void by now."""
    for approval in said:
        if approval.where != "cli" and not planned[approval.digest]:
            yield Finding(
                Severity.INFO,
                "ApprovalUnmatched",
                approval.commit[:10],
                f"no plan on record has the digest {approval.digest} that {approval.by} approved",
                "It may be meant for another instance, or what is desired or live has moved since. "
                "gitops-agent plan shows the plan as it is now, and its digest.",
            )
