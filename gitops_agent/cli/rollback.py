"""The verb that rolls back: it writes a commit, nothing else. Git history is the only way back."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gitops_agent.cli.common import Call, flag, option, print_json, print_text, show

if TYPE_CHECKING:
    from gitops_agent.proposals.rollback import RollbackCommit

_COMMITS_HELP = "Commits to revert, or a range A..B (default: the newest; if it is empty, back to the last good)."
_COMMITS = typer.Argument(metavar="COMMIT", help=_COMMITS_HELP)
_BRANCH = option("--branch-name", "NAME", "Push to this new branch, for review, instead.")


def rollback(
    call: Call,
    commits: Annotated[list[str] | None, _COMMITS] = None,
    to: Annotated[str | None, option("--to", "COMMIT", "Restore exactly the tree of this earlier commit.")] = None,
    branch_name: Annotated[str | None, _BRANCH] = None,
    message: Annotated[str | None, option("--message -m", "TEXT", "The message of the commit.")] = None,
    yes: Annotated[bool, flag("--yes -y", "Push without asking.")] = False,
) -> int:
    """Write the revert commit and push it; shows what it would change first."""
    from gitops_agent.cli.progress import fetch_bar
    from gitops_agent.errors import NothingToDo
    from gitops_agent.report.json_shapes import plan_shape
    from gitops_agent.report.plan_text import plan_text
    from gitops_agent.wiring import open_rollback

    with (
        ExitStack() as bar,
        open_rollback(call.source_settings(), call.environment, bar.enter_context(fetch_bar(call))) as tool,
    ):
        target = branch_name or tool.branch
        try:
            proposal = tool.propose(commits or [], to, message)
        except NothingToDo as already:
            if call.is_json:
                print_json(_shape(None, target, already.message))
            else:
                print_text(already.message)
            return 0
        bar.close()  # it would draw over the plan and the question
        if not call.is_json:
            sys.stdout.write(tool.redactor(f"{proposal.subject}\n\n"))
            show(call, tool.redactor.tree(plan_shape(proposal.plan)), plan_text)
        tool.writer.check_push(target)
        pushed = yes or (not call.is_json and _confirmed(target))
        if pushed:
            tool.writer.push(proposal.sha, target)
    if call.is_json:
        print_json(tool.redactor.tree(_shape(proposal, target, proposal.subject, pushed=pushed)))
    elif pushed:
        sys.stdout.write(f"pushed {proposal.sha[:10]} to {target}\n")
    if not pushed:
        sys.stderr.write("nothing was pushed; add --yes to push without a question\n")
    return 0 if pushed else 2


def _shape(proposal: RollbackCommit | None, target: str, subject: str, *, pushed: bool = False) -> dict[str, Any]:
    """The answer for programs; without a commit when nothing was to be done."""
    from gitops_agent.report.json_shapes import plan_shape

    return {
        "commit": proposal.sha if proposal else None,
        "branch": target,
        "subject": subject,
        "digest": proposal.plan.digest if proposal else None,
        "pushed": pushed,
        "plan": plan_shape(proposal.plan) if proposal else None,
    }


def _confirmed(target: str) -> bool:
    """Ask on a terminal; anywhere else the answer is no."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return typer.confirm(f"Push this to {target}?")
