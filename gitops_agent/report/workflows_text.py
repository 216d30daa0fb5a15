"""``workflows`` for people, from its JSON shape. Pure."""

from gitops_agent.model.quantity import ago, counted, epoch
from gitops_agent.report.render import PLAIN, Cell, Column, Row, Style, page, table
from gitops_agent.report.status_text import as_of
from gitops_agent.report.words import Shape, sentence
from gitops_agent.support.text import escape_control

_COLUMNS = (
    Column("KIND"),
    Column("SUBJECT", folds=True),
    Column("CHECKPOINT", drop=1, folds=True),
    Column("SINCE", drop=2),
    Column("STATE", folds=True),
)


def workflows_text(shape: Shape, style: Style = PLAIN, *, now: float) -> str:
    """A table of what is in flight, what is stuck first, each of those with its way out."""
    found, age = shape["workflows"], as_of(shape)
    if not found:
        return page([f"Nothing is in flight.{age}\n{_hooks(shape)}"], style)
    blocks = [f"{counted(len(found), 'workflow')} in flight, {shape['stuck']} stuck{age}"]
    blocks.append(table(_COLUMNS, [_row(each, now) for each in found], style))
    blocks += [_way_out(each, style) for each in found if each["stuck"]]
    return page([*blocks, _hooks(shape)], style)


def _row(each: Shape, now: float) -> Row:
    done, following = len(each["done"]), each["next"]
    place = f"{done} done, next {following}" if following else f"{done} of {done} done"
    state = (
        Cell(f"stuck: {each['reason'] or ''}", ("bold", "red"))
        if each["stuck"]
        else each["message"] or "in flight"
    )
    since = ago(epoch(each["since"]), now) if each["since"] is not None else "-"
    return [each["kind"], each["subject"], place, since, state]


def _way_out(each: Shape, style: Style) -> str:
    subject = style.paint(escape_control(each["subject"]), "bold")
    way_out = sentence(escape_control(each["wayOut"] or ""))
    return f"{subject}: {sentence(escape_control(each['message']))}\n    {way_out}"


def _hooks(shape: Shape) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in shape["hooks"].items() if count)
    return f"Hooks: {counts}." if counts else "No hook is on record."
