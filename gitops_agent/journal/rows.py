"""Bases, retry states, intents and decisions to rows and back.

Pure; the column types of ``schema.py`` encode single columns. Observations, statuses and commits have modules of
their own beside this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from sys import intern
from typing import Any

from gitops_agent.model.agent import DeletionPolicy
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base, Evidence
from gitops_agent.model.outcome import Attempt, Intent, Outcome
from gitops_agent.model.plan import Action, Class, Confidence, Decision, Verb
from gitops_agent.ports import Entry

_DELETION = {str(member): member for member in DeletionPolicy}

Row = dict[str, Any]
Found = Any
"""A row as SQLAlchemy gives it: columns are attributes."""


def key_of(text: str) -> ResourceKey:
    """A resource key whose repeated words are shared: ten thousand agents have few tenants and kinds."""
    try:
        agent, rest = text.split(":", 1)
        tenant, name = agent.split("/")
        kind, identity = rest.split("/", 1)
    except ValueError:
        return ResourceKey.parse(text)  # which says what is wrong with it
    return ResourceKey(AgentKey(intern(tenant), name), intern(kind), intern(identity))


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
        key_of(key),
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


def evidence_values(evidence: Sequence[Evidence]) -> list[list[Any]]:
    """Evidence as JSON."""
    return [[item.source, item.said, item.at] for item in evidence]


def evidence_of(values: Sequence[Sequence[Any]]) -> tuple[Evidence, ...]:
    """Evidence out of JSON."""
    return tuple(Evidence(source, said, at) for source, said, at in values)


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
        "evidence": evidence_values(action.evidence),
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
    """The action in a row of either table; ``legs`` are the parts that only intents keep."""
    return Action(
        key=key_of(row.key),
        driver=row.driver,
        verb=Verb(row.verb),
        drift_class=Class(row.drift_class),
        reason=row.reason,
        message=row.message,
        confidence=Confidence(row.confidence),
        decision=Decision(row.decision),
        patch=tuple(row.patch),
        evidence=evidence_of(row.evidence),
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


def entry_of(row: Found) -> Entry:
    """An executed action, as ``history`` and ``explain`` want it."""
    return Entry(
        at=row.at,
        intent=row.id,
        key=key_of(row.key),
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
        evidence=evidence_of(row.evidence),
    )


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision of a plan, executed or not. ``held``: a guard stopped it. The action is without its legs."""

    at: float
    plan: str
    commit: str
    held: bool
    action: Action


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """One plan on record. ``waiting``: how many of its actions a guard held or people are asked about."""

    digest: str
    commit: str
    at: float
    actions: int
    waiting: int
    agents: int = 0


def decision_row(action: Action, *, held: bool) -> Row:
    """What was decided about one resource, as a row; the plan adds its own columns."""
    return {**_action_row(action), "held": held, "digest": action.digest}


def decided_of(row: Found) -> Decided:
    """The decision in a row."""
    return Decided(row.at, row.plan, row.commit_sha, row.held, _action_of(row))


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
