"""``status``, ``status AGENT``, ``history`` and ``validate`` for people, from their JSON shapes. Pure.

No text ends in a line break: the caller that prints it adds the last one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from operator import itemgetter
from pathlib import PurePath
from typing import NamedTuple

from gitops_agent.model.finding import Severity
from gitops_agent.model.observation import listed_instances
from gitops_agent.model.quantity import ago, ahead, clock, counted, epoch, span
from gitops_agent.model.status import OBSERVE_FAILED
from gitops_agent.report.render import PLAIN, Cell, Column, Mask, Style, page, table
from gitops_agent.report.words import (
    Shape,
    as_of,
    findings_text,
    fleet_words,
    hands_off_text,
    own_name,
    phase_colours,
    ready_words,
    rollback_words,
    short,
)
from gitops_agent.support.secrets import Redactor
from gitops_agent.support.text import clipped, escape_control

_LISTED_INSTANCES = 3  # shown of one agent in the table
_HELD = ("Halted", "Frozen")  # these say nothing of the agent itself
_WORST_FIRST = (*_HELD, "Stuck", "Stalled")


def validate_text(shape: Shape, style: Style = PLAIN) -> str:
    """All findings, then one line that sums them up."""
    findings = shape["findings"]
    counts = Counter(finding["severity"] for finding in findings)
    # "info" counts nothing and takes no plural.
    parts = [
        f"{counts[severity]} info" if severity is Severity.INFO else counted(counts[severity], severity)
        for severity in Severity
        if counts[severity]
    ]
    verdict, colour = ("valid", "green") if shape["valid"] else ("invalid", "red")
    compared = f" (compared with {shape['comparedWith']})" if shape["comparedWith"] else ""
    total = style.paint(verdict, "bold", colour) + compared + (f": {', '.join(parts)}" if parts else "")
    return page(["\n".join(filter(None, [findings_text(findings, style), total]))], style)


def ready_condition(agent: Shape) -> Shape | None:
    """The condition Ready of an agent."""
    return next((each for each in agent["conditions"] if each["type"] == "Ready"), None)


def _leading_condition(agent: Shape) -> Shape | None:
    """The condition that says most: for an agent that is not Ready, the one that holds it up."""
    found = {each["type"]: each for each in agent["conditions"] if each["status"]}
    return next((found[kind] for kind in _WORST_FIRST if kind in found), None) or ready_condition(agent)


def _main_resource(agent: Shape) -> Shape | None:
    """What runs: the runtime, else the first resource; None where nothing is meant to exist."""
    runtimes = (each for each in agent["resources"] if own_name(each["key"]).startswith("runtime/"))
    return next(runtimes, None) or next(iter(agent["resources"]), None)


def _state_of(agent: Shape) -> str:
    """One word for what runs."""
    main = _main_resource(agent)
    return _state_without_resources(agent) if main is None else str(main["state"])


def where_text(resource: Shape) -> str:
    """Where a resource is: its driver, and the namespace where it has one: ``remote@south/acme``."""
    namespace = resource["live"].get("namespace")
    return f"{resource['driver']}/{namespace}" if namespace else str(resource["driver"])


def _where_of(agent: Shape) -> str:
    main = _main_resource(agent)
    return "-" if main is None else where_text(main)


def _says_where(agents: Iterable[Shape]) -> bool:
    """Whether the table says where each agent is: a fleet is in more than one system, or a tenant in more than one
    part of it."""
    mains = [(agent["agent"], main) for agent in agents if (main := _main_resource(agent)) is not None]
    places = {(name.partition("/")[0], where_text(main)) for name, main in mains}
    return len({main["driver"] for _, main in mains}) > 1 or len(places) > len({tenant for tenant, _ in places})


def _state_without_resources(agent: Shape) -> str:
    """What is said of an agent of which nothing is meant to exist: retired, or given up and taken down again."""
    return "Absent" if agent["lifecycle"] == "Running" else str(agent["lifecycle"])


def _ready_cell(agent: Shape) -> Cell:
    """The column READY: an agent that rests as desired has nothing to be ready for."""
    if not agent["ready"]:
        return Cell("no", ("bold", "red"))
    return Cell("yes", ("green",)) if agent["lifecycle"] == "Running" else Cell("-")


def instances_of(resources: Iterable[Shape]) -> list[tuple[str, str]]:
    """What the drivers call the instances of some resources: the name of the identifier, and the identifier."""
    listed = (each for resource in resources for each in listed_instances(resource["live"]))
    return [(each.label, each.id) for each in listed if each.label]


def _instances_header(instances: Iterable[tuple[str, str]]) -> str:
    """The header of the column of instances: the identifier's name where all drivers use the same."""
    known = {name for name, _ in instances}
    return escape_control(known.pop().upper()) if len(known) == 1 else "INSTANCES"


