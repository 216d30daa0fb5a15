"""``gitops-agent workflows`` for people and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gitops_agent.model.quantity import counted
from gitops_agent.report.json_shapes import Shape
from gitops_agent.report.moments import ago, iso_or_none, span
from gitops_agent.report.table import PLAIN, Cell, Style, table
from gitops_agent.report.words import sentence
from gitops_agent.report.workflows import Known, Workflow, hook_counts, workflows
from gitops_agent.support.text import escape_control


def workflows_shape(known: Known) -> Shape:
    """The answer of ``workflows -o json``."""
    found = workflows(known)
    return {
        "stuck": sum(each.stuck for each in found),
        "workflows": [_shape(each) for each in found],
        "hooks": hook_counts(known.bases),
        "journalAgeSeconds": None if known.journal_age is None else round(max(0.0, known.journal_age), 3),
    }


def _shape(each: Workflow) -> Shape:
    return {
        "kind": str(each.sort),
        "subject": each.subject,
        "stuck": each.stuck,
        "done": list(each.done),
        "next": each.next or None,
        "since": iso_or_none(each.since),
        "actor": each.actor or None,
        "commit": each.commit or None,
        "reason": each.reason or None,
        "message": each.message,
        "wayOut": each.way_out or None,
    }


def workflows_text(known: Known, style: Style = PLAIN) -> str:
    """A table of what is in flight, what is stuck first, each of those with its way out."""
    found = workflows(known)
    age = f" (as of {span(known.journal_age)} ago)" if known.journal_age is not None else ""
    if not found:
        return f"Nothing is in flight.{age}\n{_hooks(known)}"
    stuck = [each for each in found if each.stuck]
    head = f"{counted(len(found), 'workflow')} in flight, {len(stuck)} stuck{age}"
    rows = [_row(each, known.now) for each in found]
    lines = [head, "", table(("KIND", "SUBJECT", "CHECKPOINT", "SINCE", "STATE"), rows, style)]
    for each in stuck:
        lines += ["", *_way_out(each, style)]
    return "\n".join([*lines, "", _hooks(known)])


def _row(each: Workflow, now: float) -> tuple[Cell | str, ...]:
    total = len(each.done) + (1 if each.next else 0)
    place = f"{len(each.done)} done, next {each.next}" if each.next else f"{len(each.done)} of {total} done"
    word = Cell(f"stuck: {each.reason}", ("bold", "red")) if each.stuck else Cell(each.message or "in flight")
    return str(each.sort), each.subject, place, ago(each.since, now) if each.since is not None else "-", word


def _way_out(each: Workflow, style: Style) -> Iterator[str]:
    yield f"{style.paint(escape_control(each.subject), 'bold')}: {sentence(escape_control(each.message))}"
    yield f"    {sentence(escape_control(each.way_out))}"


def _hooks(known: Known) -> str:
    counts = {name: count for name, count in hook_counts(known.bases).items() if count}
    said = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f"Hooks: {said}." if said else "No hook is on record."
