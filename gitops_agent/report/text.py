"""Text for people: findings, plans, the state of the fleet, the history of commits. Pure.

No text ends in a line break: whoever prints it adds the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.status import AgentStatus, CommitRecord, Condition, ConditionType
from gitops_agent.report.inert import inert
from gitops_agent.report.moments import ago, iso, span
from gitops_agent.report.plan_text import plan_text
from gitops_agent.report.shapes import FleetStatus
from gitops_agent.report.table import PLAIN, Cell, Row, Style, table
from gitops_agent.report.words import findings_text, phase_colours, short

__all__ = ["findings_text", "history_text", "plan_text", "status_text", "validate_text"]


def validate_text(findings: Sequence[Finding], style: Style = PLAIN) -> str:
    """All findings, then one line that sums them up."""
    counts = Counter(finding.severity for finding in findings)
    parts = [_plural(counts[severity], severity) for severity in Severity if counts[severity]]
    verdict, colour = ("invalid", "red") if counts[Severity.ERROR] else ("valid", "green")
    total = style.paint(verdict, "bold", colour) + (f": {', '.join(parts)}" if parts else "")
    return "\n".join([*([findings_text(findings, style)] if findings else []), total])


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


def status_text(fleet: FleetStatus, style: Style = PLAIN) -> str:
    """The head of the fleet, a table of agents, and what is in the way."""
    ordered = sorted(fleet.statuses, key=lambda status: status.agent)
    blocks = [_fleet_head(fleet, style)]
    if ordered:
        blocks.append(table(*_agents_table(ordered, fleet.at), style))
    if fleet.findings:
        blocks.append(findings_text(fleet.findings, style))
    return "\n\n".join(blocks)


def _fleet_head(fleet: FleetStatus, style: Style) -> str:
    if fleet.commit is None or fleet.phase is None:
        return f"{inert(fleet.instance)}: no commit has been seen yet"
    ready = sum(status.ready for status in fleet.statuses)
    phase = style.paint(str(fleet.phase), *phase_colours(fleet.phase))
    head = f"{inert(fleet.instance)}: {short(fleet.commit)} {phase}, {ready} of {len(fleet.statuses)} agents ready"
    if fleet.enforced != fleet.commit:
        head += f", enforcing {short(fleet.enforced)}" if fleet.enforced else ", enforcing nothing yet"
    if fleet.journal_age is not None:
        head += style.paint(f" (as of {span(fleet.journal_age)} ago)", "dim")
    return head


def _agents_table(statuses: Sequence[AgentStatus], now: float | None) -> tuple[list[str], list[Row]]:
    headers = ["AGENT", "READY", "STATE", "REASON", "SINCE", "COMMIT"]
    rows: list[Row] = [_agent_row(status, now) for status in statuses]
    messages = [_trouble(status) for status in statuses]
    if any(messages):
        return [*headers, "MESSAGE"], [[*row, message] for row, message in zip(rows, messages, strict=True)]
    return headers, rows


def _agent_row(status: AgentStatus, now: float | None) -> Row:
    condition = leading_condition(status)
    ready = Cell("yes", ("green",)) if status.ready else Cell("no", ("bold", "red"))
    since = _since(condition.last_transition_at, now) if condition else "-"
    reason = condition.reason if condition else "-"
    return [str(status.agent), ready, state_of(status), reason, since, short(status.observed_commit)]


def _since(at: float, now: float | None) -> str:
    return iso(at) if now is None else ago(at, now)


def _trouble(status: AgentStatus) -> str:
    condition = leading_condition(status)
    troubled = condition is not None and not (condition.type is ConditionType.READY and condition.status)
    return condition.message if condition is not None and troubled else ""


def history_text(records: Sequence[CommitRecord], style: Style = PLAIN) -> str:
    """One line per commit, newest first as given."""
    if not records:
        return "no commit has been seen yet"
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
