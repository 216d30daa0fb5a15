"""``explain AGENT`` in plain words: desired, live, done, in the way, next. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.status import AgentStatus, CommitRecord, Condition, ConditionType, ResourceStatus
from gitops_agent.ports import Entry
from gitops_agent.report.inert import clipped, inert
from gitops_agent.report.moments import ago, ahead, iso, span
from gitops_agent.report.shapes import Shape, agent_shape, commit_shape, findings_shape
from gitops_agent.report.table import PLAIN, Style
from gitops_agent.report.text import ready_condition
from gitops_agent.report.words import findings_text, in_words, short

_ENTRIES = 8
_TEXT = 400


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything known about one agent. ``enforced`` is the commit its desired state comes from."""

    agent: AgentKey
    now: float
    status: AgentStatus | None
    enforced: CommitRecord | None = None
    head: CommitRecord | None = None
    entries: Sequence[Entry] = ()
    attempts: Mapping[ResourceKey, Attempt] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    journal_age: float | None = None


def explain_text(known: Explanation, style: Style = PLAIN) -> str:
    """Prose under five headings, each line a whole sentence (made inert here, once, for all of them)."""
    if known.status is None:
        return _unknown(known)
    sections = (
        ("Desired", _desired(known, known.status)),
        ("Live", _live(known, known.status)),
        ("Done", _done(known)),
        ("In the way", _blocked(known, known.status)),
        ("Next", _next(known, known.status)),
    )
    head = style.paint(inert(str(known.agent)), "bold")
    if known.journal_age is not None:
        head += style.paint(f" (as of {span(known.journal_age)} ago)", "dim")
    lines = [head]
    for title, sentences in sections:
        lines += ["", style.paint(title, "bold"), *(f"  {inert(sentence)}" for sentence in sentences)]
    if known.findings:
        lines += ["", findings_text(known.findings, style)]
    return "\n".join(lines)


def explanation_shape(known: Explanation) -> Shape:
    """The answer of ``explain -o json``: the facts behind the prose."""
    return {
        "agent": str(known.agent),
        "status": agent_shape(known.status) if known.status else None,
        "enforced": commit_shape(known.enforced) if known.enforced else None,
        "newest": commit_shape(known.head) if known.head else None,
        "actions": [_entry_shape(entry) for entry in known.entries],
        "attempts": [_attempt_shape(key, attempt) for key, attempt in sorted(known.attempts.items())],
        "findings": findings_shape(known.findings),
        "journalAgeSeconds": None if known.journal_age is None else round(max(0.0, known.journal_age), 3),
    }


def _entry_shape(entry: Entry) -> Shape:
    return {
        "at": iso(entry.at),
        "resource": str(entry.key),
        "driver": entry.driver,
        "verb": entry.verb,
        "class": entry.cls,
        "reason": entry.reason,
        "message": entry.message,
        "confidence": entry.confidence,
        "actor": entry.actor,
        "commit": entry.commit,
        "planDigest": entry.plan,
        "before": entry.before.value if entry.before else None,
        "after": entry.after.value if entry.after else None,
        "result": entry.result,
        "outcome": entry.outcome,
        "seconds": entry.duration,
    }


def _attempt_shape(key: ResourceKey, attempt: Attempt) -> Shape:
    return {
        "resource": str(key),
        "failures": attempt.failures,
        "error": attempt.error,
        "permanent": attempt.permanent,
        "nextTryAt": None if attempt.permanent else iso(attempt.next_at),
    }


def _unknown(known: Explanation) -> str:
    agent = inert(str(known.agent))
    text = f"{agent} is not known: no commit enforced so far declares it, and nothing of it is recorded.\n"
    return text + "See `gitops-agent status` for the agents there are."


