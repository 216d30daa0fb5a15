"""The drift report: what is not as enforced, why, since when, and what would be done about it. Pure.

A report is a value made of a plan for what is in force; nothing in it was done because of the report.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Observation, Owner
from gitops_agent.model.plan import Action, Class, Decision, Plan
from gitops_agent.model.quantity import iso
from gitops_agent.model.status import AgentStatus, ConditionType
from gitops_agent.report.json_shapes import NOTHING, action_shape, evidence_shape, findings_shape, value_at
from gitops_agent.report.words import Shape, is_about

ORDER = (
    Class.UNSAFE_AMBIGUITY,
    Class.CONFLICTING,
    Class.STUCK_PROGRESS,
    Class.MISSING_EXTERNAL,
    Class.MISSING_INTERNAL,
    Class.LAG,
)
"""The classes as a report lists them: what needs people most comes first."""


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field that differs, as a JSON pointer; ``NOTHING`` when one side does not have it."""

    path: str
    live: Any
    git: Any


@dataclass(frozen=True, slots=True)
class Drift:
    """One resource that is not as enforced."""

    action: Action
    since: float
    held_by: tuple[str, ...]
    differences: tuple[FieldDifference, ...]


@dataclass(frozen=True, slots=True)
class DriftReport:
    """What one observation of the live systems found, against what is in force, which has so many ``agents``.

    ``unreachable``: drivers that could not be asked, with the reason; nothing is known about their resources.
    """

    instance: str
    commit: str
    at: float
    agents: int
    drifts: tuple[Drift, ...]
    findings: tuple[Finding, ...] = ()
    unreachable: tuple[tuple[str, str], ...] = ()

    @property
    def drifted(self) -> int:
        """How many agents drifted. Lag is none, and neither is a field that live decides."""
        return len({drift.action.key.agent for drift in self.drifts if drift.action.drift_class.is_drift})

    @property
    def counts(self) -> dict[Class, int]:
        """How many agents each class concerns, every class named."""
        pairs = {(drift.action.drift_class, drift.action.key.agent) for drift in self.drifts}
        counted = Counter(drift_class for drift_class, _ in pairs)
        return {drift_class: counted[drift_class] for drift_class in ORDER}


@dataclass(frozen=True, slots=True)
class Past:
    """What the journal knows: the last statuses, and what was seen of an agent each time it changed."""

    statuses: Mapping[AgentKey, AgentStatus]
    seen: Callable[[AgentKey], Sequence[Observation]]


def drifts(plan: Plan, past: Past, at: float) -> tuple[Drift, ...]:
    """The drift in a plan, the most worrying class first. What only a commit asks for is none."""
    found = [
        Drift(action, since(action, past, at), _holders(action, plan), tuple(_differences(action)))
        for action in plan.actions
        if action.drift_class is not Class.CHANGE
    ]
    return tuple(sorted(found, key=lambda drift: (ORDER.index(drift.action.drift_class), drift.action.key)))


def since(action: Action, past: Past, at: float) -> float:
    """Since when a resource deviates: the first observation of the present unbroken deviation.

    Where observations do not show it (health), since when the agent is called Drifted; else since now.
    """
    first: float | None = None
    for seen in past.seen(action.key.agent):
        if seen.key != action.key:
            continue
        if not _deviates(seen, action):
            break
        first = seen.observed_at
    if first is None:
        status = past.statuses.get(action.key.agent)
        conditions = status.conditions if status is not None else ()
        first = next((each.last_transition_at for each in conditions if each.type is ConditionType.DRIFTED), at)
    return min(first, at)


def _deviates(seen: Observation, action: Action) -> bool:
    """Whether something seen earlier was not as enforced either."""
    if seen.fields is None or seen.reason is not None or seen.owner is not Owner.OURS:
        return True
    wanted = _enforced(action)
    shown = seen.fields.value
    return wanted is None or any(shown[name] != wanted[name] for name in shown.keys() & wanted.keys())


def _enforced(action: Action) -> dict[str, Any] | None:
    """The fields as Git has them: for an import, those before live is followed."""
    if action.desired is None:
        return None
    known = ((str(step["path"]).split("/"), step) for step in action.patch if "before" in step)
    return {**action.desired.value, **{path[1]: step["before"] for path, step in known if len(path) == 2}}


def _holders(action: Action, plan: Plan) -> tuple[str, ...]:
    return tuple(verdict.guard for verdict in plan.verdicts if action.key in verdict.held)


def _differences(action: Action) -> Iterable[FieldDifference]:
    importing = action.decision is Decision.IMPORT
    for step in action.patch if action.live is not None else ():
        path = str(step["path"])
        target = step.get("value", NOTHING) if step["op"] != "remove" else NOTHING
        if importing:
            yield FieldDifference(path, target, step.get("before", NOTHING))
        else:
            yield FieldDifference(path, value_at(path, action.live, action.base), target)


def only(report: DriftReport, *, agent: AgentKey | None = None, tenant: str | None = None) -> DriftReport:
    """The report on one agent, or on one tenant."""
    if agent is None and tenant is None:
        return report

    def concerns(key: AgentKey) -> bool:
        return key == agent if agent is not None else key.tenant == tenant

    kept = tuple(drift for drift in report.drifts if concerns(drift.action.key.agent))
    named = {drift.action.key.agent for drift in kept} | ({agent} if agent is not None else set())
    found = tuple(each for each in report.findings if any(is_about(each, key) for key in named))
    return replace(report, drifts=kept, findings=found)


def drift_shape(report: DriftReport) -> Shape:
    """The answer of ``drift``."""
    return {
        "instance": report.instance,
        "commit": report.commit,
        "at": iso(report.at),
        "agents": report.agents,
        "drifted": report.drifted,
        "summary": {str(drift_class): count for drift_class, count in report.counts.items()},
        "drifts": list(map(_drift, report.drifts)),
        "findings": findings_shape(report.findings),
        "unreachable": [{"driver": driver, "reason": reason} for driver, reason in report.unreachable],
    }


def _drift(drift: Drift) -> Shape:
    action = drift.action
    return {
        **action_shape(action),
        "since": iso(drift.since),
        "heldBy": list(drift.held_by),
        "evidence": evidence_shape(action.evidence),
        "differences": list(map(_difference, drift.differences)),
    }


def _difference(difference: FieldDifference) -> Shape:
    sides = (("live", difference.live), ("git", difference.git))
    return {"path": difference.path, **{side: value for side, value in sides if value is not NOTHING}}
