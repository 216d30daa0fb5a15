"""Model values with everything filled in, for the tests of this folder to vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gitops_agent.model.agent import Lifecycle
from gitops_agent.model.fields import Fields
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.plan import Action, Class, Confidence, Decision, Effect, Plan, Verb, Verdict
from gitops_agent.model.status import (
    AgentStatus,
    CommitRecord,
    Condition,
    ConditionType,
    Phase,
    ResourceStatus,
)
from gitops_agent.ports import ActionRecord, CommitChange

NOW = 1_700_000_000.0
SHA = "a1" * 20
OTHER = "b2" * 20
BOT = AgentKey("acme", "support-bot")


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
