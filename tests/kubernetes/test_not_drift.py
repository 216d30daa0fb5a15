"""What others do to our objects and is none of our business: no drift, no action, not even a request."""

from __future__ import annotations

import json
import time

from tests.kubernetes.fleet import KubeFleet
from tests.servers.cluster import Cluster
from tests.support.fleet import until

SIDECAR = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "sidecar"},
    "spec": {"template": {"spec": {"containers": [{"name": "mesh", "image": "registry.example/mesh:1"}]}}},
}
SCALED = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "scaled"}, "spec": {"replicas": 4}}


def server_apply(fleet: KubeFleet, manifest: object, manager: str, *options: str) -> None:
    """What another controller does: server-side apply under a name of its own."""
    words = ("apply", "--server-side", f"--field-manager={manager}", *options, "-f", "-")
    fleet.kubectl(*words, stdin=json.dumps(manifest))


def test_the_fields_of_others_are_no_drift(fleet: KubeFleet) -> None:
    probe = {"probes": {"readiness": {"http": {"port": 8080}}}}  # most of a probe is filled in by the server
    ports = {"kubernetes": {"ports": [{"name": "http", "port": 80}]}}
    files = fleet.agents("plain", "sidecar", "marked", **probe, **ports)
    files["scaled.yaml"] = fleet.agent("scaled", authority={"runtime.replicas": "live"})
    fleet.commit(files)
    fleet.once()
    server_apply(fleet, SIDECAR, "mesh-injector")
    server_apply(fleet, SCALED, "autoscaler")
    fleet.kubectl("annotate", "deployment/marked", "example.com/note=theirs")
    fleet.kubectl("label", "deployment/marked", "example.com/team=theirs")
    finalizer = '{"metadata": {"finalizers": ["example.com/keep"]}}'
    fleet.kubectl("patch", "configmap/marked", "--type=merge", "-p", finalizer)

    def rolled_out() -> bool:
        found = fleet.object("deployment", "sidecar") or {}
        return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])

    until(rolled_out, "the controller saw the sidecar")
    report = fleet.ask("drift")
    # Where live decides, Git is to follow, through a review: nothing live is touched.
    assert [(each["agent"], each["reason"], each["decision"]) for each in report["drifts"]] == [
        (fleet.key("scaled"), "LiveDecides", "import")
    ]
    before = generations(fleet)
    assert fleet.once()["phase"] == "Converged"
    assert generations(fleet) == before
    assert len(fleet.object("deployment", "sidecar")["spec"]["template"]["spec"]["containers"]) == 2
    assert fleet.object("deployment", "scaled")["spec"]["replicas"] == 4

    fleet.commit({"sidecar.yaml": fleet.agent("sidecar", runtime={"image": "registry.example/bot:2"}, **ports)})
    assert fleet.once()["phase"] == "Converged"
    containers = fleet.object("deployment", "sidecar")["spec"]["template"]["spec"]["containers"]
    assert {each["image"] for each in containers} == {"registry.example/bot:2", "registry.example/mesh:1"}
    fleet.kubectl("patch", "configmap/marked", "--type=merge", "-p", '{"metadata": {"finalizers": null}}')


def generations(fleet: KubeFleet) -> dict[str, int]:
    """How often what people asked of each workload changed."""
    return {each["metadata"]["name"]: each["metadata"]["generation"] for each in fleet.objects("deployment")}


def test_a_quiet_fleet_costs_no_request_beyond_its_watches(control: Cluster, fleet: KubeFleet) -> None:
    user = "agent"
    binding = f"quiet-{fleet.tenant}"
    control.kubectl("create", "clusterrolebinding", binding, "--clusterrole=cluster-admin", f"--user={user}")
    fleet.environment["GITOPS_AGENT_DRIVERS__KUBERNETES__KUBECONFIG"] = str(control.kubeconfig_for(user))
    head = fleet.commit(fleet.agents("a", "b", "c"))
    # Passes as often as they can be: the whole fleet is looked at every second.
    with fleet.running(GITOPS_AGENT_RESYNC_INTERVAL="1s"):
        fleet.await_phase(head, "Converged")
        settled(control, user)
        mark = control.mark()
        time.sleep(4)
        asked = [each for each in control.requests(user, mark) if each.verb != "watch"]
    assert asked == []
    control.kubectl("delete", "clusterrolebinding", binding)


def settled(control: Cluster, user: str) -> None:
    """Wait until what was done is told as events."""

    def quiet() -> bool:
        mark = control.mark()
        time.sleep(1)
        return not [each for each in control.requests(user, mark) if each.verb != "watch"]

    until(quiet, "an end of the requests")
