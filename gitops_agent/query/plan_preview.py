"""The plan of a commit that is not enforced (yet)."""

from __future__ import annotations

from dataclasses import dataclass

from gitops_agent.model.plan import Plan
from gitops_agent.pipeline import Pipeline
from gitops_agent.ports import SnapshotLoader, Source
from gitops_agent.proposals.rollback import revision_named
from gitops_agent.support.secrets import Redactor


@dataclass(frozen=True, slots=True)
class Planner:
    """``plan``: reads the source and the live systems, writes nothing."""

    source: Source
    loader: SnapshotLoader
    pipeline: Pipeline
    redactor: Redactor

    def plan(self, ref: str | None) -> Plan:
        """What would happen if this commit (or the newest) were enforced now."""
        head = self.source.refresh()
        if ref is None:
            self.pipeline.receiver.refuse(head)
        return self.pipeline.planning.preview(self.loader.load(revision_named(self.source, ref) if ref else head))
