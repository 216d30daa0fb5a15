"""Failed tree: what failed its gate is remembered, and not tried again by itself."""

from gitops_agent.model.plan import Plan, Verdict
from gitops_agent.model.quantity import iso
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.guards.verdicts import block, let_pass
from gitops_agent.plan.reasons import Hold


def failed_tree(plan: Plan, context: PlanContext) -> Verdict:
    """Block a commit whose very tree failed before."""
    failed = context.failed
    if failed is None:
        return let_pass("failed_tree")
    finding = Hold.FAILED_BEFORE.finding(
        context.snapshot.revision.short,
        f"this very tree failed before, as commit {failed.commit[:10]}",
        f"It failed at {iso(failed.at)}: {failed.why.rstrip('.')}. It is not tried again by itself; what holds "
        "meanwhile is what each agent was given last. Push something else (a fix, or gitops-agent rollback), or "
        f"try this tree once more: gitops-agent retry {failed.commit[:10]}.",
    )
    return block("failed_tree", plan, (finding,))
