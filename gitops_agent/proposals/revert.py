"""Reverts: what Git gets when a gate fails. Nothing, a branch with the revert commit, or the revert itself.

The commit restores the tree of the last commit that converged. One job makes it, a pass records it, the next job
pushes it, fast-forward only: after a crash the same commit is pushed again, or another one like it where the first
was lost with its machine; when another commit was pushed meanwhile, that one wins. A revert of ours that fails is
not reverted again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from gitops_agent.errors import NothingToDo, SourceRefused
from gitops_agent.model.control import frozen_scopes, is_frozen
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.passes import Now, PassRecord
from gitops_agent.model.revision import Revision
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.state import ProposalState, RevertProposal, State
from gitops_agent.source.branch_writer import BranchWriter
from gitops_agent.source.mirror import Mirror

PROPOSAL_PREFIX = "gitops-agent/revert-"
"""How the branches begin that hold a revert for review."""

MAX_REVERTS_KEPT = 20

OVERTAKEN = "another commit was pushed meanwhile, so the newest commit decides"

log = structlog.get_logger(__name__)


def due_revert(state: State, record: PassRecord, now: Now) -> RevertProposal | None:
    """The revert to be made or pushed now; None when no gate failed, the policy says Hold, the head is another
    commit, a freeze covers what the rollout has reached, or it was answered before."""
    rollout, head, reverts = state.rollout.rollout, record.source.head, state.proposals.reverts
    if rollout is None or not rollout.failed or rollout.on_failure == "Hold" or _is_frozen(rollout, record, now):
        return None
    ours = any(each.sha == rollout.commit for each in reverts.values())
    if ours or head is None or head.sha != rollout.commit:
        return None
    proposal = reverts.get(rollout.commit, RevertProposal(rollout.commit))
    return None if proposal.finished else proposal


def propose_if_due(state: State, record: PassRecord, now: Now) -> ProposalState:
    """The proposals with the revert that is due now."""
    proposal = due_revert(state, record, now)
    if proposal is None or proposal.failed in state.proposals.reverts:
        return state.proposals
    return with_revert(state.proposals, proposal)


def with_revert(proposals: ProposalState, proposal: RevertProposal) -> ProposalState:
    """The proposals with one revert added or replaced; the oldest beyond the limit go."""
    others = {failed: each for failed, each in proposals.reverts.items() if failed != proposal.failed}
    kept = list({**others, proposal.failed: proposal}.items())[-MAX_REVERTS_KEPT:]
    return replace(proposals, reverts=dict(kept))


def _is_frozen(rollout: Rollout, record: PassRecord, now: Now) -> bool:
    """Whether a freeze covers an agent that the rollout has reached: then Git is left alone as well."""
    scopes = frozen_scopes(record.snapshot.policy, record.directives.freezes, now.wall)
    return any(is_frozen(key, scopes) for key in rollout.moving)


def revert_finding(proposal: RevertProposal) -> Finding:
    """What the note on the failed commit says about its revert."""
    if not proposal.branch:
        hint = "If it is still needed: gitops-agent rollback."
        return Finding(Severity.WARNING, "NotReverted", proposal.failed[:10], proposal.message, hint)
    code = "RevertProposed" if proposal.branch.startswith(PROPOSAL_PREFIX) else "Reverted"
    why = "Policy rollout.onFailure asked for it."
    return Finding(Severity.INFO, code, proposal.failed[:10], proposal.message, why)


@dataclass(frozen=True, slots=True)
class RevertProposer:
    """Makes and pushes revert commits. Used on a thread of its own: a remote that hangs holds no pass."""

    source: Mirror
    writer: BranchWriter
    branch: str

    def advance(self, proposal: RevertProposal, rollout: Rollout, converged: str | None) -> RevertProposal:
        """The proposal one step further: with its commit made, or, if it was made before, pushed.

        SourceUnavailable when the remote does not answer: to be tried again.
        """
        try:
            if not (proposal.sha and self.source.has(proposal.sha)):
                return replace(proposal, sha=self._make(rollout, converged))
            wanted = self.branch if rollout.on_failure == "Revert" else _proposal_branch(rollout)
            return self._push(proposal, wanted, rollout)
        except NothingToDo:
            message = "nothing to revert: the tree is that of the last converged commit"
            return replace(proposal, finished=True, message=message)
        except SourceRefused as problem:
            return replace(proposal, finished=True, message=f"no revert was made: {problem.message}")

    def _make(self, rollout: Rollout, converged: str | None) -> str:
        if converged is None:
            raise SourceRefused("no commit has ever converged, so there is nothing to go back to")
        undone = self.source.between(converged, rollout.commit)
        sha = self.writer.restore(converged, _message(undone, rollout))
        if self.source.revision(sha).parents[:1] != (rollout.commit,):
            raise SourceRefused(OVERTAKEN)
        return sha

    def _push(self, proposal: RevertProposal, branch: str, rollout: Rollout) -> RevertProposal:
        try:
            # A proposal that is there already says it all: who pushed it did not live to record that.
            if branch == self.branch or self.writer.tip(branch) is None:
                self.writer.check_push(branch)
                self.writer.push(proposal.sha, branch)
        except SourceRefused as refused:
            if branch != self.branch:
                raise
            if self.source.refresh().sha != rollout.commit:
                return replace(proposal, finished=True, message=OVERTAKEN)
            log.warning("the branch takes no revert; it is proposed instead", problem=refused.message)
            return self._push(proposal, _proposal_branch(rollout), rollout)
        message = f"branch {branch} holds the revert: review and merge it"
        if branch == self.branch:
            message = f"reverted by {proposal.sha[:10]}"
        return replace(proposal, branch=branch, finished=True, message=message)


def _proposal_branch(rollout: Rollout) -> str:
    return f"{PROPOSAL_PREFIX}{rollout.commit[:10]}"


def _message(undone: Sequence[Revision], rollout: Rollout) -> str:
    newest = undone[-1]
    subject = (
        f'Revert "{newest.subject}"' if len(undone) == 1 else f"Revert {len(undone)} commits up to {newest.short}"
    )
    lines = "\n".join(f"This reverts commit {revision.sha}." for revision in reversed(undone))
    return f"{subject}\n\nThe rollout failed its gate: {rollout.failed}\n\n{lines}"
