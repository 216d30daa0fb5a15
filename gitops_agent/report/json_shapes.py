"""The stable JSON of the command line, from model values. Text for people is rendered from it. Pure.

The contract is in ``schemas/*.json`` and ``docs/json.md``: keys are only ever added. The caller masks secrets in a
shape (``Redactor.tree``) before anything is printed, so that one place covers JSON and text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from gitops_agent.model.control import Control
from gitops_agent.model.fields import Fields
from gitops_agent.model.finding import Finding, errors
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Evidence
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.plan import Action, Decision, Plan, Verb, Verdict
from gitops_agent.model.quantity import iso, iso_or_none
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.state import State
from gitops_agent.model.status import AgentStatus, CommitRecord, Condition, ResourceStatus
from gitops_agent.report.words import Shape
from gitops_agent.support.gc import gc_paused

if TYPE_CHECKING:
    from gitops_agent.ports import ActionRecord

NOTHING = object()
"""Where there is no value, which is something else than null."""


def fields_shape(value: object, *names: str) -> Shape:
    """Some fields of a value under their JSON names (``next_try_at`` as ``nextTryAt``), moments as text."""
    return {_camel(name): _plain(name, getattr(value, name)) for name in names}


@cache
def _camel(name: str) -> str:
    first, *more = name.split("_")
    return first + "".join(map(str.capitalize, more))


def _plain(name: str, value: object) -> object:
    if isinstance(value, int | float) and (name == "at" or name.endswith("_at")):
        return iso(value)
    return str(value) if isinstance(value, StrEnum) else value


def findings_shape(findings: Iterable[Finding]) -> list[Shape]:
    """Findings in the order given."""
    return [fields_shape(each, "severity", "code", "address", "summary", "detail") for each in findings]


def validate_shape(findings: Sequence[Finding]) -> Shape:
    """The answer of ``validate``."""
    return {"valid": not errors(findings), "findings": findings_shape(findings)}


def count_verbs(plan: Plan) -> dict[str, int]:
    """How many actions of each verb a plan wants done, every verb named, and how many of these guards hold.

    What is only reported (ambiguities, orphans, questions) is not counted: nothing would be touched.
    """
    wanted = [a for a in plan.actions if a.decision is Decision.REPAIR or a.key in plan.held]
    counts = Counter(action.verb for action in wanted)
    return {**{str(verb): counts[verb] for verb in Verb}, "held": sum(a.key in plan.held for a in wanted)}


def plan_shape(plan: Plan) -> Shape:
    """The answer of ``plan``."""
    return {
        "commit": plan.commit,
        "digest": plan.digest,
        "blocked": plan.blocked,
        "summary": count_verbs(plan),
        "actions": [_action(action, held=action.key in plan.held) for action in plan.actions],
        "findings": findings_shape(plan.findings),
        "verdicts": [_verdict(verdict) for verdict in plan.verdicts],
    }


def _action(action: Action, *, held: bool) -> Shape:
    return {
        **action_shape(action),
        "patch": [_step(step, action) for step in action.patch],
        "held": held,
    }


def action_shape(action: Action) -> Shape:
    """What an action is about and what is decided, as in plans and drift reports."""
    return {
        "agent": str(action.key.agent),
        "resource": str(action.key),
        "class": str(action.drift_class),
        **fields_shape(action, "driver", "verb", "reason", "message", "confidence", "decision"),
    }


def _step(step: Mapping[str, Any], action: Action) -> Shape:
    """One step of a patch, with what it replaces or removes."""
    if step["op"] == "add" or "before" in step:
        return dict(step)
    before = value_at(str(step["path"]), action.live, action.base)
    return dict(step) if before is NOTHING else {**step, "before": before}


def value_at(pointer: str, *sides: Fields | None) -> Any:
    """What the first side that has it shows at a JSON pointer; ``NOTHING`` when none has.

    Live does not show every field: where it is silent, our record says what we last applied.
    """
    from jsonpointer import JsonPointerException, resolve_pointer

    for fields in sides:
        if fields is not None:
            try:
                return resolve_pointer(fields.value, pointer)
            except JsonPointerException:
                continue
    return NOTHING


def _verdict(verdict: Verdict) -> Shape:
    return {
        "guard": verdict.guard,
        "effect": str(verdict.effect),
        "held": sorted(map(str, verdict.held)),
        "findings": findings_shape(verdict.findings),
    }


@gc_paused()
def status_shape(
    instance: str,
    state: State,
    statuses: Iterable[AgentStatus],
    findings: Iterable[Finding],
    now: float | None = None,
) -> Shape:
    """The answer of ``status`` and ``once``: the newest commit seen, the last good one, and some agents.
    ``now``: None where the state was written just now."""
    return {
        "instance": instance,
        "commit": state.source.head,
        "enforced": state.rollout.enforced,
        "phase": str(state.head.phase) if state.head else None,
        "rollout": rollout_shape(state.rollout.rollout, state.source.head),
        "agents": [agent_shape(status) for status in sorted(statuses, key=lambda status: status.agent)],
        "findings": findings_shape(findings),
        "journalAgeSeconds": age_shape(state, now),
    }


def age_shape(state: State, now: float | None) -> float | None:
    """How old the journal was, to the millisecond; None when it was written just now."""
    last = state.status.last_pass
    return None if now is None or last is None else round(max(0.0, now - last), 3)


def rollout_shape(rollout: Rollout | None, commit: str | None) -> Shape | None:
    """The rollout of the newest commit; None when every agent follows it already."""
    if rollout is None or rollout.commit != commit or rollout.done:
        return None
    return {
        "commit": rollout.commit,
        "waves": [len(wave) for wave in rollout.waves],
        "released": rollout.released,
        "waiting": len(rollout.waiting),
        "failed": rollout.failed or None,
        "onFailure": rollout.on_failure,
    }


def agent_shape(status: AgentStatus) -> Shape:
    """One agent of ``status``."""
    return {
        "agent": str(status.agent),
        "ready": status.ready,
        "lifecycle": str(status.lifecycle),
        "conditions": [condition_shape(condition) for condition in status.conditions],
        "observedCommit": status.observed_commit,
        "resources": [_resource(resource) for resource in status.resources],
        "origin": status.origin,
        "nextTryAt": iso_or_none(status.next_try_at),
    }


def condition_shape(condition: Condition) -> Shape:
    """One condition, as in status output and notes."""
    return {
        "type": str(condition.type),
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": iso(condition.last_transition_at),
        "observedCommit": condition.observed_commit,
    }


def _resource(resource: ResourceStatus) -> Shape:
    return {
        "key": str(resource.key),
        "driver": resource.driver,
        "state": resource.state,
        "health": resource.health,
        "live": dict(resource.live),
    }


def history_shape(records: Iterable[CommitRecord]) -> Shape:
    """The answer of ``history``, in the order given (the journal gives newest first)."""
    return {"commits": [commit_shape(record) for record in records]}


def commit_shape(record: CommitRecord) -> Shape:
    """One commit of ``history``."""
    return {
        "commit": record.sha,
        **fields_shape(record, "phase", "summary", "subject", "author", "changed"),
        **fields_shape(record, "committed_at", "seen_at", "started_at", "finished_at"),
        **fields_shape(record, "rolls_back_to", "rolled_back_by"),
        "planDigest": record.plan or None,
        "seconds": _took(record),
        "findings": findings_shape(record.findings),
    }


def _took(record: CommitRecord) -> float | None:
    if record.started_at is None or record.finished_at is None:
        return None
    return round(record.finished_at - record.started_at, 3)


def explanation_shape(
    agent: AgentKey,
    state: State,
    enforced: CommitRecord | None,
    entries: Iterable[ActionRecord],
    findings: Iterable[Finding],
    now: float,
) -> Shape:
    """The answer of ``explain``. ``enforced``: the commit that its desired state comes from. ``findings``: those
    about this agent and the source; those of a newest commit that is not enforced are in its record."""
    status, head = state.status.agents.get(agent), state.head
    own = [
        _attempt(key, attempt) for key, attempt in sorted(state.reconcile.attempts.items()) if key.agent == agent
    ]
    return {
        "agent": str(agent),
        "status": agent_shape(status) if status else None,
        "enforced": commit_shape(enforced) if enforced else None,
        "newest": commit_shape(head) if head else None,
        "actions": list(map(_entry, entries)),
        "attempts": own,
        "findings": findings_shape(findings),
        "journalAgeSeconds": age_shape(state, now),
    }


def _entry(entry: ActionRecord) -> Shape:
    return {
        **fields_shape(entry, "at", "driver", "verb", "reason", "message", "confidence"),
        **fields_shape(entry, "actor", "commit", "result", "outcome"),
        "resource": str(entry.key),
        "class": entry.drift_class,
        "planDigest": entry.plan,
        "before": entry.before.value if entry.before else None,
        "after": entry.after.value if entry.after else None,
        "seconds": entry.duration,
        "evidence": evidence_shape(entry.evidence),
    }


def evidence_shape(evidence: Iterable[Evidence]) -> list[Shape]:
    """What each source reported."""
    return [{"source": each.source, "said": each.said, "at": iso(each.at)} for each in evidence]


def _attempt(key: ResourceKey, attempt: Attempt) -> Shape:
    known = fields_shape(attempt, "failures", "error", "permanent", "stalled")
    return {"resource": str(key), **known, "nextTryAt": iso(attempt.next_at)}


def control_shape(controls: Iterable[Control], meaning: str, *, running: bool) -> Shape:
    """The answer of ``freeze``, ``unfreeze``, ``approve`` and ``retry``."""
    written = [
        {**fields_shape(each, "verb", "target", "actor", "at", "reason"), "until": iso_or_none(each.until)}
        for each in controls
    ]
    return {"controls": written, "meaning": meaning, "running": running}
