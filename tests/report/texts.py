"""Texts as the command line prints them: model values to a shape, masked, to text."""

from __future__ import annotations

from collections.abc import Sequence

from gitops_agent.model.finding import Finding
from gitops_agent.model.plan import Plan
from gitops_agent.model.status import CommitRecord
from gitops_agent.report import drift as drift_texts
from gitops_agent.report import explain_text as explain_texts
from gitops_agent.report import plan_text as plan_texts
from gitops_agent.report import status_text as status_texts
from gitops_agent.report import words
from gitops_agent.report import workflows as workflows_texts
from gitops_agent.report.json_shapes import findings_shape, history_shape, plan_shape, validate_shape
from gitops_agent.report.render import PLAIN, Style
from gitops_agent.report.workflows import WorkflowInputs, workflows_shape
from gitops_agent.support.secrets import Redactor

from .values import Explanation, FleetStatus, explanation_shape, status_shape

clean = Redactor().tree


def findings_text(findings: Sequence[Finding]) -> str:
    return words.findings_text(clean(findings_shape(findings)))


def validate_text(findings: Sequence[Finding], style: Style = PLAIN) -> str:
    return status_texts.validate_text(clean(validate_shape(findings)), style)


def status_text(fleet: FleetStatus, style: Style = PLAIN, *, wide: bool = False) -> str:
    return status_texts.status_text(clean(status_shape(fleet)), style, fleet.at, wide=wide)


def agent_text(fleet: FleetStatus, style: Style = PLAIN) -> str:
    return status_texts.agent_text(clean(status_shape(fleet)), style, fleet.at)


def history_text(records: Sequence[CommitRecord], style: Style = PLAIN) -> str:
    return status_texts.history_text(clean(history_shape(records)), style)


def plan_text(plan: Plan, style: Style = PLAIN) -> str:
    return plan_texts.plan_text(clean(plan_shape(plan)), style)


def explain_text(known: Explanation, style: Style = PLAIN, *, everything: bool = False) -> str:
    shape = clean(explanation_shape(known))
    return explain_texts.explain_text(shape, style, now=known.now, everything=everything)


def drift_text(report: words.Shape, style: Style = PLAIN, *, details: bool = False) -> str:
    return drift_texts.drift_text(clean(report), style, details=details)


def workflows_text(known: WorkflowInputs, style: Style = PLAIN) -> str:
    return workflows_texts.workflows_text(clean(workflows_shape(known)), style, now=known.now)
