"""Every part of a journal that the version before "One house" wrote is there after the migration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from gitops_agent.journal.place import Place
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.health import Evidence
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.outcome import Attempt, Circuit
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.state import GivenUpAgent, LiveImport, RevertProposal, State
from gitops_agent.model.status import ConditionType, Phase
from tests.support.decisions import decided

from .old import put_version_4
from .values import an_intent

pytestmark = pytest.mark.unit

FIRST, SECOND, FAILED, HEAD = (
    "dd6897bd9d95fd477e6c52b20fa034d5df2e582f",
    "68fa698bdf21b335d9bdeddc134677bd134bab6c",
    "1f0aed9dd5010a32116907a37dd56e9a4ecb99e4",
    "d2631944f23521ae2c81eb81c05dbaa86b8f0cb7",
)
LAST_PASS = 1794945082.734913
ADA = "ada@example"
BOT, CRM, DIGEST = AgentKey("acme", "bot"), AgentKey("acme", "crm"), AgentKey("globex", "digest")
CRM_RUNTIME = ResourceKey(CRM, "runtime", "process")


@pytest.fixture(scope="module")
def journal(new_place: Callable[[], Place]) -> Iterator[SqlJournal]:
    place = new_place()
    put_version_4(place)
    with open_journal(place, writer="test") as opened:
        yield opened


@pytest.fixture(scope="module")
def found(journal: SqlJournal) -> State:
    return journal.state()


def test_source(found: State) -> None:
    source = found.source
    assert (source.head, source.verified, source.valid) == (HEAD, HEAD, HEAD)
    assert source.fetched_at == 1794945043.5032156
    assert source.freezes_first_seen == {"globex": LAST_PASS - 90.0}
    assert source.problem is not None
    assert (source.problem.severity, source.problem.code) == (Severity.ERROR, "SourceUnavailable")
    assert source.problem.summary.startswith("repository /srv/gitops-agent/repo: there is no repository")
    assert source.problem.detail.startswith("check repo")


def test_commits(found: State, journal: SqlJournal) -> None:
    window = [(each.sha, each.phase) for each in found.commits.newest_first]
    assert window == [(HEAD, Phase.BLOCKED), (FAILED, Phase.DEGRADED), (SECOND, Phase.CONVERGED)]
    assert [each.sha for each in journal.commits()] == [HEAD, FAILED, SECOND, FIRST]
    assert found.head is not None
    assert (found.head.subject, found.head.author, found.head.position) == (
        "Drop acme", "Ada <ada@example.com>", 3,
    )  # fmt: skip
    assert found.head.findings[0].code == "Frozen"
    assert journal.commits(tree=found.head.tree) == [found.head]


def test_rollout(found: State) -> None:
    rollout = found.rollout
    assert (rollout.enforced, rollout.converged) == (SECOND, SECOND)
    assert rollout.released == {BOT: HEAD}
    assert rollout.rollout == Rollout(
        commit=HEAD,
        tree="265999e20e9e14cd35acd6778c3d272ce5bda3e5",
        waves=((BOT,), (CRM,)),
        released=1,
        passed_at=-7.5,
        pauses=(0.0, 0.0),
        on_failure="ProposeRevert",
    )
    assert [(each.commit, each.at) for each in rollout.failed_trees] == [(FAILED, 1794945032.65196)]
    assert rollout.converged_policy is not None
    assert rollout.converged_policy.rollout.on_failure == "ProposeRevert"
    assert rollout.judged_agents == {BOT}
    # In active seconds, which start at 0: the time that was used up until the last pass, and none after it.
    assert rollout.unready_since == {BOT: -12.5, CRM: 0.0}
    late = "not Ready within 5m"
    assert rollout.given_up == {
        AgentKey("globex", "new"): GivenUpAgent(HEAD, "digest", late, LAST_PASS - 60.0),
        AgentKey("globex", "newer"): GivenUpAgent(HEAD, "digest2", late, LAST_PASS - 50.0, LAST_PASS - 70.0),
    }


def test_reconcile(found: State) -> None:
    reconcile = found.reconcile
    assert len(reconcile.bases) == 5
    crm = reconcile.bases[CRM_RUNTIME].fields.value
    assert (crm["command"], crm["health"]["minUptime"]) == (["sleep", "1001"], "2s")
    assert reconcile.bases[CRM_RUNTIME].handle.value["replicas"][0][:2] == [0, 2932]
    assert reconcile.attempts == {CRM_RUNTIME: Attempt(2, LAST_PASS + 10.0, "exit 3")}
    assert reconcile.circuits == {"config": Circuit("config"), "process": Circuit("process")}
    (intent,) = reconcile.open_intents.values()
    assert (intent.id, intent.commit, intent.actor) == ("open-1", HEAD, "run")
    assert intent.action.evidence == (Evidence("kernel", "alive", LAST_PASS - 1.0),)


def test_control(found: State) -> None:
    control = found.control
    said = [(each.seq, each.verb, each.target, each.actor) for each in control.controls]
    assert said == [
        (1, ControlVerb.FREEZE, "acme", ADA),
        (2, ControlVerb.RETRY, "acme/bot", ADA),
        (3, ControlVerb.APPROVE, "b0bb272c9634c39a984088b9e3c304be", ADA),
    ]
    assert control.handled_seq == 3
    assert control.retried_at == {BOT: 1794945040.820034}


def test_status(found: State) -> None:
    status = found.status
    assert (status.last_pass, status.active_seconds) == (LAST_PASS, 0.0)
    assert [each.code for each in status.findings] == ["Frozen", "ApprovedBy"]
    assert set(status.agents) == {BOT, CRM, DIGEST}
    crm = status.agents[CRM]
    assert crm.ready is True
    assert crm.conditions[0].type is ConditionType.READY
    assert {each.key for each in crm.resources} >= {CRM_RUNTIME}
    assert status.agents.not_ready == {BOT}


def test_proposals(found: State) -> None:
    branch = "gitops-agent/revert-1f0aed9dd5"
    message = f"branch {branch} holds the revert: review and merge it"
    assert found.proposals.reverts == {FAILED: RevertProposal(FAILED, "c" * 40, branch, True, message)}
    refused = Finding(
        Severity.WARNING, "ImportRefused", str(CRM_RUNTIME), "the value cannot be written", "Write it by hand."
    )
    assert found.proposals.imports == {
        "gitops-agent/import-1": LiveImport(CRM_RUNTIME, LAST_PASS - 30.0, False, HEAD, refused, LAST_PASS + 60.0),
        "gitops-agent/import-2": LiveImport(ResourceKey(CRM, "config", "bundle"), LAST_PASS - 20.0, True),
    }


def test_history(journal: SqlJournal) -> None:
    assert len(journal.entries(limit=1000)) == 14
    assert len(decided(journal)) == 12
    assert journal.plans("b0bb272c9634")[0].commit == HEAD
    seen = journal.observations(CRM)
    assert {each.key for each in seen} >= {CRM_RUNTIME}
    assert all(each.evidence for each in seen)
    assert journal.owed() == {}


def test_what_is_written_next_follows_what_was_there(journal: SqlJournal) -> None:
    newest = journal.observations(CRM)[0]
    journal.commit(journal.state(), observations=[replace(newest, message="moved on")])
    journal.control(Control(ControlVerb.FREEZE, "acme", ADA, LAST_PASS))
    journal.begin([an_intent("next", at=LAST_PASS)])
    assert journal.observations(CRM)[0].message == "moved on"
    assert journal.state().control.controls[-1].seq == 4
    assert journal.entries()[0].intent == "next"
