"""The note on a commit: one line for people, an empty line, YAML for machines. Pure.

A note stays below 64 kB whatever the size of the fleet: each list has a budget of bytes, what matters most
comes first (agents that are not Ready, then those the commit changed), and the rest is a number in ``andMore``,
as are the agents that the commit did not touch.
"""

from collections.abc import Callable, Iterable
from typing import Any

from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.quantity import counted, iso, iso_or_none, span
from gitops_agent.model.status import AgentStatus, CommitRecord, ConditionType, Phase
from gitops_agent.ports import ActionRecord, CommitChange
from gitops_agent.report.json_shapes import to_json
from gitops_agent.report.yaml_text import to_yaml
from gitops_agent.support.text import clipped, escape_control

API_VERSION = "gitops-agent.dev/v1"
KIND = "ConvergenceStatus"
_MESSAGE_CHARACTERS = 400  # characters of one message
_MAX_AGENTS = 1_000  # more never fit the bytes
_AGENT_BYTES, _ACTION_BYTES, _FINDING_BYTES = 28_000, 16_000, 12_000
_MAX_CHARACTERS = 262_144  # a note beyond this is not ours
_UNPLANNED = (Phase.PENDING, Phase.SUPERSEDED, Phase.REFUSED, Phase.INVALID)
_RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}

Redact = Callable[[Any], Any]
Note = dict[str, Any]


def render_note(
    instance: str, change: CommitChange, previous: Note | None = None, redact: Redact = lambda value: value
) -> str:
    """The text of a note.

    ``previous`` is the note the commit has now: the agents of a commit whose phase was already terminal are
    kept as they were when it ended, so that a later rollback does not rewrite what was seen. ``redact`` is
    applied to all of it (``Redactor.tree``).
    """
    record, entries = change.record, change.entries
    seen, unseen = _agents_of(previous) if previous is not None and _ended(previous) else (None, 0)
    if seen is None:
        telling = _most_telling(change)
        seen = [_agent(status) for status in telling[:_MAX_AGENTS]]
        unseen = len(telling) - len(seen)
    worst = sorted(record.findings, key=lambda finding: (_RANK[finding.severity], finding.address))
    agents = _fit(map(redact, seen), _AGENT_BYTES)
    actions = _fit((redact(_action(entry)) for entry in entries), _ACTION_BYTES)
    findings = _fit((redact(_finding(finding)) for finding in worst), _FINDING_BYTES)
    more = {
        "agents": len(seen) - len(agents) + unseen,
        # Agents that follow another commit: with them the numbers add up to those of the first line.
        "untouched": max(0, record.agents - len(seen) - unseen),
        "actions": len(entries) - len(actions),
        "findings": len(worst) - len(findings),
    }
    body: Note = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "instance": instance,
        "commit": record.sha,
        "phase": str(record.phase),
        "summary": clipped(redact(record.summary), _MESSAGE_CHARACTERS),
        "planDigest": record.plan,
        "startedAt": iso_or_none(record.started_at),
        "finishedAt": iso_or_none(record.finished_at),
        "RollsBackTo": record.rolls_back_to,
        "RolledBackBy": record.rolled_back_by,
        "agents": agents,
        "actions": actions,
        "findings": findings,
        "andMore": {name: count for name, count in more.items() if count},
    }
    kept = {key: value for key, value in body.items() if value not in (None, "", {})}
    return f"{headline(instance, record, redact)}\n\n{to_yaml(kept)}"


def headline(instance: str, record: CommitRecord, redact: Redact = lambda value: value) -> str:
    """Line 1, for people: ``prod-eu: Converged, 12 agents, 3 changed, 4.2 s``."""
    parts = [str(record.phase)]
    if record.phase not in _UNPLANNED:
        parts += [counted(record.agents, "agent"), f"{record.changed} changed"]
        if record.started_at is not None and record.finished_at is not None:
            parts.append(span(record.finished_at - record.started_at))
    if record.phase not in (Phase.CONVERGED, Phase.PENDING, Phase.RECONCILING) and record.summary:
        summary = clipped(escape_control(redact(record.summary)), 160)
        # "Superseded by …" rather than "Superseded, superseded by …".
        parts = [summary.capitalize()] if record.phase is Phase.SUPERSEDED else [*parts, summary]
    if record.rolls_back_to:
        parts.append(f"rolls back to {record.rolls_back_to[:10]}")
    if record.rolled_back_by:
        parts.append(f"rolled back by {record.rolled_back_by[:10]}")
    return f"{instance}: {', '.join(parts)}"


def parse_note(text: str) -> Note | None:
    """The YAML part of a note, or None when the text is not one of ours."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    _, _, body = text.partition("\n\n")
    if len(text) > _MAX_CHARACTERS or not body.startswith(f"apiVersion: {API_VERSION}\nkind: {KIND}\n"):
        return None
    try:
        value = YAML(typ="safe", pure=True).load(body)
    except (YAMLError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _ended(previous: Note) -> bool:
    try:
        return Phase(previous.get("phase", "")).terminal
    except ValueError:
        return False


def _agents_of(previous: Note) -> tuple[list[Note], int]:
    # Others can write to the ref: nothing about the form is taken for granted.
    agents, more = previous.get("agents"), previous.get("andMore")
    count = more.get("agents", 0) if isinstance(more, dict) else 0
    return agents if isinstance(agents, list) else [], count if isinstance(count, int) else 0


def _most_telling(change: CommitChange) -> list[AgentStatus]:
    # A status judged at another commit says nothing about this one, but agents that a failed gate holds back do.
    record, changed = change.record, {entry.key.agent for entry in change.entries}
    halted = record.phase is Phase.DEGRADED
    ours = [
        status
        for status in change.statuses.values()
        if status.observed_commit == record.sha or (halted and status.has(ConditionType.HALTED))
    ]
    return sorted(ours, key=lambda status: (status.ready, status.agent not in changed, status.agent))


def _agent(status: AgentStatus) -> Note:
    conditions = to_json(status.conditions)
    for condition in conditions:
        # The same for every condition of one note; repeating it would double the size.
        del condition["observedCommit"]
        condition["message"] = clipped(condition["message"], _MESSAGE_CHARACTERS)
    return {"agent": str(status.agent), "ready": status.ready, "conditions": conditions}


def _action(entry: ActionRecord) -> Note:
    action: Note = {
        "resource": str(entry.key),
        "verb": entry.verb,
        "class": entry.drift_class,
        "reason": entry.reason,
        "result": entry.result or "Unknown",
        "at": iso(entry.at),
    }
    if entry.result != "Done":
        action["message"] = clipped(entry.outcome or entry.message, _MESSAGE_CHARACTERS)
    return action


def _finding(finding: Finding) -> Note:
    return {key: clipped(value, _MESSAGE_CHARACTERS) for key, value in to_json(finding).items() if value}


def _fit(items: Iterable[Note], budget: int) -> list[Note]:
    """The items before the first that no longer fits the budget of bytes."""
    taken: list[Note] = []
    for item in items:
        budget -= len(to_yaml({"items": [item]}).encode())
        if budget < 0:
            break
        taken.append(item)
    return taken
