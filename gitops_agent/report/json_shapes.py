"""The stable JSON of the command line, from model values. Pure.

The contract is in ``schemas/*.json`` and ``docs/json.md``: keys are only ever added. Redaction is the caller's
last step (``Redactor.tree``), so that one place covers every shape.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from gitops_agent.model.control import Control
from gitops_agent.model.finding import Finding, errors
from gitops_agent.model.plan import Action, Decision, Plan, Verb, Verdict
from gitops_agent.model.quantity import iso
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.status import AgentStatus, CommitRecord, Condition, Phase, ResourceStatus
from gitops_agent.report.moments import iso_or_none

Shape = dict[str, Any]
SHAPES = ("validate", "plan", "drift", "status", "history", "explain", "workflows", "control")


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """The state of the fleet at one moment, as ``status`` and ``once`` show it.

    ``commit`` is the newest seen, ``enforced`` the last good one, ``phase`` that of ``commit``;
    ``journal_age`` is how old the journal was when it was read (None: it was written just now); ``at`` is the
    moment of this picture, from which text counts ("3 min ago").
    """

    instance: str
    commit: str | None
    enforced: str | None
    phase: Phase | None
    statuses: Sequence[AgentStatus]
    findings: Sequence[Finding] = ()
    journal_age: float | None = None
    at: float | None = None
    rollout: Rollout | None = None


def schema(name: str) -> Shape:
    """The JSON Schema of one shape: ``validate``, ``plan``, ``status`` (also of ``once``) …"""
    text = files("gitops_agent.report").joinpath("schemas", f"{name}.json").read_text("utf-8")
    document: Shape = json.loads(text)
    return document


def findings_shape(findings: Iterable[Finding]) -> list[Shape]:
    """Findings in the order given."""
    return [
        {
            "severity": str(finding.severity),
            "code": finding.code,
            "address": finding.address,
            "summary": finding.summary,
            "detail": finding.detail,
        }
        for finding in findings
    ]


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


def plan_shape(plan: Plan, summary: Mapping[str, int] | None = None) -> Shape:
    """The answer of ``plan``."""
    return {
        "commit": plan.commit,
        "digest": plan.digest,
        "blocked": plan.blocked,
        "summary": dict(count_verbs(plan) if summary is None else summary),
        "actions": [_action(action, held=action.key in plan.held) for action in plan.actions],
        "findings": findings_shape(plan.findings),
        "verdicts": [_verdict(verdict) for verdict in plan.verdicts],
    }


def _action(action: Action, *, held: bool) -> Shape:
    return {
        "agent": str(action.key.agent),
        "resource": str(action.key),
        "driver": action.driver,
        "verb": str(action.verb),
        "class": str(action.drift_class),
        "reason": action.reason,
        "message": action.message,
        "confidence": str(action.confidence),
        "decision": str(action.decision),
        "patch": [dict(step) for step in action.patch],
        "held": held,
    }


def _verdict(verdict: Verdict) -> Shape:
    return {
        "guard": verdict.guard,
        "effect": str(verdict.effect),
        "held": sorted(map(str, verdict.held)),
        "findings": findings_shape(verdict.findings),
    }


def status_shape(fleet: FleetStatus) -> Shape:
    """The answer of ``status`` and ``once``."""
    return {
        "instance": fleet.instance,
        "commit": fleet.commit,
        "enforced": fleet.enforced,
        "phase": None if fleet.phase is None else str(fleet.phase),
        "rollout": _rollout(fleet),
        "agents": [agent_shape(status) for status in sorted(fleet.statuses, key=lambda status: status.agent)],
        "findings": findings_shape(fleet.findings),
        "journalAgeSeconds": None if fleet.journal_age is None else round(max(0.0, fleet.journal_age), 3),
    }


def under_way(fleet: FleetStatus) -> Rollout | None:
    """The rollout of the newest commit, unless every agent follows it already."""
    rollout = fleet.rollout
    return rollout if rollout is not None and rollout.commit == fleet.commit and not rollout.done else None


def _rollout(fleet: FleetStatus) -> Shape | None:
    rollout = under_way(fleet)
    if rollout is None:
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
        "phase": str(record.phase),
        "summary": record.summary,
        "startedAt": iso_or_none(record.started_at),
        "finishedAt": iso_or_none(record.finished_at),
        "rollsBackTo": record.rolls_back_to,
        "rolledBackBy": record.rolled_back_by,
        "subject": record.subject,
        "author": record.author,
        "committedAt": iso(record.committed_at),
        "planDigest": record.plan or None,
        "changed": record.changed,
    }


def said_shape(controls: Iterable[Control], meaning: str, *, running: bool) -> Shape:
    """The answer of ``freeze``, ``unfreeze``, ``approve`` and ``retry``."""
    return {"controls": [_control(control) for control in controls], "meaning": meaning, "running": running}


def _control(control: Control) -> Shape:
    return {
        "verb": str(control.verb),
        "target": control.target,
        "actor": control.actor,
        "at": iso(control.at),
        "reason": control.reason,
        "until": iso_or_none(control.until),
    }
