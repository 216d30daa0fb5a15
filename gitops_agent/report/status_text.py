"""``status``, ``status AGENT``, ``history`` and ``validate`` for people, from their JSON shapes. Pure.

No text ends in a line break: the caller that prints it adds the last one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from gitops_agent.model.finding import Severity
from gitops_agent.model.observation import listed_instances
from gitops_agent.model.quantity import ago, ahead, counted, epoch, span
from gitops_agent.report.render import PLAIN, Cell, Column, Mask, Row, Style, page, table
from gitops_agent.report.words import Shape, findings_text, fleet_words, own_name, phase_colours, short
from gitops_agent.support.secrets import Redactor
from gitops_agent.support.text import clipped, escape_control

_LISTED_INSTANCES = 3  # shown of one agent in the table
_WORST_FIRST = ("Halted", "Frozen", "Stalled")
_COMMIT_COLUMNS = (
    Column("COMMIT"),
    Column("PHASE"),
    Column("SEEN", drop=2),
    Column("TOOK", drop=3),
    Column("SUBJECT", folds=True),
    Column("SUMMARY", folds=True),
)


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
    total = style.paint(verdict, "bold", colour) + (f": {', '.join(parts)}" if parts else "")
    return page(["\n".join([*([findings_text(findings, style)] if findings else []), total])], style)


def ready_condition(agent: Shape) -> Shape | None:
    """The condition Ready of an agent."""
    return next((each for each in agent["conditions"] if each["type"] == "Ready"), None)


def _leading_condition(agent: Shape) -> Shape | None:
    """The condition that says most: for an agent that is not Ready, the one that holds it up."""
    found = {each["type"]: each for each in agent["conditions"] if each["status"]}
    return next((found[kind] for kind in _WORST_FIRST if kind in found), None) or ready_condition(agent)


def _state_of(agent: Shape) -> str:
    """One word for what runs: the state of the runtime, else of the first resource."""
    by_kind = {own_name(each["key"]).partition("/")[0]: each["state"] for each in reversed(agent["resources"])}
    first = agent["resources"][0]["state"] if agent["resources"] else agent["lifecycle"]
    return str(by_kind.get("runtime", first))


def _ready_word(agent: Shape) -> tuple[str, tuple[str, ...]]:
    """The column READY and its colours: an agent that rests as desired has nothing to be ready for."""
    if not agent["ready"]:
        return "no", ("bold", "red")
    return ("yes", ("green",)) if agent["lifecycle"] == "Running" else ("-", ())


def instances_of(resources: Iterable[Shape]) -> list[tuple[str, str]]:
    """What the drivers call the instances of some resources: the name of the identifier, and the identifier."""
    listed = (each for resource in resources for each in listed_instances(resource["live"]))
    return [(each.label, each.id) for each in listed if each.label]


def _instances_header(names: Iterable[str]) -> str:
    """The header of the column of instances: the identifier's name where all drivers use the same."""
    known = set(names)
    return escape_control(known.pop().upper()) if len(known) == 1 else "INSTANCES"


def _instances_cell(instances: Sequence[tuple[str, str]]) -> str:
    """The first identifiers, for a table."""
    more = " …" if len(instances) > _LISTED_INSTANCES else ""
    return ", ".join(value for _, value in instances[:_LISTED_INSTANCES]) + more or "-"


def fleet_text(shape: Shape, style: Style, now: float | None, redactor: Redactor) -> str:
    """The text of a shape that still holds secrets: of its agents only what is shown is masked. In a fleet of
    10,000 that takes a quarter of the time that masking all of them does."""
    rest = redactor.tree({**shape, "agents": []})
    return status_text({**rest, "agents": shape["agents"]}, style, now, redactor)


