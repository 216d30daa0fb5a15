"""Drift reports on demand: what is live against what is in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gitops_agent.errors import UsageError
from gitops_agent.model.names import named
from gitops_agent.query.fleet import one_agent
from gitops_agent.report.drift import DriftReport, Past, drifts, only

if TYPE_CHECKING:
    from gitops_agent.journal.reader import SqlReader
    from gitops_agent.model.plan import Plan
    from gitops_agent.model.snapshot import Snapshot
    from gitops_agent.ports import Clock
    from gitops_agent.query.plan_preview import Planner
    from gitops_agent.support.secrets import Redactor

SEARCHED_OBSERVATIONS = 200
"""How many of the newest observations of one agent are searched for the beginning of its drift."""


@dataclass(frozen=True, slots=True)
class Reporter:
    """Makes reports: a plan for what is in force, with what the journal remembers of it."""

    instance: str
    journal: SqlReader
    clock: Clock
    redactor: Redactor

    def report(self, plan: Plan, snapshot: Snapshot, unreachable: Mapping[str, str]) -> DriftReport:
        """The report on one observation of everything."""
        at = self.clock.now()
        past = Past(
            self.journal.state().status.agents,
            lambda agent: self.journal.observations(agent, limit=SEARCHED_OBSERVATIONS),
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
    """``drift``: observes the live systems and plans for what is in force; writes nothing, takes no lock."""

    planner: Planner
    reporter: Reporter

    @property
    def redactor(self) -> Redactor:
        """Masks everything shown."""
        return self.reporter.redactor

    def report(self, agent: str | None = None, tenant: str | None = None) -> DriftReport:
        """The report on everything, on one agent or on one tenant; UsageError when there is none of that name."""
        found = self.planner.survey()
        whole = self.reporter.report(found.plan, found.in_force, found.live.observed.unreachable)
        known = {*found.in_force.agents, *(drift.action.key.agent for drift in whole.drifts)}
        if tenant is not None and all(key.tenant != tenant for key in known):
            names = ", ".join(sorted({key.tenant for key in known})) or "none yet"
            raise UsageError(f"no agent has the tenant {tenant!r}", hint=f"tenants: {names}")
        return only(whole, agent=one_agent(agent, named(agent, known), known) if agent else None, tenant=tenant)
