"""The sink that writes drift reports on a schedule, to a file or as a note.

A scheduled report costs no observation of its own: the job asks for a pass over everything, and the report is made
from that pass. An earlier one is not owed to anybody, so nothing is kept across restarts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from gitops_agent.errors import GitopsAgentError
from gitops_agent.model.passes import PassRecord, PassResult
from gitops_agent.model.plan import Plan
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.ports import Sink
from gitops_agent.report.drift import DriftReport, drift_shape
from gitops_agent.report.drift_text import drift_text, headline
from gitops_agent.report.json_text import dump_json
from gitops_agent.report.yaml_text import to_yaml
from gitops_agent.support.atomic_file import write_atomic
from gitops_agent.support.secrets import Redactor

MAX_NOTE_BYTES = 60_000
"""Bytes of a note; what does not fit is counted."""

Reporting = Callable[[Plan, Snapshot, Mapping[str, str]], DriftReport]
"""Makes the report on one observation of everything; the last argument names unreachable drivers."""

Writer = Callable[[DriftReport], None]

log = structlog.get_logger(__name__)


class DriftReportSink(Sink):
    """Writes one report after the first pass over everything, then one for each ``run``.

    Reports are written on a thread of their own, because a note goes to the remote; a failure is logged, and the
    next report tries again.
    """

    name = "drift_report"

    def __init__(self, reporting: Reporting, writers: Sequence[Writer], wake: Callable[[], None]) -> None:
        self._reporting = reporting
        self._writers = writers
        self._wake = wake
        self._due = True
        self._writing: threading.Thread | None = None

    def run(self) -> None:
        """Ask for a pass over everything and a report on it; called by the schedule."""
        self._due = True
        self._wake()

    def on_pass(self, result: PassResult) -> None:
        """Start to write a report if one is due and the pass observed everything."""
        record = result.record
        busy = self._writing is not None and self._writing.is_alive()
        if not self._due or busy or record is None or record.live.scope is not None:
            return
        self._due = False
        self._writing = threading.Thread(target=self._write, args=(record,), name="drift", daemon=True)
        self._writing.start()

    def close(self, timeout: float = 5.0) -> None:
        """Wait a moment for a report that is being written."""
        if self._writing is not None:
            self._writing.join(timeout)

    def _write(self, record: PassRecord) -> None:
        for write in self._writers:
            try:
                write(self._reporting(record.plan, record.snapshot, record.live.observed.unreachable))
            except (GitopsAgentError, OSError) as problem:
                log.warning("the drift report was not written", reason=str(problem))
            except Exception:
                log.exception("the drift report was not written")


def write_drift_report(report: DriftReport, path: Path, redactor: Redactor) -> None:
    """Write a report to a file, all of it or nothing: JSON when the name ends in ``.json``, else text."""
    shape = redactor.tree(drift_shape(report))
    text = dump_json(shape) if path.suffix == ".json" else drift_text(shape, details=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, f"{text}\n".encode(), mode=0o644)


def drift_note(report: DriftReport, redactor: Redactor) -> str:
    """A report as a note: one line for people, an empty line, YAML. The drifts that do not fit are counted."""
    shape = redactor.tree({"apiVersion": "gitops-agent.dev/v1", "kind": "DriftReport", **drift_shape(report)})
    drifts, kept = shape["drifts"], len(shape["drifts"])
    while True:
        more = {"andMore": len(drifts) - kept} if kept < len(drifts) else {}
        yaml = to_yaml({**shape, "drifts": drifts[:kept], **more})
        if len(yaml.encode()) <= MAX_NOTE_BYTES or not kept:
            return f"{headline(shape)}\n\n{yaml}"
        kept //= 2
