"""The verb that reports drift: reads the live systems, takes no lock, changes nothing."""

from functools import partial
from typing import Annotated

from gitops_agent.cli.common import AGENT, Call, flag, option, show

DRIFTED = 5
"""The exit code with ``--exit-code`` when something drifted, or could not be looked at."""

_EXIT_CODE = flag(
    "--exit-code", "End with 5 when something drifted or could not be looked at (default: 0), for CI."
)


def drift(
    call: Call,
    agent: Annotated[str | None, AGENT] = None,
    tenant: Annotated[str | None, option("--tenant", "TENANT", "Only the agents of this tenant.")] = None,
    exit_code: Annotated[bool, _EXIT_CODE] = False,
) -> int:
    """Look at the live systems: what is not as enforced, why, since when, what would be done. Changes nothing."""
    from gitops_agent.cli.progress import fetch_bar
    from gitops_agent.errors import UsageError
    from gitops_agent.query.drift import drift_report
    from gitops_agent.report.drift import drift_text
    from gitops_agent.wiring import open_planner

    if agent and tenant:
        raise UsageError("give an agent or --tenant, not both")
    settings = call.source_settings()
    with fetch_bar(call) as fetching, open_planner(settings, call.environment, fetching) as planner:
        report = drift_report(planner, settings.instance, agent, tenant)
    details = agent is not None or tenant is not None
    show(call, report, partial(drift_text, details=details))
    return DRIFTED if exit_code and (report["drifted"] or report["unreachable"] or report["unseen"]) else 0
