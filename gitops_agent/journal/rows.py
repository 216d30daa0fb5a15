"""Values to rows and back. Pure; the column types of ``schema.py`` encode single columns.

What is only stored and given back is one column, through ``model.codec``. Bases are taken apart by hand, because
tens of thousands are read at once; actions, because their columns are searched.
"""

import json
from collections.abc import Iterator
from hashlib import blake2b
from sys import intern
from typing import Any

import orjson

from gitops_agent.model.agent import DeletionPolicy
from gitops_agent.model.codec import from_json, resource_key, to_json
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.health import Evidence
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.outcome import Attempt, Intent, Outcome
from gitops_agent.model.plan import Action, Class, Confidence, Decision, Plan, Verb
from gitops_agent.model.status import AgentStatus, CommitRecord
from gitops_agent.ports import ActionRecord, DecisionRecord

_EVIDENCE = tuple[Evidence, ...]
_DELETION = {str(member): member for member in DeletionPolicy}

Row = dict[str, Any]
Found = Any
"""A row as SQLAlchemy gives it: columns are attributes."""


# -- bases and attempts


def base_row(base: Base) -> Row:
    """A base as a row."""
    return {
        "key": str(base.key),
        "driver": base.driver,
        "fields": base.fields,
        "commit_sha": base.commit,
        "applied_at": base.applied_at,
        "deletion_policy": base.deletion_policy.value,
        "idempotent": base.idempotent,
        "retained": base.retained,
        "handle": base.handle,
        "established": base.established,
    }


def base_of(row: Found) -> Base:
    """The base in a row (by position, in the order of the table: tens of thousands are read at once)."""
    key, driver, fields, commit, applied_at, deletion, idempotent, retained, handle, established = row
    return Base(
        resource_key(key),
        intern(driver),
        fields,
        intern(commit),
        applied_at,
        _DELETION.get(deletion) or DeletionPolicy(deletion),
        idempotent,
        retained,
        handle,
        established,
    )


def attempt_row(key: ResourceKey, attempt: Attempt) -> Row:
    """A retry state as a row."""
    return {
        "key": str(key),
        "failures": attempt.failures,
        "next_at": attempt.next_at,
        "error": attempt.error,
        "permanent": attempt.permanent,
    }


def attempt_of(row: Found) -> Attempt:
    """The retry state in a row."""
    return Attempt(row.failures, row.next_at, row.error, row.permanent)


# -- actions: intents, outcomes, decisions


def _action_row(action: Action) -> Row:
    return {
        "agent": str(action.key.agent),
        "key": str(action.key),
        "driver": action.driver,
        "verb": action.verb.value,
        "drift_class": action.drift_class.value,
        "reason": action.reason,
        "message": action.message,
        "confidence": action.confidence.value,
        "decision": action.decision.value,
        "patch": list(action.patch),
        "evidence": to_json(_EVIDENCE, action.evidence),
    }


def intent_row(intent: Intent) -> Row:
    """An intent as a row without an outcome."""
    action = intent.action
    return {
        **_action_row(action),
        "id": intent.id,
        "at": intent.at,
        "commit_sha": intent.commit,
        "plan": intent.plan,
        "actor": intent.actor,
        "base": action.base,
        "desired": action.desired,
        "live": action.live,
        "handle": action.handle,
        "deletion_policy": action.deletion_policy.value,
        "idempotent": action.idempotent,
    }


def _action_of(row: Found, **three_way: Any) -> Action:
    """The action in a row of either table; ``three_way`` are the parts that only intents keep."""
    return Action(
        key=resource_key(row.key),
        driver=row.driver,
        verb=Verb(row.verb),
        drift_class=Class(row.drift_class),
        reason=row.reason,
        message=row.message,
        confidence=Confidence(row.confidence),
        decision=Decision(row.decision),
        patch=tuple(row.patch),
        evidence=from_json(_EVIDENCE, row.evidence),
        **three_way,
    )


def intent_of(row: Found) -> Intent:
    """The intent in a row."""
    action = _action_of(
        row,
        base=row.base,
        desired=row.desired,
        live=row.live,
        handle=row.handle,
        deletion_policy=DeletionPolicy(row.deletion_policy),
        idempotent=row.idempotent,
    )
    return Intent(row.id, action, row.commit_sha, row.plan, row.actor, row.at)


