"""The table of verbs."""

from typing import Annotated

import typer

from gitops_agent.cli import controls, converge, inspect, repository, rollback, self_check
from gitops_agent.cli import drift as drifting
from gitops_agent.cli import logs as logging
from gitops_agent.cli.common import ALL, FLAG, READING, Verb, verb
from gitops_agent.cli.help import VerbCommand, VerbGroup

app = typer.Typer(
    name="gitops-agent",
    cls=VerbGroup,
    help="Run a fleet of AI agents from a Git repository: push changes it, revert rolls it back.",
    epilog="Exit codes: 0 done (once: converged), 1 unexpected error or failed check, 2 usage or nothing pushed, "
    "3 invalid desired state, 4 blocked by a guard or frozen, 5 not converged in time or an agent is down, "
    "6 source unavailable or refused.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_START, _RUN, _STEER, _ASK = "Begin", "Converge", "Steer", "Ask"
_OUTPUT = frozenset({"output"})
_NONE: frozenset[str] = frozenset()


def _add(panel: str, function: Verb, listed: frozenset[str] = ALL) -> None:
    app.command(cls=VerbCommand, rich_help_panel=panel)(verb(function, listed))


_add(_START, repository.init, _OUTPUT)
_add(_START, repository.validate, frozenset({"config", "instance", "output"}))
_add(_START, repository.schema, _NONE)
_add(_START, self_check.demo, _NONE)
_add(_RUN, converge.plan)
_add(_RUN, converge.once)
_add(_RUN, converge.run)
_add(_RUN, rollback.rollback)
_add(_STEER, controls.freeze, READING)
_add(_STEER, controls.unfreeze, READING)
_add(_STEER, controls.approve, READING)
_add(_STEER, controls.retry, READING)
_add(_ASK, inspect.status, READING)
_add(_ASK, drifting.drift)
_add(_ASK, inspect.explain, READING)
_add(_ASK, inspect.workflows, READING)
_add(_ASK, inspect.history, READING)
_add(_ASK, logging.logs, READING)
_add(_ASK, self_check.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        from gitops_agent import __version__

        typer.echo(f"gitops-agent {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, metavar=FLAG, help="Print the version.")
    ] = False,
) -> None:
    """Run a fleet of AI agents from a Git repository: push changes it, revert rolls it back."""
