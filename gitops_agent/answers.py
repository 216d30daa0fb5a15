"""Answers from the journal alone: what ``status``, ``explain``, ``history`` and ``logs`` say.

Reads only, needs no lock, works while a daemon runs, and says how old its knowledge is.
"""

from __future__ import annotations

from pathlib import Path

import orjson

from gitops_agent.errors import UsageError
from gitops_agent.intake import recalled_problem
from gitops_agent.model.finding import Finding, unpacked
from gitops_agent.model.key import AgentKey
from gitops_agent.model.status import CommitRecord
from gitops_agent.ports import Clock, JournalReader
from gitops_agent.proceedings import PassResult
from gitops_agent.report.explain import Explanation
from gitops_agent.report.redact import Redactor
from gitops_agent.report.shapes import FleetStatus
from gitops_agent.settings import Settings


class Answers:
    """One journal, read for people."""

    def __init__(self, journal: JournalReader, settings: Settings, clock: Clock, redactor: Redactor) -> None:
        self.journal = journal
        self.redactor = redactor
        self._settings = settings
        self._clock = clock

    def fleet(self, agent: str | None = None) -> FleetStatus:
        """The last reported state of the fleet, or of one agent."""
        statuses = self.journal.statuses()
        chosen = [statuses[self.find(agent)]] if agent else list(statuses.values())
        head = self._head()
        return FleetStatus(
            instance=self._settings.instance,
            commit=head.sha if head else None,
            enforced=self.journal.get("enforced"),
            phase=head.phase if head else None,
            statuses=chosen,
            findings=self._findings(head),
            journal_age=self._age(),
            at=self._clock.now(),
        )

    def explain(self, agent: str) -> Explanation:
        """Everything known about one agent."""
        key = self.find(agent)
        status = self.journal.statuses([key]).get(key)
        enforced = self.journal.get("enforced")
        head = self._head()
        own = {resource: attempt for resource, attempt in self.journal.attempts().items() if resource.agent == key}
        return Explanation(
            agent=key,
            now=self._clock.now(),
            status=status,
            enforced=self.journal.commit(enforced) if enforced else None,
            head=head,
            entries=self.journal.entries(agent=key, limit=20),
            attempts=own,
            findings=[f for f in self._findings(head) if str(key) in f.address or f.code.startswith("Source")],
            journal_age=self._age(),
        )

    def find(self, text: str) -> AgentKey:
        """The agent a person means; UsageError with what there is otherwise."""
        known = sorted(self.journal.statuses())
        matches = [key for key in known if text in (str(key), key.name)]
        if len(matches) == 1:
            return matches[0]
        names = ", ".join(map(str, matches or known[:10])) or "none yet"
        problem = "more than one agent is" if matches else "no agent is"
        raise UsageError(f"{problem} called {text!r}", hint=f"agents: {names}")

    def log_files(self, key: AgentKey) -> list[Path]:
        """The files an agent's output goes to, as its status names them."""
        status = self.journal.statuses([key])[key]
        folders = {Path(r.live["log"]).parent for r in status.resources if r.live.get("log")}
        return sorted(path for folder in folders for path in folder.glob("*.log"))

    def _head(self) -> CommitRecord | None:
        sha = self.journal.get("head")
        return self.journal.commit(sha) if sha else None

    def _age(self) -> float | None:
        last = self.journal.get("last_pass")
        return max(0.0, self._clock.now() - float(last)) if last else None

    def _findings(self, head: CommitRecord | None) -> tuple[Finding, ...]:
        """What the source, the newest commit and the last pass gave to say."""
        problem = recalled_problem(self.journal)
        found = unpacked(orjson.loads(self.journal.get("findings") or "[]"))
        return tuple(dict.fromkeys(((problem,) if problem else ()) + (head.findings if head else ()) + found))


def fleet_status(settings: Settings, result: PassResult, now: float) -> FleetStatus:
    """The state of the fleet as a pass left it."""
    return FleetStatus(
        instance=settings.instance,
        commit=result.commit,
        enforced=result.enforced,
        phase=result.phase,
        statuses=list(result.statuses.values()),
        findings=result.findings,
        at=now,
    )
