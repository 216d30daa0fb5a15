"""The verb that rolls back: it writes a commit, nothing else. Git history is the only way back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gitops_agent.cli.common import FLAG, Call, print_json, print_text, show

if TYPE_CHECKING:
    from gitops_agent.errors import NothingToDo
    from gitops_agent.proposals.rollback import RollbackCommand, RollbackCommit


def rollback(
    call: Call,
    commits: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMIT", help="Commits to revert, or a range A..B (default: the newest commit)."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="COMMIT", help="Restore exactly the tree of this earlier commit.")
    ] = None,
    branch_name: Annotated[
        str | None,
        typer.Option("--branch-name", metavar="NAME", help="Push to this new branch, for review, instead."),
    ] = None,
    message: Annotated[
        str | None, typer.Option("--message", "-m", metavar="TEXT", help="The message of the commit.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", metavar=FLAG, help="Push without asking.")] = False,
) -> int:
    """Write the revert commit and push it; shows what it would change first."""
    from gitops_agent.cli.progress import fetch_bar
    from gitops_agent.errors import NothingToDo
    from gitops_agent.wiring import open_rollback

    with (
        fetch_bar(call) as fetching,
        open_rollback(call.source_settings(), call.environment, fetching) as tool,
    ):
        target = branch_name or tool.branch
        try:
            proposal = tool.propose(commits or [], to, message)
        except NothingToDo as already:
            _print_already(call, target, already)
            return 0
        if not call.is_json:
            _show(call, tool, proposal)
        tool.writer.check_push(target)
        pushed = yes or (not call.is_json and _confirmed(target))
        if pushed:
            tool.writer.push(proposal.sha, target)
    if call.is_json:
        print_json(tool.redactor.tree(_shape(proposal, target, pushed)))
    elif pushed:
        sys.stdout.write(f"pushed {proposal.sha[:10]} to {target}\n")
    if not pushed:
        sys.stderr.write("nothing was pushed; add --yes to push without a question\n")
    return 0 if pushed else 2


def _show(call: Call, tool: RollbackCommand, proposal: RollbackCommit) -> None:
    from gitops_agent.report.json_shapes import plan_shape
    from gitops_agent.report.plan_text import plan_text

    sys.stdout.write(tool.redactor(f"{proposal.subject}\n\n"))
    show(call, tool.redactor.tree(plan_shape(proposal.plan)), plan_text)


def _shape(proposal: RollbackCommit, target: str, pushed: bool) -> dict[str, Any]:
    from gitops_agent.report.json_shapes import plan_shape

    return {
        "commit": proposal.sha,
        "branch": target,
        "subject": proposal.subject,
        "digest": proposal.plan.digest,
        "pushed": pushed,
        "plan": plan_shape(proposal.plan),
    }


def _print_already(call: Call, target: str, already: NothingToDo) -> None:
    if call.is_json:
        nothing = {"commit": None, "branch": target, "subject": already.message, "digest": None, "pushed": False}
        print_json({**nothing, "plan": None})
    else:
        print_text(already.message)


def _confirmed(target: str) -> bool:
    """Ask on a terminal; anywhere else the answer is no."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return typer.confirm(f"Push this to {target}?")
