"""The sink that keeps notes on commits: written to the mirror, then pushed.

A note is one line for people, an empty line, and YAML for machines. It stays below 64 kB whatever the size of the
fleet: each list has a budget of bytes, what matters most comes first (agents that are not Ready, then those the
commit changed), and the rest is a number in ``andMore``, as are the agents that the commit did not touch.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import structlog

from gitops_agent.errors import JournalError
from gitops_agent.model.fields import Fields
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.quantity import clock, counted, iso, iso_or_none, span
from gitops_agent.model.status import AgentStatus, CommitRecord, ConditionType, Phase, Standing
from gitops_agent.ports import ActionRecord, CommitChange, Sink
from gitops_agent.report.json_shapes import hands_off_shape, to_json
from gitops_agent.report.words import ready_words, rollback_words
from gitops_agent.report.yaml_text import to_yaml
from gitops_agent.source.notes import Notes
from gitops_agent.support.secrets import Redactor
from gitops_agent.support.text import clipped, escape_control

log = structlog.get_logger(__name__)

API_VERSION = "gitops-agent.dev/v1"
KIND = "ConvergenceStatus"
_MESSAGE_CHARACTERS = 400  # characters of one message
_MAX_AGENTS = 1_000  # more never fit the bytes
_MAX_REVERTS = 50
_AGENT_BYTES, _ACTION_BYTES, _FINDING_BYTES, _EVENT_BYTES = 22_000, 18_000, 10_000, 6_000
_FIELD_CHARACTERS, _FIELD_ITEMS = 160, 12  # of one value before or after an action
_MAX_CHARACTERS = 262_144  # a note beyond this is not ours
_UNPLANNED = (Phase.PENDING, Phase.SUPERSEDED, Phase.REFUSED, Phase.INVALID)
_WORST_FIRST = tuple(Severity)
_ABSENT = object()

Redact = Callable[[Any], Any]
Note = dict[str, Any]


class GitNotesSink(Sink):
    """Writes one note per changed commit. A delivery ends with the push, so what was written and not pushed is
    still owed after a crash; without ``push`` it is a later process that pushes. ``redactor`` masks every text."""

    name = "notes"
    durable = True
    min_interval_seconds = 2.0

    def __init__(self, instance: str, store: Notes, redactor: Redactor, *, push: bool = True) -> None:
        self._instance = instance
        self._store = store
        self._redactor = redactor
        self.complete = push

    def deliver(self, changes: Sequence[CommitChange]) -> None:
        """Write the notes that differ from those that are there, and push; SourceError when it cannot be done."""
        write = partial(self._write, changes)
        if self.complete:
            self._store.push(write)
        else:
            write()

    def _write(self, changes: Sequence[CommitChange]) -> None:
        present = self._store.read_all([change.record.sha for change in changes])
        texts = {(sha := each.record.sha): self._rendered(each, present.get(sha)) for each in changes}
        if notes := {sha: text for sha, text in texts.items() if text not in (None, present.get(sha))}:
            self._store.write(notes)

    def _rendered(self, change: CommitChange, present: str | None) -> str | None:
        """The text of a note. That of a commit that had ended keeps its agents: they are those of its end."""
        try:
            previous = parse_note(present) if present and change.record.phase.terminal else None
            return render_note(self._instance, change, previous, self._redactor.tree)
        except JournalError:
            raise  # what it is made of cannot be read now, and can be later
        except Exception:  # trying again would not help, and the other commits must get their notes
            log.exception("a note could not be rendered", commit=change.record.sha)
            return None


def render_note(
    instance: str, change: CommitChange, previous: Note | None = None, redact: Redact = lambda value: value
) -> str:
    """The text of a note. ``previous`` is the note the commit has now: the agents of a commit whose phase was
    already terminal are kept as they were when it ended, so that a later rollback does not rewrite what was seen.
    ``redact`` is applied to all of it (``Redactor.tree``)."""
    record, entries = change.record, change.entries
    # On the newest commit they are as they are now; an older one keeps those of its last verdict.
    kept_agents = _agents_at_the_end(previous or {}) if record.now is None else None
    seen, unseen = kept_agents or _agents_now(change)
    worst = sorted(record.findings, key=lambda finding: (_WORST_FIRST.index(finding.severity), finding.address))
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
        "cause": record.cause,
        "now": _now(record, redact),
        "summary": clipped(redact(record.summary), _MESSAGE_CHARACTERS),
        "planDigest": record.plan,
        "startedAt": iso_or_none(record.started_at),
        "finishedAt": iso_or_none(record.finished_at),
        "Reverts": list(record.reverts[:_MAX_REVERTS]) or None,
        "RollsBackTo": record.rolls_back_to,
        "RolledBackBy": record.rolled_back_by,
        "agents": agents,
        "actions": actions,
        "findings": findings,
        "sinceVerdict": _fit((redact(to_json(each)) for each in record.since_verdict), _EVENT_BYTES) or None,
        "andMore": {name: count for name, count in more.items() if count},
    }
    kept = {key: value for key, value in body.items() if value not in (None, "", {})}
    return f"{headline(instance, record, redact)}\n\n{to_yaml(kept)}"


def headline(instance: str, record: CommitRecord, redact: Redact = lambda value: value) -> str:
    """Line 1, for people, says what holds now: ``prod-eu: Converged, 12 agents, 3 changed, 4.2 s``, and later
    ``prod-eu: Degraded since 14:10 (Converged 12:03), 10 of 12 ready: acme/x ProcessGone``."""
    now, cause = record.now, clipped(escape_control(redact(record.now.cause)), 240) if record.now else ""
    if now is not None and now.phase is not record.phase:
        verdict = f"{record.phase} {clock(record.finished_at or now.since, now.since)}"
        text = f"{now.phase} since {clock(now.since)} ({verdict}), {_ready(now)}"
        return f"{instance}: {', '.join([f'{text}: {cause}' if cause else text, *_rollbacks(record)])}"
    parts = [str(record.phase)]
    if now is not None and record.phase is Phase.CONVERGED and now.since != record.finished_at:
        parts = [f"{record.phase} since {clock(now.since)}"]
    is_begun = record.is_in or record.agents or record.changed  # a guard may stop a commit before any of it
    if record.phase not in _UNPLANNED and is_begun:
        parts += [counted(record.agents, "agent"), f"{record.changed} changed"]
        if record.started_at is not None and record.finished_at is not None:
            parts.append(span(record.finished_at - record.started_at))
    if record.phase not in (Phase.CONVERGED, Phase.PENDING, Phase.RECONCILING) and record.summary:
        summary = clipped(escape_control(redact(record.summary)), 160)
        # "Superseded by …" rather than "Superseded, superseded by …".
        parts = [summary[:1].upper() + summary[1:]] if record.phase is Phase.SUPERSEDED else [*parts, summary]
    elif record.phase is Phase.CONVERGED and "done: " in record.summary:
        parts.append(clipped(escape_control(redact(record.summary)), 160))
    if now is not None and now.cause not in record.summary:
        own = now.cause.removeprefix(record.summary).lstrip("; ")
        others = clipped(escape_control(redact(own)), 240)
        count = f"{_ready(now)}: " if now.phase is not Phase.CONVERGED or now.on_their_way else ""
        parts.append(f"{count}{others}")
    elif now is not None and now.on_their_way:
        parts.append(_ready(now))
    return f"{instance}: {', '.join([*parts, *_rollbacks(record)])}"


def _ready(now: Standing) -> str:
    return ready_words(now.ready, now.total, now.on_their_way)


def _rollbacks(record: CommitRecord) -> list[str]:
    """Which commits this one takes back, and which one took it back."""
    return rollback_words(record.reverts, record.rolls_back_to, record.rolled_back_by)


def _now(record: CommitRecord, redact: Redact) -> Note | None:
    if record.now is None:
        return None
    shape: Note = redact(to_json(record.now))
    shape["cause"] = clipped(shape["cause"], _MESSAGE_CHARACTERS)
    if not record.now.on_their_way:
        del shape["onTheirWay"]
    return {key: value for key, value in shape.items() if value not in ("", [])}


def parse_note(text: str) -> Note | None:
    """The YAML part of a note, or None when the text is not one of ours."""
    import yaml_rs

    _, _, body = text.partition("\n\n")
    if len(text) > _MAX_CHARACTERS or not body.startswith(f"apiVersion: {API_VERSION}\nkind: {KIND}\n"):
        return None
    try:
        value = yaml_rs.loads(body, parse_datetime=False)
    except (yaml_rs.YAMLDecodeError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _agents_at_the_end(previous: Note) -> tuple[list[Note], int] | None:
    """The agents of a note whose commit had ended, and how many more there were."""
    if previous.get("phase") not in [phase for phase in Phase if phase.terminal]:
        return None
    # Others can write to the ref: nothing about the form is taken for granted.
    agents, more = previous.get("agents"), previous.get("andMore")
    count = more.get("agents", 0) if isinstance(more, dict) else 0
    return agents if isinstance(agents, list) else [], count if isinstance(count, int) else 0


def _agents_now(change: CommitChange) -> tuple[list[Note], int]:
    """The agents that a commit concerns, the most telling first, and how many more there are."""
    record, changed = change.record, {entry.key.agent for entry in change.entries}
    # A status judged at another commit says nothing about this one, but agents that a failed gate holds back do.
    halted = record.phase is Phase.DEGRADED
    ours = [
        status
        for status in change.statuses.values()
        if status.observed_commit == record.sha or (halted and status.has(ConditionType.HALTED))
    ]
    ours.sort(key=lambda status: (status.ready, status.agent not in changed, status.agent))
    return list(map(_agent, ours[:_MAX_AGENTS])), max(0, len(ours) - _MAX_AGENTS)


def _agent(status: AgentStatus) -> Note:
    conditions = to_json(status.conditions)
    for condition in conditions:
        # The same for every condition of one note; repeating it would double the size.
        del condition["observedCommit"]
        condition["message"] = clipped(condition["message"], _MESSAGE_CHARACTERS)
    return {"agent": str(status.agent), "ready": status.ready, **hands_off_shape(status), "conditions": conditions}


def _action(entry: ActionRecord) -> Note:
    action: Note = {
        "resource": str(entry.key),
        "verb": entry.verb,
        "class": entry.drift_class,
        "reason": entry.reason,
        "confidence": entry.confidence,
        "actor": entry.actor,
        "result": entry.result or "Unknown",
        "at": iso(entry.at),
    }
    if entry.result != "Done":
        action["message"] = clipped(entry.outcome or entry.message, _MESSAGE_CHARACTERS)
    before, after = _differing(entry.before, entry.after)
    return action | ({"before": before} if before else {}) | ({"after": after} if after else {})


def _differing(before: Fields | None, after: Fields | None) -> tuple[Note, Note]:
    """The owned fields that an action moved: as they were, and as they were to be."""
    old, new = before.value if before else {}, after.value if after else {}
    # Of what goes all was ours; of what stays, what Git asks for is.
    moved = [name for name in sorted(new or old) if old.get(name, _ABSENT) != new.get(name, _ABSENT)]
    was = {name: _short(old[name]) for name in moved if name in old}
    return was, {name: _short(new[name]) for name in moved if name in new}


def _short(value: Any) -> Any:
    """A value cut to what a note has room for."""
    if isinstance(value, str):
        return clipped(value, _FIELD_CHARACTERS)
    if isinstance(value, dict):
        return {key: _short(item) for key, item in list(value.items())[:_FIELD_ITEMS]}
    return [_short(item) for item in value[:_FIELD_ITEMS]] if isinstance(value, list) else value


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
