"""The metrics sink, given passes made by hand: what it counts, and what it shows from the first pass on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gitops_agent.daemon.liveness import Liveness
from gitops_agent.errors import JournalError
from gitops_agent.model.control import Control, ControlVerb
from gitops_agent.model.key import AgentKey
from gitops_agent.model.outcome import Circuit, Outcome, Result
from gitops_agent.model.passes import Directives, PassResult
from gitops_agent.model.plan import Action, Class, Effect, Verb, Verdict
from gitops_agent.model.rollout import Rollout
from gitops_agent.model.state import ReconcileState, RolloutState, State
from gitops_agent.model.status import Phase
from gitops_agent.plan.reasons import ReasonCode
from gitops_agent.report.outbox import Outbox
from gitops_agent.report.sinks.metrics import ORPHAN_REASON, MetricsSink
from gitops_agent.support.secrets import Redactor
from gitops_agent.testing.clock import FrozenClock
from tests.report.passes import a_pass, a_state, key
from tests.report.test_outbox import FakeOwedJournal
from tests.report.values import NOW, OTHER, a_plan, a_record, a_status, an_action, runtime_key

pytestmark = pytest.mark.unit


def lost(name: str, **changes: Any) -> Action:
    values: dict[str, Any] = {"verb": Verb.CREATE, "drift_class": Class.MISSING_EXTERNAL, "reason": "ProcessGone"}
    return an_action(key=runtime_key(key(name)), **(values | changes))


def repaired(*actions: Action) -> list[tuple[Action, Outcome]]:
    return [(action, Outcome("i", Result.DONE, "", 0.0, 0.0)) for action in actions]


class Metered:
    """A sink that gets passes as the loop and the outbox hand them over."""

    def __init__(self, stuck: Callable[[], int] = lambda: 0) -> None:
        self.clock = FrozenClock(NOW)
        self.liveness = Liveness(self.clock, grace=60, max_fetch=100)
        self.sink = MetricsSink("test", self.clock, self.liveness, stuck, ("process",), {"HostRestarted"})
        self.outbox = Outbox([self.sink], FakeOwedJournal(), self.clock, Redactor())

    def run(self, *actions: Action, seconds: float = 1.0, state: State | None = None, **changes: Any) -> None:
        """One pass that takes so long."""
        self.give(a_pass(*actions, state=state, **changes), seconds)

    def give(self, result: PassResult, seconds: float = 1.0) -> None:
        self.liveness.pass_began()
        self.clock.advance(seconds)
        self.outbox.publish(result)
        self.liveness.pass_ended(result)

    def __getitem__(self, name: str) -> float:
        return self.samples()[name]

    def samples(self) -> dict[str, float]:
        return {
            sample.name + (f"{{{','.join(sample.labels.values())}}}" if sample.labels else ""): sample.value
            for family in text_string_to_metric_families(self.sink.text().decode())
            for sample in family.samples
        }


@pytest.fixture
def metered() -> Metered:
    return Metered()


def test_drift_is_counted_from_pass_to_pass(metered: Metered) -> None:
    metered.run(lost("a", drift_class=Class.CHANGE))
    assert metered["drift_detected_total{MissingExternal}"] == 0, "a commit is no drift"
    both = lost("a"), lost("b")
    metered.run(*both, executed=repaired(*both))
    assert metered["drift_detected_total{MissingExternal}"] == 2
    assert metered["drift_repaired_total{automatic}"] == 2
    assert metered["repeated_drift_rate"] == 0
    metered.run(seconds=10)
    metered.sink.event_seen(key("a"))
    metered.run(lost("a"), seconds=10)
    assert metered["drift_detected_total{MissingExternal}"] == 3
    assert metered["gitops_agent_drift_standing{MissingExternal}"] == 1
    assert metered["repeated_drift_rate"] == pytest.approx(1 / 3)
    assert metered["manual_patch_without_event_count"] == 2, "the first two were not announced"
    assert metered["repair_confidence_distribution_count"] == 3


def test_every_class_of_drift_has_a_number(metered: Metered) -> None:
    metered.run(lost("a"))
    for cls in (each for each in Class if each.is_drift):
        number = int(cls is Class.MISSING_EXTERNAL)
        assert metered[f"gitops_agent_drift_standing{{{cls}}}"] == number
        assert metered[f"drift_detected_total{{{cls}}}"] == number


def test_an_absence_that_is_explained_is_no_manual_patch(metered: Metered) -> None:
    metered.run(lost("a", reason="HostRestarted"))
    metered.clock.advance(10)
    assert metered["drift_detected_total{MissingExternal}"] == 1
    assert metered["manual_patch_without_event_count"] == 0


def test_orphans_are_counted_while_they_are_there(metered: Metered) -> None:
    assert ORPHAN_REASON == ReasonCode.ORPHAN
    metered.run(lost("a", reason=ORPHAN_REASON, drift_class=Class.UNSAFE_AMBIGUITY))
    assert metered["orphan_resource_count"] == 1
    metered.run()
    assert metered["orphan_resource_count"] == 0


def test_repairs_that_people_approved(metered: Metered) -> None:
    action = lost("a")
    metered.run(action, executed=repaired(action), directives=Directives(approved=frozenset({action.digest})))
    assert metered["drift_repaired_total{approved}"] == 1
    assert metered["drift_repaired_total{automatic}"] == 0


def test_times_to_converge_survive_a_restart_but_are_counted_once(metered: Metered) -> None:
    assert metered["mean_time_to_converge"] == 0
    for phase in (Phase.RECONCILING, Phase.CONVERGED, Phase.CONVERGED):
        metered.run(state=a_state(a_record(phase=phase)))
    mean = metered["mean_time_to_converge"]
    assert mean == pytest.approx(5.2)
    assert metered["gitops_agent_time_to_converge_seconds_count"] == 1
    second = Metered()
    second.sink.recall([a_record()])
    second.run()
    assert second["mean_time_to_converge"] == mean
    assert second["gitops_agent_time_to_converge_seconds_count"] == 0
    second.run(state=a_state(a_record(OTHER, seen_at=NOW - 30), head=OTHER))
    assert second["gitops_agent_time_to_converge_seconds_count"] == 1
    assert second["mean_time_to_converge"] > mean


def test_state_is_shown_without_names() -> None:
    metered = Metered(stuck=lambda: 2)
    metered.sink.follow("gitops_agent_queue_depth", lambda: 7)
    metered.sink.follow("gitops_agent_notes_pending", lambda: True)
    agent = AgentKey("acme", "secret-name")
    waves = ((agent,), (agent,), (agent,))
    freezes = tuple(Control(ControlVerb.FREEZE, target, "ada", 0.0) for target in ("acme", "acme/secret-name"))
    state = replace(
        a_state(statuses=(a_status(agent), a_status(key("other"), ready=False))),
        rollout=RolloutState(rollout=Rollout("c", "t", waves, released=1, failed="it never became Ready")),
        reconcile=ReconcileState(
            circuits={
                "process": Circuit("process", ("a",), open_until=10.0),
                "process@there": Circuit("process@there", ("b",), open_until=10.0),
                "process@fine": Circuit("process@fine"),
            }
        ),
    )
    metered.run(state=state, directives=Directives(freezes=freezes))
    samples = metered.samples()
    assert [samples[f"gitops_agent_frozen{{{scope}}}"] for scope in ("fleet", "tenant", "agent")] == [0, 1, 1]
    shown = [samples[f"gitops_agent_rollout_wave{{{state}}}"] for state in ("total", "released", "held")]
    assert shown == [3, 1, 2]
    assert samples["gitops_agent_breaker_open{process}"] == 1
    assert samples["gitops_agent_breaker_open{process@there}"] == 1
    assert samples["gitops_agent_breaker_open{process@fine}"] == 0
    assert (samples["stuck_workflow_count"], samples["gitops_agent_queue_depth"]) == (2, 7)
    assert samples["gitops_agent_notes_pending"] == 1
    assert (samples["gitops_agent_fleet_size"], samples["gitops_agent_agents{Ready}"]) == (2, 1)
    assert samples["gitops_agent_commit_phase{Converged}"] == 1
    assert "frozen: tenant, agent" in metered.liveness.ready()[1]
    assert "secret-name" not in metered.sink.text().decode() + metered.liveness.ready()[1]
    metered.run()
    assert metered["gitops_agent_frozen{agent}"] == metered["gitops_agent_rollout_wave{total}"] == 0


def test_a_guard_that_trips_shows_at_once(metered: Metered) -> None:
    metered.run(plan=a_plan(verdicts=(Verdict("mass_drift", Effect.TRIM, freeze="*"),)))
    assert metered["gitops_agent_frozen{fleet}"] == 1


def test_stuck_workflows_are_counted_once_a_minute_by_scoped_passes() -> None:
    counted: list[int] = []

    def stuck() -> int:
        counted.append(1)
        return len(counted)

    metered = Metered(stuck)
    for _ in range(5):
        metered.run(scope=frozenset({key("a")}))
    assert len(counted) == 1
    metered.run()
    metered.run(scope=frozenset({key("a")}), seconds=60)
    assert len(counted) == 3


def test_ages_grow_by_themselves(metered: Metered) -> None:
    metered.run()
    metered.liveness.fetch_ended(answered=True, next_in=30)
    metered.clock.advance(40)
    metered.liveness.fetch_ended(answered=False, next_in=30)
    assert metered["gitops_agent_last_pass_age_seconds"] == pytest.approx(40)
    assert metered["gitops_agent_last_fetch_age_seconds"] == pytest.approx(40)
    assert metered["gitops_agent_pass_duration_seconds_sum"] == pytest.approx(1)


def test_failed_passes_are_counted(metered: Metered) -> None:
    for _ in range(7):
        metered.liveness.pass_failed()
    assert metered["gitops_agent_passes_total{failed}"] == 7
    assert metered["gitops_agent_passes_total{failed}"] == 7, "a scrape adds nothing"


def test_a_pass_with_nothing_desired_counts_as_completed(metered: Metered) -> None:
    metered.give(PassResult(State()))
    assert metered["gitops_agent_passes_total{completed}"] == 1
    assert metered.liveness.live()[0]


def test_a_journal_in_trouble_costs_numbers_and_no_pass(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> int:
        raise JournalError("the disk is full")

    metered = Metered(broken)
    metered.run()
    assert metered["gitops_agent_passes_total{completed}"] == 1
    printed = capsys.readouterr()
    assert "a sink failed on a pass" in printed.out + printed.err
