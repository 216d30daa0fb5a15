"""Text for people: findings, the state of the fleet, the history of commits. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.status import AgentStatus, CommitRecord, Condition, ConditionType, Phase
from gitops_agent.report.inert import inert
from gitops_agent.report.moments import ago, iso, span
from gitops_agent.report.shapes import FleetStatus
from gitops_agent.report.table import PLAIN, Cell, Row, Style, table

SEVERITY_COLOURS = {
    Severity.ERROR: ("bold", "red"),
    Severity.WARNING: ("yellow",),
    Severity.INFO: ("cyan",),
}
_PHASE_COLOURS = {
    Phase.CONVERGED: ("green",),
    Phase.RECONCILING: ("cyan",),
    Phase.PENDING: ("cyan",),
    Phase.SUPERSEDED: ("dim",),
    Phase.BLOCKED: ("yellow",),
}


def phase_colours(phase: Phase) -> tuple[str, ...]:
    """The colours a phase is shown in; what is not named is bad news."""
    return _PHASE_COLOURS.get(phase, ("bold", "red"))


def short(sha: str | None) -> str:
    """A sha as people write it."""
    return sha[:10] if sha else "-"


def in_words(code: str) -> str:
    """A reason code as words: ``ProcessGone`` reads ``process gone``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", inert(code)).lower()


def findings_text(findings: Sequence[Finding], style: Style = PLAIN) -> str:
    """``file:line:col: error[Code]: summary``, the detail indented below."""
    return "".join(_finding(finding, style) for finding in findings)


def _finding(finding: Finding, style: Style) -> str:
    label = style.paint(f"{finding.severity}[{inert(finding.code)}]", *SEVERITY_COLOURS[finding.severity])
    address = style.paint(inert(finding.address), "bold")
    lines = [f"{address}: {label}: {inert(finding.summary)}"]
    lines += [f"    {line}" for line in inert(finding.detail, lines=True).split("\n") if line.strip()]
    return "".join(f"{line}\n" for line in lines)


def validate_text(findings: Sequence[Finding], style: Style = PLAIN) -> str:
    """All findings, then one line that sums them up."""
    counts = Counter(finding.severity for finding in findings)
    parts = [_plural(counts[severity], severity) for severity in Severity if counts[severity]]
    verdict, colour = ("invalid", "red") if counts[Severity.ERROR] else ("valid", "green")
    total = style.paint(verdict, "bold", colour) + (f": {', '.join(parts)}" if parts else "")
    return findings_text(findings, style) + total + "\n"


def _plural(count: int, noun: str) -> str:
    # "info" counts nothing and takes no plural.
    return f"{count} {noun}" if count == 1 or noun == "info" else f"{count} {noun}s"


def ready_condition(status: AgentStatus) -> Condition | None:
    """The condition Ready of an agent."""
    return next((each for each in status.conditions if each.type is ConditionType.READY), None)


def leading_condition(status: AgentStatus) -> Condition | None:
    """The condition that says most: for an agent that is not Ready, the one that holds it up."""
    worst = (ConditionType.HALTED, ConditionType.FROZEN, ConditionType.STALLED)
    found = {condition.type: condition for condition in status.conditions if condition.status}
    chosen = next((found[kind] for kind in worst if kind in found), None)
    return chosen or ready_condition(status)


def state_of(status: AgentStatus) -> str:
    """One word for what runs: the state of the runtime, else of the first resource."""
    by_kind = {resource.key.kind: resource.state for resource in reversed(status.resources)}
    first = status.resources[0].state if status.resources else str(status.lifecycle)
    return by_kind.get("runtime", first)


def status_text(fleet: FleetStatus, now: float, style: Style = PLAIN) -> str:
    """The head of the fleet, a table of agents, and what is in the way."""
    ordered = sorted(fleet.statuses, key=lambda status: status.agent)
    blocks = [_fleet_head(fleet, style)]
    if ordered:
        blocks.append(table(*_agents_table(ordered, now), style))
    if fleet.findings:
        blocks.append(findings_text(fleet.findings, style))
    return "\n".join(blocks)


def _fleet_head(fleet: FleetStatus, style: Style) -> str:
    if fleet.commit is None or fleet.phase is None:
        return f"{inert(fleet.instance)}: no commit has been seen yet\n"
    ready = sum(status.ready for status in fleet.statuses)
    phase = style.paint(str(fleet.phase), *phase_colours(fleet.phase))
    head = f"{inert(fleet.instance)}: {short(fleet.commit)} {phase}, {ready} of {len(fleet.statuses)} agents ready"
    if fleet.enforced != fleet.commit:
        head += f", enforcing {short(fleet.enforced)}" if fleet.enforced else ", enforcing nothing yet"
    if fleet.journal_age is not None:
        head += style.paint(f" (as of {span(fleet.journal_age)} ago)", "dim")
    return head + "\n"


def _agents_table(statuses: Sequence[AgentStatus], now: float) -> tuple[list[str], list[Row]]:
    headers = ["AGENT", "READY", "STATE", "REASON", "SINCE", "COMMIT"]
    rows: list[Row] = [_agent_row(status, now) for status in statuses]
    messages = [_trouble(status) for status in statuses]
    if any(messages):
        return [*headers, "MESSAGE"], [[*row, message] for row, message in zip(rows, messages, strict=True)]
    return headers, rows


def _agent_row(status: AgentStatus, now: float) -> Row:
    condition = leading_condition(status)
    ready = Cell("yes", ("green",)) if status.ready else Cell("no", ("bold", "red"))
    since = ago(condition.last_transition_at, now) if condition else "-"
    reason = condition.reason if condition else "-"
    return [str(status.agent), ready, state_of(status), reason, since, short(status.observed_commit)]


def _trouble(status: AgentStatus) -> str:
    condition = leading_condition(status)
    troubled = condition is not None and not (condition.type is ConditionType.READY and condition.status)
    return condition.message if condition is not None and troubled else ""


def history_text(records: Sequence[CommitRecord], style: Style = PLAIN) -> str:
    """One line per commit, newest first as given."""
    if not records:
        return "no commit has been seen yet\n"
    return table(["COMMIT", "PHASE", "SEEN", "TOOK", "SUBJECT", "SUMMARY"], list(map(_commit_row, records)), style)


def _commit_row(record: CommitRecord) -> Row:
    took = "-"
    if record.started_at is not None and record.finished_at is not None:
        took = span(record.finished_at - record.started_at)
    remarks = [record.summary] if record.summary else []
    if record.rolls_back_to:
        remarks.append(f"rolls back to {short(record.rolls_back_to)}")
    if record.rolled_back_by:
        remarks.append(f"rolled back by {short(record.rolled_back_by)}")
    phase = Cell(str(record.phase), phase_colours(record.phase))
    return [short(record.sha), phase, iso(record.seen_at), took, record.subject[:60], "; ".join(remarks)]
