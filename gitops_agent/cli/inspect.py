"""Verbs that answer questions from the journal, also while a daemon runs: status, explain, history, logs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gitops_agent.cli.common import FLAG, Call, print_json, print_text, style

if TYPE_CHECKING:
    from gitops_agent.report.explain import Explanation
    from gitops_agent.report.json_shapes import FleetStatus
    from gitops_agent.report.table import Style

_AGENT = typer.Argument(metavar="AGENT", help="tenant/name, or the name alone if only one tenant has it.")


def status(call: Call, agent: Annotated[str | None, _AGENT] = None) -> int:
    """Show the fleet, or one agent: Ready or not, why, since when, at which commit."""
    from gitops_agent.report.json_shapes import status_shape
    from gitops_agent.wiring import open_reader

    with open_reader(call.settings(), call.environment) as reader:
        key = reader.find(agent) if agent else None
        fleet = reader.fleet(key)
        gone = reader.explain(key) if key and not fleet.statuses else None
    if call.is_json:
        print_json(reader.redactor.tree(status_shape(fleet)))
    else:
        print_text(reader.redactor(_status_text(fleet, gone, one=key is not None, style=style(call))))
    return 0


def _status_text(fleet: FleetStatus, gone: Explanation | None, *, one: bool, style: Style) -> str:
    from gitops_agent.report.agent_text import agent_text
    from gitops_agent.report.explain import gone_text
    from gitops_agent.report.status_text import status_text

    if gone is not None:
        return gone_text(gone)
    return agent_text(fleet, fleet.statuses[0], style) if one else status_text(fleet, style)


def explain(
    call: Call,
    agent: Annotated[str, _AGENT],
    everything: Annotated[
        bool, typer.Option("--all", metavar=FLAG, help="All actions the journal still has, not the newest.")
    ] = False,
) -> int:
    """Say in plain words what is desired, what is live, what was done and why, and what comes next."""
    from gitops_agent.report.explain import explain_text, explanation_shape
    from gitops_agent.wiring import open_reader

    with open_reader(call.settings(), call.environment) as reader:
        found = reader.explain(reader.find(agent), everything=everything)
    if call.is_json:
        print_json(reader.redactor.tree(explanation_shape(found)))
    else:
        print_text(reader.redactor(explain_text(found, style(call), everything=everything)))
    return 0


def history(
    call: Call,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="How many commits.")] = 20,
) -> int:
    """Show what became of the commits of the branch, newest first."""
    from gitops_agent.report.json_shapes import history_shape
    from gitops_agent.report.status_text import history_text
    from gitops_agent.wiring import open_reader

    with open_reader(call.settings(), call.environment) as reader:
        records = reader.journal.commits(limit)
    if call.is_json:
        print_json(reader.redactor.tree(history_shape(records)))
    else:
        print_text(reader.redactor(history_text(records, style(call))))
    return 0


def logs(
    call: Call,
    agent: Annotated[str, _AGENT],
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=0, help="How many lines from the end.")
    ] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", metavar=FLAG, help="Go on printing what is written.")
    ] = False,
) -> int:
    """Print what an agent wrote to stdout and stderr, all replicas."""
    from gitops_agent.cli.log_files import print_logs
    from gitops_agent.errors import UsageError
    from gitops_agent.report.explain import gone_text
    from gitops_agent.wiring import open_reader

    with open_reader(call.settings(), call.environment) as reader:
        key = reader.find(agent)
        paths = reader.log_files(key)
        known = reader.explain(key)
    if known.status is None:
        sys.stderr.write(f"{gone_text(known)}{'' if paths else ' It has left no log.'}\n")
    elif not paths:
        hint = f"gitops-agent status {key} shows whether it was started"
        raise UsageError(f"{key} has written no log yet", hint=hint)
    print_logs(key, paths, lines, follow=follow and known.status is not None, as_json=call.is_json)
    return 0
