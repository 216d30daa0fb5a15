"""Old history goes, what we live on stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gitops_agent.journal.place import Place
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.rollout import FailedTree
from gitops_agent.model.state import MAX_RECORDS, RolloutState
from gitops_agent.model.status import CommitRecord, Phase
from tests.support.decisions import decided

from .values import (
    BOT,
    CONFIG,
    RUNTIME,
    SHA,
    a_base,
    a_commit,
    a_plan,
    a_status,
    an_action,
    an_intent,
    an_observation,
    an_outcome,
    observe,
    with_records,
    with_statuses,
)

pytestmark = pytest.mark.unit
OLD, CUT, NEW = 100.0, 500.0, 900.0


def test_finished_intents_go_and_open_ones_stay(journal: SqlJournal) -> None:
    journal.begin([an_intent("old", at=OLD), an_intent("open", an_action(CONFIG), at=OLD)])
    journal.finish([an_outcome("old", at=OLD)])
    journal.begin([an_intent("new", at=NEW)])
    journal.finish([an_outcome("new", at=NEW)])
    assert journal.prune(CUT) == 1
    assert {entry.intent for entry in journal.entries()} == {"open", "new"}
    assert list(journal.state().reconcile.open_intents) == ["open"]


@pytest.mark.parametrize("phase", list(Phase))
def test_what_belongs_to_an_unsettled_commit_stays(journal: SqlJournal, phase: Phase) -> None:
    journal.commit(with_records(journal.state(), a_commit(phase=phase)), plans=[a_plan()], at=OLD)
    journal.begin([an_intent(at=OLD)])
    journal.finish([an_outcome(at=OLD)])
    journal.prune(CUT)
    kept = 0 if phase.terminal else 1
    assert (len(journal.entries()), len(decided(journal))) == (kept, kept)
    assert journal.commit_record(a_commit().sha) is not None


def test_the_last_observation_of_what_is_ours_stays(state: Place, journal: SqlJournal) -> None:
    stranger = ResourceKey(AgentKey("acme", "gone"), "runtime", "main")
    journal.finish([], bases=[a_base(RUNTIME)])
    observe(journal, an_observation(observed_at=OLD), an_observation(stranger, observed_at=OLD))
    observe(journal, an_observation(observed_at=OLD + 1, state="Suspended"))
    assert journal.prune(CUT) == 2
    assert [item.state for item in journal.observations(BOT)] == ["Suspended"]
    assert journal.observations(stranger.agent) == []
    observe(journal, an_observation(stranger, observed_at=NEW))
    assert len(journal.observations(stranger.agent)) == 1


def test_what_we_live_on_never_goes(state: Place, journal: SqlJournal) -> None:
    journal.finish([], bases=[a_base(applied_at=OLD)], attempts={RUNTIME: Attempt(1, OLD, "no")})
    now = with_statuses(with_records(journal.state(), a_commit(), head=SHA), a_status())
    now = journal.commit(now, owed_to=["notes"])
    assert journal.prune(NEW) == 0
    assert journal.state() == now
    with open_journal(state) as again:
        assert again.state() == now
        assert again.owed() == {"notes": {SHA: 1}}


def history(count: int) -> list[CommitRecord]:
    return [a_commit(f"{number:040}", number, finished_at=OLD) for number in range(count)]


def test_old_records_of_commits_go_and_what_was_owed_of_them(state: Place, journal: SqlJournal) -> None:
    records = history(MAX_RECORDS + 10)
    records[1] = replace(records[1], phase=Phase.BLOCKED)
    records[2] = replace(records[2], finished_at=NEW)
    now = with_records(journal.state(), *records, head=records[-1].sha)
    now = replace(
        now,
        rollout=RolloutState(
            enforced=records[3].sha,
            released={BOT: records[4].sha},
            failed_trees=(FailedTree("tree", records[5].sha, "why", OLD),),
        ),
    )
    journal.commit(now, owed_to=["notes"])
    journal.begin([an_intent(commit=records[6].sha)])
    assert journal.prune(CUT) == 4
    left = {record.sha for record in journal.commits()}
    assert {record.sha for record in records} - left == {records[index].sha for index in (0, 7, 8, 9)}
    assert journal.owed()["notes"].keys() == left
    with open_journal(state) as again:
        assert again.state() == journal.state()
        assert again.owed() == journal.owed()


def test_controls_go_when_they_have_no_effect_any_more(state: Place, journal: SqlJournal) -> None:
    def say(verb: ControlVerb, target: str, at: float = OLD, **more: Any) -> None:
        journal.control(Control(verb, target, "ada@host", at, "why", **more))

    journal.commit(journal.state(), plans=[a_plan(digest="kept")], at=NEW)
    say(ControlVerb.FREEZE, "acme")
    say(ControlVerb.FREEZE, "over", until=OLD + 1)
    say(ControlVerb.FREEZE, "lifted")
    say(ControlVerb.UNFREEZE, "lifted")
    say(ControlVerb.APPROVE, "kept")
    say(ControlVerb.APPROVE, "gone")
    say(ControlVerb.RETRY, "acme/bot")
    say(ControlVerb.RETRY, "acme/bot", NEW)
    newest = journal.state().control.controls[-1].seq
    assert journal.prune(CUT) == 5
    with open_journal(state) as again:
        left = [(each.verb.value, each.target, each.at) for each in again.state().control.controls]
        assert again.state() == journal.state()
        assert again.state().control.controls[-1].seq == newest
    assert left == [("freeze", "acme", OLD), ("approve", "kept", OLD), ("retry", "acme/bot", NEW)]


def test_a_pruned_plan_is_recorded_again(journal: SqlJournal) -> None:
    journal.commit(journal.state(), plans=[a_plan()], at=OLD)
    assert journal.prune(CUT) == 2, "the plan and its decision"
    journal.commit(journal.state(), plans=[a_plan()], at=NEW)
    assert [item.at for item in decided(journal)] == [NEW]