def _desired(known: Explanation, status: AgentStatus) -> Iterator[str]:
    where = f" at {status.origin}" if status.origin else ""
    yield f"It should be {status.lifecycle}{where}, as of commit {short(status.observed_commit)}."
    if known.enforced is not None:
        record = known.enforced
        yield (
            f'That commit is "{_line(record.subject)}" by {_line(record.author)},'
            f" {iso(record.committed_at)}; it is {record.phase}."
        )
    if known.head is not None and known.head.sha != status.observed_commit:
        why = f": {_line(known.head.summary)}" if known.head.summary else ""
        yield f"The newest commit {short(known.head.sha)} is {known.head.phase} and is not enforced here{why}."


def _live(known: Explanation, status: AgentStatus) -> Iterator[str]:
    ready = ready_condition(status)
    if ready is not None:
        word = "Ready" if ready.status else "not Ready"
        moment = f"since {iso(ready.last_transition_at)} ({ago(ready.last_transition_at, known.now)})"
        yield f"It is {word} {moment}: {_because(ready)}."
    for resource in status.resources:
        yield _resource(resource)
    if not status.resources:
        yield "Nothing of it is meant to exist."


def _resource(resource: ResourceStatus) -> str:
    parts = [resource.state]
    if resource.health:
        parts.append(f"health {resource.health}")
    replicas = resource.live.get("replicas")
    pids = [str(each["pid"]) for each in replicas if each.get("pid")] if isinstance(replicas, list) else []
    if pids:
        parts.append(f"pid {', '.join(pids)}")
    return f"{resource.key.kind}/{resource.key.id} ({resource.driver}): {', '.join(parts)}."


def _done(known: Explanation) -> Iterator[str]:
    if not known.entries:
        yield "Nothing has been done to it yet."
    for entry in known.entries[:_ENTRIES]:
        yield _entry(entry)
    if len(known.entries) > _ENTRIES:
        yield f"… and {len(known.entries) - _ENTRIES} earlier actions (see `gitops-agent history`)."


def _entry(entry: Entry) -> str:
    what = f"{iso(entry.at)} {entry.verb} {entry.key.kind}/{entry.key.id}"
    why = _line(entry.message) or in_words(entry.reason)
    result = entry.result or "outcome not known yet"
    took = f" in {span(entry.duration)}" if entry.duration is not None else ""
    said = f": {_line(entry.outcome)}" if entry.outcome else ""
    return f"{what} because {why} [{entry.reason}], commit {short(entry.commit)}: {result}{took}{said}."


def _blocked(known: Explanation, status: AgentStatus) -> Iterator[str]:
    holding = [condition for condition in status.conditions if _holds_up(condition)]
    for condition in holding:
        yield f"{condition.type} since {iso(condition.last_transition_at)}: {_because(condition)}."
    for key, attempt in sorted(known.attempts.items()):
        last = "and it cannot succeed without a new commit" if attempt.permanent else "and it is tried again"
        times = "once" if attempt.failures == 1 else f"{attempt.failures} times in a row"
        yield f"{key.kind}/{key.id} failed {times}, {last}: {_line(attempt.error)}."
    if not holding and not known.attempts:
        yield "Nothing."


def _holds_up(condition: Condition) -> bool:
    quiet = (ConditionType.READY, ConditionType.RECONCILING)
    return condition.status and condition.type not in quiet


def _next(known: Explanation, status: AgentStatus) -> Iterator[str]:
    attempts = [attempt.next_at for attempt in known.attempts.values() if not attempt.permanent]
    at = min([*attempts, *([status.next_try_at] if status.next_try_at is not None else [])], default=None)
    if at is not None:
        yield f"It is tried again {ahead(at, known.now)} ({iso(at)})."
    elif any(attempt.permanent for attempt in known.attempts.values()):
        yield "It is not tried again before a new commit changes it."
    elif status.ready:
        yield "Nothing is due; it is observed with every pass and repaired when it drifts."
    else:
        yield "It is looked at again with the next pass."


def _because(condition: Condition) -> str:
    message = _line(condition.message).rstrip(".")
    return f"{message or in_words(condition.reason)} [{condition.reason}]"


def _line(text: str) -> str:
    return clipped(text.strip(), _TEXT)
