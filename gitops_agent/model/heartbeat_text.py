"""What an agent wrote of itself, read: never trusted for size, type or time."""

import math
from collections.abc import Callable
from typing import Any

import orjson

from gitops_agent.model.observation import Heartbeat

SIZE_CAP_BYTES = 65536
MAX_CALLS = 100
MAX_NAME_LENGTH = 200


def parse_heartbeat(
    data: bytes | str, now: float, written_at: float | None, mask: Callable[[str], str]
) -> Heartbeat | None:
    """The heartbeat that a text holds; None when it holds none that we understand.
    ``written_at``: when it was written, by a clock that is not the agent's, if known. ``mask`` hides secrets."""
    if len(data) > SIZE_CAP_BYTES:
        return None
    try:
        content = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    at: Any = content.get("at") if isinstance(content, dict) else None
    if type(at) not in (int, float):  # a truth value would pass isinstance
        return None
    # A moment in the future is not believed; when it was written is the next best. That one may be in the future
    # as well, when the clock was set back: it stays as it is, so that two looks see the same heartbeat.
    moment = at if at <= now else written_at
    if moment is None or not math.isfinite(moment):
        return None
    turn = content.get("turn")
    return Heartbeat(float(moment), turn if type(turn) is int else None, _pending(content.get("pending"), mask))


def _pending(value: Any, mask: Callable[[str], str]) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    # Masked before they are cut: half a secret would not be recognised.
    names = (mask(name) for name in value[:MAX_CALLS] if isinstance(name, str))
    return tuple("".join(letter for letter in name[:MAX_NAME_LENGTH] if letter.isprintable()) for name in names)
