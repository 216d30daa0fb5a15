"""Answers from the journal: which findings concern an agent, which agent is meant, how old the knowledge is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from gitops_agent.errors import UsageError
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.key import AgentKey
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.passes import PassResult
from gitops_agent.model.quantity import iso
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.state import (
    AgentStatuses,
    CommitsState,
    ControlState,
    LiveImport,
    ProposalState,
    ReconcileState,
    RolloutState,
    SourceState,
    State,
    StatusState,
)
from gitops_agent.model.status import AgentStatus, CommitRecord, ConditionType, Phase
from gitops_agent.ports import ActionRecord
from gitops_agent.query.fleet import FleetReader
from gitops_agent.report.json_shapes import findings_shape, status_shape
from gitops_agent.report.workflows import workflows_shape
from gitops_agent.support.secrets import Redactor
from tests.report.values import (
    BOT,
    NOW,
    OTHER,
    SHA,
    a_condition,
    a_finding,
    a_record,
    a_status,
    an_entry,
    runtime_key,
)

pytestmark = pytest.mark.unit

CAT = AgentKey("globex", "cat")


@dataclass
class MemoryRecords:
    """A journal's read side, in memory."""

    now: State
    records: Sequence[CommitRecord] = ()
    actions: Sequence[ActionRecord] = field(default_factory=list)

    def state(self) -> State:
        return self.now

    def commit_record(self, sha: str) -> CommitRecord | None:
        return next((each for each in self.records if each.sha == sha), None)

    def commits(self, limit: int | None = None) -> Sequence[CommitRecord]:
        return self.records[:limit]

    def entries(self, *, agent: AgentKey | None = None, limit: int = 100) -> Sequence[ActionRecord]:
        return [each for each in self.actions if agent in (None, each.key.agent)][:limit]


def a_state(*statuses: AgentStatus, head: CommitRecord | None = None, **parts: object) -> State:
    record = head or a_record()
    known = AgentStatuses({each.agent: each for each in statuses or (a_status(),)})
    return replace(
        State(
            source=SourceState(head=record.sha),
            commits=CommitsState({record.sha: record}),
            rollout=RolloutState(enforced=SHA),
            status=StatusState(known, last_pass=NOW - 5),
        ),
        **parts,  # type: ignore[arg-type]
    )


def reader(
    state: State, actions: Sequence[ActionRecord] = (), records: Sequence[CommitRecord] = ()
) -> FleetReader:
    journal = MemoryRecords(state, records or tuple(state.commits.records.values()), actions)
    return FleetReader(journal, "prod-eu", NOW, Redactor())


def test_the_fleet_as_it_was_last_reported() -> None:
    fleet = reader(a_state()).fleet()
    assert [fleet[name] for name in ("instance", "commit", "enforced", "phase")] == [
        "prod-eu",
        SHA,
        SHA,
        "Converged",
    ]
    assert fleet["journalAgeSeconds"] == 5.0
    assert [agent["agent"] for agent in fleet["agents"]] == [str(BOT)]
    assert reader(a_state()).fleet(CAT)["agents"] == [], "it is gone"
    assert reader(State()).fleet()["journalAgeSeconds"] is None


def test_findings_come_from_the_source_the_commit_the_pass_and_the_proposals() -> None:
    gone = a_finding(code="SourceUnavailable", address="source")
    lasting, of_a_pass = a_finding(code="GateFailed", address=SHA), a_finding(code="ProcessGone", address=str(BOT))
    proposed = a_finding(code="ImportProposed", address=str(BOT))
    state = a_state(
        head=a_record(findings=(lasting, of_a_pass)),
        source=SourceState(head=SHA, problem=gone),
        proposals=ProposalState(imports={"b": LiveImport(runtime_key(), NOW, finding=proposed)}),
    )
    state = replace(state, status=replace(state.status, findings=(lasting, a_finding())))
    assert reader(state).fleet()["findings"] == findings_shape((gone, lasting, a_finding(), proposed))


