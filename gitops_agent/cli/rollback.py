"""The verb that rolls back: it writes a commit, nothing else. Git history is the only way back."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gitops_agent.cli.common import Call, print_json, print_text, style


def rollback(
    call: Call,
    commits: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMIT]...", help="Commits to revert, or a range A..B (default: the newest commit)."
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="COMMIT", help="Restore exactly the tree of this earlier commit.")
    ] = None,
    branch_name: Annotated[
        str | None, typer.Option("--branch-name", help="Push to this new branch, for review, instead.")
    ] = None,
    message: Annotated[str | None, typer.Option("--message", "-m", help="The message of the commit.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Push without asking.")] = False,
) -> int:
    """Write the revert commit and push it; shows what it would change first."""
    from gitops_agent.report.text import plan_text
    from gitops_agent.wiring import open_rollback

    with open_rollback(call.source_settings(), call.environment) as tool:
        proposal = tool.propose(commits or [], to, message)
        target = branch_name or tool.branch
        if not call.is_json:
            print_text(tool.redactor(f"{proposal.subject}\n\n{plan_text(proposal.plan, style(call))}"))
        if not (yes or call.is_json) and not _confirmed(target):
            sys.stderr.write("nothing was pushed; add --yes to push without a question\n")
            return 2
        tool.push(proposal, target)
    if call.is_json:
        print_json(
            {"commit": proposal.sha, "branch": target, "subject": proposal.subject, "digest": proposal.plan.digest}
        )
    else:
        sys.stdout.write(f"pushed {proposal.sha[:10]} to {target}\n")
    return 0


def _confirmed(target: str) -> bool:
    """Ask on a terminal; anywhere else the answer is no."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return typer.confirm(f"Push this to {target}?")