def outcome_row(outcome: Outcome) -> Row:
    """The columns of an outcome; ``intent_id`` names the row they belong to."""
    return {
        "intent_id": outcome.intent,
        "result": outcome.result.value,
        "outcome": outcome.message,
        "finished_at": outcome.at,
        "duration": outcome.duration,
        "outcome_handle": outcome.handle,
        "permanent": outcome.permanent,
    }


def action_record_of(row: Found) -> ActionRecord:
    """An executed action, as ``history`` and ``explain`` want it."""
    return ActionRecord(
        at=row.at,
        intent=row.id,
        key=resource_key(row.key),
        driver=row.driver,
        verb=row.verb,
        drift_class=row.drift_class,
        reason=row.reason,
        message=row.message,
        confidence=row.confidence,
        actor=row.actor,
        commit=row.commit_sha,
        plan=row.plan,
        before=row.live,
        after=row.desired,
        result=row.result,
        outcome=row.outcome or "",
        duration=row.duration,
        evidence=from_json(_EVIDENCE, row.evidence),
    )


def decision_rows(plan: Plan, at: float) -> Iterator[Row]:
    """What a plan decided about each resource, as rows."""
    own = {"plan": plan.digest, "commit_sha": plan.commit, "at": at}
    for ordinal, action in enumerate(plan.actions):
        held = action.key in plan.held
        yield {**own, **_action_row(action), "ordinal": ordinal, "held": held, "digest": action.digest}


def decision_of(row: Found) -> DecisionRecord:
    """The decision in a row."""
    return DecisionRecord(row.at, row.plan, row.commit_sha, row.held, _action_of(row))


def control_row(control: Control) -> Row:
    """A control as a row; the database gives it its number."""
    return {
        "at": control.at,
        "verb": control.verb.value,
        "target": control.target,
        "actor": control.actor,
        "reason": control.reason,
        "until": control.until,
        "plan": control.plan,
    }


def control_of(row: Found) -> Control:
    """The control in a row."""
    return Control(
        ControlVerb(row.verb), row.target, row.actor, row.at, row.reason, row.until, row.plan, seq=row.seq
    )


# -- what is one column


def status_row(status: AgentStatus) -> Row:
    """A status as a row."""
    return {"agent": str(status.agent), "value": to_json(AgentStatus, status)}


def commit_row(record: CommitRecord) -> Row:
    """The record of a commit as a row. ``settled_at``: what retention counts from."""
    return {
        "sha": record.sha,
        "position": record.position,
        "phase": record.phase.value,
        "tree": record.tree,
        "rolled_back_by": record.rolled_back_by,
        "settled_at": record.seen_at if record.finished_at is None else record.finished_at,
        "value": to_json(CommitRecord, record),
    }


def observation_row(observation: Observation, mark: bytes) -> Row:
    """An observation and its fingerprint as a row."""
    return {
        "agent": str(observation.key.agent),
        "key": str(observation.key),
        "observed_at": observation.observed_at,
        "fingerprint": mark,
        "value": to_json(Observation, observation),
    }


def fingerprint(observation: Observation) -> bytes:
    """Eight bytes that change when the observation says something else.

    Times are left out (when it was seen, when the evidence was taken), and so are heartbeats: an agent at work is
    not a new state, and a row per agent and pass would bury the ones that matter.
    """
    seen, health = observation, observation.health
    rest = (
        *(seen.driver, seen.owner, seen.state, seen.reason, seen.message, seen.address, seen.live),
        [(item.source, item.said) for item in seen.evidence],
        [(item.id, item.started_at, item.ready, item.address) for item in seen.instances],
        health and (health.state, health.reason, health.message),
    )
    content = b"-" if seen.fields is None else seen.fields.raw
    return blake2b(b"\0".join((content, seen.handle.raw, _stable(rest))), digest_size=8).digest()


def _stable(value: object) -> bytes:
    """Bytes that are the same for equal values, whatever the order of keys."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # text that is not Unicode
        return json.dumps(value, sort_keys=True, default=str).encode()
