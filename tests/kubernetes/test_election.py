"""The Lease of an election on the real API server: what others see of it, and what they can do to it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import cast

import pytest

from gitops_agent.drivers.api import Context
from gitops_agent.drivers.election import LeaseElection
from gitops_agent.drivers.kubernetes import PLUGIN
from gitops_agent.drivers.kubernetes.election import election_namespace
from gitops_agent.drivers.kubernetes.options import Settings
from gitops_agent.support.clock import SystemClock
from tests.kubernetes.fleet import KubeFleet
from tests.servers.cluster import Cluster
from tests.servers.external import ExternalCluster
from tests.servers.faults import Fault, FaultProxy
from tests.support.election import HERE, leads, on_another_machine, stands_by
from tests.support.fleet import Json, until

pytestmark = pytest.mark.servers

SECONDS = 6
DEFAULT_SECONDS = Settings().election_seconds
AWAY_SECONDS = DEFAULT_SECONDS / 4
"""Below the 5 s that docs/clustered.md names, by what a slow machine may need."""


def candidate(
    kubeconfig: Path, instance: str, name: str, namespace: str = "default", seconds: int = SECONDS
) -> LeaseElection:
    settings = Settings(kubeconfig=str(kubeconfig), election_seconds=seconds, election_namespace=namespace)
    assert PLUGIN.elect is not None
    election = PLUGIN.elect(Context(instance, "/nowhere", SystemClock(), settings), name)
    assert isinstance(election, LeaseElection)
    return election


@contextmanager
def standing_by(election: LeaseElection) -> Iterator[Event]:
    """Have it wait for its turn; the event is set when it leads."""
    stop, led = Event(), Event()
    thread = Thread(target=lambda: led.set() if election.wait(stop) else None)
    thread.start()
    try:
        yield led
    finally:
        stop.set()
        thread.join()
        election.resign()


def lease_of(cluster: Cluster | ExternalCluster, instance: str) -> Json:
    spec: Json = cluster.get("lease", f"gitops-agent-{instance}", namespace="default")["spec"]
    return spec


def test_a_lease_changes_hands(cluster: Cluster | ExternalCluster, unique: str) -> None:
    a, b = (candidate(cluster.kubeconfig, unique, name) for name in "ab")
    assert a.wait(Event())
    assert (a.leading(), a.holder()) == (True, "a")
    first, found = a.term, lease_of(cluster, unique)
    assert first > 100_000_000, "by the time of day, so that terms never go back"
    assert found["leaseTransitions"] == first
    assert found["holderIdentity"] == "a"
    assert found["leaseDurationSeconds"] == SECONDS
    assert found["acquireTime"].endswith("Z")
    with standing_by(b) as led:
        until(lambda: b.holder() == "a", "b sees a")
        renewed = lease_of(cluster, unique)["renewTime"]
        until(lambda: lease_of(cluster, unique)["renewTime"] != renewed, "a renews")
        # What people write beside it does no harm.
        cluster.kubectl("-n", "default", "label", "lease", f"gitops-agent-{unique}", "seen=yes")
        assert not led.wait(SECONDS)
        assert a.leading()
        a._stop_renewing()  # as if it had been killed
        assert led.wait(3 * SECONDS)
        assert not a.leading()
        found = lease_of(cluster, unique)
        assert (found["holderIdentity"], found["leaseTransitions"], b.term) == ("b", first + 1, first + 1)
        assert not a.renew(), "what a knew is stale"
        assert lease_of(cluster, unique)["holderIdentity"] == "b"
    assert lease_of(cluster, unique).get("holderIdentity", "") == "", "b resigned"
    assert a.wait(Event())
    assert a.term == first + 2
    a.resign()


def test_a_lease_that_is_deleted_or_taken_by_hand(cluster: Cluster | ExternalCluster, unique: str) -> None:
    a, name = candidate(cluster.kubeconfig, unique, "a"), f"gitops-agent-{unique}"
    assert a.wait(Event())
    first = a.term
    cluster.kubectl("-n", "default", "delete", "lease", name)
    until(lambda: name in cluster.kubectl("-n", "default", "get", "lease", "-o", "name"), "a writes it again")
    assert (a.leading(), a.term) == (True, first)
    taken = json.dumps({"spec": {"holderIdentity": "a person", "leaseTransitions": first + 9}})
    cluster.kubectl("-n", "default", "patch", "lease", name, "--type=merge", "-p", taken)
    until(lambda: not a.leading(), "a stops")
    assert a.holder() == "a person"
    assert a.wait(Event())
    assert a.term == first + 10
    a.resign()


def test_an_api_server_that_restarts_costs_no_leadership(control: Cluster, unique: str) -> None:
    settings = Settings(kubeconfig=str(control.kubeconfig), election_seconds=60, election_namespace="default")
    assert PLUGIN.elect is not None
    a = PLUGIN.elect(Context(unique, "/nowhere", SystemClock(), settings), "a")
    assert a.wait(Event())
    first = a.term
    control.restart_apiserver(down=1)
    renewed = lease_of(control, unique)["renewTime"]
    until(lambda: lease_of(control, unique)["renewTime"] != renewed, "a renews")
    assert (a.leading(), a.term) == (True, first)
    a.resign()


def test_a_server_that_is_away_for_some_seconds_changes_no_leader(
    control: Cluster, proxy: FaultProxy, unique: str, tmp_path: Path
) -> None:
    """With the time that is the default. Nobody is let through to the server for a while, as when it restarts."""
    path = proxy.kubeconfig(tmp_path / "proxied", "admin", control.token("admin"))
    a, b = (candidate(path, unique, name, seconds=DEFAULT_SECONDS) for name in "ab")
    assert a.wait(Event())
    first = a.term
    with standing_by(b) as led:
        until(lambda: b.holder() == "a", "b sees a")
        proxy.inject(Fault(refuse=True))
        assert not led.wait(AWAY_SECONDS)
        assert a.leading(), "it still counts on its last renewal"
        proxy.heal()
        renewed = lease_of(control, unique)["renewTime"]
        until(lambda: lease_of(control, unique)["renewTime"] != renewed, "a renews")
        assert not led.wait(DEFAULT_SECONDS), "longer than others wait for a leader without a sign"
        assert (a.leading(), a.term, lease_of(control, unique)["holderIdentity"]) == (True, first, "a")
    a.resign()


@pytest.fixture
def elected(fleet: KubeFleet) -> KubeFleet:
    fleet.environment |= {
        "GITOPS_AGENT_ELECTION": "kubernetes",
        "GITOPS_AGENT_DRIVERS__KUBERNETES__ELECTION_NAMESPACE": "default",
        **HERE,
    }
    return fleet


def test_a_leader_that_is_told_to_end_is_followed_at_once(elected: KubeFleet) -> None:
    a, b, laptop = (cast("KubeFleet", on_another_machine(elected, name)) for name in ("a", "b", "laptop"))
    sha = elected.commit(elected.agents("x"))
    with a.running() as first:
        a.await_phase(sha, "Converged")
        with b.running():
            until(lambda: stands_by(b, "a"), "b stands by")
            answer = laptop.call("once", "-o", "json")
            assert (answer.code, answer.out) == (2, "")
            assert re.search(r"\ba_[0-9a-f]{8}\b", answer.err), "it says who leads"
            made = elected.object("deployment", "x")
            first.terminate()
            ended = time.monotonic()
            until(lambda: leads(b), "b leads")
            assert time.monotonic() - ended < DEFAULT_SECONDS / 2, "nobody waits until the Lease runs out"
            assert first.wait(20) == 0
            b.await_phase(sha, "Converged")
            now = elected.object("deployment", "x")
            assert (now["metadata"]["uid"], now["metadata"]["generation"]) == (
                made["metadata"]["uid"],
                made["metadata"]["generation"],
            ), "a change of leader changes no agent"


def test_who_may_not_is_told_which_right_is_missing(
    control: Cluster, unique: str, capsys: pytest.CaptureFixture[str]
) -> None:
    a = candidate(control.kubeconfig_for("bob"), unique, "a")
    with standing_by(a) as led:
        until(lambda: a._problem, "it was refused")
        assert not led.is_set()
        assert a.holder() == ""
        assert "get leases.coordination.k8s.io in namespace default" in a._problem


def test_the_lease_is_where_our_pod_is(tmp_path: Path) -> None:
    assert election_namespace(Settings(), tmp_path) == "default"
    (tmp_path / "namespace").write_text("robots")
    assert election_namespace(Settings(), tmp_path) == "robots"
    assert election_namespace(Settings(election_namespace="other"), tmp_path) == "other"