def status_text(shape: Shape, style: Style = PLAIN, now: float | None = None, mask: Mask = str) -> str:
    """The head of the fleet, a table of agents, and what is in the way. ``now``: what ages are counted from;
    ``mask``: for the cells of the table, where the shape is not masked."""
    blocks = [fleet_head(shape, style)]
    if shape["rollout"] is not None:
        blocks[0] += "\n" + rollout_line(shape["rollout"])
    if shape["agents"]:
        blocks.append(agents_table(shape, style, now, mask))
    if shape["findings"]:
        blocks.append(findings_text(shape["findings"], style))
    return page(blocks, style)


def fleet_head(shape: Shape, style: Style, fleet: str = "") -> str:
    """One line: the newest commit, how the fleet is, and what is enforced if that is another commit.

    ``fleet``: how the fleet is in words, where the shape does not hold all agents.
    """
    instance, commit, enforced = escape_control(shape["instance"]), shape["commit"], shape["enforced"]
    if commit is None or shape["phase"] is None:
        return f"{instance}: no commit has been seen yet"
    fleet = fleet or fleet_words([(agent["ready"], agent["lifecycle"]) for agent in shape["agents"]])
    behind = f", enforcing {short(enforced) if enforced else 'nothing yet'}" if enforced != commit else ""
    phase = style.paint(shape["phase"], *phase_colours(shape["phase"]))
    return f"{instance}: {short(commit)} {phase}{behind}; {fleet}" + style.paint(as_of(shape), "dim")


def as_of(shape: Shape) -> str:
    """How old the journal was, in brackets; nothing when it was written just now."""
    age = shape["journalAgeSeconds"]
    return "" if age is None else f" (as of {span(age)} ago)"


def rollout_line(rollout: Shape) -> str:
    """How far the newest commit has got through the fleet, in one line."""
    total = sum(rollout["waves"])
    state = f"held: {escape_control(rollout['failed'])}" if rollout["failed"] else "under way"
    wave = f"wave {rollout['released']} of {len(rollout['waves'])}"
    return f"rollout {state}; {wave}, {total - rollout['waiting']} of {total} agents"


def agents_table(shape: Shape, style: Style, now: float | None, mask: Mask = str) -> str:
    """One row for each agent, with what holds it up."""
    agents, findings = shape["agents"], shape["findings"]
    about: dict[str, Shape] = {}
    for finding in findings:
        about.setdefault(finding["address"].partition(":")[0], finding)
    instances = [instances_of(agent["resources"]) for agent in agents]
    columns = (
        Column("AGENT", folds=True),
        Column("READY"),
        Column("STATE", drop=1),
        Column(_instances_header(name for each in instances for name, _ in each), drop=3),
        Column("REASON", folds=True),
        Column("SINCE", drop=2),
        Column("COMMIT", drop=4),
        Column("MESSAGE", folds=True),
    )
    rows = [
        _agent_row(agent, _instances_cell(listed), about.get(agent["agent"]), now)
        for agent, listed in zip(agents, instances, strict=True)
    ]
    return table(columns, rows, style, mask)


def _agent_row(agent: Shape, instances: str, finding: Shape | None, now: float | None) -> Row:
    condition = _leading_condition(agent)
    # What keeps work waiting (Observe mode, a pause, a dependency …), if it is not a condition.
    hold = finding if condition is None or condition["type"] == "Ready" else None
    reasons = [*([condition["reason"]] if condition else []), *([hold["code"]] if hold else [])]
    return [
        agent["agent"],
        Cell(*_ready_word(agent)),
        _state_of(agent),
        instances,
        ", ".join(reasons) or "-",
        _since(condition["lastTransitionTime"], now) if condition else "-",
        short(agent["observedCommit"]),
        _trouble(agent, condition, hold),
    ]


def _since(moment: str, now: float | None) -> str:
    return moment if now is None else ago(epoch(moment), now)


def _trouble(agent: Shape, condition: Shape | None, hold: Shape | None) -> str:
    if condition is None or (condition["type"] == "Ready" and condition["status"]):
        return hold["summary"] if hold else ""
    if hold is not None:
        return f"{condition['message']}; {hold['summary']}"
    return _plain_message(agent, condition["message"])


