"""The verb that reports drift: reads the live systems, takes no lock, changes nothing."""

from functools import partial
from typing import Annotated

import typer

from gitops_agent.cli.common import AGENT, FLAG, Call, show

DRIFTED = 5
"""The exit code with ``--exit-code`` when something drifted, or could not be looked at."""


def drift(
    call: Call,
    agent: Annotated[str | None, AGENT] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="TENANT", help="Only the agents of this tenant.")
    ] = None,
    exit_code: Annotated[
        bool,
        typer.Option("--exit-code", metavar=FLAG, help="End with 5 when there is drift (default: 0), for CI."),
    ] = False,
) -> int:
    """Look at the live systems: what is not as enforced, why, since when, what would be done. Changes nothing."""
    from gitops_agent.cli.progress import fetch_bar
    from gitops_agent.errors import UsageError
    from gitops_agent.report.drift import drift_text
    from gitops_agent.wiring import open_drifter

    if agent and tenant:
        raise UsageError("give an agent or --tenant, not both")
    with fetch_bar(call) as fetching, open_drifter(call.source_settings(), call.environment, fetching) as drifter:
        report = drifter.report(agent, tenant)
    details = agent is not None or tenant is not None
    show(call, report, partial(drift_text, details=details))
    return DRIFTED if exit_code and (report["drifted"] or report["unreachable"]) else 0
