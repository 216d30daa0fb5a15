"""Applying is recording: the base that reconcile writes afterwards is the whole effect."""

from __future__ import annotations

from gitops_agent.model.outcome import Applied
from gitops_agent.model.plan import Action


class HealthApplier:
    """The writing part of the health driver."""

    def unchanged(self, action: Action) -> bool:  # noqa: ARG002 - nobody but us writes our record
        """Always."""
        return True

    def apply(self, action: Action, intent: str) -> Applied:  # noqa: ARG002 - nothing to repeat
        """Say what was recorded."""
        return Applied("recorded what is asked of its health" if action.desired else "forgot its health record")
