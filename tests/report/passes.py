"""Passes made by hand: what a sink is given, without a pipeline."""

from __future__ import annotations

from typing import Any

from gitops_agent.model.document import PolicySpec
from gitops_agent.model.key import AgentKey
from gitops_agent.model.passes import (
    Directives,
    Live,
    Observed,
    PassRecord,
    PassResult,
    RolloutDecision,
    Scope,
    SourceResult,
)
from gitops_agent.model.plan import Action
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.model.state import AgentStatuses, CommitsState, SourceState, State, StatusState
from gitops_agent.model.status import AgentStatus, CommitRecord

from .values import BOT, SHA, a_plan, a_record, a_status


def a_revision(sha: str = SHA, tree: str = "c3" * 20) -> Revision:
    return Revision(sha, tree, (), "Ada", 0.0, 0.0, "Give support-bot a second replica")


def a_snapshot(policy: PolicySpec | None = None) -> Snapshot:
    return Snapshot(a_revision(), {}, policy or PolicySpec())


def a_state(*records: CommitRecord, head: str = SHA, statuses: tuple[AgentStatus, ...] | None = None) -> State:
    known = (a_status(BOT),) if statuses is None else statuses
    agents = AgentStatuses({status.agent: status for status in known})
    return State(
        source=SourceState(head=head),
        commits=CommitsState({record.sha: record for record in records or (a_record(),)}),
        status=StatusState(agents=agents),
    )


def a_pass_record(*actions: Action, scope: Scope = None, **changes: Any) -> PassRecord:
    values: dict[str, Any] = {
        "source": SourceResult(head=a_revision()),
        "decision": RolloutDecision(a_snapshot(), PolicySpec()),
        "directives": Directives(),
        "plan": a_plan(*actions),
        "executed": (),
        "live": Live(Observed({}, changes.pop("unreachable", {})), {}, scope),
    }
    return PassRecord(**(values | changes))


def a_pass(*actions: Action, state: State | None = None, scope: Scope = None, **changes: Any) -> PassResult:
    return PassResult(state or a_state(), record=a_pass_record(*actions, scope=scope, **changes))


def key(name: str) -> AgentKey:
    return AgentKey("acme", name)
