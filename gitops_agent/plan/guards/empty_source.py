"""An empty source never deletes anything, whatever the numbers say."""

from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.verdicts import block, let_pass
from gitops_agent.plan.reasons import Hold


def empty_source(plan: Plan, context: PlanContext) -> Verdict:
    """Block a commit without a single agent while there are agents on record."""
    if context.snapshot.agents or not context.bases:
        return let_pass("empty_source")
    recorded = len({key.agent for key in context.bases})
    finding = Hold.EMPTY_SOURCE.finding(
        context.snapshot.revision.short,
        f"the commit declares no agent, but agents on record: {recorded}. Nothing is deleted",
        "An empty source is a mistake more often than a wish (a wrong path, a bad merge). Restore the documents, "
        "or choose another --path. To take a whole fleet down, raise massDelete in one commit and set lifecycle: "
        "Retired in the documents with the next.",
    )
    return block("empty_source", plan, (finding,))
