"""Control: one request of an operator, or of a guard that tripped, as the journal keeps it. Append-only.

What is in force is folded from all of them, so a daemon that is restarted knows what one that ran on knows.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gitops_agent.model.key import AgentKey


class ControlVerb(StrEnum):
    """What was asked for."""

    FREEZE = "freeze"
    UNFREEZE = "unfreeze"
    APPROVE = "approve"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Control:
    """One row. ``target``: the scope of a freeze (``*``, a tenant or ``tenant/name``), the digest of an approved
    plan, or the agent or commit to be tried again. ``plan``: the digest of the plan that made a guard freeze;
    lifting that freeze approves that plan. ``seq`` is given by the journal."""

    verb: ControlVerb
    target: str
    actor: str
    at: float
    reason: str = ""
    until: float | None = None
    plan: str = ""
    seq: int = 0


EVERYTHING = "*"


def covers(scope: str, agent: AgentKey) -> bool:
    """``*`` is everything, ``tenant`` a tenant, ``tenant/name`` one agent."""
    return scope in (EVERYTHING, agent.tenant, str(agent))


def freezes(controls: Iterable[Control], now: float) -> tuple[Control, ...]:
    """The freezes in force: not lifted since, and not at their end."""
    in_force: dict[str, list[Control]] = {}
    for control in controls:
        if control.verb is ControlVerb.FREEZE:
            in_force.setdefault(control.target, []).append(control)
        elif control.verb is ControlVerb.UNFREEZE:
            in_force.pop(control.target, None)
    every = (control for same in in_force.values() for control in same)
    return tuple(control for control in every if control.until is None or control.until > now)


def approved_plans(controls: Sequence[Control]) -> dict[str, Control]:
    """The digests of approved plans, with their approvals: by name or by lifting the freeze that they tripped."""
    approved: dict[str, Control] = {}
    tripped: dict[str, list[str]] = {}
    for control in controls:
        match control.verb:
            case ControlVerb.APPROVE:
                approved[control.target] = control
            case ControlVerb.FREEZE if control.plan:
                tripped.setdefault(control.target, []).append(control.plan)
            case ControlVerb.UNFREEZE:
                approved.update(dict.fromkeys(tripped.pop(control.target, ()), control))
    return approved


def spent(controls: Sequence[Control], before: float, recorded: Collection[str]) -> frozenset[int]:
    """The numbers of the controls that retention may drop: written before a moment, and without effect since.
    A freeze in force stays, and so does an approval of a plan on record (``recorded``). The newest control
    stays whatever it says, so that no number is given twice."""
    in_force = {control.seq for control in freezes(controls, before)}
    kept: set[str] = set()
    gone: set[int] = set()
    for control in controls[:-1]:
        plan = {ControlVerb.FREEZE: control.plan, ControlVerb.APPROVE: control.target}.get(control.verb)
        if control.at < before and control.seq not in in_force and plan not in recorded:
            # What lifted a freeze that is still here has to stay too, or the freeze would stand again.
            if control.verb is not ControlVerb.UNFREEZE or control.target not in kept:
                gone.add(control.seq)
        elif control.verb is ControlVerb.FREEZE:
            kept.add(control.target)
    return frozenset(gone)
