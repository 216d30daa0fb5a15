"""Reads heartbeats. The agent writes the file: it is never trusted for size, type or time."""

import os
from collections.abc import Callable

from gitops_agent.drivers.local.agent_dir import OUR_LIMITS, TRANSIENT, AgentDir, read_regular
from gitops_agent.errors import ObserveError
from gitops_agent.model.heartbeat_text import SIZE_CAP_BYTES, parse_heartbeat
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Heartbeat
from gitops_agent.support.secrets import mask_patterns


def read_heartbeat(
    dirs: AgentDir, agent: AgentKey, replica: int, now: float, mask: Callable[[str], str] = mask_patterns
) -> Heartbeat | None:
    """The last heartbeat of a replica; None when it wrote none, or none that we understand.
    ObserveError when we could not read it for a reason of our own. ``mask`` hides secrets in what it wrote."""
    path = dirs.heartbeat(agent, replica)
    if not os.path.lexists(path):
        if not dirs.has_own_heartbeats:
            return None  # most agents never write one: one look instead of five
        # Where a driver names them, an empty one is there from the start, unless an earlier version started it.
        path = dirs.unnamed_heartbeat(agent, replica)
    try:
        with dirs.opened(agent) as folder:
            data, found = read_regular(path.name, SIZE_CAP_BYTES, folder)
    except OSError as problem:
        if problem.errno in TRANSIENT:
            # Silence would be taken for a stuck agent.
            raise ObserveError(f"cannot read {path}: {problem.strerror}", hint=OUR_LIMITS) from None
        return None
    return parse_heartbeat(data, now, found.st_mtime, mask)
