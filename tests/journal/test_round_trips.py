"""Whatever is written comes back as it was, from the file and not from memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.journal.place import Place
from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.agent import DeletionPolicy
from gitops_agent.model.finding import Finding, Severity
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.outcome import Attempt, Intent
from gitops_agent.model.plan import Action, Plan
from gitops_agent.model.state import State
from tests.support.decisions import action_of, decided

from . import values

pytestmark = pytest.mark.unit
numbers = count()


@pytest.fixture(scope="module")
def place(new_place: Callable[[], Place]) -> Place:
    return new_place()


@pytest.fixture(scope="module")
def journal(place: Place) -> Iterator[SqlJournal]:
    with open_journal(place, writer="test") as opened:
        yield opened


@pytest.fixture(scope="module")
def reader(place: Place, journal: SqlJournal) -> Iterator[SqlJournal]:
    with open_journal(place, read_only=True) as opened:
        yield opened


@given(base=values.bases)
def test_bases(journal: SqlJournal, reader: SqlJournal, base: Base) -> None:
    assert journal.finish([], bases=[base]).reconcile.bases[base.key] == base
    assert reader.state().reconcile.bases[base.key] == base


@given(key=values.resource_keys, attempt=values.attempts)
def test_attempts(journal: SqlJournal, reader: SqlJournal, key: ResourceKey, attempt: Attempt) -> None:
    assert journal.finish([], attempts={key: attempt}).reconcile.attempts[key] == attempt
    assert reader.state().reconcile.attempts[key] == attempt


@given(intent=values.intents)
def test_intents(journal: SqlJournal, reader: SqlJournal, intent: Intent) -> None:
    intent = replace(intent, id=f"intent-{next(numbers)}")
    assert journal.begin([intent]).reconcile.open_intents[intent.id] == intent
    assert reader.state().reconcile.open_intents[intent.id] == intent
    journal.finish([values.an_outcome(intent.id)])


@given(actions=st.lists(values.actions, min_size=1, max_size=3), at=values.times)
def test_decisions(journal: SqlJournal, reader: SqlJournal, actions: list[Action], at: float) -> None:
    plan = Plan(f"commit-{next(numbers)}", tuple(actions), "digest", held=frozenset({actions[0].key}))
    journal.commit(journal.state(), plans=[plan], at=at)
    found = decided(reader, commit=plan.commit)
    kept = {"base": None, "desired": None, "live": None, "handle": None, "deletion_policy": DeletionPolicy.DELETE}
    assert [action_of(item) for item in found] == [replace(a, **kept, idempotent=True) for a in actions]
    assert [item.held for item in found] == [action.key == actions[0].key for action in actions]


@given(observation=values.observations)
def test_observations(journal: SqlJournal, reader: SqlJournal, observation: Observation) -> None:
    observation = replace(observation, key=observation.key._replace(id=f"{next(numbers)}"))
    journal.commit(journal.state(), observations=[observation])
    assert reader.observations(observation.key.agent)[0] == observation


@given(state=values.states)
def test_states(journal: SqlJournal, place: Place, state: State) -> None:
    """All parts, over whatever was there before: written by difference, read by another process."""
    before = journal.state()
    given = replace(
        state,
        commits=before.commits.updated(state.commits.records.values()),
        control=replace(state.control, controls=(*before.control.controls, *state.control.controls)),
    )
    written = journal.commit(given)
    numbered = [replace(control, seq=0) for control in written.control.controls]
    assert numbered == [replace(control, seq=0) for control in given.control.controls]
    control = replace(given.control, controls=written.control.controls)
    # Which records are held is the window's matter: a fresh look at the database, below, must give the same.
    assert written == replace(given, commits=written.commits, control=control)
    with open_journal(place, read_only=True) as again:
        assert again.state() == written
        for record in state.commits.records.values():
            assert again.commit_record(record.sha) == record


@given(text=st.text(st.characters(exclude_categories=[]), max_size=20))
def test_no_text_stops_the_journal(journal: SqlJournal, reader: SqlJournal, text: str) -> None:
    """Commands print what they like; a lone surrogate or a NUL must not stop the fleet."""
    observation = values.an_observation(message=text, live={"said": [text], text: 1})
    journal.commit(journal.state(), observations=[observation])
    assert reader.observations(values.BOT)[0].state == "Running"
    journal.finish([], attempts={values.RUNTIME: Attempt(1, 2.0, text)})
    assert len(reader.state().reconcile.attempts[values.RUNTIME].error) >= len(text)
    state, finding = journal.state(), Finding(Severity.INFO, text, text, text)
    journal.commit(replace(state, status=replace(state.status, findings=(finding,))))
    assert len(reader.state().status.findings[0].code) >= len(text)
