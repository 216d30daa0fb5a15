"""Whatever is written comes back as it was, from the file and not from memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops_agent.journal.store import SqlJournal, open_journal
from gitops_agent.model.agent import DeletionPolicy
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.outcome import Attempt, Intent
from gitops_agent.model.plan import Action, Plan
from gitops_agent.model.status import AgentStatus, CommitRecord

from . import values

pytestmark = pytest.mark.unit
few = settings(max_examples=60, deadline=None)
numbers = count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal")


@pytest.fixture(scope="module")
def journal(folder: Path) -> Iterator[SqlJournal]:
    with open_journal(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def reader(folder: Path, journal: SqlJournal) -> Iterator[SqlJournal]:
    with open_journal(folder, read_only=True) as opened:
        yield opened


@few
@given(base=values.bases)
def test_bases(journal: SqlJournal, reader: SqlJournal, base: Base) -> None:
    journal.finish([], bases=[base])
    assert journal.bases()[base.key] == base
    assert reader.bases()[base.key] == base


@few
@given(key=values.resource_keys, attempt=values.attempts)
def test_attempts(journal: SqlJournal, reader: SqlJournal, key: ResourceKey, attempt: Attempt) -> None:
    journal.finish([], attempts={key: attempt})
    assert journal.attempts()[key] == attempt
    assert reader.attempts()[key] == attempt


@few
@given(intent=values.intents)
def test_intents(journal: SqlJournal, reader: SqlJournal, intent: Intent) -> None:
    intent = replace(intent, id=f"intent-{next(numbers)}")
    journal.begin([intent])
    assert reader.open_intents()[-1] == intent


@few
@given(actions=st.lists(values.actions, min_size=1, max_size=3), at=values.times)
def test_decisions(journal: SqlJournal, reader: SqlJournal, actions: list[Action], at: float) -> None:
    plan = Plan(f"commit-{next(numbers)}", tuple(actions), "digest", held=frozenset({actions[0].key}))
    journal.record_plan(plan, at)
    found = reader.decisions(commit=plan.commit)
    kept = {"base": None, "desired": None, "live": None, "handle": None, "deletion_policy": DeletionPolicy.DELETE}
    assert [item.action for item in found] == [replace(a, **kept, idempotent=True) for a in actions]
    assert [item.held for item in found] == [action.key == actions[0].key for action in actions]


@few
@given(observation=values.observations)
def test_observations(journal: SqlJournal, reader: SqlJournal, observation: Observation) -> None:
    observation = replace(observation, key=observation.key._replace(id=f"{next(numbers)}"))
    journal.record_observations([observation])
    assert reader.observations(observation.key.agent)[0] == observation


@few
@given(status=values.statuses)
def test_statuses(journal: SqlJournal, reader: SqlJournal, status: AgentStatus) -> None:
    journal.put_statuses([status])
    assert reader.statuses([status.agent]) == {status.agent: status}
    assert reader.statuses()[status.agent] == status


@few
@given(record=values.commits)
def test_commits(journal: SqlJournal, reader: SqlJournal, record: CommitRecord) -> None:
    journal.put_commits([record])
    assert reader.commit(record.sha) == record
    assert record in reader.commits()


@few
@given(name=values.identities, value=values.texts)
def test_named_values(journal: SqlJournal, reader: SqlJournal, name: str, value: str) -> None:
    journal.put({name: value})
    assert reader.get(name) == value
    journal.put({name: None})
    assert reader.get(name) is None


@few
@given(text=st.text(st.characters(exclude_categories=[]), max_size=20))
def test_no_text_stops_the_journal(journal: SqlJournal, reader: SqlJournal, text: str) -> None:
    """Commands print what they like; a lone surrogate or a NUL must not stop the fleet."""
    observation = values.an_observation(message=text, live={"said": [text], text: 1})
    journal.record_observations([observation])
    assert reader.observations(values.BOT)[0].state == "Running"
    journal.finish([], attempts={values.RUNTIME: Attempt(1, 2.0, text)})
    assert len(reader.attempts()[values.RUNTIME].error) >= len(text)
