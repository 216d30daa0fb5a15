"""The cluster of the tests: our own control plane, or with GITOPS_AGENT_TEST_KUBECONFIG the user's.

A test shares the cluster with others: it uses an instance and tenants of its own name (``unique``), so that none
disturbs another. What needs control over the server itself (restarts, requests, faults) asks for ``control`` or
``proxy``; with a cluster of the user it is left out, and says so.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.fleet import KubeFleet
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
def fleet(tmp_path: Path, cluster: Cluster | ExternalCluster) -> Iterator[KubeFleet]:
    """A fleet in the cluster, with an instance and a tenant of its own."""
    made = KubeFleet(tmp_path, cluster)
    yield made
    made.remove()
