"""The world moves between our look and our write: the request is held back on its way, and what somebody did
meanwhile is neither overwritten nor deleted unseen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kubernetes.fleet import IMAGE, KubeFleet
from tests.kubernetes.test_orphans import deployment, marks
from tests.servers.cluster import Cluster
from tests.servers.faults import Fault, FaultProxy
from tests.support.fleet import until

USER = "agent"
SETTING = "GITOPS_AGENT_DRIVERS__KUBERNETES__KUBECONFIG"
NEW = "registry.example/bot:2"
THEIRS = "registry.example/theirs:1"
DEPLOYMENT, CONFIG = "/deployments/a", "/configmaps/a"


class Window:
    """A fleet behind the proxy, and what is done while one of its requests is on its way."""

    def __init__(self, fleet: KubeFleet, proxy: FaultProxy, control: Cluster) -> None:
        self.fleet, self._proxy, self._control = fleet, proxy, control
        self.closed = 0

    def meanwhile(self, method: str, path: str, move: Callable[[], object]) -> None:
        """Do something in the world while our next request of this kind to a path is held back."""

        def moved() -> None:
            move()
            self.closed += 1

        self._proxy.inject(
            Fault(lambda seen: seen.method == method and seen.path.endswith(path), meanwhile=moved, times=1)
        )

    def answers(self, verb: str, path: str, since: int) -> list[int | None]:
        """What the API server answered to our requests of a kind to a path, in their order."""
        made = self._control.requests(USER, since)
        return [each.code for each in made if each.verb == verb and each.uri.partition("?")[0].endswith(path)]

    def refused_first(self, verb: str, path: str, since: int) -> bool:
        """Whether the API server refused our requests of a kind, as stale, until the last one of them."""
        *refused, last = self.answers(verb, path, since)
        return set(refused) == {409} and last == 200

    def mark(self) -> int:
        return self._control.mark()


@pytest.fixture
def window(fleet: KubeFleet, proxy: FaultProxy, control: Cluster, tmp_path: Path) -> Iterator[Window]:
    path = proxy.kubeconfig(tmp_path / "proxied", USER, control.token(USER))
    fleet.environment[SETTING] = str(path)
    name = f"{fleet.instance}-guarded"
    control.kubectl("create", "clusterrolebinding", name, "--clusterrole=cluster-admin", f"--user={USER}")
    yield Window(fleet, proxy, control)
    control.kubectl("delete", "clusterrolebinding", name)


def done(fleet: KubeFleet, sha: str, kind: str = "runtime") -> list[tuple[str, str]]:
    """What was tried on an agent for a commit, the oldest first: reason and result."""
    found = fleet.ask("explain", "a")["actions"]
    return [
        (each["reason"], each["result"])
        for each in reversed(found)
        if each["commit"] == sha and f":{kind}/" in each["resource"]
    ]


def managers(fleet: KubeFleet, kind: str) -> set[str]:
    """Who holds fields of an object."""
    found = json.loads(fleet.kubectl("get", kind, "a", "--show-managed-fields", "-o", "json"))
    return {each["manager"] for each in found["metadata"]["managedFields"]}


def test_a_field_that_a_person_edits_while_a_commit_is_written_is_planned_again(window: Window) -> None:
    fleet = window.fleet
    fleet.commit(fleet.agents("a"))
    fleet.once()
    window.meanwhile("PATCH", DEPLOYMENT, lambda: fleet.kubectl("scale", "deployment/a", "--replicas=3"))
    mark = window.mark()
    sha = fleet.commit(fleet.agents("a", runtime={"image": NEW}))
    assert fleet.once()["phase"] == "Converged"
    assert window.closed
    assert window.refused_first("patch", DEPLOYMENT, mark)
    assert done(fleet, sha) == [("SpecChanged", "Skipped"), ("BothMoved", "Done")], "nothing failed by it"
    found = fleet.object("deployment", "a")
    assert (fleet.image("a"), found["spec"]["replicas"]) == (NEW, 1)
    told = fleet.ask("explain", "a")["actions"][0]["message"]
    assert "spec.replicas is 3 instead of 1, set by kubectl (scale)" in told, "who overwrote what is on record"


def test_what_a_person_edits_while_an_edit_is_undone_is_planned_again(window: Window) -> None:
    """Fields are taken back by force here: but for the version that the request carries, the second edit would go
    unseen."""
    fleet = window.fleet
    sha = fleet.commit(fleet.agents("a"))
    fleet.once()
    fleet.kubectl("scale", "deployment/a", "--replicas=3")
    window.meanwhile("PATCH", DEPLOYMENT, lambda: fleet.kubectl("set", "image", "deployment/a", f"agent={THEIRS}"))
    mark = window.mark()
    assert fleet.once()["phase"] == "Converged"
    assert window.closed
    assert window.refused_first("patch", DEPLOYMENT, mark)
    assert done(fleet, sha)[1:] == [("EditedByHand", "Skipped"), ("EditedByHand", "Done")]
    assert f"is {THEIRS} instead of {IMAGE}" in fleet.ask("explain", "a")["actions"][0]["message"]
    assert (fleet.image("a"), fleet.object("deployment", "a")["spec"]["replicas"]) == (IMAGE, 1)


def test_a_person_who_may_keep_an_edit_keeps_one_made_while_a_commit_is_written(window: Window) -> None:
    fleet, kept = window.fleet, {"overwrite": "None"}
    fleet.commit(fleet.agents("a", kubernetes=kept))
    fleet.once()
    window.meanwhile("PATCH", DEPLOYMENT, lambda: fleet.kubectl("scale", "deployment/a", "--replicas=3"))
    fleet.commit(fleet.agents("a", kubernetes=kept, runtime={"image": NEW}))
    fleet.once("--timeout", "10s", code=5)
    assert window.closed
    assert fleet.object("deployment", "a")["spec"]["replicas"] == 3
    assert "set by kubectl (scale)" in fleet.call("explain", "a").out


def test_a_status_that_moves_on_meanwhile_costs_a_look_and_no_new_plan(window: Window) -> None:
    fleet = window.fleet
    fleet.commit(fleet.agents("a"))
    fleet.once()
    status = json.dumps({"status": {"conditions": [{"type": "Seen", "status": "True"}]}})
    window.meanwhile(
        "PATCH",
        DEPLOYMENT,
        lambda: fleet.kubectl("patch", "deployment", "a", "--subresource=status", "-p", status),
    )
    mark = window.mark()
    sha = fleet.commit(fleet.agents("a", runtime={"image": NEW}))
    assert fleet.once()["phase"] == "Converged"
    assert window.closed
    assert window.refused_first("patch", DEPLOYMENT, mark)
    assert done(fleet, sha) == [("SpecChanged", "Done")]
    assert fleet.image("a") == NEW


def test_an_object_that_is_deleted_while_it_is_written_is_made_by_the_next_plan(window: Window) -> None:
    fleet = window.fleet
    fleet.commit(fleet.agents("a"))
    fleet.once()
    window.meanwhile("PATCH", CONFIG, lambda: fleet.kubectl("delete", "configmap", "a"))
    sha = fleet.commit(fleet.agents("a", instructions="Be brief."))
    assert fleet.once()["phase"] == "Converged"
    assert window.closed
    assert [result for _, result in done(fleet, sha, "config")] == ["Skipped", "Done"]
    assert "Be brief." in fleet.object("configmap", "a")["data"]["bundle.json"]


def test_what_another_creates_in_the_moment_of_our_first_apply_stays_theirs(window: Window) -> None:
    fleet = window.fleet
    fleet.commit(fleet.agents("first"))
    fleet.once()
    window.meanwhile(
        "PATCH", CONFIG, lambda: fleet.kubectl("create", "configmap", "a", "--from-literal=own=theirs")
    )
    sha = fleet.commit(fleet.agents("a"))
    fleet.once("--timeout", "10s", code=5)
    assert window.closed
    found = fleet.object("configmap", "a")
    assert found["data"] == {"own": "theirs"}
    assert "labels" not in found["metadata"]
    assert "annotations" not in found["metadata"]
    assert managers(fleet, "configmap") == {"kubectl-create"}, "the fields were given up again"
    assert done(fleet, sha, "config")[0][1] == "Skipped"
    assert "is not ours" in fleet.call("explain", "a").out


def test_a_workload_that_another_creates_in_that_moment_is_not_ours_either(window: Window) -> None:
    fleet = window.fleet
    fleet.commit(fleet.agents("first"))
    fleet.once()
    window.meanwhile("PATCH", DEPLOYMENT, lambda: fleet.kubectl("create", "-f", "-", stdin=deployment("a")))
    fleet.commit(fleet.agents("a"))
    fleet.once("--timeout", "10s", code=5)
    assert window.closed
    found = fleet.object("deployment", "a")
    assert fleet.image("a") == THEIRS
    assert "labels" not in found["metadata"]
    assert "gitops-agent" not in managers(fleet, "deployment")
    assert "is not ours" in fleet.call("explain", "a").out


def test_what_another_puts_in_the_place_of_ours_while_it_is_written_is_theirs_until_it_goes(
    window: Window,
) -> None:
    fleet = window.fleet
    head = fleet.commit(fleet.agents("a"))
    with fleet.running(GITOPS_AGENT_RESYNC_INTERVAL="2s"):
        fleet.await_phase(head, "Converged")
        window.meanwhile("PATCH", CONFIG, lambda: made_anew(fleet, "configmap"))
        fleet.commit(fleet.agents("a", instructions="Be brief."))
        until(lambda: "NotMarked" in json.dumps(fleet.status()), "it is told")
        assert window.closed
        assert fleet.object("configmap", "a")["data"] == {"own": "theirs"}
        assert managers(fleet, "configmap") == {"kubectl-create"}
        fleet.kubectl("delete", "configmap", "a")
        until(lambda: "NotMarked" not in json.dumps(fleet.row(fleet.status(), "a")), "the way is seen to be clear")
        again = fleet.commit(fleet.agents("a", instructions="Be very brief."))
        fleet.await_phase(again, "Converged")
    assert "Be very brief." in fleet.object("configmap", "a")["data"]["bundle.json"]


def made_anew(fleet: KubeFleet, kind: str, labels: dict[str, str] | None = None) -> None:
    """Delete an object, and create another one of its name that is not ours."""
    fleet.kubectl("delete", kind, "a")
    theirs = deployment("a", labels)
    if kind == "configmap":
        metadata = {"name": "a", "labels": labels or {}}
        theirs = json.dumps(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"own": "theirs"}}
        )
    fleet.kubectl("create", "-f", "-", stdin=theirs)


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("kind", ["deployment", "configmap"])
def test_what_another_makes_anew_while_ours_is_deleted_survives(window: Window, kind: str, copied: bool) -> None:
    """Also where it carries our labels, as what is copied or restored does."""
    fleet = window.fleet
    fleet.commit(fleet.agents("a", "b"))
    fleet.once()
    ours = fleet.object(kind, "a")["metadata"]["uid"]
    labels = marks(fleet, "a") if copied else None
    window.meanwhile("DELETE", f"/{kind}s/a", lambda: made_anew(fleet, kind, labels))
    mark = window.mark()
    fleet.commit({"a.yaml": None})
    fleet.call("once", "--timeout", "15s")  # the new workload has the name of ours, and that is told
    assert window.closed
    assert window.answers("delete", f"/{kind}s/a", mark) == [409]
    found = fleet.object(kind, "a")
    assert found["metadata"]["uid"] != ours
    assert "deletionTimestamp" not in found["metadata"]
    other = "configmap" if kind == "deployment" else "deployment"
    assert fleet.object(other, "a") is None, "what is ours goes"


def test_what_another_instance_marks_as_its_own_while_it_is_deleted_survives(window: Window) -> None:
    fleet = window.fleet
    fleet.commit(fleet.agents("a", "b"))
    fleet.once()
    label = ("label", "configmap", "a", "--overwrite", "gitops-agent.dev/instance=someone-else")
    window.meanwhile("DELETE", CONFIG, lambda: fleet.kubectl(*label))
    mark = window.mark()
    fleet.commit({"a.yaml": None})
    assert fleet.once()["phase"] == "Converged"
    assert window.closed
    assert window.answers("delete", CONFIG, mark) == [409]
    assert fleet.object("configmap", "a") is not None


def test_a_label_of_others_that_comes_meanwhile_saves_nothing_that_git_ends(window: Window) -> None:
    fleet = window.fleet
    fleet.commit(fleet.agents("a", "b"))
    fleet.once()
    window.meanwhile("DELETE", CONFIG, lambda: fleet.kubectl("label", "configmap", "a", "team=red"))
    mark = window.mark()
    fleet.commit({"a.yaml": None})
    assert fleet.once()["phase"] == "Converged"
    assert window.closed
    assert window.refused_first("delete", CONFIG, mark)
    assert fleet.object("configmap", "a") is None
