"""Drift reports on demand and on schedule: made of what a look or a pass found, written to a file or as a note.

A scheduled report costs no look of its own: the job asks for a pass over everything, and the report is made of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Protocol

import structlog

from gitops_agent.errors import GitopsAgentError, UsageError
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Observation
from gitops_agent.model.plan import Plan
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.status import AgentStatus
from gitops_agent.pipeline import Pipeline
from gitops_agent.ports import Clock
from gitops_agent.report.drift import DriftReport, Past, drift_shape, drifts, only
from gitops_agent.report.drift_text import drift_text, headline
from gitops_agent.report.json_text import dump_json
from gitops_agent.report.yaml_text import to_yaml
from gitops_agent.status.proceedings import PassRecord
from gitops_agent.support.secrets import Redactor

SEEN = 200
"""How many of the newest observations of one agent are searched for the beginning of its drift."""

NOTE_LIMIT = 60_000
"""Bytes of a note; what does not fit is counted."""

log = structlog.get_logger(__name__)


class Records(Protocol):
    """What a report needs of the journal."""

    def statuses(self, agents: Collection[AgentKey] | None = None) -> Mapping[AgentKey, AgentStatus]:
        """The last reported status of some agents, or of all."""

    def observations(self, agent: AgentKey, *, limit: int = 100) -> Sequence[Observation]:
        """What was seen of an agent each time it changed, newest first."""


@dataclass(frozen=True, slots=True)
class Reporter:
    """Makes reports: a plan for what is in force, with what the journal remembers of it."""

    instance: str
    records: Records
    clock: Clock
    redactor: Redactor

    def report(self, plan: Plan, snapshot: Snapshot, unreachable: Mapping[str, str]) -> DriftReport:
        """The report on one look at everything."""
        at = self.clock.now()
        concerned = {action.key.agent for action in plan.actions}
        past = Past(
            self.records.statuses(concerned) if concerned else {},
            lambda agent: self.records.observations(agent, limit=SEEN),
        )
        return DriftReport(
            instance=self.instance,
            commit=plan.commit,
            at=at,
            agents=len(snapshot.agents),
            drifts=drifts(plan, past, at),
            findings=plan.findings,
            unreachable=tuple(sorted(unreachable.items())),
        )


@dataclass(frozen=True, slots=True)
class Drifter:
    """``drift``: looks at the live systems and at what is in force, writes nothing, takes no lock."""

    pipeline: Pipeline
    reporter: Reporter

    @property
    def redactor(self) -> Redactor:
        """What cleans everything shown."""
        return self.reporter.redactor

    def report(self, agent: str | None = None, tenant: str | None = None) -> DriftReport:
        """The report on everything, on one agent or on one tenant; UsageError when there is none of that name."""
        plan, look, snapshot = self.pipeline.planning.survey()
        whole = self.reporter.report(plan, snapshot, look.observed.unreachable)
        known = {*snapshot.agents, *(drift.action.key.agent for drift in whole.drifts)}
        if tenant is not None and all(key.tenant != tenant for key in known):
            names = ", ".join(sorted({key.tenant for key in known})) or "none yet"
            raise UsageError(f"no agent has the tenant {tenant!r}", hint=f"tenants: {names}")
        return only(whole, agent=_named(agent, known) if agent else None, tenant=tenant)


def _named(text: str, known: Collection[AgentKey]) -> AgentKey:
    matches = sorted(key for key in known if text in (str(key), key.name))
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(map(str, matches or sorted(known)[:10])) or "none yet"
    raise UsageError(f"{'more than one' if matches else 'no'} agent is called {text!r}", hint=f"agents: {names}")


Writer = Callable[[DriftReport], None]


class DriftSchedule:
    """Scheduled reports: one after the first pass over everything, then one for each ``run``.

    Reports are written on a thread of their own, because a note goes to the remote; a failure is logged, and the
    next report tries again.
    """

    def __init__(self, reporter: Reporter, writers: Sequence[Writer], wake: Callable[[], None]) -> None:
        self._reporter = reporter
        self._writers = writers
        self._wake = wake
        self._due = True
        self._writing: threading.Thread | None = None

    def run(self) -> None:
        """A report is due: ask for a pass over everything."""
        self._due = True
        self._wake()

    def witness(self, pass_: PassRecord) -> tuple[Finding, ...]:
        """Take what a pass found, if a report is due and the pass was about everything."""
        busy = self._writing is not None and self._writing.is_alive()
        if not self._due or busy or pass_.look.scope is not None:
            return ()
        self._due = False
        found = (pass_.plan, pass_.snapshot, pass_.look.observed.unreachable)
        self._writing = threading.Thread(target=self._write, args=found, name="drift", daemon=True)
        self._writing.start()
        return ()

    def next_due(self) -> float | None:
        """Whoever wakes us knows when."""
        return None

    def close(self, timeout: float = 5.0) -> None:
        """Wait a moment for a report that is being written."""
        if self._writing is not None:
            self._writing.join(timeout)

    def _write(self, plan: Plan, snapshot: Snapshot, unreachable: Mapping[str, str]) -> None:
        for write in self._writers:
            try:
                write(self._reporter.report(plan, snapshot, unreachable))
            except (GitopsAgentError, OSError) as problem:
                log.warning("the drift report was not written", reason=str(problem))
            except Exception:  # a report is never in the way of anything
                log.exception("the drift report was not written")


def write_drift_report(report: DriftReport, path: Path, redactor: Redactor) -> None:
    """Write a report to a file, all of it or nothing: JSON when the name ends in ``.json``, else text."""
    if path.suffix == ".json":
        text = dump_json(redactor.tree(drift_shape(report)))
    else:
        text = drift_text(redactor.tree(drift_shape(report)), details=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).chmod(0o644)
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def drift_note(report: DriftReport, redactor: Redactor) -> str:
    """A report as a note: one line for people, an empty line, YAML. The drifts that do not fit are counted."""
    shape = redactor.tree({"apiVersion": "gitops-agent.dev/v1", "kind": "DriftReport", **drift_shape(report)})
    drifts_, kept = shape["drifts"], len(shape["drifts"])
    while True:
        more = {"andMore": len(drifts_) - kept} if kept < len(drifts_) else {}
        yaml = to_yaml({**shape, "drifts": drifts_[:kept], **more})
        if len(yaml.encode()) <= NOTE_LIMIT or not kept:
            return f"{headline(shape)}\n\n{yaml}"
        kept //= 2
