"""Orders: what people said that steers a pass: freezes, approvals, retries. Read anew for every pass.

Operators write controls into the journal, beside a running daemon; approvals also come through Git alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gitops_agent.model.control import Control, approved_plans, freezes
from gitops_agent.model.revision import Revision
from gitops_agent.ports import Approval, Approvals, Clock, JournalReader


@dataclass(frozen=True, slots=True)
class Order:
    """What is in force now. ``approved`` holds the digests of actions; ``approvals`` says who approved what."""

    freezes: tuple[Control, ...] = ()
    approved: frozenset[str] = frozenset()
    approvals: tuple[Approval, ...] = ()


NO_ORDER = Order()


class NoApprovals:
    """Git approves nothing."""

    def since(self, enforced: str | None, head: Revision) -> Sequence[Approval]:
        """Nothing."""
        del enforced, head
        return ()


class Orders:
    """Reads what is in force."""

    def __init__(self, journal: JournalReader, clock: Clock, approvals: Approvals | None = None) -> None:
        self._journal = journal
        self._clock = clock
        self._approvals = approvals or NoApprovals()
        self._planned: dict[str, frozenset[str]] = {}

    def now(self, enforced: str | None, head: Revision | None) -> Order:
        """What is in force for a pass over this head."""
        controls = self._journal.controls()
        said = [
            Approval(digest, control.actor, "cli") for digest, control in approved_plans(controls).items()
        ] + list(self._approvals.since(enforced, head) if head is not None else ())
        actions = frozenset[str]().union(*(self._actions(approval.digest) for approval in said))
        return Order(freezes(controls, self._clock.now()), actions, tuple(said))

    def _actions(self, digest: str) -> frozenset[str]:
        """What a plan consisted of; a plan nobody has on record covers nothing."""
        if not self._planned.get(digest):
            self._planned[digest] = self._journal.planned(digest)
        return self._planned[digest]
