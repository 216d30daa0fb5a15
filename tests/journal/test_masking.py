"""What is written has no secret in it, whichever part of the state carries it; names and fields stay as is."""

from __future__ import annotations

import sqlite3
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest

from gitops_agent.journal.sqlite import FILE_NAME
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.health import Evidence, Health, HealthState
from gitops_agent.model.observation import AgentInstance, Heartbeat
from gitops_agent.model.outcome import Attempt, Result
from gitops_agent.model.state import GivenUpAgent, RevertProposal, State
from gitops_agent.support.secrets import Redactor

from .values import (
    BOT,
    RUNTIME,
    SHA,
    a_commit,
    a_plan,
    a_status,
    an_action,
    an_intent,
    an_observation,
    an_outcome,
    with_controls,
    with_head,
    with_records,
    with_statuses,
)

pytestmark = pytest.mark.unit

CANARY = "canary-of-no-known-kind-4711"
ENCODED = b64encode(f"user:{CANARY}".encode()).decode()
TEXT = f"it printed {CANARY} and {ENCODED}"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def telling(state: State) -> State:
    """The secret in every part of the state that holds text of others."""
    finding = Finding(Severity.WARNING, "HookFailed", "acme/bot", TEXT, TEXT)
    status = a_status()
    (condition,), (resource,) = status.conditions, status.resources
    said = replace(
        status, conditions=(replace(condition, message=TEXT),), resources=(replace(resource, live={"x": [TEXT]}),)
    )
    state = with_statuses(with_records(state, a_commit(summary=TEXT, findings=(finding,)), head=SHA), said)
    state = with_controls(state, Control(ControlVerb.FREEZE, "*", "guard", 1.0, TEXT))
    return replace(
        state,
        source=replace(state.source, problem=finding),
        status=replace(state.status, findings=(finding,)),
        rollout=replace(state.rollout, given_up={BOT: GivenUpAgent(SHA, "spec", TEXT, 1.0)}),
        reconcile=replace(state.reconcile, attempts={RUNTIME: Attempt(1, 2.0, TEXT)}),
        proposals=replace(state.proposals, reverts={SHA: RevertProposal(SHA, message=TEXT)}),
    )


def write_everything(journal: SqlJournal) -> State:
    evidence = (Evidence("heartbeat", TEXT, 1.0),)
    action = an_action(message=TEXT, evidence=evidence, patch=({"op": "replace", "path": "/x", "value": TEXT},))
    seen = an_observation(
        message=TEXT,
        live={"x": {"y": [TEXT]}},
        evidence=evidence,
        health=Health(HealthState.STUCK, "ToolCallInProgress", TEXT, evidence=evidence),
        instances=(AgentInstance("7", heartbeat=Heartbeat(1.0, 1, (TEXT, CANARY))),),
    )
    journal.commit(telling(journal.state()), plans=[a_plan(action)], observations=[seen], at=1.0)
    journal.begin([an_intent(action=action)])
    journal.finish(
        [replace(an_outcome(result=Result.FAILED), message=TEXT)], attempts={RUNTIME: Attempt(2, 3.0, TEXT)}
    )
    journal.control(Control(ControlVerb.FREEZE, "acme", "ada", 2.0, TEXT))
    return journal.state()


def test_a_secret_in_any_text_reaches_neither_the_file_nor_memory(state: Path) -> None:
    redactor = Redactor()
    with open_journal(state, mask=redactor) as journal:
        redactor.learn([CANARY])
        known = write_everything(journal)
        written = b"".join(path.read_bytes() for path in state.iterdir())
        for word in (CANARY, ENCODED[8:-4]):
            assert word.encode() not in written
            assert word not in repr(known)
        assert b"it printed *** and" in written
    with open_journal(state, read_only=True) as again:
        assert again.state() == known, "memory holds what is kept"
        assert again.entries()[0].outcome.startswith("it printed *** and ")


def test_names_stay_as_they_are_whatever_the_secret_is(state: Path) -> None:
    with open_journal(state, mask=Redactor(["memory", SHA, "acme", str(BOT), "digest", "bot.yaml"])) as journal:
        write_everything(journal)
        known = journal.state()
        assert known.head is not None
        assert known.status.agents[BOT].resources[0].driver == "memory"
        assert journal.planned("digest") == {an_action().digest}
        assert [entry.key for entry in journal.entries(commit=SHA)] == [RUNTIME]


def test_what_was_masked_is_not_written_again(state: Path) -> None:
    with open_journal(state, mask=Redactor([CANARY])) as journal:
        journal.commit(telling(journal.state()))
        database = sqlite3.connect(state / FILE_NAME)
        before = database.execute("PRAGMA data_version").fetchone()
        told = telling(journal.state())
        journal.commit(replace(told, control=journal.state().control))
        assert database.execute("PRAGMA data_version").fetchone() == before
        database.close()


def test_nothing_is_masked_that_was_written_before(state: Path) -> None:
    asked: list[str] = []

    def mask(text: str) -> str:
        asked.append(text)
        return text

    with open_journal(state, mask=mask) as journal:
        seen = an_observation()
        now = journal.commit(with_statuses(journal.state(), a_status()), plans=[a_plan()], observations=[seen])
        assert asked
        asked.clear()
        journal.commit(now, plans=[a_plan()], observations=[seen])
        journal.commit(with_head(now, SHA), plans=[a_plan()], observations=[seen])
        assert asked == [], "a quiet pass pays nothing"
