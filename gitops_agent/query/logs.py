"""What an agent wrote, as its driver gives it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gitops_agent.errors import UsageError
from gitops_agent.model.observation import listed_instances

if TYPE_CHECKING:
    from gitops_agent.drivers.api import LogLine
    from gitops_agent.drivers.plugins import Connections
    from gitops_agent.report.json_shapes import Explanation


def agent_logs(known: Explanation, drivers: Connections, lines: int, *, follow: bool) -> Iterator[LogLine]:
    """The last lines of every instance, and with ``follow`` what is added; UsageError where there are no logs."""
    name = _runtime_driver(known)
    logging = drivers.logging(name) if name else None
    if logging is None:
        why = f"the driver {name} keeps none" if name else "nothing of it was ever started"
        raise UsageError(f"{known.agent} has no logs: {why}")
    return logging.logs(known.agent, lines, follow=follow)


def instances(known: Explanation) -> list[str]:
    """The instances of an agent that may write, by the names its logs give them."""
    resources = known.status.resources if known.status else ()
    return [each.log for resource in resources for each in listed_instances(resource.live)]


def _runtime_driver(known: Explanation) -> str:
    """The driver of the runtime; of an agent that is gone, the last one that history knows."""
    now = ((each.key.kind, each.driver) for each in (known.status.resources if known.status else ()))
    then = ((entry.key.kind, entry.driver) for entry in known.entries)
    return next((driver for kind, driver in (*now, *then) if kind == "runtime"), "")
