"""Old history goes, what we live on stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.status import Phase

from .values import (
    BOT,
    CONFIG,
    RUNTIME,
    a_base,
    a_commit,
    a_plan,
    a_status,
    an_action,
    an_intent,
    an_observation,
    an_outcome,
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
    assert [intent.id for intent in journal.open_intents()] == ["open"]


@pytest.mark.parametrize("phase", list(Phase))
def test_what_belongs_to_an_unsettled_commit_stays(journal: SqlJournal, phase: Phase) -> None:
    journal.put_commits([a_commit(phase=phase)])
    journal.record_plan(a_plan(), OLD)
    journal.begin([an_intent(at=OLD)])
    journal.finish([an_outcome(at=OLD)])
    journal.prune(CUT)
    kept = 0 if phase.terminal else 1
    assert (len(journal.entries()), len(journal.decisions())) == (kept, kept)
    assert journal.commit(a_commit().sha) is not None


def test_the_last_observation_of_what_is_ours_stays(state: Path, journal: SqlJournal) -> None:
    stranger = ResourceKey(AgentKey("acme", "gone"), "runtime", "main")
    journal.finish([], bases=[a_base(RUNTIME)])
    journal.record_observations([an_observation(observed_at=OLD), an_observation(stranger, observed_at=OLD)])
    journal.record_observations([an_observation(observed_at=OLD + 1, state="Suspended")])
    assert journal.prune(CUT) == 2
    assert [item.state for item in journal.observations(BOT)] == ["Suspended"]
    assert journal.observations(stranger.agent) == []
    journal.record_observations([an_observation(stranger, observed_at=NEW)])
    assert len(journal.observations(stranger.agent)) == 1


def test_what_we_live_on_never_goes(state: Path, journal: SqlJournal) -> None:
    journal.finish([], bases=[a_base(applied_at=OLD)], attempts={RUNTIME: Attempt(1, OLD, "no")})
    journal.put_statuses([a_status()])
    journal.put_commits([a_commit()])
    journal.put({"enforced": "abc"})
    assert journal.prune(NEW) == 0
    with open_journal(state) as again:
        assert RUNTIME in again.bases()
        assert RUNTIME in again.attempts()
        assert BOT in again.statuses()
        assert again.get("enforced") == "abc"
        assert len(again.commits()) == 1


def test_controls_go_when_they_have_no_effect_any_more(state: Path, journal: SqlJournal) -> None:
    def say(verb: ControlVerb, target: str, at: float = OLD, **more: Any) -> None:
        journal.control(Control(verb, target, "ada@host", at, "why", **more))

    journal.record_plan(a_plan(digest="kept"), NEW)
    say(ControlVerb.FREEZE, "acme")
    say(ControlVerb.FREEZE, "over", until=OLD + 1)
    say(ControlVerb.FREEZE, "lifted")
    say(ControlVerb.UNFREEZE, "lifted")
    say(ControlVerb.APPROVE, "kept")
    say(ControlVerb.APPROVE, "gone")
    say(ControlVerb.RETRY, "acme/bot")
    say(ControlVerb.RETRY, "acme/bot", NEW)
    newest = journal.last_control()
    assert journal.prune(CUT) == 5
    with open_journal(state) as again:
        left = [(each.verb.value, each.target, each.at) for each in again.controls()]
        assert again.last_control() == newest
    assert left == [("freeze", "acme", OLD), ("approve", "kept", OLD), ("retry", "acme/bot", NEW)]


def test_a_pruned_plan_is_recorded_again(journal: SqlJournal) -> None:
    journal.record_plan(a_plan(), OLD)
    assert journal.prune(CUT) == 1
    journal.record_plan(a_plan(), NEW)
    assert [item.at for item in journal.decisions()] == [NEW]
