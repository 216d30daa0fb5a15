"""A cluster that cannot be reached: plan says that it does not know, and the others go on at once."""

from __future__ import annotations

from pathlib import Path

import yaml_rs

from tests.kubernetes.fleet import KubeFleet
from tests.support.fleet import until


def with_dead_context(fleet: KubeFleet, folder: Path) -> None:
    """The kubeconfig of the fleet with one more context, whose server answers nothing."""
    known = yaml_rs.loads(Path(fleet.cluster.kubeconfig).read_text(), parse_datetime=False)
    known["clusters"].append({"name": "far", "cluster": {"server": "https://127.0.0.1:9"}})
    known["contexts"].append({"name": "far", "context": {"cluster": "far", "user": known["users"][0]["name"]}})
    path = folder / "two.kubeconfig"
    path.write_text(yaml_rs.dumps(known))
    fleet.environment["GITOPS_AGENT_DRIVERS__KUBERNETES__KUBECONFIG"] = str(path)
    fleet.environment["GITOPS_AGENT_DRIVERS__KUBERNETES__CONTEXTS"] = "far"


def test_plan_says_what_it_could_not_look_at(fleet: KubeFleet, tmp_path: Path) -> None:
    with_dead_context(fleet, tmp_path)
    fleet.commit({"far.yaml": fleet.agent("far", kubernetes={"context": "far"})})
    answer = fleet.call("plan")
    assert answer.code == 5
    assert "kubernetes@far could not be asked" in answer.out
    assert f"{fleet.tenant}/far" in answer.out
    assert "live is as desired" not in answer.out


def test_doctor_asks_every_cluster_that_documents_may_name(fleet: KubeFleet, tmp_path: Path) -> None:
    with_dead_context(fleet, tmp_path)
    fleet.commit(fleet.agents("a"))
    contexts = {"GITOPS_AGENT_DRIVERS__KUBERNETES__CONTEXTS": f"f*,{fleet.tenant}=mistyped"}
    answer = fleet.ask("doctor", code=1, **contexts)
    checks = {each["name"]: each for each in answer["checks"] if each["name"].startswith("kubernetes")}
    assert {name: each["ok"] for name, each in checks.items()} == {
        "kubernetes": True,
        "kubernetes@far": False,
        "kubernetes@mistyped": False,
    }
    assert "127.0.0.1:9" in checks["kubernetes@far"]["said"]
    assert "has no context mistyped" in checks["kubernetes@mistyped"]["said"]
    assert "far" in checks["kubernetes@mistyped"]["hint"], "what there is"
    assert "\nBAD  kubernetes@far " in fleet.call("doctor", **contexts).out


def test_plan_and_status_say_which_cluster_and_namespace(fleet: KubeFleet, tmp_path: Path) -> None:
    with_dead_context(fleet, tmp_path)
    fleet.commit(fleet.agents("a"))
    told, (first, *_) = fleet.call("plan").out, fleet.ask("plan")["actions"]
    assert f"\nkubernetes: {first['system']}\n" in told
    assert first["system"].startswith("https://127.0.0.1:")
    assert first["namespace"] == fleet.tenant
    assert f"{fleet.key('a')} in kubernetes/{fleet.tenant}\n" in told
    fleet.once()
    assert "WHERE" not in fleet.call("status").out, "there is only one place"
    assert f" kubernetes/{fleet.tenant} " in fleet.call("status", "--wide").out
    fleet.commit({"far.yaml": fleet.agent("far", kubernetes={"context": "far"})})
    fleet.call("once", "--timeout", "5s")
    rows = {row.split()[0]: row for row in fleet.call("status").out.splitlines() if row.startswith(fleet.tenant)}
    assert f" kubernetes/{fleet.tenant} " in rows[fleet.key("a")]
    assert " kubernetes@far " in rows[fleet.key("far")]


def test_an_agent_that_could_not_be_looked_at_is_unknown_and_not_missing(fleet: KubeFleet, tmp_path: Path) -> None:
    with_dead_context(fleet, tmp_path)
    fleet.commit({"far.yaml": fleet.agent("far", kubernetes={"context": "far"})})
    fleet.call("once", "--timeout", "5s")
    (agent,) = fleet.status()["agents"]
    assert {each["state"] for each in agent["resources"]} == {"Unknown"}
    table = fleet.call("status").out
    assert "Missing" not in table
    assert "Unknown" in table
    assert "127.0.0.1:9" in table
    told = fleet.call("explain", "far").out
    assert "runtime/kubernetes@far (kubernetes@far): Unknown" in told
    assert "Missing" not in told


def test_the_others_are_repaired_as_quickly_as_ever(fleet: KubeFleet, tmp_path: Path) -> None:
    with_dead_context(fleet, tmp_path)
    far = {"far.yaml": fleet.agent("far", kubernetes={"context": "far"})}
    fleet.commit({**fleet.agents("a"), **far})
    with fleet.running():
        until(lambda: (fleet.object("deployment", "a") or {}).get("status", {}).get("readyReplicas"), "a is up")
        before = fleet.daemon_log().count('"event": "pass"')
        for _ in range(3):
            old = fleet.object("deployment", "a")["metadata"]["uid"]
            fleet.kubectl("delete", "deployment", "a")
            until(
                lambda old=old: (
                    (fleet.object("deployment", "a") or {"metadata": {"uid": old}})["metadata"]["uid"] != old
                ),
                "a is back",
                12,
            )
        assert fleet.daemon_log().count('"event": "pass"') > before


def test_commits_for_the_other_cluster_roll_out_meanwhile(fleet: KubeFleet, tmp_path: Path) -> None:
    with_dead_context(fleet, tmp_path)
    far = {"far.yaml": fleet.agent("far", kubernetes={"context": "far"}), "policy.yaml": fleet.policy()}
    fleet.commit({**fleet.agents("a", "b", "c"), **far})
    with fleet.running():
        until(
            lambda: fleet.status()["phase"] == "Reconciling" and len(fleet.objects("deployment")) == 3,
            "all but far",
        )
        sha = fleet.commit(fleet.agents("a", "b", "c", runtime={"image": "registry.example/bot:2"}))
        until(lambda: {fleet.image(each) for each in "abc"} == {"registry.example/bot:2"}, "all waves went")
        until(lambda: "waiting for 1 of 4" in fleet.status()["summary"], "only far is open")
        status = fleet.status()
        assert (status["commit"], status["phase"]) == (sha, "Reconciling"), "far is still to be made"
        assert status["summary"] == "waiting for 1 of 4 agents; kubernetes@far does not answer"
        fleet.commit({"far.yaml": None})
        until(lambda: fleet.status()["phase"] == "Converged", "nothing names the other cluster any more")