def _instances_text(instances: Sequence[tuple[str, str]], shown: int | None = None) -> str:
    """The first identifiers, or all, for a table."""
    more = " …" if shown is not None and len(instances) > shown else ""
    return ", ".join(value for _, value in instances[:shown]) + more or "-"


def status_text(
    shape: Shape,
    style: Style = PLAIN,
    now: float | None = None,
    redactor: Redactor | None = None,
    *,
    wide: bool = False,
) -> str:
    """The head of the fleet, a table of agents, and what is in the way. ``now``: what ages are counted from.
    ``redactor``: for a shape that still holds secrets: of its agents only what is shown is masked. In a fleet of
    10,000 that takes a quarter of the time that masking all of them does. ``wide``: every column, however narrow
    the terminal is."""
    style = replace(style, width=None) if wide else style
    if redactor is not None:
        shape = {**redactor.tree({**shape, "agents": []}), "agents": shape["agents"]}
    rollout = "" if shape["rollout"] is None else f"\n{rollout_line(shape['rollout'])}"
    agents = agents_table(shape, style, now, redactor or str, wide=wide)
    head = fleet_head(shape, style, words_of_fleet(shape, redactor or str)) + rollout
    return page([head, agents, findings_text(shape["findings"], style)], style)


def fleet_head(shape: Shape, style: Style, fleet: str) -> str:
    """One line: the newest commit, how the fleet is (``fleet``, in words), and what is enforced if that is another
    commit."""
    instance, commit, enforced = escape_control(shape["instance"]), shape["commit"], shape["enforced"]
    if commit is None or shape["phase"] is None:
        return f"{instance}: no commit has been seen yet"
    behind = f", enforcing {short(enforced) if enforced else 'nothing yet'}" if enforced != commit else ""
    phase, cause = _standing(shape, style)
    return f"{instance}: {short(commit)} {phase}{behind}{cause}{fleet and f'; {fleet}'}" + style.paint(
        as_of(shape), "dim"
    )


def words_of_fleet(shape: Shape, mask: Mask = str) -> str:
    """How the fleet of a ``status`` with all its agents is, in words."""
    agents, now = shape["agents"], shape["now"]
    paused = sum(agent["pause"] is not None for agent in agents)
    observed = sum(agent["pause"] is None and agent["mode"] == "Observe" for agent in agents)
    moving = now["onTheirWay"] if now is not None else 0
    words = fleet_words([(agent["ready"], agent["lifecycle"]) for agent in agents], moving, paused, observed)
    unknown = _unknown_words(agents, mask)
    return f"{words}; {unknown}" if unknown else words


def _unknown_words(agents: Iterable[Shape], mask: Mask) -> str:
    """How many agents could not be looked at, and why: that they are not Ready says nothing of them."""
    asked = (ready_condition(agent) for agent in agents)
    causes = Counter(each["message"] for each in asked if each is not None and each["reason"] == OBSERVE_FAILED)
    if not causes:
        return ""
    (cause, _), *others = causes.most_common()
    more = f" (and {counted(len(others), 'other cause')})" if others else ""
    return f"{causes.total()} unknown: {clipped(escape_control(mask(cause)), 160)}{more}"


def _standing(shape: Shape, style: Style) -> tuple[str, str]:
    """How the fleet stands under the newest commit, since when if that is not its verdict; and why."""
    now, verdict = shape["now"], shape["phase"]
    if now is None:
        return style.paint(verdict, *phase_colours(verdict)), ""
    phase = style.paint(now["phase"], *phase_colours(now["phase"]))
    since = f" since {clock(epoch(now['since']))} (the commit was {verdict})" if now["phase"] != verdict else ""
    return phase + since, f": {clipped(escape_control(now['cause']), 240)}" if now["cause"] else ""


