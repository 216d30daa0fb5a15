"""What gitops-agent reported, moment by moment, and which of it was not true when it was made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.pressure.truth import Truth

NOTICED_SECONDS = 5.0
"""How long an end may go unnoticed: by event it takes milliseconds, on two busy cores perhaps seconds."""


@dataclass(frozen=True)
class StatusReport:
    """The fleet as ``status`` had it. It was made after ``since`` (the look before) and before ``at``."""

    since: float
    at: float
    answer: Mapping[str, Any]


@dataclass(frozen=True)
class NoteReport:
    """The note on a commit, as the remote had it. ``pushed``: when the commit was. ``versions``: what it asks."""

    pushed: float
    at: float
    sha: str
    note: Mapping[str, Any]
    versions: Mapping[str, str]


def false_statuses(report: StatusReport, truth: Truth) -> Iterator[str]:
    """Agents that are called Ready by a process that had been gone for longer than may go unnoticed."""
    for row in report.answer["agents"]:
        name = row["agent"].rpartition("/")[2]
        for pid in _pids(row) if row["ready"] and row["lifecycle"] == "Running" else ():
            span = truth.knows(name, pid)
            if span is None:
                yield f"{name} is called Ready as pid {pid}, which never was one of its processes"
            elif span.ended is not None and span.ended < report.since - NOTICED_SECONDS:
                gone = report.since - span.ended
                yield f"{name} is called Ready as pid {pid}, which had been gone for at least {gone:.1f} s"


def false_notes(report: NoteReport, truth: Truth) -> Iterator[str]:
    """A note that says Converged of a commit whose fleet was never there as a whole."""
    phase = (report.note.get("now") or report.note).get("phase")
    if phase == "Converged" and not truth.all_there(report.versions, report.pushed, report.at):
        yield f"the note on {report.sha[:10]} says Converged, and its fleet was never there as a whole"


def _pids(row: Mapping[str, Any]) -> Iterator[int]:
    for resource in row["resources"]:
        for replica in resource["live"].get("replicas", ()):
            if "pid" in replica:
                yield int(replica["pid"])
