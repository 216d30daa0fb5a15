"""The cluster of the tests: our own control plane, or with GITOPS_AGENT_TEST_KUBECONFIG the user's.

A test shares the cluster with others: it uses an instance and tenants of its own name (``unique``), so that none
disturbs another. What needs control over the server itself (restarts, requests, faults) or simulated pods asks for
``control``, ``proxy`` or ``fleet``; with a cluster of the user it is left out, and says so. What asks for nothing
but ``cluster`` or ``portable`` runs there too.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.fleet import KubeFleet, PortableFleet
from tests.servers import build
from tests.servers.cluster import Cluster
from tests.servers.external import ExternalCluster
from tests.servers.faults import FaultProxy

KUBECONFIG = "GITOPS_AGENT_TEST_KUBECONFIG"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster | ExternalCluster]:
    """A Kubernetes cluster: ``kubeconfig`` (of an administrator) and ``kubectl``."""
    given = os.environ.get(KUBECONFIG)
    if given:
        yield ExternalCluster(Path(given))
        return
    if not build.built():
        pytest.fail("the control plane is not built: make test-servers does it, or python -m tests.servers.build")
    with Cluster() as started:
        yield started


@pytest.fixture(scope="session")
def control(cluster: Cluster | ExternalCluster) -> Cluster:
    """The cluster with power over its servers: users, requests, restarts, simulated pods."""
    if isinstance(cluster, ExternalCluster):
        pytest.skip(f"needs control over the API server: run without {KUBECONFIG}")
    return cluster


@pytest.fixture
def proxy(control: Cluster) -> Iterator[FaultProxy]:
    """A proxy of its own for the test, in front of the API server, that fails on command."""
    with FaultProxy(control.url, control.ca) as started:
        yield started


@pytest.fixture
def unique() -> str:
    """A name that no other test uses, fit for an instance, a tenant, an agent and a namespace."""
    return f"t{secrets.token_hex(4)}"


@pytest.fixture
def fleet(tmp_path: Path, control: Cluster) -> Iterator[KubeFleet]:
    """A fleet in the cluster, with an instance and a tenant of its own; how its pods do is simulated."""
    made = KubeFleet(tmp_path, control)
    yield made
    made.remove()


@pytest.fixture
def portable(tmp_path: Path, cluster: Cluster | ExternalCluster) -> Iterator[PortableFleet]:
    """A fleet that runs in any cluster: its image is one that nodes can pull."""
    made = PortableFleet(tmp_path, cluster)
    yield made
    made.remove()
