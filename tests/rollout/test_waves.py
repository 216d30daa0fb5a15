"""Waves: how many, which agents are in which, and what a gate and a pause let through."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.model.agent import Agent, Lifecycle, Origin
from gitops_agent.model.codec import from_json, to_json
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.key import AgentKey
from gitops_agent.model.revision import Revision
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.rollout.waves import (
    WaveCandidates,
    announced,
    begin,
    gated,
    in_order,
    make_waves,
    pause_left,
    proceed,
)

pytestmark = pytest.mark.unit

keys = st.builds(AgentKey, st.sampled_from(["acme", "beta"]), st.text("abcdef", min_size=1, max_size=4))
policies = st.builds(
    lambda canary, second, tenant: {
        "rollout": {"canary": canary, "second": f"{second}%"},
        "tenants": {"beta": {"rollout": {"canary": min(canary, tenant), "second": f"{second // 2}%"}}},
    },
    st.integers(1, 4),
    st.integers(0, 100),
    st.integers(1, 4),
)


def key(text: str) -> AgentKey:
    return AgentKey.parse(text)


def agent(text: str, **options: Any) -> Agent:
    return Agent(key(text), Origin("a.yaml", 1, "b"), (), **options)


def snapshot(*agents: Agent, policy: dict[str, Any] | None = None) -> Snapshot:
    revision = Revision("c" * 40, "t" * 40, (), "Ada <ada@example.com>", 0.0, 0.0, "a change")
    return Snapshot(revision, {each.key: each for each in agents}, PolicySpec.model_validate(policy or {}))


def sizes(count: int, **rollout: Any) -> list[int]:
    names = [key(f"acme/a{number:03}") for number in range(count)]
    return [len(wave) for wave in make_waves(names, PolicySpec.model_validate({"rollout": rollout}))]


@pytest.mark.parametrize(
    ("count", "rollout", "expected"),
    [
        (0, {}, []),
        (1, {}, [1]),
        (2, {}, [1, 1]),
        (3, {}, [1, 1, 1]),
        (50, {}, [1, 5, 44]),
        (50, {"canary": 5, "second": "50%"}, [5, 25, 20]),
        (50, {"second": "100%"}, [1, 49]),
        (50, {"second": "0%"}, [1, 1, 48]),
        (4, {"canary": 10}, [4]),
    ],
)
def test_sizes(count: int, rollout: dict[str, Any], expected: list[int]) -> None:
    assert sizes(count, **rollout) == expected


@given(st.lists(keys, unique=True, max_size=40), policies)
def test_every_agent_is_in_one_wave_and_no_tenant_has_more_than_its_share(
    agents: list[AgentKey], policy: dict[str, Any]
) -> None:
    waves = make_waves(agents, PolicySpec.model_validate(policy))
    assert sorted(each for wave in waves for each in wave) == sorted(agents)
    if waves:
        assert len(waves[0]) <= policy["rollout"]["canary"]
        strict = policy["tenants"]["beta"]["rollout"]["canary"]
        assert sum(each.tenant == "beta" for each in waves[0]) <= strict


def test_canaries_first_dependencies_before_dependents_and_what_ends_last() -> None:
    agents = [
        agent("acme/a", depends_on=(key("acme/z"),)),
        agent("acme/m", lifecycle=Lifecycle.STOPPED),
        agent("acme/y", canary=True),
        agent("acme/z"),
    ]
    target = {each.key: each for each in agents}
    standing = {each.key: replace(each, lifecycle=Lifecycle.RUNNING) for each in [*agents, agent("acme/gone")]}
    found = [each.name for each in in_order(standing, standing, target, ())]
    assert found == ["y", "z", "a", "gone", "m"]
    assert in_order(standing, standing, target, [key("acme/gone")])[0].name == "gone", "already touched"


def test_an_agent_that_wants_a_longer_rest_makes_its_own_wave_wait() -> None:
    target = snapshot(
        agent("acme/a", pause_after_ready=60.0), agent("acme/b"), policy={"rollout": {"pause": "15s"}}
    )
    step = begin(target, target.policy, WaveCandidates(sorted(target.agents)))
    assert step.rollout.pauses == (60.0, 10.0), "after the last only the bake"
    assert step.released == {key("acme/a")}


ROLLOUT = Rollout("c", "t", ((key("acme/a"),), (key("acme/b"), key("acme/c"))), 1, pauses=(10.0, 0.0))


def test_the_next_wave_needs_an_open_gate_and_the_end_of_the_pause() -> None:
    assert proceed(ROLLOUT, 100.0).released == frozenset()
    passed = gated(ROLLOUT, 100.0, ready=True)
    assert proceed(passed, 109.0).released == frozenset()
    step = proceed(passed, 110.0)
    assert step.released == {key("acme/b"), key("acme/c")}
    assert step.rollout.done
    assert step.rollout.passed_at is None
    assert proceed(replace(passed, failed="no"), 200.0).released == frozenset()


def test_a_gate_that_shuts_again_starts_the_pause_anew() -> None:
    shut = gated(gated(ROLLOUT, 100.0, ready=True), 105.0, ready=False)
    assert proceed(shut, 500.0).released == frozenset()
    assert pause_left(gated(shut, 500.0, ready=True), 500.0) == 10.0


def test_the_pause_runs_from_the_first_look_at_an_open_gate() -> None:
    """In seconds of active time, which never jumps; later looks do not start it again."""
    passed = gated(gated(ROLLOUT, 100.0, ready=True), 106.0, ready=True)
    assert [pause_left(passed, active) for active in (100.0, 106.0, 110.0, 500.0)] == [10.0, 4.0, 0.0, 0.0]


def test_a_rollout_survives_the_journal() -> None:
    for rollout in (ROLLOUT, gated(ROLLOUT, 3.5, ready=True), replace(ROLLOUT, failed="why", released=2)):
        assert from_json(Rollout, to_json(Rollout, rollout)) == rollout


def test_only_waves_that_are_still_to_come_are_announced() -> None:
    target = snapshot(*(agent(f"acme/a{number}") for number in range(9)))
    rollout = begin(target, target.policy, WaveCandidates(sorted(target.agents))).rollout
    (ahead,) = announced(rollout, None)
    assert ahead.summary == "9 agents that run already change in waves of 1, 1 and 7"
    assert "First goes acme/a0" in ahead.detail
    assert "Ready for 10 s, without an exit" in ahead.detail
    (left,) = announced(rollout, rollout)
    assert left.summary == "still to follow: 8 agents, in waves of 1 and 7"
    (last,) = announced(rollout, replace(rollout, released=2))
    assert last.summary == "still to follow: 7 agents, in one more wave"
    assert announced(rollout, replace(rollout, released=3)) == (), "it is all done"
