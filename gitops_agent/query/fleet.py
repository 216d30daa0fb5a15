"""Answers from the journal alone: what ``status``, ``explain``, ``history`` and ``workflows`` show.

Reads only, needs no lock, works while a daemon runs, and says how old its knowledge is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gitops_agent.errors import UsageError
from gitops_agent.model.control import freezes
from gitops_agent.model.names import listed, named
from gitops_agent.model.status import ConditionType, Phase
from gitops_agent.report.json_shapes import Explanation, FleetStatus
from gitops_agent.report.words import is_about
from gitops_agent.status.findings import current_findings

if TYPE_CHECKING:
    from gitops_agent.journal.reader import SqlReader
    from gitops_agent.model.finding import Finding
    from gitops_agent.model.key import AgentKey
    from gitops_agent.model.passes import PassResult
    from gitops_agent.model.state import State
    from gitops_agent.model.status import AgentStatus, CommitRecord
    from gitops_agent.ports import Clock
    from gitops_agent.report.workflows import WorkflowInputs
    from gitops_agent.settings import Settings
    from gitops_agent.support.secrets import Redactor

MAX_ACTIONS = 100_000
"""More actions than the journal keeps of any agent within its retention."""

SHOWN_ACTIONS = 20
"""How many of the newest actions ``explain`` shows at first."""

SEARCHED_ACTIONS = 20_000
"""How many of the newest actions are searched for the name of an agent that is gone."""

SUGGESTED_NAMES = 10
_TURNED_DOWN = (Phase.BLOCKED, Phase.INVALID, Phase.REFUSED)


class FleetReader:
    """One journal, read for people."""

    def __init__(self, journal: SqlReader, settings: Settings, clock: Clock, redactor: Redactor) -> None:
        self.journal = journal
        self.redactor = redactor
        self.settings = settings
        self._clock = clock

    def fleet(self, agent: AgentKey | None = None) -> FleetStatus:
        """The last reported state of the fleet, or of one agent (none, when it is gone)."""
        state, now = self.journal.state(), self._clock.now()
        found = current_findings(state)
        statuses = _statuses(state, agent)
        return FleetStatus(
            instance=self.settings.instance,
            commit=state.source.head,
            enforced=state.rollout.enforced,
            phase=state.head.phase if state.head else None,
            statuses=statuses,
            findings=found if agent is None else _concerning(agent, next(iter(statuses), None), found, state.head),
            journal_age=_age(state, now),
            at=now,
            rollout=state.rollout.rollout,
        )

    def explain(self, agent: AgentKey, *, everything: bool = False) -> Explanation:
        """Everything known about one agent."""
        state, now = self.journal.state(), self._clock.now()
        head, status = state.head, state.status.agents.get(agent)
        own_commit = status.observed_commit if status else state.rollout.enforced
        turned_down = head.findings if head and status and head.sha != status.observed_commit else ()
        concerning = _concerning(agent, status, current_findings(state), head)
        return Explanation(
            agent=agent,
            now=now,
            status=status,
            enforced=self.journal.commit_record(own_commit) if own_commit else None,
            head=head,
            entries=self.journal.entries(agent=agent, limit=MAX_ACTIONS if everything else SHOWN_ACTIONS),
            attempts={key: each for key, each in state.reconcile.attempts.items() if key.agent == agent},
            findings=[finding for finding in concerning if finding not in turned_down],
            journal_age=_age(state, now),
        )

    def workflows(self) -> WorkflowInputs:
        """What is known of everything in flight."""
        from gitops_agent.report.workflows import WorkflowInputs

        state, now = self.journal.state(), self._clock.now()
        rollout = state.rollout.rollout
        followed = self.journal.commit_record(rollout.commit) if rollout is not None else None
        return WorkflowInputs(
            now=now,
            intents=tuple(state.reconcile.open_intents.values()),
            bases=state.reconcile.bases,
            attempts=state.reconcile.attempts,
            statuses=state.status.agents,
            findings=current_findings(state),
            rollout=rollout,
            ending=self._is_ending,
            journal_age=_age(state, now),
            head=state.head,
            rollout_since=followed.started_at if followed is not None else None,
            freezes=freezes(state.control.controls, now),
        )

    def _is_ending(self, agent: AgentKey) -> bool:
        from gitops_agent.report.workflows import ENDS

        return any(entry.verb in ENDS for entry in self.journal.entries(agent=agent, limit=1))

    def find(self, text: str) -> AgentKey:
        """The agent a person means, also one that is gone; UsageError with what there is otherwise."""
        known = self.journal.state().status.agents
        gone = (entry.key.agent for entry in self.journal.entries(limit=SEARCHED_ACTIONS))
        return one_agent(text, named(text, known) or named(text, set(gone)), known)


def one_agent(text: str, matches: Sequence[AgentKey], known: Iterable[AgentKey]) -> AgentKey:
    """The only match; UsageError with the names there are when a text names none or several."""
    if len(matches) == 1:
        return matches[0]
    problem = "more than one agent is" if matches else "no agent is"
    raise UsageError(
        f"{problem} called {text!r}", hint=f"agents: {listed(text, matches, list(known), SUGGESTED_NAMES)}"
    )


def _statuses(state: State, agent: AgentKey | None) -> list[AgentStatus]:
    if agent is None:
        return list(state.status.agents.values())
    status = state.status.agents.get(agent)
    return [] if status is None else [status]


def _age(state: State, now: float) -> float | None:
    last = state.status.last_pass
    return None if last is None else max(0.0, now - last)


def _concerning(
    agent: AgentKey, status: AgentStatus | None, findings: Iterable[Finding], head: CommitRecord | None
) -> list[Finding]:
    """The findings about one agent, its document, the source, the freeze it is under, or a newest commit that is
    not enforced."""
    file = status.origin.rpartition(":")[0] if status else ""
    frozen = status is not None and status.has(ConditionType.FROZEN)
    scopes = {"gitops-agent.yaml", "*", agent.tenant} if frozen else set()
    turned_down = head.findings if head and head.phase in _TURNED_DOWN else ()
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
