"""Whose time is up: in seconds of active time, which runs from the first unready look to the first ready one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.model.agent import Agent, Origin
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.health import Health, HealthState
from gitops_agent.model.key import AgentKey
from gitops_agent.rollout.deadlines import final_since, late, overdue, started, time_given, time_left

pytestmark = pytest.mark.unit
ONE, TWO = AgentKey("acme", "one"), AgentKey("acme", "two")
POLICY = PolicySpec()
keys = st.sets(st.sampled_from([ONE, TWO]))


def an_agent(key: AgentKey, health_timeout: float = 20.0) -> Agent:
    return Agent(key, Origin("a.yaml", 1, "blob"), (), health_timeout=health_timeout)


AGENTS = {key: an_agent(key) for key in (ONE, TWO)}


@given(st.dictionaries(st.sampled_from([ONE, TWO]), st.floats(0, 50)), keys, keys, st.floats(50, 100))
def test_time_that_runs_is_not_started_again(
    since: dict[AgentKey, float], starting: set[AgentKey], stopping: set[AgentKey], active: float
) -> None:
    starting -= stopping
    after = started(since, starting, stopping, active)
    assert set(after) == (set(since) | starting) - stopping
    assert all(after[key] == since.get(key, active) for key in after)
    assert after is since or dict(after) != since, "the very same when nothing changed, so nothing is written"


def test_an_agent_is_late_once_its_time_is_over() -> None:
    since = {ONE: 100.0, TWO: 110.0}
    assert late(since, AGENTS, POLICY, 120.0) == []
    assert late(since, AGENTS, POLICY, 121.0) == [ONE]
    assert overdue(since, AGENTS[ONE], POLICY, 121.0) == 20.0
    assert list(time_left(since, AGENTS, POLICY, 121.0)) == [9.0], "one that is late wakes no pass any more"


def test_what_no_waiting_helps_is_late_sooner() -> None:
    agents = {ONE: an_agent(ONE, 600.0), TWO: an_agent(TWO, 20.0)}
    since = {ONE: 100.0, TWO: 100.0}
    assert late(since, agents, POLICY, 131.0) == [TWO]
    final = {ONE: 100.0, TWO: 100.0}
    assert late(since, agents, POLICY, 131.0, final) == [ONE, TWO]
    assert late(since, agents, POLICY, 119.0, final) == [], "at least as long as it is given anyway"
    assert list(time_left(since, agents, POLICY, 110.0, {ONE: 90.0})) == [20.0, 10.0], "from the release on"
    assert list(time_left(since, agents, POLICY, 110.0, {ONE: 105.0})) == [25.0, 10.0], "from the first word on"


def test_it_is_counted_while_it_is_said_without_a_break() -> None:
    bad, slow = Health(HealthState.UNHEALTHY, "X", "", final=True), Health(HealthState.UNHEALTHY, "X", "")
    since = {ONE: 1.0, TWO: 2.0}
    first = final_since({}, {ONE: bad, TWO: slow}, since, 5.0)
    assert first == {ONE: 5.0}
    assert final_since(first, {ONE: bad}, since, 9.0) is first
    assert final_since(first, {}, since, 9.0) is first, "it was not looked at"
    assert final_since(first, {ONE: slow, TWO: bad}, since, 9.0) == {TWO: 9.0}
    assert final_since(first, {ONE: bad}, {TWO: 2.0}, 9.0) == {}, "it is Ready"


def test_an_agent_that_left_git_is_never_late() -> None:
    assert late({ONE: 0.0}, {}, POLICY, 1e6) == []
    assert list(time_left({ONE: 0.0}, {}, POLICY, 1.0)) == []


def test_the_policy_can_only_shorten_the_time() -> None:
    short = PolicySpec.model_validate({"rollout": {"healthTimeout": "5s"}})
    long = PolicySpec.model_validate({"rollout": {"healthTimeout": "1h"}})
    assert [time_given(AGENTS[ONE], policy) for policy in (POLICY, short, long)] == [20.0, 5.0, 20.0]
