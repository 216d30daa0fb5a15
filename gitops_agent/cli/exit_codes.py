"""What ``once`` ends with. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops_agent.model.status import Phase

if TYPE_CHECKING:
    from gitops_agent.model.passes import PassResult

DONE, UNEXPECTED, USAGE, INVALID, BLOCKED, NOT_CONVERGED, NO_SOURCE = range(7)


def exit_code(result: PassResult, *, timed_out: bool = False) -> int:
    """The exit code of ``once``: it follows the newest commit and how the fleet stands now, first match wins."""
    if result.unavailable or result.phase is None or result.phase is Phase.REFUSED:
        return NO_SOURCE
    if result.phase is Phase.INVALID:
        return INVALID
    if Phase.BLOCKED in (result.phase, result.standing) or result.frozen:
        return BLOCKED
    if result.standing is Phase.DEGRADED or timed_out or not result.phase.terminal:
        return NOT_CONVERGED
    return DONE
