"""A rotated secret and the restart that must follow it: whatever ends us between the two, the pods follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops_agent.drivers.kubernetes.marks import VALUES
from tests.kubernetes.fleet import KubeFleet
from tests.kubernetes.test_drift import CALM, SECRET, drifts, pods, value
from tests.servers.cluster import Cluster
from tests.servers.faults import Fault, FaultProxy, Seen
from tests.support.fleet import until


@pytest.fixture
def behind(fleet: KubeFleet, proxy: FaultProxy, control: Cluster, tmp_path: Path) -> KubeFleet:
    """A fleet that reaches the cluster through the proxy, with an agent that follows its secret."""
    path = proxy.kubeconfig(tmp_path / "proxied", "admin", control.token("admin"))
    fleet.environment["GITOPS_AGENT_DRIVERS__KUBERNETES__KUBECONFIG"] = str(path)
    follows = fleet.agent("a", runtime={"env": SECRET, "onSecretChange": "Restart"})
    fleet.commit({"policy.yaml": fleet.policy(**CALM), "a.yaml": follows})
    fleet.once(SOURCE="first")
    return fleet


def restarts(seen: Seen) -> bool:
    """Whether a request asks for the rolling restart."""
    return seen.method == "PATCH" and "/deployments/" in seen.path


def is_rolled_out(fleet: KubeFleet, before: set[str]) -> bool:
    now = pods(fleet).get("a", set())
    return bool(now) and now.isdisjoint(before)


def test_a_crash_between_the_secret_and_the_restart(behind: KubeFleet, proxy: FaultProxy) -> None:
    fleet, before = behind, pods(behind)["a"]
    proxy.inject(Fault(restarts, delay=30, refuse=True))  # held back until we are dead, and then lost
    with fleet.running(SOURCE="second") as daemon:
        until(lambda: value(fleet, "a") == "second", "the secret is written")
        until(lambda: [each for each in proxy.requests("PATCH") if restarts(each)], "the restart is asked for")
        daemon.kill()
        daemon.wait(10)
    assert pods(fleet)["a"] == before, "killed before the restart"
    proxy.heal()
    assert drifts(fleet, SOURCE="second").keys() == {("a", "credential")}
    fleet.once(SOURCE="second")
    fleet.until(lambda: is_rolled_out(fleet, before), "its pods see the new value")
    assert drifts(fleet, SOURCE="second") == {}


def test_a_restart_that_failed_is_done_later(behind: KubeFleet, proxy: FaultProxy) -> None:
    fleet, before = behind, pods(behind)["a"]
    proxy.fail(403, restarts)
    fleet.call("once", "--timeout", "5s", SOURCE="second")
    assert value(fleet, "a") == "second"
    assert pods(fleet)["a"] == before
    proxy.heal()
    assert drifts(fleet, SOURCE="second").keys() == {("a", "credential")}
    fleet.call("retry", "a")
    fleet.once(SOURCE="second")
    fleet.until(lambda: is_rolled_out(fleet, before), "its pods see the new value")


def test_writing_the_same_values_again_restarts_nothing(behind: KubeFleet) -> None:
    fleet, before = behind, pods(behind)["a"]
    template = fleet.object("deployment", "a")["spec"]["template"]
    fleet.kubectl("label", "secret", "a", "app.kubernetes.io/managed-by-")
    fleet.once(SOURCE="first")
    fleet.commit({"a.yaml": fleet.agent("a", runtime={"env": SECRET, "onSecretChange": "Restart", "replicas": 2})})
    fleet.once(SOURCE="first")
    assert fleet.object("deployment", "a")["spec"]["template"] == template
    assert before <= pods(fleet)["a"]


@pytest.mark.parametrize(
    "how", [("delete", "secret/a"), ("annotate", "secret/a", "--overwrite", f"{VALUES}=\u00e9")]
)
def test_pods_of_a_secret_whose_mark_was_lost_are_restarted(behind: KubeFleet, how: tuple[str, ...]) -> None:
    """What they began with cannot be known any more: they get what is there now."""
    fleet, before = behind, pods(behind)["a"]
    fleet.kubectl(*how)
    assert drifts(fleet, SOURCE="first").keys() == {("a", "credential")}
    fleet.once(SOURCE="first")
    assert value(fleet, "a") == "first"
    fleet.until(lambda: is_rolled_out(fleet, before), "its pods are new")
    assert drifts(fleet, SOURCE="first") == {}


def test_what_the_template_names_says_nothing_about_the_value(behind: KubeFleet) -> None:
    fleet = behind
    notes = fleet.object("deployment", "a")["spec"]["template"]["metadata"]["annotations"]
    mark = fleet.object("secret", "a")["metadata"]["annotations"]["gitops-agent.dev/values"]
    salt, _, digest = mark.partition(".")
    assert notes["gitops-agent.dev/secret"] == salt
    assert digest
    assert digest not in str(notes)
