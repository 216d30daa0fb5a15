"""Reads heartbeats. The agent writes the file: it is never trusted for size, type or time."""

import os
from collections.abc import Callable
from typing import Any

import orjson

from gitops_agent.drivers.local.agent_dir import OUR_LIMITS, TRANSIENT, AgentDir, read_regular
from gitops_agent.errors import ObserveError
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Heartbeat
from gitops_agent.support.secrets import mask_patterns

SIZE_CAP_BYTES = 65536
MAX_CALLS = 100
MAX_NAME_LENGTH = 200


def read_heartbeat(
    dirs: AgentDir, agent: AgentKey, replica: int, now: float, mask: Callable[[str], str] = mask_patterns
) -> Heartbeat | None:
    """The last heartbeat of a replica; None when it wrote none, or none that we understand.
    ObserveError when we could not read it for a reason of our own. ``mask`` hides secrets in what it wrote."""
    path = dirs.heartbeat(agent, replica)
    if not os.path.lexists(path):
        return None  # most agents never write one: one look instead of five
    try:
        with dirs.opened(agent) as folder:
            data, found = read_regular(path.name, SIZE_CAP_BYTES, folder)
        content = orjson.loads(data)
    except OSError as problem:
        if problem.errno in TRANSIENT:
            # Silence would be taken for a stuck agent.
            raise ObserveError(f"cannot read {path}: {problem.strerror}", hint=OUR_LIMITS) from None
        return None
    except orjson.JSONDecodeError:
        return None
    at: Any = content.get("at") if isinstance(content, dict) else None
    if type(at) not in (int, float):  # a truth value would pass isinstance
        return None
    # A moment in the future is not believed; the file's own time is the next best. That one may be in the
    # future as well, when the clock was set back: it stays as it is, so that two looks see the same heartbeat.
    moment = float(at) if at <= now else found.st_mtime
    turn = content.get("turn")
    return Heartbeat(moment, turn if type(turn) is int else None, _pending(content.get("pending"), mask))


def _pending(value: Any, mask: Callable[[str], str]) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    # Masked before they are cut: half a secret would not be recognised.
    names = (mask(name) for name in value[:MAX_CALLS] if isinstance(name, str))
    return tuple("".join(letter for letter in name[:MAX_NAME_LENGTH] if letter.isprintable()) for name in names)