def _plain_message(agent: Shape, text: str) -> str:
    """A message without the names of the agent's own resources in front."""
    for resource in agent["resources"]:
        text = text.replace(f"{resource['key']}: ", "")
    return text


def agent_text(shape: Shape, style: Style = PLAIN, now: float | None = None) -> str:
    """``status AGENT``: one agent in full, as facts under names."""
    (agent,) = shape["agents"]
    blocks = [fleet_head(shape, style), "\n".join(_facts(agent, style, now or 0.0))]
    if agent["resources"]:
        header = _instances_header(name for name, _ in instances_of(agent["resources"]))
        columns = [Column(name) for name in ("RESOURCE", "DRIVER", "STATE", "HEALTH", header)]
        blocks.append(table(columns, list(map(_resource_row, agent["resources"])), style))
    if agent["conditions"]:
        columns = [Column("CONDITION"), Column("HOLDS", drop=1), Column("REASON", folds=True)]
        columns += [Column("SINCE", drop=2), Column("MESSAGE", folds=True)]
        blocks.append(table(columns, [_condition_row(agent, each, now) for each in agent["conditions"]], style))
    if shape["findings"]:
        blocks.append(findings_text(shape["findings"], style))
    return page(blocks, style)


def _facts(agent: Shape, style: Style, now: float) -> Iterator[str]:
    word, colours = _ready_word(agent)
    origin = f" at {escape_control(agent['origin'])}" if agent["origin"] else ""
    yield style.paint(escape_control(agent["agent"]), "bold")
    yield f"  ready     {style.paint(word, *colours)}"
    yield f"  desired   {agent['lifecycle']}{origin}"
    yield f"  commit    {short(agent['observedCommit'])}"
    yield from (f"  log       {escape_control(path)}" for path in _logs(agent))
    yield from (f"  attach:   {escape_control(command)}" for command in attach_commands(agent))
    if agent["nextTryAt"]:
        yield f"  next try  {ahead(epoch(agent['nextTryAt']), now)} ({agent['nextTryAt']})"


def _logs(agent: Shape) -> Iterator[str]:
    """Where its output goes: the file of its one replica, or all files beside that of the first."""
    for resource in agent["resources"]:
        if path := resource["live"].get("log"):
            several = len(listed_instances(resource["live"])) > 1
            yield str(PurePath(path).with_name("*.log")) if several else str(path)


def attach_commands(agent: Shape) -> list[str]:
    """The commands that attach a terminal to an agent, where its driver has one."""
    return [str(each["live"]["attach"]) for each in agent["resources"] if each["live"].get("attach")]


def _resource_row(resource: Shape) -> Row:
    instances = ", ".join(value for _, value in instances_of([resource])) or "-"
    return [own_name(resource["key"]), resource["driver"], resource["state"], resource["health"] or "-", instances]


def _condition_row(agent: Shape, condition: Shape, now: float | None) -> Row:
    holds = "yes" if condition["status"] else "no"
    since = _since(condition["lastTransitionTime"], now)
    message = _plain_message(agent, condition["message"])
    return [condition["type"], holds, condition["reason"], since, message]


def history_text(shape: Shape, style: Style = PLAIN) -> str:
    """One line per commit, newest first as given."""
    if not shape["commits"]:
        return "no commit has been seen yet"
    return table(_COMMIT_COLUMNS, list(map(_commit_row, shape["commits"])), style)


def _commit_row(commit: Shape) -> Row:
    remarks = [commit["summary"]] if commit["summary"] else []
    if commit["rollsBackTo"]:
        remarks.append(f"rolls back to {short(commit['rollsBackTo'])}")
    if commit["rolledBackBy"]:
        remarks.append(f"rolled back by {short(commit['rolledBackBy'])}")
    return [
        short(commit["commit"]),
        Cell(commit["phase"], phase_colours(commit["phase"])),
        commit["seenAt"],
        "-" if commit["seconds"] is None else span(commit["seconds"]),
        commit["subject"][:60],
        clipped("; ".join(remarks), 100),
    ]
