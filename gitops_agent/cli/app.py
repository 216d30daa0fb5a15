"""The table of verbs."""

from __future__ import annotations

from typing import Annotated

import typer

from gitops_agent.cli import converge, inspect, repository, rollback, self_check
from gitops_agent.cli.common import verb

app = typer.Typer(
    name="gitops-agent",
    help="Run a fleet of AI agents from a Git repository: push changes it, revert rolls it back.",
    epilog="Exit codes: 0 done and converged, 1 unexpected error, 2 usage, 3 invalid desired state, "
    "4 blocked by a guard, 5 not converged in time, 6 source unavailable or refused.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_START, _RUN, _ASK = "Begin", "Converge", "Ask"

app.command(rich_help_panel=_START)(verb(repository.init))
app.command(rich_help_panel=_START)(verb(repository.validate))
app.command(rich_help_panel=_START)(verb(repository.schema))
app.command(rich_help_panel=_START)(verb(self_check.demo))
app.command(rich_help_panel=_RUN)(verb(converge.plan))
app.command(rich_help_panel=_RUN)(verb(converge.once))
app.command(rich_help_panel=_RUN)(verb(converge.run))
app.command(rich_help_panel=_RUN)(verb(rollback.rollback))
app.command(rich_help_panel=_ASK)(verb(inspect.status))
app.command(rich_help_panel=_ASK)(verb(inspect.explain))
app.command(rich_help_panel=_ASK)(verb(inspect.history))
app.command(rich_help_panel=_ASK)(verb(inspect.logs))
app.command(rich_help_panel=_ASK)(verb(self_check.doctor))


def _version(wanted: bool) -> None:
    if wanted:
        from gitops_agent import __version__

        typer.echo(f"gitops-agent {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run a fleet of AI agents from a Git repository: push changes it, revert rolls it back."""
