"""An empty source never deletes anything, whatever the numbers say."""

from __future__ import annotations

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.plan.guards.ruling import block, let_pass
from gitops_agent.plan.reasons import Hold
from gitops_agent.plan.situation import Situation


def empty_source(plan: Plan, situation: Situation) -> Verdict:
    """Block a commit without a single agent while there are agents on record."""
    if situation.snapshot.agents or not situation.bases:
        return let_pass("empty_source")
    recorded = len({key.agent for key in situation.bases})
    finding = Finding(
        Severity.ERROR,
        Hold.EMPTY_SOURCE,
        situation.snapshot.revision.short,
        f"the commit declares no agent, but agents on record: {recorded}. Nothing is deleted",
        "An empty source is a mistake more often than a wish (a wrong path, a bad merge). Restore the documents, "
        "or choose another --path. To take a whole fleet down, raise massDelete in one commit and set lifecycle: "
        "Retired in the documents with the next.",
    )
    return block("empty_source", plan, (finding,))
