"""Model values with everything filled in, for the tests of this folder to vary."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from gitops_agent.model.agent import Lifecycle
from gitops_agent.model.fields import Fields
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.plan import Action, Class, Confidence, Decision, Effect, Plan, Verb, Verdict
from gitops_agent.model.state import (
    AgentStatuses,
    CommitsState,
    ReconcileState,
    RolloutState,
    SourceState,
    State,
    StatusState,
)
from gitops_agent.model.status import (
    AgentStatus,
    CommitRecord,
    Condition,
    ConditionType,
    Phase,
    ResourceStatus,
)
from gitops_agent.ports import ActionRecord, CommitChange
from gitops_agent.report import json_shapes
from gitops_agent.report.sinks import git_notes

NOW = 1_700_000_000.0
SHA = "a1" * 20
OTHER = "b2" * 20
BOT = AgentKey("acme", "support-bot")
SHAPES = ("validate", "plan", "drift", "status", "history", "explain", "workflows", "control")


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema that ships with one shape: ``validate``, ``plan``, ``status`` (also of ``once``) …"""
    text = files("gitops_agent.report").joinpath("schemas", f"{name}.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def runtime_key(agent: AgentKey = BOT) -> ResourceKey:
    return ResourceKey(agent, "runtime", "main")


def a_finding(**changes: Any) -> Finding:
    values: dict[str, Any] = {
        "severity": Severity.ERROR,
        "code": "UnknownField",
        "address": "agents/acme/support-bot.yaml:7:3",
        "summary": "unknown field replcas",
        "detail": "found: replcas\nexpected: replicas",
    }
    return Finding(**(values | changes))


def a_condition(kind: ConditionType = ConditionType.READY, status: bool = True, **changes: Any) -> Condition:
    values: dict[str, Any] = {
        "reason": "Healthy" if status else "CrashLoop",
        "message": "1 of 1 replicas ready" if status else "exited with code 1",
        "last_transition_at": NOW - 90,
        "observed_commit": SHA,
    }
    return Condition(kind, status, **(values | changes))


def a_status(agent: AgentKey = BOT, ready: bool = True, commit: str = SHA, **changes: Any) -> AgentStatus:
    live = {"replicas": [{"pid": 4242, "state": "Running"}]}
    values: dict[str, Any] = {
        "agent": agent,
        "ready": ready,
        "lifecycle": Lifecycle.RUNNING,
        "conditions": (a_condition(status=ready, observed_commit=commit),),
        "observed_commit": commit,
        "resources": (ResourceStatus(runtime_key(agent), "process", "Running", "Healthy", live),),
        "origin": "agents/acme/support-bot.yaml:1",
        "next_try_at": None if ready else NOW + 30,
    }
    return AgentStatus(**(values | changes))


def a_record(sha: str = SHA, phase: Phase = Phase.CONVERGED, **changes: Any) -> CommitRecord:
    values: dict[str, Any] = {
        "sha": sha,
        "tree": "c3" * 20,
        "subject": "Give support-bot a second replica",
        "author": "Ada <ada@example.com>",
        "committed_at": NOW - 20,
        "position": 3,
        "phase": phase,
        "seen_at": NOW - 10,
        "started_at": NOW - 9,
        "finished_at": NOW - 4.8,
        "plan": "d4" * 16,
        "summary": "3 changed",
        "changed": 3,
        "agents": 12,
    }
    return CommitRecord(**(values | changes))


def an_action(**changes: Any) -> Action:
    values: dict[str, Any] = {
        "key": runtime_key(),
        "driver": "process",
        "verb": Verb.UPDATE,
        "drift_class": Class.CHANGE,
        "reason": "SpecChanged",
        "message": "replicas 1 to 2",
        "confidence": Confidence.HIGH,
        "decision": Decision.REPAIR,
        "live": Fields.of({"replicas": 1, "env": {"API_TOKEN": "hunter22"}}),
        "patch": ({"op": "replace", "path": "/replicas", "value": 2},),
    }
    return Action(**(values | changes))


def a_plan(*actions: Action, **changes: Any) -> Plan:
    held = changes.pop("held", frozenset())
    verdicts = changes.pop("verdicts", (Verdict("massDelete", Effect.PASS),))
    return Plan(SHA, actions, "d4" * 16, verdicts=verdicts, held=held, **changes)


def an_entry(agent: AgentKey = BOT, **changes: Any) -> ActionRecord:
    values: dict[str, Any] = {
        "at": NOW - 8,
        "intent": "i-1",
        "key": runtime_key(agent),
        "driver": "process",
        "verb": "restart",
        "drift_class": "MissingExternal",
        "reason": "ProcessGone",
        "message": "the process is gone",
        "confidence": "high",
        "actor": "gitops-agent",
        "commit": SHA,
        "plan": "d4" * 16,
        "before": None,
        "after": Fields.of({"replicas": 1}),
        "result": "Done",
        "outcome": "started",
        "duration": 0.2,
    }
    return ActionRecord(**(values | changes))


def a_change(
    record: CommitRecord | None = None,
    *,
    statuses: Mapping[AgentKey, AgentStatus] | None = None,
    entries: Sequence[ActionRecord] = (),
    version: int = 1,
) -> CommitChange:
    return CommitChange(
        record or a_record(), {BOT: a_status()} if statuses is None else statuses, entries, version
    )


def a_known_state(
    head: CommitRecord | None, enforced: str | None, statuses: Sequence[AgentStatus], **parts: Any
) -> State:
    agents = AgentStatuses({status.agent: status for status in statuses})
    return State(
        source=SourceState(head=head.sha if head else None),
        commits=CommitsState({head.sha: head} if head else {}),
        rollout=RolloutState(enforced=enforced),
        status=StatusState(agents, last_pass=parts.pop("last_pass", None)),
        **parts,
    )


@dataclass(frozen=True)
class FleetStatus:
    """A state of the fleet, as far as ``status`` shows it."""

    instance: str
    commit: str | None
    enforced: str | None
    phase: Phase | None
    statuses: Sequence[AgentStatus]
    findings: Sequence[Finding] = ()
    journal_age: float | None = None
    at: float | None = None


def status_shape(fleet: FleetStatus) -> dict[str, Any]:
    head = a_record(fleet.commit, fleet.phase) if fleet.commit and fleet.phase else None
    now = None if fleet.journal_age is None else NOW
    last = None if fleet.journal_age is None else NOW - fleet.journal_age
    state = a_known_state(head, fleet.enforced, fleet.statuses, last_pass=last)
    return json_shapes.status_shape(fleet.instance, state, fleet.statuses, fleet.findings, now)


@dataclass(frozen=True)
class Explanation:
    """What is known of one agent, as far as ``explain`` shows it."""

    agent: AgentKey
    now: float
    status: AgentStatus | None
    enforced: CommitRecord | None = None
    head: CommitRecord | None = None
    entries: Sequence[ActionRecord] = ()
    attempts: Mapping[ResourceKey, Attempt] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    journal_age: float | None = None


def explanation_shape(known: Explanation) -> dict[str, Any]:
    state = a_known_state(
        known.head,
        None,
        [known.status] if known.status else [],
        reconcile=ReconcileState(attempts=known.attempts),
        last_pass=None if known.journal_age is None else known.now - known.journal_age,
    )
    return json_shapes.explanation_shape(
        known.agent, state, known.enforced, known.entries, known.findings, known.now
    )


def render_note(
    instance: str,
    record: CommitRecord,
    statuses: Mapping[AgentKey, AgentStatus],
    entries: Sequence[ActionRecord],
    **more: Any,
) -> str:
    return git_notes.render_note(instance, a_change(record, statuses=statuses, entries=entries), **more)