def rollout_line(rollout: Shape) -> str:
    """How far the newest commit has got through the fleet, in one line."""
    total = sum(rollout["waves"])
    state = f"held: {escape_control(rollout['failed']).rstrip('.')}" if rollout["failed"] else "under way"
    wave = f"wave {rollout['released']} of {len(rollout['waves'])}"
    return f"rollout {state}; {wave}, {total - rollout['waiting']} of {total} agents"


class _Row(NamedTuple):
    """One agent of the table, its instances, the condition that says most, and what holds it up besides.
    ``own``: what is said of the agent itself, where the condition that says most is about something else: that it
    is held, or was tried often."""

    agent: Shape
    instances: list[tuple[str, str]]
    condition: Shape | None
    hold: Shape | None
    own: Shape | None


def agents_table(shape: Shape, style: Style, now: float | None, mask: Mask = str, *, wide: bool = False) -> str:
    """One row for each agent, with what holds it up; where it runs, with ``wide`` or where there is more than one
    place."""
    about: dict[str, Shape] = {}
    for finding in shape["findings"]:
        about.setdefault(finding["address"].partition(":")[0], finding)
    rows = [_row(agent, about.get(agent["agent"])) for agent in shape["agents"]]
    instances = _instances_header(each for row in rows for each in row.instances)
    since = cache(partial(_since, now=now))  # many agents changed in the same second
    says_where = wide or _says_where(shape["agents"])
    columns = (
        Column("AGENT", lambda row: row.agent["agent"], folds=True),
        Column("READY", lambda row: _ready_cell(row.agent)),
        Column("STATE", lambda row: _state_of(row.agent), drop=1),
        *([Column("WHERE", lambda row: _where_of(row.agent), drop=2)] if says_where else []),
        Column(instances, lambda row: _instances_text(row.instances, _LISTED_INSTANCES), drop=4),
        Column("REASON", _reasons, folds=True),
        Column("SINCE", lambda row: since(row.condition["lastTransitionTime"]) if row.condition else "-", drop=3),
        Column("COMMIT", lambda row: short(row.agent["appliedCommit"]), drop=5),
        Column("MESSAGE", _trouble, folds=True),
    )
    return table(columns, rows, style, mask)


def _row(agent: Shape, finding: Shape | None) -> _Row:
    condition = _leading_condition(agent)
    # What keeps work waiting (Observe mode, a pause, a dependency …), if it is not a condition.
    hold = finding if condition is None or condition["type"] == "Ready" else None
    if hold is None and (text := hands_off_text(agent)):
        hold = {"code": "ObserveMode" if agent["pause"] is None else "Paused", "summary": text}
    is_held = condition is not None and condition["type"] in _HELD and not agent["ready"]
    own = ready_condition(agent) if is_held or _is_well_again(agent, condition) else None
    return _Row(agent, instances_of(agent["resources"]), condition, hold, own)


def _is_well_again(agent: Shape, condition: Shape | None) -> bool:
    """Whether an agent is Ready and owed nothing, and is only watched for a while because it was tried often."""
    tried = condition is not None and (condition["type"], condition["reason"]) == ("Stalled", "Backoff")
    return tried and agent["ready"] and agent["nextTryAt"] is None


def _reasons(row: _Row) -> str:
    reasons = [each["reason"] for each in (row.own, row.condition) if each]
    return ", ".join([*reasons, row.hold["code"]] if row.hold else reasons) or "-"


def _since(moment: str, now: float | None) -> str:
    return moment if now is None else ago(epoch(moment), now)


def _trouble(row: _Row) -> str:
    _, _, condition, hold, own = row
    if condition is None or (condition["type"] == "Ready" and condition["status"]):
        return hold["summary"] if hold else ""
    told = [each["message"] for each in (own, condition) if each] + ([hold["summary"]] if hold else [])
    return _plain_message(row.agent, "; ".join(filter(None, told)))


def _plain_message(agent: Shape, text: str) -> str:
    """A message without the names of the agent's own resources in front."""
    for resource in agent["resources"]:
        text = text.replace(f"{resource['key']}: ", "")
    return text


