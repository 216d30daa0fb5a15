"""The Lease of an election on the real API server: what others see of it, and what they can do to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from gitops_agent.drivers.api import Context
from gitops_agent.drivers.election import LeaseElection
from gitops_agent.drivers.kubernetes import PLUGIN
from gitops_agent.drivers.kubernetes.election import election_namespace
from gitops_agent.drivers.kubernetes.options import Settings
from gitops_agent.support.clock import SystemClock
from tests.servers.cluster import Cluster
from tests.servers.external import ExternalCluster
from tests.support.fleet import Json, until

pytestmark = pytest.mark.servers

SECONDS = 6


def candidate(kubeconfig: Path, instance: str, name: str, namespace: str = "default") -> LeaseElection:
    settings = Settings(kubeconfig=str(kubeconfig), election_seconds=SECONDS, election_namespace=namespace)
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
