"""A kubeconfig that cannot be used: what is wrong with which file is said at once, and again at the end."""

from __future__ import annotations

from pathlib import Path

from tests.support.fleet import Fleet

SETTING = "GITOPS_AGENT_DRIVERS__KUBERNETES__KUBECONFIG"


def test_one_that_is_named_and_not_there_is_a_usage_error(fleet: Fleet, tmp_path: Path) -> None:
    fleet.commit(fleet.agents("a"))
    path = str(tmp_path / "mistyped")
    for verb in ("once", "run"):
        answer = fleet.call(verb, **{SETTING: path})
        assert answer.code == 2
        assert f"drivers.kubernetes.kubeconfig: nothing is at {path}" in answer.err
        assert "hint: correct the path" in answer.err
    assert fleet.pids() == []
    assert fleet.once()["phase"] == "Converged", "a fleet without clusters needs none"


def test_one_that_is_none_is_named_in_the_log_at_once_and_at_the_end(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("clusters: [\n", encoding="utf-8")
    fleet.commit(
        {
            **fleet.agents("here"),
            "far.yaml": fleet.agent("far", runtime={"driver": "kubernetes", "image": "registry.example/bot:1"}),
        }
    )
    answer = fleet.call("once", "--timeout", "2s", **{SETTING: str(path)})
    assert answer.code == 5
    lines = answer.err.splitlines()
    (warned,) = [line for line in lines if "a live system could not be asked" in line]
    assert "warning" in warned
    assert str(path) in warned
    assert "see kubectl config view" in warned, "the way out"
    assert f"kubernetes could not be asked: kubeconfig {path}: is no kubeconfig" in "\n".join(lines[-2:])
    assert "1 of 2 ready; 1 unknown: kubeconfig " in fleet.call("status").out.splitlines()[0]