def agent_text(shape: Shape, style: Style = PLAIN, now: float | None = None) -> str:
    """``status AGENT``: one agent in full, as facts under names."""
    (agent,) = shape["agents"]
    header = _instances_header(instances_of(agent["resources"]))
    resources = (
        Column("RESOURCE", lambda each: own_name(each["key"])),
        Column("WHERE", where_text),
        Column("STATE", itemgetter("state")),
        Column("HEALTH", lambda each: each["health"] or "-"),
        Column(header, lambda each: _instances_text(instances_of([each]))),
    )
    conditions = (
        Column("CONDITION", itemgetter("type")),
        Column("HOLDS", lambda each: "yes" if each["status"] else "no", drop=1),
        Column("REASON", itemgetter("reason"), folds=True),
        Column("SINCE", lambda each: _since(each["lastTransitionTime"], now), drop=2),
        Column("MESSAGE", lambda each: _plain_message(agent, each["message"]), folds=True),
    )
    tables = (table(resources, agent["resources"], style), table(conditions, agent["conditions"], style))
    facts, findings = "\n".join(_facts(agent, style, now or 0.0)), findings_text(shape["findings"], style)
    stands = shape["now"]
    fleet = ready_words(stands["ready"], stands["total"], stands["onTheirWay"]) if stands is not None else ""
    return page([fleet_head(shape, style, fleet), facts, *tables, findings], style)


def _facts(agent: Shape, style: Style, now: float) -> Iterator[str]:
    ready = _ready_cell(agent)
    origin = f" at {escape_control(agent['origin'])}" if agent["origin"] else ""
    yield style.paint(escape_control(agent["agent"]), "bold")
    yield f"  ready     {style.paint(ready.text, *ready.colours)}"
    yield f"  desired   {agent['lifecycle']}{origin}"
    yield f"  commit    {short(agent['appliedCommit'])}{_owed_to(agent)}"
    if text := hands_off_text(agent):
        yield f"  not acted on: {escape_control(text)}"
    yield from (f"  log       {escape_control(path)}" for path in _logs(agent))
    yield from (f"  attach:   {escape_control(command)}" for command in attach_commands(agent))
    if agent["nextTryAt"]:
        yield f"  next try  {ahead(epoch(agent['nextTryAt']), now)} ({agent['nextTryAt']})"


def _owed_to(agent: Shape) -> str:
    waits = agent["appliedCommit"] != agent["observedCommit"]
    return f"; what {short(agent['observedCommit'])} asks of it waits" if waits else ""


def _logs(agent: Shape) -> Iterator[str]:
    """Where its output goes: the file of its one replica, or all files beside that of the first."""
    for resource in agent["resources"]:
        if path := resource["live"].get("log"):
            several = len(listed_instances(resource["live"])) > 1
            yield str(PurePath(path).with_name("*.log")) if several else str(path)


def attach_commands(agent: Shape) -> list[str]:
    """The commands that attach a terminal to an agent, where its driver has one."""
    return [str(each["live"]["attach"]) for each in agent["resources"] if each["live"].get("attach")]


def history_text(shape: Shape, style: Style = PLAIN) -> str:
    """One line per commit, newest first as given."""
    if not shape["commits"]:
        return "no commit has been seen yet"
    columns = (
        Column("COMMIT", lambda commit: short(commit["commit"])),
        Column("PHASE", lambda commit: Cell(commit["phase"], phase_colours(commit["phase"]))),
        Column("SEEN", itemgetter("seenAt"), drop=2),
        Column("TOOK", lambda each: "-" if each["seconds"] is None else span(each["seconds"]), drop=3),
        Column("SUBJECT", lambda commit: commit["subject"][:60], folds=True),
        Column("SUMMARY", _remarks, folds=True),
    )
    return table(columns, shape["commits"], style)


def _remarks(commit: Shape) -> str:
    remarks = [commit["summary"]] if commit["summary"] else []
    if (now := commit["now"]) is not None and now["phase"] != commit["phase"]:
        remarks.insert(0, f"now {now['phase']}: {now['cause']}")
    remarks += rollback_words(commit["reverts"], commit["rollsBackTo"], commit["rolledBackBy"])
    return clipped("; ".join(remarks), 100)
