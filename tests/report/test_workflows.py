"""What is in flight, and what is stuck, from what the journal holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gitops_agent.model.agent import Lifecycle
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.fields import Fields
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.one_shot import OneShot
from gitops_agent.model.outcome import Attempt, Intent, Result
from gitops_agent.model.plan import Verb
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.state import (
    AgentStatuses,
    CommitsState,
    ControlState,
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
from gitops_agent.ports import ActionRecord
from gitops_agent.report.workflows import (
    WorkflowInputs,
    hook_counts,
    stuck,
    workflows,
    workflows_shape,
)

from .test_shapes import check
from .texts import workflows_text
from .values import NOW, SHA, a_record, an_action, an_entry

pytestmark = pytest.mark.unit

BOT = AgentKey("acme", "bot")
CONFIG, RUNTIME = ResourceKey(BOT, "config", "bundle"), ResourceKey(BOT, "runtime", "process")
HELLO, GOODBYE = ResourceKey(BOT, "hook", "onProvisioned"), ResourceKey(BOT, "hook", "onRetired")


def base(key: ResourceKey, *, established: bool = True, shot: OneShot | None = None) -> Base:
    handle = {"handle": shot.handle} if shot else {}
    return Base(key, "x", Fields.of({}), SHA, NOW - 60.0, established=established, idempotent=False, **handle)


def bases(*made: Base) -> dict[ResourceKey, Base]:
    return {each.key: each for each in made}


def status(*resources: ResourceKey, ready: bool = True, stalled: str = "", retired: bool = False) -> AgentStatus:
    said = [Condition(ConditionType.READY, ready, "Healthy", "well", NOW - 30.0, SHA)]
    if stalled:
        said.append(Condition(ConditionType.STALLED, True, stalled, "it does not go on", NOW - 30.0, SHA))
    lifecycle = Lifecycle.RETIRED if retired else Lifecycle.RUNNING
    shown = tuple(ResourceStatus(key, "x", "Running", "") for key in resources)
    return AgentStatus(BOT, ready, lifecycle, tuple(said), SHA, shown)


class LastActions:
    """A journal of which only the last action on each agent is known: it took something away, or nothing did."""

    def __init__(self, ending: bool) -> None:
        self.ending = ending

    def entries(self, *, agent: AgentKey, limit: int) -> list[ActionRecord]:
        return [an_entry(agent, verb="delete")] * limit if self.ending else []

    def commit_record(self, sha: str) -> CommitRecord:
        return a_record(sha)


def known(
    *,
    ending: bool = False,
    findings: Sequence[Finding] = (),
    head: CommitRecord | None = None,
    statuses: Mapping[AgentKey, AgentStatus] | None = None,
    freezes: Sequence[Control] = (),
    rollout: Rollout | None = None,
    intents: Sequence[Intent] = (),
    **record: Any,
) -> WorkflowInputs:
    state = State(
        source=SourceState(head=head.sha if head else None),
        commits=CommitsState({head.sha: head} if head else {}),
        status=StatusState(AgentStatuses(statuses or {})),
        control=ControlState(tuple(freezes)),
        rollout=RolloutState(rollout=rollout),
        reconcile=ReconcileState(open_intents={each.id: each for each in intents}, **record),
    )
    journal: Any = LastActions(ending)
    return WorkflowInputs(state, findings, journal, NOW)


def test_a_quiet_fleet_has_nothing_in_flight() -> None:
    quiet = known(bases=bases(base(CONFIG), base(RUNTIME)), statuses={BOT: status(CONFIG, RUNTIME)})
    assert workflows(quiet) == ()
    assert stuck(quiet) == 0
    assert workflows_text(quiet).startswith("Nothing is in flight.")
    check("workflows", workflows_shape(quiet))


def test_what_a_guard_stopped_is_stuck() -> None:
    much = Finding(Severity.WARNING, "MassDelete", "*", "too many go")
    stopped = replace(a_record(), phase=Phase.BLOCKED, plan="d1d1d1d1", summary="*: too many go", findings=(much,))
    tripped = Control(ControlVerb.FREEZE, "*", "guard mass_drift", NOW - 9.0, "many moved", plan="d2d2")
    mine = Control(ControlVerb.FREEZE, "acme", "ada", NOW - 9.0, "maintenance")
    held = known(head=stopped, freezes=[tripped, mine])
    assert [(each.kind, each.stuck) for each in workflows(held)] == [("commit", True), ("freeze", True)]
    assert "gitops-agent approve d1d1d1d1" in workflows_text(held)
    assert "gitops-agent unfreeze --scope '*'" in workflows_text(held)
    check("workflows", workflows_shape(held))


@pytest.mark.parametrize(
    ("code", "way_out"),
    [("Frozen", "gitops-agent unfreeze"), ("EmptySource", "Restore the documents"), ("FailedBefore", "retry a1")],
)
def test_an_approval_is_advised_only_where_it_would_help(code: str, way_out: str) -> None:
    hold = Finding(Severity.WARNING, code, "*", "stopped", f"To go on: {way_out}.")
    others = (Finding(Severity.WARNING, "Other", "a.yaml:1:1", "something else", "Elsewhere."), hold)
    stopped = replace(a_record(), phase=Phase.BLOCKED, plan="d1d1d1d1", summary="stopped", findings=others)
    (found,) = workflows(known(head=stopped))
    assert (found.reason, found.way_out) == (code, f"To go on: {way_out}.")
    assert "approve" not in workflows_text(known(head=stopped))


def test_provisioning_says_what_is_done_what_is_next_and_what_holds_it() -> None:
    tried = Attempt(2, NOW + 60.0, "no such command")
    moving = known(
        bases=bases(base(CONFIG, established=False)),
        statuses={BOT: status(CONFIG, RUNTIME, HELLO, ready=False)},
        attempts={RUNTIME: tried},
    )
    (found,) = workflows(moving)
    assert (found.kind, found.done, found.next) == ("provisioning", ("config/bundle",), "runtime/process")
    assert (found.reason, found.message) == ("Backoff", "no such command; tried again in 1 min")
    assert not found.stuck
    built = known(
        bases=bases(base(CONFIG, established=False), base(RUNTIME, established=False)),
        statuses={BOT: status(CONFIG, RUNTIME, ready=False, stalled="HealthTimeout")},
    )
    (found,) = workflows(built)
    assert (found.next, found.stuck, found.reason) == ("Ready", True, "HealthTimeout")
    assert "gitops-agent explain acme/bot" in found.way_out


def test_a_hook_that_waits_for_ready_is_the_next_checkpoint() -> None:
    said = Finding(Severity.INFO, "WaitingToBeReady", str(BOT), "its hooks wait until it is Ready")
    (found,) = workflows(
        known(bases=bases(base(RUNTIME)), statuses={BOT: status(RUNTIME, HELLO)}, findings=[said])
    )
    assert (found.next, found.reason) == ("hook/onProvisioned", "WaitingToBeReady")


@pytest.mark.parametrize("retired", [True, False])
def test_teardown(retired: bool) -> None:
    going = known(
        bases=bases(base(CONFIG)),
        statuses={BOT: status(*([] if retired else [CONFIG, RUNTIME]), retired=retired)},
        ending=not retired,
    )
    (found,) = workflows(going)
    assert (found.kind, found.next) == ("teardown", "config/bundle")
    assert found.done == (() if retired else ("runtime/process",))


def test_one_that_was_given_up_is_stuck_when_nothing_is_left_of_it() -> None:
    (found,) = workflows(known(statuses={BOT: status(ready=False, stalled="ProvisioningTimedOut")}))
    assert found.stuck
    assert f"gitops-agent retry {BOT}" in found.way_out


@pytest.mark.parametrize(("result", "reason"), [(Result.FAILED, "HookFailed"), (Result.UNKNOWN, "HookUnknown")])
def test_a_spent_hook_is_stuck_and_comes_first(result: Result, reason: str) -> None:
    spent = base(GOODBYE, shot=OneShot("g", result, "exit code 1"))
    fleet = known(
        bases=bases(spent),
        statuses={BOT: status(CONFIG, RUNTIME)},
        ending=True,
        intents=[Intent("i", an_action(verb=Verb.CREATE), SHA, "p", "once", NOW - 1.0)],
    )
    first, *rest = workflows(fleet)
    assert (first.kind, first.subject, first.reason) == ("hook", str(GOODBYE), reason)
    assert f"gitops-agent retry {BOT}" in first.way_out
    assert [(each.kind, each.stuck) for each in rest] == [("action", False)]
    assert stuck(fleet) == 1
    check("workflows", workflows_shape(fleet))
    text = workflows_text(fleet)
    assert "2 workflows in flight, 1 stuck" in text
    assert reason in text


def test_hooks_are_counted() -> None:
    results = (Result.DONE, Result.FAILED, Result.UNKNOWN, None)
    shots = [*(OneShot("g", result) for result in results), None]
    made = [
        base(ResourceKey(AgentKey("acme", f"a{number}"), "hook", "onRetired"), shot=shot)
        for number, shot in enumerate(shots)
    ]
    counts = dict.fromkeys(("done", "failed", "unknown", "due", "recorded"), 1)
    assert hook_counts(ReconcileState(bases=bases(base(CONFIG), *made))) == {"running": 0, **counts}
    assert [each.stuck for each in workflows(known(bases=bases(*made)))] == [True, True, False]


def test_a_hook_that_is_called_again_is_listed_once() -> None:
    call = Intent("i", replace(an_action(verb=Verb.CREATE), key=HELLO), SHA, "p", "run", NOW - 5.0)
    fleet = known(bases=bases(base(HELLO, shot=OneShot("g", None))), intents=[call])
    (found,) = workflows(fleet)
    assert (found.kind, found.next, found.since) == ("hook", "onProvisioned", NOW - 5.0)
    assert found.message == "called, and has not answered yet"
    assert "Hooks: 1 running." in workflows_text(fleet)


def test_an_action_that_has_been_open_for_long_is_stuck() -> None:
    intent = Intent("i", an_action(verb=Verb.CREATE), SHA, "p", "run", NOW - 3600.0)
    (found,) = workflows(known(intents=[intent]))
    assert found.stuck
    assert "gitops-agent once" in found.way_out
    hook = replace(an_action(verb=Verb.CREATE), key=HELLO, desired=Fields.of({"timeout": 3600.0}))
    (found,) = workflows(known(intents=[replace(intent, action=hook)]))
    assert not found.stuck, "a hook has the time it was given"


def test_a_rollout_shows_its_waves() -> None:
    rollout = Rollout(SHA, "tree", ((BOT,), (AgentKey("acme", "b"), AgentKey("acme", "c"))), released=1)
    (found,) = workflows(known(rollout=rollout))
    assert (found.done, found.next, found.stuck) == (("wave 1",), "wave 2", False)
    (held,) = workflows(known(rollout=replace(rollout, failed="acme/bot is not Ready")))
    assert held.stuck
    assert "gitops-agent retry" in held.way_out
    assert "2 agents wait" in held.message
    assert workflows(known(rollout=replace(rollout, released=2))) == ()
