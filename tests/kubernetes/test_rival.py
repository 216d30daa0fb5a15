"""A gitops-agent outside of the election, such as ``once`` from a laptop, beside one that leads: it keeps its
hands off. Without one, and beside a Lease whose holder is dead, it acts."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest

from gitops_agent.drivers.api import ApplyError
from gitops_agent.drivers.election import LeaseElection
from gitops_agent.drivers.kubernetes.options import Settings
from gitops_agent.drivers.kubernetes.rival import Rival
from tests.kubernetes.fleet import KubeFleet
from tests.kubernetes.test_election import candidate
from tests.servers.cluster import ADMIN, Cluster

pytestmark = pytest.mark.servers


@pytest.fixture
def leader(control: Cluster, fleet: KubeFleet) -> Iterator[LeaseElection]:
    """One that leads this instance, somewhere else and in a namespace that the fleet was not told of."""
    election = candidate(control.kubeconfig, fleet.instance, "the-leader", "kube-public")
    assert election.wait(Event())
    yield election
    election.resign()
    control.kubectl("-n", "kube-public", "delete", "lease", f"gitops-agent-{fleet.instance}")


def test_beside_a_leader_nothing_is_written_until_it_is_gone(fleet: KubeFleet, leader: LeaseElection) -> None:
    fleet.commit(fleet.agents("bot"))
    refused = fleet.call("once", "--timeout", "20s")
    said = refused.out + refused.err
    assert refused.code != 0
    assert f"another gitops-agent of instance {fleet.instance} leads here (holder the-leader)" in said
    assert fleet.object("deployment", "bot") is None
    assert fleet.object("namespace", fleet.tenant) is None

    leader.resign()
    fleet.once()
    assert fleet.image("bot")


def test_a_lease_whose_holder_is_dead_is_waited_for_and_no_more(fleet: KubeFleet, leader: LeaseElection) -> None:
    leader._stop_renewing()  # as if it had been killed
    fleet.commit(fleet.agents("bot"))
    fleet.once()
    assert fleet.image("bot")


def test_looking_costs_one_request_when_there_is_something_to_write_and_none_otherwise(
    fleet: KubeFleet, control: Cluster
) -> None:
    fleet.commit(fleet.agents("a", "b", "c"))
    assert looks(fleet, control) == 1
    assert looks(fleet, control) == 0


def test_who_may_not_look_goes_on(fleet: KubeFleet, control: Cluster, leader: LeaseElection) -> None:
    bob = Settings(kubeconfig=str(control.kubeconfig_for("bob")))
    Rival(bob, fleet.instance).require_none()
    Rival(Settings(kubeconfig="/nowhere"), fleet.instance).require_none()
    with pytest.raises(ApplyError, match="holder the-leader"):
        Rival(Settings(kubeconfig=str(control.kubeconfig)), fleet.instance).require_none()


def looks(fleet: KubeFleet, control: Cluster) -> int:
    """How often one ``once`` asks for Leases of its instance."""
    since = control.mark()
    fleet.once()
    asked = [each.uri for each in control.requests(ADMIN, since)]
    return len([uri for uri in asked if "/leases" in uri and fleet.instance in uri])
