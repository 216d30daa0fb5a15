"""``explain AGENT`` in plain words: desired, live, done, in the way, next. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.quantity import counted, iso
from gitops_agent.model.status import AgentStatus, CommitRecord, Condition, ConditionType, Phase, ResourceStatus
from gitops_agent.ports import Entry
from gitops_agent.report.json_shapes import Shape, agent_shape, commit_shape, findings_shape
from gitops_agent.report.moments import ago, ahead, span
from gitops_agent.report.status_text import pids_of, ready_condition
from gitops_agent.report.table import PLAIN, Style
from gitops_agent.report.words import clause, findings_text, in_words, sentence, short
from gitops_agent.support.text import clipped, escape_control

_ENTRIES = 8
_FINDINGS = 5
_TURNED_DOWN = (Phase.BLOCKED, Phase.INVALID, Phase.REFUSED)
_TOLD_AS_FAILURE = ("Backoff", "BackOff")
_ENDS = ("delete", "release", "forget")
_TEXT = 400


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything known about one agent. ``enforced`` is the commit its desired state comes from.

    ``findings`` are those about this agent and the source; those of a newest commit that is not enforced are in
    its record. ``status`` None: the agent is gone, and only what was done to it is known.
    """

    agent: AgentKey
    now: float
    status: AgentStatus | None
    enforced: CommitRecord | None = None
    head: CommitRecord | None = None
    entries: Sequence[Entry] = ()
    attempts: Mapping[ResourceKey, Attempt] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    journal_age: float | None = None


def explain_text(known: Explanation, style: Style = PLAIN, *, everything: bool = False) -> str:
    """Prose under five headings, each line a whole sentence (made inert here, once, for all of them)."""
    if known.status is None:
        sections: tuple[tuple[str, Iterable[str]], ...] = (
            ("Gone", [gone_text(known)]),
            ("Done", _done(known, everything)),
        )
    else:
        sections = (
            ("Desired", _desired(known, known.status)),
            ("Live", _live(known, known.status)),
            ("Done", _done(known, everything)),
            ("In the way", _in_the_way(known, known.status)),
            ("Next", _next(known, known.status)),
        )
    head = style.paint(escape_control(str(known.agent)), "bold")
    if known.journal_age is not None:
        head += style.paint(f" (as of {span(known.journal_age)} ago)", "dim")
    lines = [head]
    for title, sentences in sections:
        said = [f"  {line}" for each in sentences for line in escape_control(each, lines=True).split("\n")]
        lines += ["", style.paint(title, "bold"), *said]
    return "\n".join(lines)


def gone_text(known: Explanation) -> str:
    """What became of an agent that is no longer there, in one sentence."""
    last = next((entry for entry in known.entries if entry.verb in _ENDS), None)
    if last is None:
        return f"{known.agent} is no longer declared, and nothing of it is left."
    how = "released, and left in place (deletionPolicy: Retain)," if last.verb == "release" else "deleted"
    return f"{known.agent} was {how} by commit {short(last.commit)} at {iso(last.at)}."


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
        "class": entry.drift_class,
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
        "evidence": [{"source": each.source, "said": each.said, "at": iso(each.at)} for each in entry.evidence],
    }


def _attempt_shape(key: ResourceKey, attempt: Attempt) -> Shape:
    return {
        "resource": str(key),
        "failures": attempt.failures,
        "error": attempt.error,
        "permanent": attempt.permanent,
        "nextTryAt": iso(attempt.next_at),
    }


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
        yield f"The newest commit {short(known.head.sha)} is {known.head.phase} and is not enforced here."
    if known.head is not None and status.has(ConditionType.HALTED):
        yield (
            f"It failed its gate: {clause(_line(known.head.summary))}. Its tree is not tried again by itself: push"
            f" a fix or a revert, or gitops-agent retry {short(known.head.sha)}."
        )


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
    if pids := pids_of(resource):
        parts.append(f"pid {', '.join(map(str, pids))}")
    return f"{resource.key.kind}/{resource.key.id} ({resource.driver}): {', '.join(parts)}."


def _done(known: Explanation, everything: bool) -> Iterator[str]:
    if not known.entries:
        yield "Nothing has been done to it yet."
    shown = len(known.entries) if everything else _ENTRIES
    for entry in known.entries[:shown]:
        yield _entry(entry)
        yield from _evidence(entry)
    if len(known.entries) > shown:
        more = counted(len(known.entries) - shown, "earlier action")
        yield f"… and {more}: gitops-agent explain {known.agent} --all"


