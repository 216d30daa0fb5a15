"""What the journal remembers, in which order, and what belongs together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.errors import JournalError
from gitops_agent.journal.place import Place
from gitops_agent.journal.sqlite import FILE_NAME, _write_connection
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.fields import Fields
from gitops_agent.model.health import Evidence, Health, HealthState
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import AgentInstance, Heartbeat
from gitops_agent.model.outcome import Attempt, Result
from gitops_agent.model.plan import Decision, Plan, Verb
from gitops_agent.model.state import State
from gitops_agent.model.status import ConditionType, Phase
from tests.support.decisions import decided
from tests.support.statements import statements

from .conftest import only_sqlite
from .values import (
    BOT,
    CONFIG,
    RUNTIME,
    SHA,
    WANTED,
    a_base,
    a_commit,
    a_plan,
    a_status,
    an_action,
    an_intent,
    an_observation,
    an_outcome,
    observe,
    with_head,
    with_records,
    with_statuses,
)

pytestmark = pytest.mark.unit

EXTRA = (ConditionType.DRIFTED, ConditionType.HALTED, ConditionType.RECONCILING)


def test_a_new_journal_holds_the_empty_state(journal: SqlJournal) -> None:
    assert journal.state() == State()


def test_an_executed_action_keeps_everything_about_it(journal: SqlJournal) -> None:
    action = an_action(verb=Verb.UPDATE, live=Fields.of({"replicas": 2}))
    journal.begin([an_intent(action=action)])
    journal.finish([an_outcome()], bases=[a_base()])
    (entry,) = journal.entries()
    assert (entry.at, entry.intent, entry.key, entry.driver, entry.verb) == (
        20.0,
        "i1",
        RUNTIME,
        "memory",
        "update",
    )
    assert (entry.drift_class, entry.reason, entry.message) == ("Change", "Created", "new in Git")
    assert (entry.confidence, entry.actor, entry.commit, entry.plan) == ("high", "once", SHA, "digest")
    assert (entry.before, entry.after) == (Fields.of({"replicas": 2}), WANTED)
    assert (entry.result, entry.outcome, entry.duration) == ("Done", "started", 0.5)


def test_an_action_in_progress_has_no_result_yet(journal: SqlJournal) -> None:
    journal.begin([an_intent()])
    (entry,) = journal.entries()
    assert (entry.result, entry.outcome, entry.duration) == (None, "", None)
    assert list(journal.state().reconcile.open_intents) == ["i1"]


def test_entries_are_newest_first_and_can_be_narrowed(journal: SqlJournal) -> None:
    other = ResourceKey(AgentKey("acme", "other"), "runtime", "main")
    journal.begin([an_intent("i1"), an_intent("i2", an_action(CONFIG), commit="b" * 40)])
    journal.begin([an_intent("i3", an_action(other))])
    assert [entry.intent for entry in journal.entries()] == ["i3", "i2", "i1"]
    assert [entry.intent for entry in journal.entries(limit=1)] == ["i3"]
    assert [entry.intent for entry in journal.entries(agent=BOT)] == ["i2", "i1"]
    assert [entry.intent for entry in journal.entries(agent=BOT, commit=SHA)] == ["i1"]


def open_of(state: State) -> list[tuple[str, float]]:
    return [(intent.id, intent.at) for intent in state.reconcile.open_intents.values()]


def test_a_newer_intent_ends_an_older_one_of_the_same_resource(state: Place, journal: SqlJournal) -> None:
    journal.begin([an_intent("old"), an_intent("beside", an_action(CONFIG))])
    now = journal.begin([an_intent("new", at=25.0)])
    assert open_of(now) == [("beside", 20.0), ("new", 25.0)]
    old = journal.entries()[-1]
    assert (old.intent, old.result, old.outcome) == ("old", "Skipped", "superseded by intent new")
    with open_journal(state) as again:
        assert open_of(again.state()) == open_of(now)


def test_an_intent_can_be_tried_again_under_its_id(state: Place, journal: SqlJournal) -> None:
    journal.begin([an_intent(), an_intent("beside", an_action(CONFIG))])
    now = journal.begin([an_intent(at=26.0)])
    assert open_of(now) == [("i1", 26.0), ("beside", 20.0)]
    with open_journal(state) as again:
        assert open_of(again.state()) == open_of(now)
    assert open_of(journal.finish([an_outcome(result=Result.FAILED)])) == [("beside", 20.0)]
    assert open_of(journal.begin([an_intent(at=27.0)]))[-1] == ("i1", 27.0)
    assert [entry.result for entry in journal.entries()] == [None, None]


def test_what_is_taken_back_was_never_there(state: Place, journal: SqlJournal) -> None:
    journal.begin([an_intent(), an_intent("beside", an_action(CONFIG))])
    now = journal.take_back(["i1"])
    assert open_of(now) == [("beside", 20.0)]
    assert [entry.intent for entry in journal.entries()] == ["beside"]
    with open_journal(state) as again:
        assert open_of(again.state()) == open_of(now)
    assert journal.take_back([]) is now


def test_finish_is_all_or_nothing(state: Place, journal: SqlJournal) -> None:
    before = journal.begin([an_intent()])
    with pytest.raises(JournalError, match="without an intent: stranger"):
        journal.finish(
            [an_outcome(), an_outcome("stranger")], bases=[a_base()], attempts={RUNTIME: Attempt(1, 2.0, "no")}
        )
    assert journal.state() == before
    with open_journal(state, read_only=True) as reader:
        assert reader.state() == before


def test_bases_and_attempts_follow_what_is_finished(state: Place, journal: SqlJournal) -> None:
    tried = Attempt(2, 50.0, "exit 1", permanent=True)
    first = journal.finish([], bases=[a_base(), a_base(CONFIG)], attempts={RUNTIME: tried, CONFIG: tried})
    newer = a_base(fields=Fields.of({"replicas": 3}), retained=True)
    now = journal.finish([], bases=[newer, newer], forgotten=[CONFIG], attempts={CONFIG: None})
    assert set(first.reconcile.bases) == {RUNTIME, CONFIG}, "a state that was given out does not change"
    assert (now.reconcile.bases, now.reconcile.attempts) == ({RUNTIME: newer}, {RUNTIME: tried})
    with open_journal(state) as again:
        assert again.state() == now


def test_a_base_forgotten_and_applied_in_one_write_stays(state: Place, journal: SqlJournal) -> None:
    journal.finish([], bases=[a_base()])
    now = journal.finish([], bases=[a_base(applied_at=99.0)], forgotten=[RUNTIME])
    assert now.reconcile.bases[RUNTIME].applied_at == 99.0
    with open_journal(state) as again:
        assert again.state() == now


def test_commits_are_replaced_by_sha_and_read_newest_first(journal: SqlJournal) -> None:
    journal.commit(
        with_records(journal.state(), a_commit("1", 1), a_commit("3", 3), a_commit("2", 2, Phase.PENDING))
    )
    journal.commit(with_records(journal.state(), a_commit("2", 2, Phase.SUPERSEDED, summary="skipped")))
    assert [record.sha for record in journal.commits()] == ["3", "2", "1"]
    assert [record.sha for record in journal.commits(1)] == ["3"]
    found = journal.commit_record("2")
    assert found is not None
    assert (found.phase, found.summary) == (Phase.SUPERSEDED, "skipped")
    assert journal.commit_record("4") is None


def test_commits_are_found_by_tree_and_by_the_beginning_of_their_sha(journal: SqlJournal) -> None:
    one, two = a_commit("abc1", 1), replace(a_commit("abd2", 2), tree="other")
    journal.commit(with_records(journal.state(), one, two, a_commit("b3", 3)))
    assert [record.sha for record in journal.commits(tree="t" * 40)] == ["b3", "abc1"]
    assert [record.sha for record in journal.commits(sha="ab")] == ["abd2", "abc1"]
    assert journal.commits(sha="%") == []


def test_statuses_change_and_go(state: Place, journal: SqlJournal) -> None:
    other = AgentKey("acme", "other")
    now = journal.commit(with_statuses(journal.state(), a_status(), a_status(other)))
    now = journal.commit(with_statuses(now, a_status(ready=False), removed=[other]))
    assert dict(now.status.agents) == {BOT: a_status(ready=False)}
    with open_journal(state) as again:
        assert dict(again.state().status.agents) == {BOT: a_status(ready=False)}
        assert again.state().status.agents.not_ready == {BOT}


@given(st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.booleans(), st.sets(st.sampled_from(EXTRA)))))
def test_the_not_ready_and_the_drifted_are_the_same_read_or_remembered(
    new_place: Callable[[], Place], fleet: dict[str, tuple[bool, set[ConditionType]]]
) -> None:
    place = new_place()
    with open_journal(place, writer="test") as journal:
        made = []
        for name, (ready, extra) in fleet.items():
            status = a_status(AgentKey("acme", name), ready=ready)
            (first,) = status.conditions
            more = (replace(first, type=each) for each in extra)
            made.append(replace(status, conditions=(first, *more)))
        remembered = journal.commit(with_statuses(journal.state(), *made)).status.agents
        with open_journal(place, read_only=True) as reader:
            read = reader.state().status.agents
            assert read.not_ready == remembered.not_ready
            assert [read.having(each) for each in EXTRA] == [remembered.having(each) for each in EXTRA]
            assert read == remembered


def test_a_plan_is_recorded_once_per_digest_and_commit(state: Place, journal: SqlJournal) -> None:
    plan = a_plan(an_action(), an_action(CONFIG, decision=Decision.ALERT), held=frozenset({CONFIG}))
    now = journal.commit(journal.state(), plans=[plan, plan], at=1.0)
    journal.commit(now, plans=[plan], at=2.0)
    with open_journal(state, writer="again", take_over=True) as again:
        now = again.commit(again.state(), plans=[plan], at=3.0)
        again.commit(now, plans=[a_plan(commit="b" * 40)], at=4.0)
    assert [(item.at, item.key, item.decision, item.held) for item in decided(journal)] == [
        (4.0, RUNTIME, Decision.REPAIR, False),
        (1.0, RUNTIME, Decision.REPAIR, False),
        (1.0, CONFIG, Decision.ALERT, True),
    ]
    assert [item.at for item in decided(journal, agent=BOT, commit=SHA)] == [1.0, 1.0]


def test_observations_are_kept_when_they_say_something_new(state: Place, journal: SqlJournal) -> None:
    alive = AgentInstance("7")
    first = an_observation(evidence=(Evidence("kernel", "alive", 1.0),), instances=(alive,))
    same = replace(
        first,
        observed_at=31.0,
        evidence=(Evidence("kernel", "alive", 2.0),),
        instances=(replace(alive, heartbeat=Heartbeat(2.0, 5)),),
    )
    gone = an_observation(observed_at=32.0, fields=None, state="Missing", reason="ProcessGone")
    observe(journal, first, an_observation(CONFIG))
    observe(journal, same)
    observe(journal, gone, gone)
    with open_journal(state, writer="again", take_over=True) as again:
        observe(again, gone)
        observe(again, an_observation(observed_at=33.0))
    seen = [item for item in journal.observations(BOT) if item.key == RUNTIME]
    assert [(item.observed_at, item.state) for item in seen] == [
        (33.0, "Running"),
        (32.0, "Missing"),
        (30.0, "Running"),
    ]


@pytest.mark.parametrize(
    "news",
    [
        {"state": "Suspended"},
        {"reason": "MemoryLimit"},
        {"message": "over the limit"},
        {"live": {"pid": 8}},
        {"handle": Fields.of({"pid": 8})},
        {"fields": Fields.of({})},
        {"fields": None},
        {"address": "10.0.0.7"},
        {"health": Health(HealthState.UNHEALTHY, "NotReady", "1 of 2 ready")},
        {"instances": (AgentInstance("7"),)},
        {"instances": (AgentInstance("7", started_at=4.0),)},
        {"evidence": (Evidence("kernel", "zombie", 1.0),)},
    ],
    ids=lambda news: next(iter(news)),
)
def test_each_part_of_an_observation_is_news(journal: SqlJournal, news: dict[str, Any]) -> None:
    observe(journal, an_observation())
    observe(journal, an_observation(**news))
    assert len(journal.observations(BOT)) == 2


def test_a_pass_without_news_asks_the_database_nothing(journal: SqlJournal) -> None:
    plan = a_plan()
    journal.finish([], bases=[a_base()])
    now = journal.commit(journal.state(), plans=[plan], observations=[an_observation()], at=1.0)
    sent = statements(journal)
    assert journal.state() is now
    assert len(now.reconcile.bases) == 1
    quiet = {"plans": [plan, Plan("b" * 40, (), "empty")], "observations": [an_observation(observed_at=99.0)]}
    assert journal.commit(now, **quiet, owed_to=["notes"], at=2.0) is now
    assert journal.begin([]) is now
    assert journal.finish([]) is now
    journal.delivered("notes", {})
    assert sent == []


@only_sqlite
def test_the_end_of_a_quiet_pass_writes_one_row(journal: SqlJournal) -> None:
    now = journal.commit(with_statuses(with_records(journal.state(), a_commit()), a_status()))
    sent = statements(journal)
    journal.commit(replace(now, status=replace(now.status, last_pass=5.0, active_seconds=2.0)))
    assert [words.split()[0] for words in sent] == ["BEGIN", "DELETE", "INSERT"]
    assert all("state" in words for words in sent[1:])


def test_threads_share_it(journal: SqlJournal) -> None:
    def work(number: int) -> None:
        for step in range(5):
            key = ResourceKey(AgentKey("acme", f"bot-{number}-{step}"), "runtime", "main")
            identity = f"{number}-{step}"
            journal.begin([an_intent(identity, an_action(key))])
            journal.finish([an_outcome(identity)], bases=[a_base(key)])

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(journal.state().reconcile.bases) == len(journal.entries()) == 20
    assert journal.state().reconcile.open_intents == {}


@only_sqlite
def test_the_database_waits_for_the_disk_and_keeps_to_itself(state: Path, journal: SqlJournal) -> None:
    connection = _write_connection(state / FILE_NAME)
    names = ("journal_mode", "synchronous", "foreign_keys")
    assert [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names] == ["wal", 2, 1]
    connection.close()
    journal.commit(with_head(journal.state(), SHA))
    assert {path.stat().st_mode & 0o777 for path in state.iterdir()} == {0o600}
    assert state.stat().st_mode & 0o777 == 0o700
