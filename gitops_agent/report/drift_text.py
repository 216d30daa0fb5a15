"""The drift report for people: how much of what first, then a line for each resource, then the evidence. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gitops_agent.model.plan import Action, Decision
from gitops_agent.model.quantity import counted, iso
from gitops_agent.report.drift import NOWHERE, Difference, Drift, DriftReport, Mask
from gitops_agent.report.moments import ago
from gitops_agent.report.table import PLAIN, Cell, Style, table
from gitops_agent.report.words import findings_text, short
from gitops_agent.support.secrets import Redactor
from gitops_agent.support.text import clipped, escape_control

_VALUE = 120  # characters shown of one value
_DIFFERENCES = 12  # fields shown of one resource
_DIGESTS = ("/config", "/spec")  # of other fields, for machines: a difference in them says nothing to people
_COLOURS = {Decision.REPAIR: "green", Decision.IMPORT: "cyan", Decision.WAIT: "cyan"}
_MEANINGS = {
    Decision.ASK: "ask first",
    Decision.QUARANTINE: "left alone, reported",
    Decision.ALERT: "left alone, reported",
    Decision.IMPORT: "proposed to Git on a branch",
}


def drift_text(
    report: DriftReport, style: Style = PLAIN, *, details: bool = False, mask: Mask | None = None
) -> str:
    """The whole report; with ``details`` also the evidence and the fields that differ."""
    blocks = [_headline(report, style)]
    if report.unreachable:
        lines = [
            f"  driver {escape_control(driver)}: {escape_control(reason)}" for driver, reason in report.unreachable
        ]
        blocks.append("\n".join([style.paint("could not be looked at:", "bold", "yellow"), *lines]))
    if report.drifts:
        counts = [(cls, count) for cls, count in report.counts.items() if count]
        blocks.append("\n".join(f"{count:>6}  {cls}" for cls, count in counts))
        blocks.append(_table(report, style))
    if details:
        blocks += [_details(drift, mask or Redactor().tree) for drift in report.drifts]
    elif report.drifts:
        blocks.append("gitops-agent drift AGENT shows the evidence and the fields that differ")
    if report.findings and details:
        blocks.append(findings_text(report.findings, style))
    return "\n\n".join(blocks)


def headline(report: DriftReport) -> str:
    """One line: how many agents drifted, from what."""
    much = f"{report.drifted} of {counted(report.agents, 'agent')} drifted"
    unseen = ", but some could not be looked at" if report.unreachable else ""
    return f"{report.instance}: {much if report.drifted else 'no drift'} at {short(report.commit)}{unseen}"


def _headline(report: DriftReport, style: Style) -> str:
    colour = "yellow" if report.drifted or report.unreachable else "green"
    return f"{style.paint(headline(report), 'bold', colour)} ({counted(report.agents, 'agent')}, {iso(report.at)})"


def _table(report: DriftReport, style: Style) -> str:
    headers = ("AGENT", "RESOURCE", "CLASS", "REASON", "CONFIDENCE", "SINCE", "WOULD BE DONE")
    return table(headers, [_row(drift, report.at) for drift in report.drifts], style)


def _row(drift: Drift, at: float) -> list[Cell | str]:
    action = drift.action
    return [
        str(action.key.agent),
        f"{action.key.kind}/{action.key.id}",
        str(action.drift_class),
        action.reason,
        str(action.confidence),
        ago(drift.since, at),
        Cell(_intention(drift), (_COLOURS.get(action.decision, "yellow"),)),
    ]


def _intention(drift: Drift) -> str:
    """What would be done about it, or who holds it."""
    action = drift.action
    if drift.held_by:
        return f"{action.verb}, held by {', '.join(guard.replace('_', ' ') for guard in drift.held_by)}"
    return _MEANINGS.get(action.decision) or _repair(action)


def _repair(action: Action) -> str:
    return f"{action.verb}" if action.decision is Decision.REPAIR else f"{action.verb}, {action.decision}"


def _details(drift: Drift, mask: Mask) -> str:
    action = drift.action
    lines = [f"{escape_control(str(action.key))}: {mask(escape_control(action.message), '')}"]
    lines.append(f"  since {iso(drift.since)}, {action.confidence} confidence, would be done: {_intention(drift)}")
    lines += [
        f"  {escape_control(item.source)} said at {iso(item.at)}: {escape_control(item.said)}"
        for item in action.evidence
    ]
    shown = [each for each in drift.differences if each.path not in _DIGESTS]
    lines += [f"  {line}" for each in shown[:_DIFFERENCES] for line in _difference(each, mask)]
    if len(shown) > _DIFFERENCES:
        lines.append(f"  … and {len(shown) - _DIFFERENCES} more fields")
    return "\n".join(lines)


def _difference(difference: Difference, mask: Mask) -> Iterator[str]:
    name = difference.path.rpartition("/")[2]
    live, git = (_value(value, name, mask) for value in (difference.live, difference.git))
    yield f"{escape_control(difference.path)}: live {live}, Git {git}"


def _value(value: Any, name: str, mask: Mask) -> str:
    if value is NOWHERE:
        return "nothing"
    return clipped(escape_control(json.dumps(mask(value, name), ensure_ascii=False)), _VALUE)
