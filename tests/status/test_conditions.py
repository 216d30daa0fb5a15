"""Statuses from one pass to the next: the short way for agents without news says what the long way says."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.model.agent import Agent, Lifecycle, Origin, Resource
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.observation import Observation, Owner
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.status import AgentStatus, ConditionType, Health, HealthState
from gitops_agent.status import conditions
from gitops_agent.status.conditions import AgentView, agent_status
from tests.report.values import BOT, NOW, OTHER, SHA, an_action

pytestmark = pytest.mark.unit

CONFIG, RUNTIME = ResourceKey(BOT, "config", "bundle"), ResourceKey(BOT, "runtime", "main")
EMPTY = Fields(b"{}")

agents = st.builds(
    Agent,
    key=st.just(BOT),
    origin=st.builds(Origin, path=st.just("a.yaml"), line=st.sampled_from([1, 9]), blob=st.just("f" * 40)),
    resources=st.sampled_from(
        [
            (Resource(CONFIG, "config", EMPTY), Resource(RUNTIME, "memory", EMPTY)),
            (Resource(CONFIG, "config", EMPTY), Resource(RUNTIME, "process", EMPTY, stopped=True)),
            (Resource(CONFIG, "config", EMPTY),),
            (),
        ]
    ),
    lifecycle=st.sampled_from(Lifecycle),
)
healths = st.builds(
    Health, state=st.sampled_from(HealthState), reason=st.just("Healthy"), message=st.sampled_from(["", "fine"])
)


def seen(key: ResourceKey) -> st.SearchStrategy[Observation]:
    return st.builds(
        Observation,
        key=st.just(key),
        driver=st.just("memory"),
        owner=st.just(Owner.OURS),
        fields=st.just(EMPTY),
        state=st.sampled_from(["Running", "Stopped"]),
        observed_at=st.just(NOW),
        live=st.sampled_from([{}, {"pid": 1}]),
    )


views = st.builds(
    AgentView,
    agent=agents,
    seen=st.fixed_dictionaries({}, optional={CONFIG: seen(CONFIG), RUNTIME: seen(RUNTIME)}),
    bases=st.just({}),
    health=st.none() | healths,
    pending=st.sampled_from([(), (), (), (an_action(),)]),
    attempts=st.sampled_from([(), (), (Attempt(1, NOW + 100, "no"),), (Attempt(9, NOW, "no"),)]),
    unreachable=st.sampled_from([{}, {}, {}, {"memory": "the driver does not answer"}]),
    deadline_passed=st.none() | st.floats(0, 1e6),
    frozen=st.sampled_from([False, False, True]),
)


def the_long_way(view: AgentView, previous: AgentStatus | None, commit: str, now: float) -> AgentStatus:
    with patch.object(conditions, "_still_says_it", return_value=False):
        return agent_status(view, previous, commit, now)


@given(before=views, after=views, same=st.booleans(), commit=st.sampled_from([SHA, OTHER]))
def test_both_ways_give_the_same_status(before: AgentView, after: AgentView, same: bool, commit: str) -> None:
    previous = the_long_way(before, None, SHA, NOW)
    view = before if same else after
    assert agent_status(view, previous, commit, NOW + 5) == the_long_way(view, previous, commit, NOW + 5)


@given(view=views, line=st.sampled_from([1, 9]), word=st.sampled_from(["", "fine"]))
def test_one_small_difference_is_news(view: AgentView, line: int, word: str) -> None:
    previous = the_long_way(view, None, SHA, NOW)
    moved = view._replace(agent=replace(view.agent, origin=replace(view.agent.origin, line=line)))
    if view.health is not None:
        moved = moved._replace(health=replace(view.health, message=word))
    assert agent_status(moved, previous, SHA, NOW + 5) == the_long_way(moved, previous, SHA, NOW + 5)


def test_a_ready_agent_without_news_keeps_its_status() -> None:
    agent = Agent(BOT, Origin("a.yaml", 1, "f" * 40), (Resource(RUNTIME, "memory", EMPTY),))
    there = Observation(RUNTIME, "memory", Owner.OURS, EMPTY, "Running", NOW)
    view = AgentView(agent, {RUNTIME: there}, {}, Health(HealthState.HEALTHY, "Healthy", ""))
    first = agent_status(view, None, SHA, NOW)
    again = view._replace(seen={RUNTIME: replace(there, observed_at=NOW + 5)})
    assert agent_status(again, first, SHA, NOW + 5) is first


def test_a_stuck_agent_has_a_condition_of_its_own() -> None:
    agent = Agent(BOT, Origin("a.yaml", 1, "f" * 40), (Resource(RUNTIME, "memory", EMPTY),))
    stuck = Health(HealthState.STUCK, "TurnTooLong", "in turn 7 for 2 h")
    status = agent_status(AgentView(agent, {}, {}, stuck), None, SHA, NOW)
    found = {each.type: (each.status, each.reason, each.message) for each in status.conditions}
    assert found["Ready"] == (False, "TurnTooLong", "in turn 7 for 2 h")
    assert found["Stuck"] == (True, "TurnTooLong", "in turn 7 for 2 h")
    assert "Stuck" not in {each.type for each in agent_status(well(agent), status, SHA, NOW).conditions}


def test_what_could_not_be_looked_at_is_unknown_and_not_missing() -> None:
    resources = (Resource(CONFIG, "config", EMPTY), Resource(RUNTIME, "far", EMPTY, stopped=True))
    agent = Agent(BOT, Origin("a.yaml", 1, "f" * 40), resources)
    gone = Health(HealthState.UNHEALTHY, "NotRunning", "it is not there")
    view = AgentView(agent, {}, {}, gone, unreachable={"far": "far does not answer"})
    status = agent_status(view, None, SHA, NOW)
    assert [each.state for each in status.resources] == ["Missing", "Unknown"]
    assert [each.health for each in status.resources] == ["", "Unknown"]
    assert status.applied_commit == "", "nothing of it was ever applied"
    ready = status.find(ConditionType.READY)
    assert ready is not None
    assert (ready.reason, ready.message) == ("ObserveFailed", "far does not answer")


def well(agent: Agent) -> AgentView:
    return AgentView(agent, {}, {}, Health(HealthState.HEALTHY, "Healthy", ""))