def _entry(entry: Entry) -> str:
    what = f"{iso(entry.at)} {entry.verb} {entry.key.kind}/{entry.key.id}"
    why = clause(_line(entry.message)) or in_words(entry.reason)
    result = entry.result or "outcome not known yet"
    took = f" in {span(entry.duration)}" if entry.duration is not None else ""
    said = f": {_own(entry.key, entry.outcome)}" if entry.outcome else ""
    return sentence(f"{what} because {why} [{entry.reason}], commit {short(entry.commit)}: {result}{took}{said}")


def _evidence(entry: Entry) -> Iterator[str]:
    """Who said what, where more than one was heard: alone it says no more than the reason."""
    if len(entry.evidence) > 1:
        heard = "; ".join(f"{each.source}: {_line(each.said)}" for each in entry.evidence)
        yield sentence(f"Evidence at {iso(max(each.at for each in entry.evidence))}: {heard}")


def _in_the_way(known: Explanation, status: AgentStatus) -> Iterator[str]:
    said = [*_turned_down(known, status), *_failures(known, status), *_conditions(known, status), *_holds(known)]
    yield from said or ["Nothing."]


def _turned_down(known: Explanation, status: AgentStatus) -> Iterator[str]:
    """A newest commit that is not enforced, and every reason for it."""
    head = known.head
    if head is None or head.sha == status.observed_commit or head.phase not in _TURNED_DOWN:
        return
    yield (
        f"The newest commit {short(head.sha)} is {head.phase}: nothing it asks for is done, and"
        f" {short(status.observed_commit)} stays in force."
    )
    yield from (findings_text([finding]) for finding in head.findings[:_FINDINGS])
    if len(head.findings) > _FINDINGS:
        yield f"… and {len(head.findings) - _FINDINGS} more: gitops-agent status"


def _failures(known: Explanation, status: AgentStatus) -> Iterator[str]:
    for key, attempt in _failing(known, status):
        times = "once" if attempt.failures == 1 else f"{attempt.failures} times in a row"
        code = f" [{'CannotApply' if attempt.permanent else 'Backoff'}]" if attempt.stalled else ""
        yield sentence(f"{key.kind}/{key.id} failed {times}{code}: {_own(key, attempt.error)}")


def _failing(known: Explanation, status: AgentStatus) -> list[tuple[ResourceKey, Attempt]]:
    """What failed and still waits. A Ready agent that nothing is owed to only keeps its count for a while."""
    return [] if status.ready and status.next_try_at is None else sorted(known.attempts.items())


def _conditions(known: Explanation, status: AgentStatus) -> Iterator[str]:
    failing = {f"{attempt.error}" for _, attempt in _failing(known, status)}
    for condition in status.conditions:
        # A failure that was told above stalls the agent: the same once more.
        if _holds_up(condition) and not any(error and error in condition.message for error in failing):
            yield f"{condition.type} since {iso(condition.last_transition_at)}: {_because(condition)}."


def _holds_up(condition: Condition) -> bool:
    quiet = (ConditionType.READY, ConditionType.RECONCILING)
    return condition.status and condition.type not in quiet


def _holds(known: Explanation) -> Iterator[str]:
    """Observe mode, a pause, a freeze, a dependency, a source that is silent: what the findings say, each once."""
    told = dict.fromkeys(
        f"{sentence(_line(finding.summary))} {sentence(finding.detail)} [{finding.code}]"
        for finding in known.findings
        if finding.code not in _TOLD_AS_FAILURE
    )
    yield from (text[:1].upper() + text[1:] for text in told)


def _next(known: Explanation, status: AgentStatus) -> Iterator[str]:
    failing = [attempt for _, attempt in _failing(known, status)]
    tries = [attempt.next_at for attempt in failing]
    at = min([*tries, *([status.next_try_at] if status.next_try_at is not None else [])], default=None)
    if at is not None:
        hopeless = ", and regularly after that, but will fail until that is fixed, here or by a commit"
        yield f"It is tried again {ahead(at, known.now)} ({iso(at)}){hopeless if _is_hopeless(failing) else ''}."
    elif status.ready:
        yield "Nothing is due; it is observed with every pass and repaired when it drifts."
    else:
        yield "It is looked at again with the next pass."


def _is_hopeless(failing: Sequence[Attempt]) -> bool:
    return bool(failing) and all(attempt.permanent for attempt in failing)


def _because(condition: Condition) -> str:
    message = clause(_line(condition.message))
    return f"{message or in_words(condition.reason)} [{condition.reason}]"


def _own(key: ResourceKey, text: str) -> str:
    """What a driver said of a resource, without the name of the resource in front of it."""
    return _line(text).removeprefix(f"{key}: ").rstrip(".")


def _line(text: str) -> str:
    return clipped(text.strip(), _TEXT)
