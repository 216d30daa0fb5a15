"""What the API server answers instead of success: each has words of its own, and none holds up another agent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.fleet import KubeFleet
from tests.servers.cluster import Cluster
from tests.servers.faults import Fault, FaultProxy, Match, Seen
from tests.support.fleet import Json, until

NEW = {"image": "registry.example/bot:2"}
SETTING = "GITOPS_AGENT_DRIVERS__KUBERNETES__KUBECONFIG"
CONTEXTS = "GITOPS_AGENT_DRIVERS__KUBERNETES__CONTEXTS"


@pytest.fixture
def behind(fleet: KubeFleet, proxy: FaultProxy, control: Cluster, tmp_path: Path) -> KubeFleet:
    """A fleet that reaches the cluster through the proxy."""
    path = proxy.kubeconfig(tmp_path / "proxied", "admin", control.token("admin"))
    fleet.environment[SETTING] = str(path)
    return fleet


def writes_to(name: str) -> Match:
    return lambda seen: seen.method == "PATCH" and seen.path.endswith(f"/deployments/{name}")


def attempted(fleet: KubeFleet, code: int = 5) -> Json:
    return fleet.once("--timeout", "12s", code=code)


def test_answers_of_a_server_in_trouble(behind: KubeFleet, proxy: FaultProxy) -> None:
    fleet = behind
    words = {
        "busy": (429, "asks to wait 1 s"),
        "broken": (500, "the API server failed (500"),
        "refused": (403, "the cluster denied it"),
        "away": (503, "the API server failed (503"),
    }
    fleet.commit({"policy.yaml": fleet.policy(massDrift={"min": 100}), **fleet.agents(*words, "well")})
    for name, (status, _) in words.items():
        proxy.fail(status, writes_to(name), retry_after=1 if status == 429 else None)
    attempted(fleet)
    assert {each["metadata"]["name"] for each in fleet.objects("deployment")} == {"well"}
    for name, (_, said) in words.items():
        assert said in fleet.call("explain", name).out, name
    proxy.heal()
    assert fleet.once()["phase"] == "Converged"
    assert len(fleet.objects("deployment")) == 5


def test_a_server_that_asks_for_patience_gets_it_and_siblings_go_on(behind: KubeFleet, proxy: FaultProxy) -> None:
    fleet, patience, tries = behind, 10, list[float]()

    def noted(seen: Seen) -> bool:
        found = writes_to("busy")(seen)
        if found:
            tries.append(time.monotonic())
        return found

    proxy.fail(429, noted, retry_after=patience, times=1)
    proxy.inject(Fault(noted))
    head = fleet.commit(fleet.agents("busy", "well"))
    with fleet.running():
        until(lambda: tries, "a first try")
        fleet.until_ready("well")
        assert len(tries) == 1, "a sibling is Ready before the next try"
        assert f"asks to wait {patience} s" in fleet.call("explain", "busy").out
        fleet.await_phase(head, "Converged")
    assert len(tries) == 2
    assert tries[1] - tries[0] >= patience


def test_a_write_that_takes_long_holds_up_nobody_else(behind: KubeFleet, proxy: FaultProxy) -> None:
    fleet = behind
    proxy.delay(8, writes_to("slow"), times=1)
    head = fleet.commit(fleet.agents("slow", "well"))
    with fleet.running():
        fleet.until_ready("well")
        assert fleet.object("deployment", "slow") is None
        fleet.kubectl("scale", "deployment/well", "--replicas=3")
        until(lambda: fleet.object("deployment", "well")["spec"]["replicas"] == 1, "drift is repaired meanwhile")
        assert fleet.object("deployment", "slow") is None
        fleet.await_phase(head, "Converged")


def test_watches_that_hang_are_not_believed_and_recover(behind: KubeFleet, proxy: FaultProxy) -> None:
    """A watch is asked for and never answered: what it said last does not count, and nothing is done by it."""
    fleet = behind
    head = fleet.commit(fleet.agents("a", "b"))
    quick = {"STALE_AFTER": "2", "TIMEOUT": "2"}
    settings = {f"GITOPS_AGENT_DRIVERS__KUBERNETES__{name}": value for name, value in quick.items()}
    with fleet.running(GITOPS_AGENT_RESYNC_INTERVAL="2s", **settings):
        fleet.await_phase(head, "Converged")
        proxy.delay(60, lambda seen: seen.watch)
        proxy.silence_watches()
        proxy.cut_watches()
        until(lambda: "ObserveFailed" in fleet.call("explain", "a").out, "that nothing is known of it")
        proxy.forget()
        fleet.kubectl("delete", "deployment", "a", "--wait=false")
        head = fleet.commit(fleet.agents("a", "b", runtime=NEW))
        until(lambda: fleet.status()["commit"] == head, "the commit")
        assert proxy.requests("PATCH") == [], "nothing is done without a look"
        proxy.heal()
        fleet.await_phase(head, "Converged")
        assert fleet.image("a") == fleet.image("b") == NEW["image"]


def test_a_lost_answer_is_asked_for_again_and_nothing_is_made_twice(behind: KubeFleet, proxy: FaultProxy) -> None:
    proxy.inject(Fault(lambda seen: seen.method in ("PATCH", "POST"), lose_answer=True, times=3))
    behind.commit(behind.agents("a", "b"))
    assert behind.once()["phase"] == "Converged"
    assert {each["metadata"]["generation"] for each in behind.objects("deployment")} == {1}


def test_a_restart_of_the_server_and_watches_that_fall_silent(
    behind: KubeFleet, proxy: FaultProxy, control: Cluster
) -> None:
    fleet = behind
    head = fleet.commit(fleet.agents("a", "b"))
    with fleet.running(GITOPS_AGENT_DRIVERS__KUBERNETES__STALE_AFTER="5"):
        fleet.await_phase(head, "Converged")
        control.restart_apiserver(down=2)
        control.kubectl("-n", fleet.tenant, "delete", "deployment", "a", "--wait=false")
        until(lambda: ready(fleet, "a"), "it is back after a restart of the API server")
        proxy.cut_watches()
        fleet.kubectl("delete", "deployment", "b", "--wait=false")
        until(lambda: ready(fleet, "b"), "it is back after the watches were cut")
        head = fleet.commit(fleet.agents("a", "b", runtime=NEW))
        fleet.await_phase(head, "Converged")
    assert fleet.image("a") == NEW["image"]


def ready(fleet: KubeFleet, name: str) -> bool:
    found = fleet.object("deployment", name)
    return found is not None and "deletionTimestamp" not in found["metadata"]


POLICY = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": ["apps"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["deployments"],
                }
            ]
        },
        "validations": [{"expression": "object.metadata.name != 'unwanted'", "message": "nobody wants it"}],
    },
}


@pytest.fixture
def policy(fleet: KubeFleet) -> Iterator[str]:
    """A policy of the cluster that holds for the namespace of the fleet alone."""
    name = f"{fleet.tenant}.example.com"
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": fleet.tenant}}}
    binding = {
        "apiVersion": POLICY["apiVersion"],
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": where},
    }
    made = {"apiVersion": "v1", "kind": "List", "items": [{**POLICY, "metadata": {"name": name}}, binding]}
    fleet.cluster.kubectl("create", "-f", "-", stdin=json.dumps(made))
    yield name
    kinds = "validatingadmissionpolicies,validatingadmissionpolicybindings"
    fleet.cluster.kubectl("delete", kinds, name)


def test_a_policy_of_the_cluster_and_a_quota(fleet: KubeFleet, policy: str) -> None:
    fleet.commit(fleet.agents("first"))
    fleet.once()

    def denies() -> bool:
        made = ("create", "deployment", "unwanted", "--image=x", "--dry-run=server")
        return "nobody wants it" in fleet.kubectl(*made, check=False)

    until(denies, "the policy holds")
    fleet.kubectl("create", "quota", "tight", "--hard=count/services=0")
    until(lambda: "/0" in fleet.kubectl("get", "quota", "tight"), "the quota counts")
    served = fleet.agent("served", kubernetes={"ports": [{"name": "http", "port": 80}]})
    fleet.commit({"served.yaml": served, **fleet.agents("unwanted", "well")})
    attempted(fleet)
    assert {each["metadata"]["name"] for each in fleet.objects("deployment")} >= {"first", "well"}
    denied = fleet.call("explain", "unwanted").out
    assert "nobody wants it" in denied
    assert policy in denied
    assert "quota tight is used up" in fleet.call("explain", "served").out


def test_one_cluster_that_does_not_answer_does_not_stop_another(
    fleet: KubeFleet, control: Cluster, tmp_path: Path
) -> None:
    """Two contexts, of which one is then cut off. That both are the same cluster is no matter: two names of one
    cluster see each other's objects as little as two clusters do, and one takes over what the other ran."""
    far = {"kubernetes": {"context": "far"}}
    with FaultProxy(control.url, control.ca) as other:
        first = json.loads(control.kubeconfig.read_text())
        second = json.loads(other.kubeconfig(tmp_path / "second", "x", control.token("admin"), "far").read_text())
        both = {**first, **{each: first[each] + second[each] for each in ("clusters", "users", "contexts")}}
        (tmp_path / "both").touch(mode=0o600)
        (tmp_path / "both").write_text(json.dumps(both))
        fleet.environment |= {SETTING: str(tmp_path / "both"), CONTEXTS: f"{fleet.tenant}=far"}
        fleet.commit(fleet.agents("near", "far"))
        assert fleet.once()["phase"] == "Converged"
        before = ids(fleet)
        fleet.commit({"far.yaml": fleet.agent("far", **far)}, "By its other name")
        assert fleet.once()["phase"] == "Converged"
        assert ids(fleet) == before, "taken over as it runs"
        assert fleet.ask("drift")["drifts"] == fleet.ask("plan")["actions"] == []
        quick = {"GITOPS_AGENT_DRIVERS__KUBERNETES__STALE_AFTER": "2", "GITOPS_AGENT_RESYNC_INTERVAL": "2s"}
        with fleet.running(**quick):
            other.inject(Fault(refuse=True))
            other.cut_watches()
            fleet.commit({"near.yaml": fleet.agent("near", runtime=NEW)}, "While the other one is away")
            until(lambda: fleet.image("near") == NEW["image"], "a commit reaches the one that answers")
            fleet.kubectl("scale", "deployment/near", "--replicas=3")
            until(
                lambda: fleet.object("deployment", "near")["spec"]["replicas"] == 1, "and drift is repaired there"
            )
            until(
                lambda: "ObserveFailed" in fleet.call("explain", "far").out, "the one that does not answer is told"
            )
            fleet.until_ready("near")  # its new pods may still be on their way, the other cluster is away
            other.heal()
            head = fleet.commit(
                fleet.agents("near", runtime=NEW) | {"far.yaml": fleet.agent("far", runtime=NEW, **far)}
            )
            fleet.await_phase(head, "Converged")
            assert fleet.image("far") == NEW["image"]


def ids(fleet: KubeFleet) -> set[str]:
    """Which very objects there are."""
    return {each["metadata"]["uid"] for kind in ("deployment", "pod") for each in fleet.objects(kind)}
