"""The component ``fencing``, as it is installed, with the rights of the service account: the API server itself
refuses what is not of the leadership that the Lease names, a deletion too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from gitops_agent.drivers.kubernetes.client import Client
from gitops_agent.drivers.kubernetes.config import ClusterConfig
from gitops_agent.drivers.kubernetes.errors import ApiError, apply_error
from tests.kubernetes.install import NAMESPACE, USER, copied, installed
from tests.kubernetes.test_election import candidate
from tests.servers.cluster import Cluster
from tests.support.fleet import until

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def control(control: Cluster) -> Iterator[Cluster]:
    """A cluster of its own: the policy holds in the whole of it, and for one that was installed there before and
    removed the API server now and then finds no Lease."""
    with Cluster() as own:
        yield own


def test_only_the_leader_of_now_may_write(control: Cluster, tmp_path: Path, unique: str) -> None:
    path = f"/api/v1/namespaces/default/configmaps/{unique}"
    manifest: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": unique}}

    def tried(client: Client) -> str:
        """What the server has against a write of this client; "" when it does it."""
        try:
            client.apply(path, {**manifest, "data": {"by": unique}}, manager="gitops-agent", force=False)
        except ApiError as problem:
            return f"{problem.status} {problem.message}"
        return ""

    with installed(control, copied(tmp_path, "ha", ("fencing",))) as now:
        kubeconfig = now.kubeconfig()
        account = Client(ClusterConfig(kubeconfig=str(kubeconfig)))
        first, second = (candidate(kubeconfig, "default", name, NAMESPACE) for name in ("first", "second"))
        # Without the Lease, as with the name of another instance in the binding, nothing may be written.
        until(lambda: "no params found" in tried(account), "the policy is in force")
        with pytest.raises(ApiError) as denied:
            account.apply(path, manifest, manager="gitops-agent", force=False)
        assert "paramRef.name is gitops-agent-<instance>" in apply_error(denied.value, "apply").hint
        assert first.wait(Event())
        until(lambda: "leads by now" in tried(account), "the policy sees the Lease")
        old = account.in_term(USER, first.term)
        until(lambda: tried(old) == "", "the leader may write")
        first.resign()
        assert second.wait(Event())
        new = account.in_term(USER, second.term)
        until(lambda: tried(new) == "", "the next leader may write")
        assert f"leads by now: Lease gitops-agent-default is of term {second.term}" in tried(old)
        with pytest.raises(ApiError, match="leads by now"):
            old.delete(path)
        for other in ("alice", "system:serviceaccount:kube-system:default"):
            assert "403" in (said := tried(account.in_term(other, second.term)))
            assert "cannot impersonate" in said
        new.delete(path)
        second.resign()
