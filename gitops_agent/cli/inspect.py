"""Verbs that answer questions from the journal, also while a daemon runs: status, explain, history, logs."""

from __future__ import annotations

from typing import Annotated

import typer

from gitops_agent.cli.common import Call, print_json, print_text, style

_AGENT = typer.Argument(metavar="AGENT", help="tenant/name, or the name alone if only one tenant has it.")


def status(call: Call, agent: Annotated[str | None, _AGENT] = None) -> int:
    """Show the fleet, or one agent: Ready or not, why, since when, at which commit."""
    from gitops_agent.report.shapes import status_shape
    from gitops_agent.report.text import status_text
    from gitops_agent.wiring import open_reader

    with open_reader(call.settings(), call.environment) as reader:
        fleet = reader.fleet(agent)
    if call.is_json:
        print_json(reader.redactor.tree(status_shape(fleet)))
    else:
        print_text(reader.redactor(status_text(fleet, style(call))))
    return 0


def explain(call: Call, agent: Annotated[str, _AGENT]) -> int:
    """Say in plain words what is desired, what is live, what was done and why, and what comes next."""
    from gitops_agent.report.explain import explain_text, explanation_shape
    from gitops_agent.wiring import open_reader

    with open_reader(call.settings(), call.environment) as reader:
        found = reader.explain(agent)
    if call.is_json:
        print_json(reader.redactor.tree(explanation_shape(found)))
    else:
        print_text(reader.redactor(explain_text(found, style(call))))
    return 0


def history(
    call: Call,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many commits.")] = 20,
) -> int:
    """Show what became of the commits of the branch, newest first."""
    from gitops_agent.report.shapes import history_shape
    from gitops_agent.report.text import history_text
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
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many lines from the end.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing what is written.")] = False,
) -> int:
    """Print what an agent wrote to stdout and stderr, all replicas."""
    from gitops_agent.cli.log_files import print_logs
    from gitops_agent.wiring import open_reader

    with open_reader(call.settings(), call.environment) as reader:
        key = reader.find(agent)
        paths = reader.log_files(key)
    print_logs(key, paths, lines, follow=follow, as_json=call.is_json)
    return 0
