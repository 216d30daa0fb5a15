"""The drift report: what is not as enforced, why, since when, and what would be done about it; as JSON, and for
people from that. A report is made of a plan for what is in force; nothing in it was done because of the report.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

from gitops_agent.model.health_spec import STOPPED
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Observation, Owner
from gitops_agent.model.passes import Observed
from gitops_agent.model.plan import Action, Class, Decision, Plan, Verb
from gitops_agent.model.quantity import ago, counted, epoch, iso
from gitops_agent.model.status import AgentStatus, ConditionType
from gitops_agent.plan.reasons import ReasonCode
from gitops_agent.ports import JournalReader
from gitops_agent.report.json_shapes import NOTHING, findings_shape, to_json, value_at
from gitops_agent.report.plan_text import DIGESTS, shown
from gitops_agent.report.render import PLAIN, Cell, Column, Style, page, table
from gitops_agent.report.words import Shape, findings_text, is_about, own_name, short
from gitops_agent.support.text import escape_control

ORDER = (
    Class.UNSAFE_AMBIGUITY,
    Class.CONFLICTING,
    Class.STUCK_PROGRESS,
    Class.MISSING_EXTERNAL,
    Class.MISSING_INTERNAL,
    Class.LAG,
)
"""The classes as a report lists them: what needs people most comes first."""

_SEARCHED_OBSERVATIONS = 200  # the newest of one agent, searched for the beginning of its drift


def drifting(plan: Plan) -> list[Action]:
    """The drift in a plan, the most worrying class first. What only a commit asks for is none."""
    actions = (_as_lost(action) if _is_lost(action) else action for action in plan.actions)
    found = [action for action in actions if action.drift_class is not Class.CHANGE]
    return sorted(found, key=lambda action: (ORDER.index(action.drift_class), action.key))


def _is_lost(action: Action) -> bool:
    """Whether what was applied is no longer there, of something that a commit changes as well. For a plan that is
    a change: it is created as desired now. While that waits, people who ask for drift must see that it is gone."""
    applied = action.base is not None and not action.base.value.get(STOPPED)
    return applied and action.verb is Verb.CREATE and action.reason == ReasonCode.SPEC_CHANGED


def _as_lost(action: Action) -> Action:
    """A change of what is gone, as drift from what was last applied."""
    said = "; ".join(each.said for each in action.evidence) or "It is not there"
    message = f"{said.rstrip('.')}. A change of it waits as well."
    found = replace(action, drift_class=Class.MISSING_EXTERNAL, reason=ReasonCode.OBJECT_MISSING, message=message)
    return replace(found, desired=action.base)


def only(plan: Plan, *, agent: AgentKey | None = None, tenant: str | None = None) -> Plan:
    """The drift of one agent, or of one tenant, and the findings about it."""
    if agent is None and tenant is None:
        return plan
    kept = [a for a in drifting(plan) if (a.key.agent == agent if agent else a.key.agent.tenant == tenant)]
    named = {action.key.agent for action in kept} | ({agent} if agent else set())
    found = tuple(each for each in plan.findings if any(is_about(each, key) for key in named))
    return replace(plan, actions=tuple(kept), findings=found)


class Extent(NamedTuple):
    """How many agents are in force, and how many of them could be looked at."""

    agents: int
    in_sight: int


def drift_shape(
    plan: Plan, journal: JournalReader, instance: str, fleet: Extent, observed: Observed, at: float
) -> Shape:
    """The answer of ``drift``. ``observed``: what could not be looked at is named in it, with the reason; nothing
    is known about that."""
    found, statuses = drifting(plan), journal.state().status.agents

    def drift(action: Action) -> Shape:
        seen = journal.observations(action.key.agent, limit=_SEARCHED_OBSERVATIONS)
        return {
            **to_json(action),
            "since": iso(since(action, seen, statuses.get(action.key.agent), at)),
            "heldBy": [verdict.guard for verdict in plan.verdicts if action.key in verdict.held],
            "evidence": to_json(action.evidence),
            "differences": list(_differences(action)),
        }

    return {
        "instance": instance,
        "commit": plan.commit,
        "at": iso(at),
        "agents": fleet.agents,
        "inSight": fleet.in_sight,
        # Lag is no drift, and neither is a field that live decides.
        "drifted": len({action.key.agent for action in found if action.drift_class.is_drift}),
        "summary": {str(each): len({a.key.agent for a in found if a.drift_class is each}) for each in ORDER},
        "drifts": list(map(drift, found)),
        "findings": findings_shape(plan.findings),
        "unreachable": [
            {"driver": driver, "reason": reason} for driver, reason in sorted(observed.unreachable.items())
        ],
        "unseen": [
            {"agent": agent, "reason": reason}
            for agent, reason in sorted({str(key.agent): why for key, why in observed.unseen.items()}.items())
        ],
    }


def since(action: Action, history: Iterable[Observation], status: AgentStatus | None, at: float) -> float:
    """Since when a resource deviates: the first observation of the present unbroken deviation.
    Where observations do not show it (health), since when the agent is called Drifted; else since now."""
    first: float | None = None
    for seen in history:
        if seen.key != action.key:
            continue
        if not _deviates(seen, action):
            break
        first = seen.observed_at
    if first is None:
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


def _differences(action: Action) -> Iterator[Shape]:
    """Each field that differs, as a JSON pointer; a side that does not have it is left out."""
    for step in action.patch if action.live is not None else ():
        path = str(step["path"])
        target = step.get("value", NOTHING) if step["op"] != "remove" else NOTHING
        if action.decision is Decision.IMPORT:
            sides = {"live": target, "git": step.get("before", NOTHING)}
        else:
            sides = {"live": value_at(path, action.live, action.base), "git": target}
        yield {"path": path, **{side: value for side, value in sides.items() if value is not NOTHING}}


# -- for people

_SHOWN_CHARACTERS = 120  # of one value
_SHOWN_FIELDS = 12  # of one resource
_COLOURS = {"repair": "green", "import": "cyan", "wait": "cyan"}
_MEANINGS = {
    "ask": "ask first",
    "quarantine": "left alone, reported",
    "alert": "left alone, reported",
    "import": "proposed to Git on a branch",
}


def drift_text(shape: Shape, style: Style = PLAIN, *, details: bool = False) -> str:
    """The whole report; with ``details`` also the evidence and the fields that differ."""
    drifts, now = shape["drifts"], epoch(shape["at"])
    colour = "yellow" if shape["drifted"] or shape["unreachable"] or shape["unseen"] else "green"
    head = style.paint(escape_control(headline(shape)), "bold", colour)
    blocks = [f"{head} ({counted(shape['agents'], 'agent')}, {shape['at']})"]
    unseen = [f"  driver {each['driver']}: {each['reason']}" for each in shape["unreachable"]]
    unseen += [f"  {each['agent']}: {each['reason']}" for each in shape["unseen"]]
    if unseen:
        title = style.paint("could not be looked at:", "bold", "yellow")
        blocks.append("\n".join([title, *map(escape_control, unseen)]))
    columns = (
        Column("AGENT", itemgetter("agent"), folds=True),
        Column("RESOURCE", lambda drift: own_name(drift["resource"]), drop=1),
        Column("CLASS", itemgetter("class"), drop=2),
        Column("REASON", itemgetter("reason")),
        Column("CONFIDENCE", itemgetter("confidence"), drop=4),
        Column("SINCE", lambda drift: ago(epoch(drift["since"]), now), drop=3),
        Column("WOULD BE DONE", _intention_cell, folds=True),
    )
    blocks.append("\n".join(f"{count:>6}  {name}" for name, count in shape["summary"].items() if count))
    blocks.append(table(columns, drifts, style))
    if details:
        blocks += ["\n".join(_details(drift)) for drift in drifts]
        blocks.append(findings_text(shape["findings"], style))
    elif drifts:
        blocks.append("gitops-agent drift AGENT shows the evidence and the fields that differ")
    return page(blocks, style)


def headline(shape: Shape) -> str:
    """One line: how many agents drifted, from what; or that this is not known of any."""
    agents, commit = counted(shape["agents"], "agent"), short(shape["commit"])
    is_partial = shape["unreachable"] or shape["unseen"]
    if is_partial and shape["agents"] and not (shape["drifted"] or shape["inSight"]):
        return f"{shape['instance']}: 0 of {agents} could be looked at, at {commit}"
    much = f"{shape['drifted']} of {agents} drifted" if shape["drifted"] else "no drift"
    unseen = ", but some could not be looked at" if is_partial else ""
    return f"{shape['instance']}: {much} at {commit}{unseen}"


def _intention_cell(drift: Shape) -> Cell:
    return Cell(_intention(drift), (_COLOURS.get(drift["decision"], "yellow"),))


def _intention(drift: Shape) -> str:
    """What would be done about it, or which guards hold it."""
    if drift["heldBy"]:
        return f"{drift['verb']}, held by {', '.join(guard.replace('_', ' ') for guard in drift['heldBy'])}"
    repair = drift["verb"] if drift["decision"] == "repair" else f"{drift['verb']}, {drift['decision']}"
    return _MEANINGS.get(drift["decision"]) or str(repair)


def _details(drift: Shape) -> Iterator[str]:
    yield escape_control(f"{drift['resource']}: {drift['message']}")
    yield (
        f"  since {drift['since']}, {drift['confidence']} confidence,"
        f" would be done: {escape_control(_intention(drift))}"
    )
    for each in drift["evidence"]:
        yield escape_control(f"  {each['source']} reported at {each['at']}: {each['said']}")
    fields = [each for each in drift["differences"] if each["path"] not in DIGESTS]
    for each in fields[:_SHOWN_FIELDS]:
        live, git = (
            shown(each[side], _SHOWN_CHARACTERS) if side in each else "nothing" for side in ("live", "git")
        )
        yield f"  {escape_control(each['path'])}: live {live}, Git {git}"
    if len(fields) > _SHOWN_FIELDS:
        yield f"  … and {len(fields) - _SHOWN_FIELDS} more fields"
