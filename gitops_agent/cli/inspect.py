"""Verbs that answer from the journal, also while a daemon runs: status, explain, history, workflows."""

from functools import partial
from typing import Annotated

from gitops_agent.cli.common import AGENT, Call, flag, option, print_text, show, show_fleet


def status(
    call: Call,
    agent: Annotated[str | None, AGENT] = None,
    wide: Annotated[
        bool, flag("--wide", "Every column, where each agent runs among them, however wide the lines become.")
    ] = False,
) -> None:
    """Show the fleet, or one agent, as of the last pass: Ready or not, why, since when, at which commit."""
    from gitops_agent.query.fleet import open_reader
    from gitops_agent.report.status_text import agent_text

    with open_reader(call.settings(), call.environment) as reader:
        key = reader.find(agent) if agent else None
        fleet = reader.fleet(key)
        gone = reader.explain(key) if key and not fleet["agents"] else None
    if gone is not None and not call.is_json:
        from gitops_agent.report.explain_text import gone_text

        print_text(gone_text(reader.redactor.tree(gone)))
    elif key is None:
        show_fleet(call, fleet, reader.redactor, reader.now, wide=wide)
    else:
        show(call, reader.redactor.tree(fleet), partial(agent_text, now=reader.now))


def explain(
    call: Call,
    agent: Annotated[str, AGENT],
    everything: Annotated[
        bool, flag("--all", "All actions that the journal still has, not only the newest (8; as JSON 20).")
    ] = False,
) -> None:
    """Say in plain words what is desired, what is live, what was done and why, and what comes next."""
    from gitops_agent.query.fleet import keeps_ending, last_output, look_at_secrets, open_reader
    from gitops_agent.report.explain_text import explain_text

    settings = call.settings()
    with open_reader(settings, call.environment) as reader:
        key = reader.find(agent)
        found = reader.explain(key, everything=everything)
        if keeps_ending(found):
            from gitops_agent.wiring import connect_drivers

            drivers = connect_drivers(settings, reader.redactor)
            if look_at_secrets(reader, key, drivers):
                found["lastOutput"] = last_output(key, found, drivers)
    show(call, reader.redactor.tree(found), partial(explain_text, now=reader.now, everything=everything))


def history(call: Call, limit: Annotated[int, option("--limit -n", "N", "How many commits.", min=1)] = 20) -> None:
    """Show what became of the commits of the branch, newest first."""
    from gitops_agent.query.fleet import open_reader
    from gitops_agent.report.json_shapes import history_shape
    from gitops_agent.report.status_text import history_text

    with open_reader(call.settings(), call.environment) as reader:
        shape = history_shape(reader.journal.commits(limit), reader.journal.state())
    show(call, reader.redactor.tree(shape), history_text)


def workflows(call: Call) -> None:
    """List what is in flight, at which checkpoint, and what is stuck, with the way out."""
    from gitops_agent.query.fleet import open_reader
    from gitops_agent.report.workflows import workflows_shape, workflows_text

    with open_reader(call.settings(), call.environment) as reader:
        shape = workflows_shape(reader.workflows())
    show(call, reader.redactor.tree(shape), partial(workflows_text, now=reader.now))
