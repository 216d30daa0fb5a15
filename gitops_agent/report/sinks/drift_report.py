"""The sink that writes drift reports on a schedule, to a file or as a note.

A scheduled report costs no observation of its own: the job asks for a pass over everything, and the report is made
from that pass. It is written off the pass, because a note goes to the remote. Nothing is kept across restarts: a
start makes a report anyway.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from gitops_agent.model.passes import Observed, PassRecord, PassResult
from gitops_agent.model.plan import Plan
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.ports import CommitChange, Sink
from gitops_agent.report.drift import drift_text, headline
from gitops_agent.report.json_text import dump_json
from gitops_agent.report.words import Shape
from gitops_agent.report.yaml_text import to_yaml
from gitops_agent.support.atomic_file import write_atomic

_MAX_NOTE_BYTES = 60_000  # what does not fit is counted

Reporting = Callable[[Plan, Snapshot, Observed], Shape]
"""Makes the report on one observation of everything, masked."""

Writer = Callable[[Shape], None]


class DriftReportSink(Sink):
    """Writes one report after the first pass over everything, then one for each ``run``."""

    name = "drift_report"

    def __init__(self, reporting: Reporting, writers: Sequence[Writer], wake: Callable[[], None]) -> None:
        self._reporting = reporting
        self._writers = writers
        self._wake = wake
        self._due = True
        self._record: PassRecord | None = None

    def run(self) -> None:
        """Ask for a pass over everything and a report on it; called by the schedule."""
        self._due = True
        self._wake()

    def on_pass(self, result: PassResult) -> None:
        """Keep what a pass found, if a report is due and the pass observed everything."""
        record = result.record
        if self._due and record is not None and record.live.scope is None:
            self._due, self._record = False, record

    def has_work(self) -> bool:
        """Whether a report is to be written."""
        return self._record is not None

    def deliver(self, changes: Sequence[CommitChange]) -> None:
        """Write the report, with every writer; the first error of theirs is raised at the end."""
        del changes
        record, errors = self._record, []
        if record is None:
            return
        report = self._reporting(record.plan, record.snapshot, record.live.observed)
        for write in self._writers:
            try:
                write(report)
            except Exception as problem:
                errors.append(problem)
        if errors:
            raise errors[0]
        if self._record is record:
            self._record = None


def write_drift_report(report: Shape, path: Path) -> None:
    """Write a report to a file, all of it or nothing: JSON when the name ends in ``.json``, else text."""
    text = dump_json(report) if path.suffix == ".json" else drift_text(report, details=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, f"{text}\n".encode(), mode=0o644)


def drift_note(report: Shape) -> str:
    """A report as a note: one line for people, an empty line, YAML. The drifts that do not fit are counted."""
    shape = {"apiVersion": "gitops-agent.dev/v1", "kind": "DriftReport", **report}
    drifts, kept = report["drifts"], len(report["drifts"])
    while True:
        more = {"andMore": len(drifts) - kept} if kept < len(drifts) else {}
        yaml = to_yaml({**shape, "drifts": drifts[:kept], **more})
        if len(yaml.encode()) <= _MAX_NOTE_BYTES or not kept:
            return f"{headline(report)}\n\n{yaml}"
        kept //= 2
