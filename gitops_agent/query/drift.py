"""Drift reports on demand: what is live against what is in force."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gitops_agent.errors import UsageError
from gitops_agent.model.key import AgentKey
from gitops_agent.model.observation import Observation
from gitops_agent.model.plan import Plan
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.status import AgentStatus
from gitops_agent.pipeline import Pipeline
from gitops_agent.ports import Clock
from gitops_agent.report.drift import DriftReport, Past, drifts, only
from gitops_agent.support.secrets import Redactor

SEEN = 200
"""How many of the newest observations of one agent are searched for the beginning of its drift."""


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
