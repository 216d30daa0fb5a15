"""A probe is believed under the definition it has passed under: a typo in one must not cost a single restart."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

import pytest

from gitops_agent.model.status import HealthState
from gitops_agent.observe.health.monitor import HealthMonitor
from gitops_agent.observe.health.probe_runs import ProbePools
from gitops_agent.testing.clock import FrozenClock
from tests.journal.values import a_status
from tests.reconcile.make import ONE

from .ward import HEALTHY, NO_UPTIME, UNPROVEN, Ward, said

pytestmark = pytest.mark.unit
LONG = 40


def probes(**commands: str) -> dict[str, Any]:
    made = {name: {"exec": {"command": [word]}, "period": "5s"} for name, word in commands.items()}
    return {**NO_UPTIME, "probes": made}


@pytest.fixture
def ward(clock: FrozenClock, pool: Executor) -> Ward:
    return Ward(clock, pool)


def watch(ward: Ward, spec: dict[str, Any], **more: Any) -> list[tuple[tuple[HealthState, str], bool]]:
    """Every different verdict of a long time."""
    found = []
    for _ in range(LONG):
        health = ward.look(spec, **more)
        if not found or found[-1] != (said(health), health.restart):
            found.append((said(health), health.restart))
        ward.clock.advance(5)
    return found


def test_a_typo_in_the_liveness_probe_is_shown_and_restarts_nothing(ward: Ward) -> None:
    assert said(ward.look(probes(liveness="alive"))) == HEALTHY
    ward.runner.broken = {"alvie"}
    assert watch(ward, probes(liveness="alvie")) == [(UNPROVEN, False)]
    assert watch(ward, probes(liveness="alive")) == [(HEALTHY, False)], "and back again"


def test_nor_does_it_when_the_agent_dies_and_comes_back(ward: Ward) -> None:
    ward.look(probes(liveness="alive"))
    ward.runner.broken = {"alvie"}
    ward.look(probes(liveness="alvie"))
    ward.clock.advance(60)
    ward.restart()
    assert watch(ward, probes(liveness="alvie")) == [(UNPROVEN, False)]


def test_a_first_liveness_probe_for_an_agent_that_was_well_without_one(ward: Ward) -> None:
    assert said(ward.look(NO_UPTIME)) == HEALTHY
    ward.runner.broken = {"alvie"}
    assert watch(ward, probes(liveness="alvie")) == [(UNPROVEN, False)]


def test_a_typo_in_the_readiness_probe_is_shown_at_once(ward: Ward) -> None:
    assert said(ward.look(probes(readiness="ready"))) == HEALTHY
    ward.runner.broken = {"raedy"}
    assert said(ward.look(probes(readiness="raedy"))) == (HealthState.STARTING, "NotReadyYet")


def test_a_right_change_of_probes_is_not_seen_at_all(ward: Ward) -> None:
    ward.look(probes(liveness="alive", readiness="ready"))
    assert said(ward.look(probes(liveness="alive2", readiness="ready2"))) == HEALTHY


def test_a_probe_that_has_passed_restarts_also_an_agent_that_hangs_while_it_comes_up(ward: Ward) -> None:
    ward.look(probes(liveness="alive"))
    ward.clock.advance(60)
    ward.restart()
    ward.runner.broken = {"alive"}
    assert watch(ward, probes(liveness="alive"))[-1] == ((HealthState.UNHEALTHY, "LivenessFailed"), True)


# -- after a restart of gitops-agent, which remembers nothing


def reboot(ward: Ward, pool: Executor, *ready: Any) -> None:
    ward.monitor = HealthMonitor(
        ward.clock, ProbePools(pool, pool), lambda: {agent: a_status(agent) for agent in ready}
    )


def test_an_agent_that_is_well_stays_ready(ward: Ward, pool: Executor) -> None:
    spec = probes(liveness="alive", readiness="ready")
    ward.look(spec)
    reboot(ward, pool, ONE)
    assert said(ward.look(spec)) == HEALTHY


def test_a_process_older_than_its_probe_is_not_restarted_for_it(ward: Ward, pool: Executor) -> None:
    ward.clock.advance(100)
    ward.runner.broken = {"alvie"}
    assert watch(ward, probes(liveness="alvie"), asked_since=ward.clock.now()) == [(UNPROVEN, False)]


def test_unless_it_was_ready_under_that_probe(ward: Ward, pool: Executor) -> None:
    """It hung while nobody watched: the journal knows that it was Ready, so the probe must have passed."""
    ward.clock.advance(100)
    reboot(ward, pool, ONE)
    ward.runner.broken = {"alive"}
    last, restart = watch(ward, probes(liveness="alive"), asked_since=ward.clock.now())[-1]
    assert (last, restart) == ((HealthState.UNHEALTHY, "LivenessFailed"), True)
