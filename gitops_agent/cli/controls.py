"""Verbs that steer a running fleet: freeze, unfreeze, approve, retry. Each writes a control into the journal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from gitops_agent.cli.common import Call, flag, option, print_json, print_text

if TYPE_CHECKING:
    from gitops_agent.control.commands import CommandResult, OperatorCommands

_SCOPE_HELP = "'*' for everything, TENANT, or TENANT/NAME (default: '*')."
_SCOPE = option("--scope", "SCOPE", _SCOPE_HELP, show_default=False)
_UNTIL_HELP = "When it ends by itself: 2h, or 2030-01-31T18:00:00Z (default: when it is lifted)."
_WHY = option("--reason", "TEXT", "Why, for those that find it later. Needed.")
_WHY_IF = option("--reason", "TEXT", "Why, for those that find it later.")
_DIGEST = typer.Argument(metavar="DIGEST", help="Of the plan, as plan and status show it; 8 characters or more.")
_TARGET = typer.Argument(metavar="AGENT|COMMIT", help="tenant/name, or 7 characters or more of a commit.")


def freeze(
    call: Call,
    reason: Annotated[str, _WHY],
    scope: Annotated[str, _SCOPE] = "*",
    until: Annotated[str | None, option("--until", "TIME", _UNTIL_HELP)] = None,
) -> None:
    """Stop acting: nothing is changed or repaired until unfreeze, or --until. Looking and reporting go on.

    No restart is needed, and a restart does not end it. Agents that run keep running; one that dies stays dead.
    Without access to this machine, a commit with freeze in the Policy document does the same.
    """
    _carry_out(call, lambda commands: commands.freeze(scope, reason, until), create=True)


def unfreeze(
    call: Call,
    reason: Annotated[str, _WHY],
    scope: Annotated[str, _SCOPE] = "*",
    everything: Annotated[bool, flag("--all", "Lift every freeze, whatever its scope.")] = False,
) -> None:
    """Act again: lift the freezes of a scope, set by freeze or by a guard that tripped.

    Lifting the freeze of a guard approves what it had stopped: look at gitops-agent drift first. A freeze by Git
    is lifted by a commit.
    """
    _carry_out(call, lambda commands: commands.unfreeze(scope, reason, everything=everything), create=True)


def approve(call: Call, digest: Annotated[str, _DIGEST], reason: Annotated[str, _WHY_IF] = "") -> None:
    """Let a plan pass that a guard stopped: exactly these actions, as long as nothing moves.

    If what is desired or what is live changes before they are done, those that changed need another approval.
    Without access to this machine, a note or a commit in Git does the same; docs/operations.md shows how.
    """
    _carry_out(call, lambda commands: commands.approve(digest, reason))


def retry(call: Call, target: Annotated[str, _TARGET], reason: Annotated[str, _WHY_IF] = "") -> None:
    """Try again at once what failed: an agent that waits for its next try, or a commit that was held.

    A rollout that failed goes on by itself once all that it reached is Ready for a minute (rollout.recovery);
    retry forgets at once that it failed. Mend the cause first.
    """
    _carry_out(call, lambda commands: commands.retry(target, reason))


def _carry_out(call: Call, command: Callable[[OperatorCommands], CommandResult], *, create: bool = False) -> None:
    """Write a control; print what was written, and what happens next. ``create``: also without a journal yet."""
    from gitops_agent.control.commands import open_commands
    from gitops_agent.query.fleet import make_redactor
    from gitops_agent.report.json_shapes import control_shape

    settings = call.settings()
    redactor = make_redactor(settings, call.environment)
    with open_commands(settings, create=create) as commands:
        result, running = command(commands), commands.holder()
    if call.is_json:
        shape = control_shape(result.controls, result.meaning, result.approved, running=running is not None)
        print_json(redactor.tree(shape))
    else:
        print_text(redactor(f"{result.meaning}\nby {result.controls[0].actor}\n{_next(running)}"))
    if result.warning:
        sys.stderr.write(redactor(f"warning: {result.warning}\n"))


def _next(running: str | None) -> str:
    if running is None:
        return "next: no gitops-agent works on this journal now; the next once or run picks it up"
    return f"next: the running gitops-agent ({running}) picks it up within a second; gitops-agent status shows it"
