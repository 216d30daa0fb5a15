"""The drift report for people, from its JSON shape: how much, a line per resource, evidence. Pure."""

from collections.abc import Iterator

from gitops_agent.model.quantity import ago, counted, epoch
from gitops_agent.report.plan_text import DIGESTS, shown
from gitops_agent.report.render import PLAIN, Cell, Column, Row, Style, page, table
from gitops_agent.report.words import Shape, findings_text, own_name, short
from gitops_agent.support.text import escape_control

_SHOWN_CHARACTERS = 120  # of one value
_SHOWN_FIELDS = 12  # of one resource
_COLOURS = {"repair": "green", "import": "cyan", "wait": "cyan"}
_MEANINGS = {
    "ask": "ask first",
    "quarantine": "left alone, reported",
    "alert": "left alone, reported",
    "import": "proposed to Git on a branch",
}
_COLUMNS = (
    Column("AGENT", folds=True),
    Column("RESOURCE", drop=1),
    Column("CLASS", drop=2),
    Column("REASON"),
    Column("CONFIDENCE", drop=4),
    Column("SINCE", drop=3),
    Column("WOULD BE DONE", folds=True),
)


def drift_text(shape: Shape, style: Style = PLAIN, *, details: bool = False) -> str:
    """The whole report; with ``details`` also the evidence and the fields that differ."""
    colour = "yellow" if shape["drifted"] or shape["unreachable"] else "green"
    head = style.paint(escape_control(headline(shape)), "bold", colour)
    blocks = [f"{head} ({counted(shape['agents'], 'agent')}, {shape['at']})"]
    if shape["unreachable"]:
        lines = [escape_control(f"  driver {each['driver']}: {each['reason']}") for each in shape["unreachable"]]
        blocks.append("\n".join([style.paint("could not be looked at:", "bold", "yellow"), *lines]))
    if shape["drifts"]:
        blocks.append("\n".join(f"{count:>6}  {name}" for name, count in shape["summary"].items() if count))
        now = epoch(shape["at"])
        blocks.append(table(_COLUMNS, [_row(drift, now) for drift in shape["drifts"]], style))
    if details:
        blocks += ["\n".join(_details(drift)) for drift in shape["drifts"]]
    elif shape["drifts"]:
        blocks.append("gitops-agent drift AGENT shows the evidence and the fields that differ")
    if shape["findings"] and details:
        blocks.append(findings_text(shape["findings"], style))
    return page(blocks, style)


def headline(shape: Shape) -> str:
    """One line: how many agents drifted, from what."""
    much = f"{shape['drifted']} of {counted(shape['agents'], 'agent')} drifted"
    unseen = ", but some could not be looked at" if shape["unreachable"] else ""
    return f"{shape['instance']}: {much if shape['drifted'] else 'no drift'} at {short(shape['commit'])}{unseen}"


def _row(drift: Shape, now: float) -> Row:
    return [
        drift["agent"],
        own_name(drift["resource"]),
        drift["class"],
        drift["reason"],
        drift["confidence"],
        ago(epoch(drift["since"]), now),
        Cell(_intention(drift), (_COLOURS.get(drift["decision"], "yellow"),)),
    ]


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
