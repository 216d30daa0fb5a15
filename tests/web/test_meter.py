"""The meter, told of real passes in memory: what it counts, and what it shows from the first pass on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gitops_agent.control.directives import Order
from gitops_agent.daemon.liveness import Liveness
from gitops_agent.errors import JournalError
from gitops_agent.model.circuit import Circuit
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.key import AgentKey
from gitops_agent.model.plan import Effect, Verdict
from gitops_agent.model.rollout import Rollout
from gitops_agent.report.sinks.metrics import Label, MetricsSink, Wires
from gitops_agent.model.passes import PassResult
from gitops_agent.testing.memory_driver import runtime_key
from tests.pipeline.repository import key
from tests.pipeline.world import World


class Metered:
    """A world whose passes are told to a meter."""

    def __init__(self, world: World, **wires: Callable[[], Any]) -> None:
        self.world = world
        self.vitals = Liveness(world.clock, grace=60)
        history = {"commits": lambda: world.journal.commits(100), **wires}
        self.meter = MetricsSink(Label("test", "1", ("memory",), 100), world.clock, self.vitals, Wires(**history))

    def run(self, *names: str, seconds: float = 1.0, **changes: Any) -> PassResult:
        """One pass that takes so long; ``changes`` are made to what it says it did."""
        self.meter.began()
        result = self.world.run(*names, fetch=self.world.repository.head is not None)
        self.world.clock.advance(seconds)
        if changes:
            assert result.proceedings is not None
            result = replace(result, proceedings=replace(result.proceedings, **changes))
        self.meter.passed(result)
        return result

    def settle(self) -> None:
        for _ in range(10):
            self.run()

    def __getitem__(self, name: str) -> float:
        return self.samples()[name]

    def samples(self) -> dict[str, float]:
        return {
            sample.name + (f"{{{','.join(sample.labels.values())}}}" if sample.labels else ""): sample.value
            for family in text_string_to_metric_families(self.meter.text().decode())
            for sample in family.samples
        }


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.shut()


def lose(world: World, name: str) -> None:
    del world.live.live[runtime_key(key(name))]


def test_drift_is_counted_from_pass_to_pass(world: World) -> None:
    metered = Metered(world)
    world.commit("a", "b")
    metered.settle()
    assert metered["drift_detected_total{MissingExternal}"] == 0, "a commit is no drift"
    lose(world, "a")
    lose(world, "b")
    metered.settle()
    assert metered["drift_detected_total{MissingExternal}"] == 2
    assert metered["drift_repaired_total{automatic}"] == 2
    assert metered["repeated_drift_rate"] == 0
    lose(world, "a")
    metered.meter.told(key("a"))
    metered.settle()
    assert metered["drift_detected_total{MissingExternal}"] == 3
    assert metered["repeated_drift_rate"] == pytest.approx(1 / 3)
    assert metered["manual_patch_without_event_count"] == 2, "of the first two nobody had told us"
    assert metered["repair_confidence_distribution_count"] == 3
    assert metered["gitops_agent_agents{Ready}"] == 2


def test_repairs_that_people_approved(world: World) -> None:
    metered = Metered(world)
    world.commit("a")
    metered.settle()
    lose(world, "a")
    digests = {action.digest for action in world.pipeline.planning.survey()[0].actions}
    metered.run(order=Order(approved=frozenset(digests)))
    assert metered["drift_repaired_total{approved}"] == 1
    assert metered["drift_repaired_total{automatic}"] == 0


def test_times_to_converge_survive_a_restart_but_are_counted_once(world: World) -> None:
    first = Metered(world)
    assert first["mean_time_to_converge"] == 0
    world.commit("a")
    first.settle()
    mean = first["mean_time_to_converge"]
    assert mean > 0
    assert first["gitops_agent_time_to_converge_seconds_count"] == 1
    second = Metered(world)
    second.run()
    assert second["mean_time_to_converge"] == mean
    assert second["gitops_agent_time_to_converge_seconds_count"] == 0


def test_state_is_shown_without_names(world: World) -> None:
    metered = Metered(world, stuck=lambda: 2, queue_depth=lambda: 7, notes_pending=lambda: True)
    world.commit("a")
    metered.settle()
    agent = AgentKey("acme", "secret-name")
    waves = ((agent,), (agent,), (agent,))
    freezes = [Control(ControlVerb.FREEZE, target, "ada", 0.0) for target in ("acme", "acme/secret-name")]
    metered.run(
        rollout=Rollout("c", "t", waves, released=1, failed="it never became Ready"),
        circuits={"memory": Circuit("memory", 5, open_until=10.0)},
        order=Order(freezes=tuple(freezes)),
    )
    samples = metered.samples()
    assert [samples[f"gitops_agent_frozen{{{scope}}}"] for scope in ("fleet", "tenant", "agent")] == [0, 1, 1]
    assert [samples[f"gitops_agent_rollout_wave{{{state}}}"] for state in ("total", "released", "held")] == [
        3,
        1,
        2,
    ]
    assert samples["gitops_agent_breaker_open{memory}"] == 1
    assert (samples["stuck_workflow_count"], samples["gitops_agent_queue_depth"]) == (2, 7)
    assert samples["gitops_agent_notes_pending"] == 1
    assert "frozen: tenant, agent" in metered.vitals.ready()[1]
    assert "secret-name" not in metered.meter.text().decode() + metered.vitals.ready()[1]
    metered.run()
    assert metered["gitops_agent_frozen{agent}"] == metered["gitops_agent_rollout_wave{total}"] == 0


def test_a_guard_that_trips_shows_at_once(world: World) -> None:
    metered = Metered(world)
    world.commit("a")
    result = metered.run()
    assert result.plan is not None
    tripped = Verdict("mass_drift", Effect.TRIM, freeze="*")
    metered.run(plan=replace(result.plan, verdicts=(tripped,)))
    assert metered["gitops_agent_frozen{fleet}"] == 1


def test_ages_grow_by_themselves(world: World) -> None:
    metered = Metered(world)
    world.commit("a")
    metered.run()
    metered.meter.asked(answered=True, next_in=30)
    world.clock.advance(40)
    metered.meter.asked(answered=False, next_in=30)
    assert metered["gitops_agent_last_pass_age_seconds"] == pytest.approx(40)
    assert metered["gitops_agent_last_fetch_age_seconds"] == pytest.approx(40)


def test_passes_that_fail_one_after_the_other_are_no_life(world: World) -> None:
    metered = Metered(world)
    world.commit("a")
    metered.run()
    for _ in range(7):
        metered.meter.resting(5)
        metered.meter.began()
        metered.meter.asking()
        world.clock.advance(10)
        metered.meter.failed()
    assert metered["gitops_agent_passes_total{failed}"] == 7
    assert metered.vitals.ready() == (False, "not ready: the last pass failed; the log says why")
    assert metered.vitals.live()[0] is True
    world.clock.advance(10)
    assert metered.vitals.live() == (
        False,
        "passes: failing one after the other for 70 s, 10 s longer than that may take",
    )
    metered.run()
    assert metered.vitals.live()[0]
    assert metered.vitals.ready()[0]


def test_nothing_desired_yet_is_alive_and_not_ready(world: World) -> None:
    metered = Metered(world)
    metered.run()
    assert metered.vitals.ready() == (False, "not ready: no valid commit of the source is known yet")
    assert metered["gitops_agent_passes_total{completed}"] == 1
    assert metered.vitals.live()[0]


def test_a_journal_in_trouble_costs_numbers_and_no_pass(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> int:
        raise JournalError("the disk is full")

    metered = Metered(world, stuck=broken, commits=broken)
    world.commit("a")
    metered.run()
    assert metered["gitops_agent_passes_total{completed}"] == 1
    said = capsys.readouterr()
    assert "metrics are incomplete" in said.out + said.err
