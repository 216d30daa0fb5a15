"""Pace: how fast we act. The time of a pass, what the cap of actions has not paid back yet, and the agents that
come back in waves. Values only: guards decide on them, and they are written down before any effect."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gitops_agent.model.key import AgentKey


@dataclass(frozen=True, slots=True)
class Now:
    """The time of a pass. ``wall``: seconds since the epoch (may jump). ``active``: seconds this instance has been
    at work, over all its lives: it never jumps, and does not move while no process runs. ``born``: its value when
    this process began."""

    wall: float
    active: float
    born: float = 0.0


@dataclass(frozen=True, slots=True)
class Debt:
    """Actions that were done and not paid back yet, as of a moment by both clocks."""

    actions: float
    active: float
    wall: float

    def left(self, per_minute: float, now: Now) -> float:
        """What is not paid back by now, when so many a minute are.
        A process trusts the clock that never jumps. The time in which none ran is known by the wall clock alone;
        one that was set meanwhile pays back no more than there is."""
        passed = now.active - self.active
        if self.active <= now.born:
            passed = max(passed, now.wall - self.wall)
        return max(0.0, self.actions - max(0.0, passed) * per_minute / 60.0)


Debts = Mapping[str, Debt]
"""By scope: ``*`` for the fleet, or a tenant."""


def owed(debts: Debts, now: Now, scope: str, per_minute: float) -> float:
    """The actions of a scope that are not paid back yet."""
    debt = debts.get(scope)
    return 0.0 if debt is None else debt.left(per_minute, now)


def seconds_until_paid(debts: Debts, now: Now, scope: str, per_minute: float) -> float:
    """Seconds until a scope may have one more action; 0 when it may now."""
    return max(0.0, (owed(debts, now, scope, per_minute) + 1.0 - per_minute) * 60.0 / per_minute)


@dataclass(frozen=True, slots=True)
class MassReturn:
    """Agents that were gone together and come back in waves. ``released``: when each was let go, in seconds of
    active time. ``waiting``: those whose turn has not come. ``proven``: one of them has become Ready. ``cause``:
    the code of what took them away, for people."""

    released: Mapping[AgentKey, float] = field(default_factory=dict)
    waiting: frozenset[AgentKey] = frozenset()
    proven: bool = False
    cause: str = ""
