"""FleetReader from the journal alone: what ``status``, ``explain``, ``history`` and ``logs`` say.

Reads only, needs no lock, works while a daemon runs, and says how old its knowledge is.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import orjson

from gitops_agent.drivers.local.agent_dir import AgentDir
from gitops_agent.errors import UsageError
from gitops_agent.model.control import freezes
from gitops_agent.model.finding import Finding, unpacked
from gitops_agent.model.key import AgentKey
from gitops_agent.model.names import nearest
from gitops_agent.model.status import AgentStatus, CommitRecord, ConditionType, Phase
from gitops_agent.ports import Clock, JournalReader
from gitops_agent.proposals.import_queue import MEMORY, proposed
from gitops_agent.report.json_shapes import Explanation, FleetStatus
from gitops_agent.report.words import is_about
from gitops_agent.report.workflows import ENDS, WorkflowInputs
from gitops_agent.rollout.waves import load_rollout
from gitops_agent.settings import Settings
from gitops_agent.source.tracker import recalled_problem
from gitops_agent.status.proceedings import PassResult, lasting
from gitops_agent.support.secrets import Redactor

ALL_ENTRIES = 100_000
"""More actions than the journal keeps of any agent within its retention."""

SEARCHED = 20_000
"""How many of the newest actions are searched for the name of an agent that is gone."""


class FleetReader:
    """One journal, read for people."""

    def __init__(self, journal: JournalReader, settings: Settings, clock: Clock, redactor: Redactor) -> None:
        self.journal = journal
        self.redactor = redactor
        self._settings = settings
        self._clock = clock

    def fleet(self, agent: AgentKey | None = None) -> FleetStatus:
        """The last reported state of the fleet, or of one agent (none, when it is gone)."""
        statuses = self.journal.statuses(None if agent is None else [agent])
        head = self._head()
        found = self._findings(head)
        return FleetStatus(
            instance=self._settings.instance,
            commit=head.sha if head else None,
            enforced=self.journal.get("enforced"),
            phase=head.phase if head else None,
            statuses=list(statuses.values()),
            findings=found if agent is None else _concerning(agent, statuses.get(agent), found, head),
            journal_age=self._age(),
            at=self._clock.now(),
            rollout=load_rollout(self.journal.get("rollout")),
        )

    def explain(self, key: AgentKey, *, everything: bool = False) -> Explanation:
        """Everything known about one agent."""
        status = self.journal.statuses([key]).get(key)
        own_commit = status.observed_commit if status else self.journal.get("enforced")
        head = self._head()
        own = {resource: attempt for resource, attempt in self.journal.attempts().items() if resource.agent == key}
        turned_down = head.findings if head and status and head.sha != status.observed_commit else ()
        concerning = _concerning(key, status, self._findings(head), head)
        return Explanation(
            agent=key,
            now=self._clock.now(),
            status=status,
            enforced=self.journal.commit(own_commit) if own_commit else None,
            head=head,
            entries=self.journal.entries(agent=key, limit=ALL_ENTRIES if everything else 20),
            attempts=own,
            findings=[finding for finding in concerning if finding not in turned_down],
            journal_age=self._age(),
        )

    def workflows(self) -> WorkflowInputs:
        """What is known of everything in flight."""
        journal, head = self.journal, self._head()
        rollout = load_rollout(journal.get("rollout"))
        followed = journal.commit(rollout.commit) if rollout is not None else None
        return WorkflowInputs(
            now=self._clock.now(),
            intents=journal.open_intents(),
            bases=journal.bases(),
            attempts=journal.attempts(),
            statuses=journal.statuses(),
            findings=self._findings(head),
            rollout=rollout,
            ending=self._is_ending,
            journal_age=self._age(),
            head=head,
            rollout_since=followed.started_at if followed is not None else None,
            freezes=freezes(journal.controls(), self._clock.now()),
        )

    def _is_ending(self, agent: AgentKey) -> bool:
        return any(entry.verb in ENDS for entry in self.journal.entries(agent=agent, limit=1))

    def find(self, text: str) -> AgentKey:
        """The agent a person means, also one that is gone; UsageError with what there is otherwise."""
        known = sorted(self.journal.statuses())
        matches = _named(text, known) or _named(text, self._gone())
        if len(matches) == 1:
            return matches[0]
        names = ", ".join(map(str, matches or nearest(text, known)[:10])) or "none yet"
        problem = "more than one agent is" if matches else "no agent is"
        raise UsageError(f"{problem} called {text!r}", hint=f"agents: {names}")

    def log_files(self, key: AgentKey) -> list[Path]:
        """The files an agent's output goes to, as its status names them; of one that is gone, those it left."""
        status = self.journal.statuses([key]).get(key)
        live = [resource.live for resource in status.resources] if status else []
        named = [str(shown["log"]) for shown in live if shown.get("log")]
        left = AgentDir(str(self._settings.state)).log(key, 0)
        folders = {Path(path).parent for path in named or [left]}
        return sorted(path for folder in folders for path in folder.glob("*.log"))

    def _gone(self) -> list[AgentKey]:
        """The agents that only history knows."""
        return sorted({entry.key.agent for entry in self.journal.entries(limit=SEARCHED)})

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
        found += proposed(self.journal.get(MEMORY))
        return tuple(dict.fromkeys(((problem,) if problem else ()) + (lasting(head) if head else ()) + found))


def _named(text: str, agents: Iterable[AgentKey]) -> list[AgentKey]:
    return [key for key in agents if text in (str(key), key.name)]


def _concerning(
    agent: AgentKey, status: AgentStatus | None, findings: Iterable[Finding], head: CommitRecord | None
) -> list[Finding]:
    """What concerns one agent: said of it, of its document, of the source, of the freeze it is under, or of a
    newest commit that is not enforced."""
    file = status.origin.rpartition(":")[0] if status else ""
    frozen = status is not None and any(said.type is ConditionType.FROZEN for said in status.conditions)
    scopes = {"gitops-agent.yaml", "*", agent.tenant} if frozen else set()
    turned_down = head.findings if head and head.phase in (Phase.BLOCKED, Phase.INVALID, Phase.REFUSED) else ()
    return [
        finding
        for finding in findings
        if is_about(finding, agent)
        or finding.code.startswith("Source")
        or (file and finding.address.startswith(f"{file}:"))
        or (finding.code in ("Frozen", "MassDrift") and finding.address in scopes)
        or finding in turned_down
    ]


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
        rollout=result.rollout,
    )
