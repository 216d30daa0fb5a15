"""Text for people: findings, plans, the state of the fleet, the history of commits. Pure.

No text ends in a line break: whoever prints it adds the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gitops_agent.model.agent import Lifecycle
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.quantity import counted, iso
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.status import AgentStatus, CommitRecord, Condition, ConditionType, ResourceStatus
from gitops_agent.report.json_shapes import FleetStatus, under_way
from gitops_agent.report.moments import ago, span
from gitops_agent.report.plan_text import plan_text
from gitops_agent.report.table import PLAIN, Cell, Row, Style, table
from gitops_agent.report.words import findings_text, fleet_words, is_about, phase_colours, short
from gitops_agent.support.text import clipped, escape_control

_PIDS = 3  # shown of one agent in the table

__all__ = ["findings_text", "history_text", "plan_text", "status_text", "validate_text"]


def validate_text(findings: Sequence[Finding], style: Style = PLAIN) -> str:
    """All findings, then one line that sums them up."""
    counts = Counter(finding.severity for finding in findings)
    # "info" counts nothing and takes no plural.
    parts = [
        f"{counts[severity]} info" if severity is Severity.INFO else counted(counts[severity], severity)
        for severity in Severity
        if counts[severity]
    ]
    verdict, colour = ("invalid", "red") if counts[Severity.ERROR] else ("valid", "green")
    total = style.paint(verdict, "bold", colour) + (f": {', '.join(parts)}" if parts else "")
    return "\n".join([*([findings_text(findings, style)] if findings else []), total])


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


def hold_of(status: AgentStatus, findings: Iterable[Finding]) -> Finding | None:
    """What keeps work on an agent waiting (Observe mode, a pause, a dependency …), if it is not a condition."""
    leading = leading_condition(status)
    if leading is not None and leading.type is not ConditionType.READY:
        return None
    return next((finding for finding in findings if is_about(finding, status.agent)), None)


def pids_of(*resources: ResourceStatus) -> list[int]:
    """The local processes of some resources."""
    replicas = (resource.live.get("replicas") for resource in resources)
    return [each["pid"] for listed in replicas if isinstance(listed, list) for each in listed if each.get("pid")]


def plain_message(status: AgentStatus, text: str) -> str:
    """A message without the names of the agent's own resources in front of what it says."""
    for resource in status.resources:
        text = text.replace(f"{resource.key}: ", "")
    return text


def status_text(fleet: FleetStatus, style: Style = PLAIN) -> str:
    """The head of the fleet, a table of agents, and what is in the way."""
    ordered = sorted(fleet.statuses, key=lambda status: status.agent)
    blocks = [fleet_head(fleet, style)]
    if (rollout := under_way(fleet)) is not None:
        blocks[0] += "\n" + rollout_line(rollout)
    if ordered:
        blocks.append(table(*_agents_table(ordered, fleet), style))
    if fleet.findings:
        blocks.append(findings_text(fleet.findings, style))
    return "\n\n".join(blocks)


def fleet_head(fleet: FleetStatus, style: Style) -> str:
    """One line: the newest commit, how the fleet is, and what is enforced if that is another commit."""
    if fleet.commit is None or fleet.phase is None:
        return f"{escape_control(fleet.instance)}: no commit has been seen yet"
    phase = style.paint(str(fleet.phase), *phase_colours(fleet.phase))
    head = (
        f"{escape_control(fleet.instance)}: {short(fleet.commit)} {phase}{enforcing(fleet.commit, fleet.enforced)}"
    )
    head += f"; {fleet_words(fleet.statuses)}"
    if fleet.journal_age is not None:
        head += style.paint(f" (as of {span(fleet.journal_age)} ago)", "dim")
    return head


def rollout_line(rollout: Rollout) -> str:
    """How far the newest commit has got through the fleet, in one line."""
    total = sum(map(len, rollout.waves))
    state = f"held: {escape_control(rollout.failed)}" if rollout.failed else "under way"
    wave = f"wave {rollout.released} of {len(rollout.waves)}"
    return f"rollout {state}; {wave}, {len(rollout.moving)} of {total} agents"


def enforcing(commit: str | None, enforced: str | None) -> str:
    """What is in force, when it is not the newest commit."""
    if enforced == commit:
        return ""
    return f", enforcing {short(enforced)}" if enforced else ", enforcing nothing yet"


def _agents_table(statuses: Sequence[AgentStatus], fleet: FleetStatus) -> tuple[list[str], list[Row]]:
    headers = ["AGENT", "READY", "STATE", "PID", "REASON", "SINCE", "COMMIT"]
    by_agent: dict[str, list[Finding]] = {}
    for finding in fleet.findings:
        by_agent.setdefault(finding.address.partition(":")[0], []).append(finding)
    holds = [hold_of(status, by_agent.get(str(status.agent), ())) for status in statuses]
    rows: list[Row] = [_agent_row(each, hold, fleet.at) for each, hold in zip(statuses, holds, strict=True)]
    messages = [_trouble(each, hold) for each, hold in zip(statuses, holds, strict=True)]
    if any(messages):
        return [*headers, "MESSAGE"], [[*row, message] for row, message in zip(rows, messages, strict=True)]
    return headers, rows


def ready_word(status: AgentStatus) -> tuple[str, tuple[str, ...]]:
    """The column READY and its colours: nobody waits for an agent that rests as desired."""
    if not status.ready:
        return "no", ("bold", "red")
    return ("yes", ("green",)) if status.lifecycle is Lifecycle.RUNNING else ("-", ())


def _agent_row(status: AgentStatus, hold: Finding | None, now: float | None) -> Row:
    condition = leading_condition(status)
    since = _since(condition.last_transition_at, now) if condition else "-"
    reasons = [*([condition.reason] if condition else []), *([hold.code] if hold else [])]
    pids = pids_of(*status.resources)
    shown = ", ".join(map(str, pids[:_PIDS])) + (" …" if len(pids) > _PIDS else "")
    commit = short(status.observed_commit)
    ready = Cell(*ready_word(status))
    return [str(status.agent), ready, state_of(status), shown or "-", ", ".join(reasons) or "-", since, commit]


def _since(at: float, now: float | None) -> str:
    return iso(at) if now is None else ago(at, now)


def _trouble(status: AgentStatus, hold: Finding | None) -> str:
    condition = leading_condition(status)
    if condition is None or (condition.type is ConditionType.READY and condition.status):
        return hold.summary if hold else ""
    if hold is not None and condition.type is ConditionType.READY:
        return f"{condition.message}; {hold.summary}"
    return plain_message(status, condition.message)


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
    return [
        short(record.sha),
        phase,
        iso(record.seen_at),
        took,
        record.subject[:60],
        clipped("; ".join(remarks), 100),
    ]