def test_one_agent_sees_what_concerns_it() -> None:
    frozen = a_finding(code="Frozen", address="*")
    about = a_finding(address=f"{BOT}:runtime/main")
    document = a_finding(address="agents/acme/support-bot.yaml:7:3")
    found = (frozen, about, document, a_finding(address=str(CAT)), a_finding(code="SourceSlow", address="source"))
    calm, cold = a_state(), a_state(a_status(conditions=(a_condition(ConditionType.FROZEN),)))
    for state, expected in ((calm, found[:3] + found[-1:]), (cold, found[:3] + found[-1:])):
        told = replace(state, status=replace(state.status, findings=found))
        assert reader(told).fleet(BOT)["findings"] == findings_shape(expected)


def test_explain_gathers_what_is_known_of_one_agent() -> None:
    old, head = a_record(OTHER), a_record(phase=Phase.INVALID, findings=(a_finding(),))
    state = a_state(
        a_status(commit=OTHER),
        head=head,
        reconcile=ReconcileState(
            attempts={runtime_key(): Attempt(2, NOW + 5, "no"), runtime_key(CAT): Attempt(1, NOW, "other")}
        ),
    )
    known = reader(state, [an_entry(), an_entry(CAT)], [head, old]).explain(BOT)
    assert (known["enforced"]["commit"], known["newest"]["commit"]) == (old.sha, head.sha)
    assert [action["resource"] for action in known["actions"]] == [str(runtime_key())]
    assert [attempt["resource"] for attempt in known["attempts"]] == [str(runtime_key())]
    assert known["findings"] == [], "those of the commit that is turned down are in its record"


def test_workflows_know_the_rollout_and_the_freezes() -> None:
    freeze = Control(ControlVerb.FREEZE, "*", "guard", NOW - 9, plan="d1")
    rollout = Rollout(SHA, "t", ((BOT,), (CAT,)), released=1)
    state = a_state(rollout=RolloutState(SHA, rollout=rollout), control=ControlState((freeze,)))
    shape = workflows_shape(reader(state, [an_entry(verb="delete")]).workflows())
    assert shape["journalAgeSeconds"] == 5.0
    started = {each["kind"]: each["since"] for each in shape["workflows"]}
    assert started == {"freeze": iso(NOW - 9), "rollout": iso(NOW - 9)}
    shape = workflows_shape(reader(state, [an_entry(CAT, verb="delete")]).workflows())
    assert {each["subject"] for each in shape["workflows"] if each["kind"] == "provisioning"} == {str(BOT)}


@pytest.mark.parametrize("text", ["acme/support-bot", "support-bot"])
def test_an_agent_goes_by_its_key_or_its_name(text: str) -> None:
    assert reader(a_state(a_status(), a_status(CAT))).find(text) == BOT


def test_an_agent_that_is_gone_is_found_in_history() -> None:
    assert reader(a_state(), [an_entry(CAT)]).find("cat") == CAT


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("support-bto", "no agent is called 'support-bto'", "agents: acme/support-bot"),
        ("support-bot", "more than one agent is", "agents: acme/support-bot, globex/support-bot"),
    ],
)
def test_a_name_that_fits_none_or_several(text: str, problem: str, hint: str) -> None:
    twin = AgentKey("globex", "support-bot")
    known = (a_status(), a_status(CAT)) if "bto" in text else (a_status(), a_status(twin))
    with pytest.raises(UsageError, match=problem) as caught:
        reader(a_state(*known)).find(text)
    assert caught.value.hint == hint


def test_the_fleet_as_a_pass_left_it() -> None:
    result = PassResult(a_state(), (a_finding(),))
    fleet = status_shape("x", result.state, result.state.status.agents.values(), result.findings)
    assert (fleet["commit"], fleet["phase"], fleet["journalAgeSeconds"]) == (SHA, "Converged", None)
    assert fleet["findings"] == findings_shape([a_finding()])
