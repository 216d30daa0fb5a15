"""What ``kubectl`` tells: whose an object is, what was done to it, why, for which commit. And never a secret."""

from __future__ import annotations

import secrets

from tests.kubernetes.fleet import KubeFleet
from tests.support.fleet import until


def test_describe_tells_the_story(fleet: KubeFleet) -> None:
    head = fleet.commit(fleet.agents("a"))
    fleet.once()
    fleet.kubectl("scale", "deployment/a", "--replicas=2")
    fleet.once()
    second = fleet.commit(fleet.agents("a", runtime={"image": "registry.example/bot:2"}))
    fleet.once()

    def described() -> str:
        text = fleet.kubectl("describe", "deployment", "a")
        return text if second[:10] in text else ""

    told = until(described, "all events")
    assert f"gitops-agent.dev/instance={fleet.instance}" in told
    for reason, commit, why in (
        ("Created", head, "AgentAdded"),
        ("Updated", head, "EditedByHand"),
        ("Restarted", second, "SpecChanged"),
    ):
        lines = [line for line in told.splitlines() if reason in line and commit[:10] in line]
        assert any(why in line for line in lines), f"{reason} {why}:\n{told}"
    by_label = fleet.kubectl("get", "deploy", "-l", f"gitops-agent.dev/tenant={fleet.tenant}", "-o", "name")
    assert by_label.split() == ["deployment.apps/a"]


def test_a_failure_is_an_event_too(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("a"))
    fleet.once()
    refused = [{"op": "add", "path": "/spec/template/spec/dnsPolicy", "value": "Nowhere"}]
    bad = fleet.commit(fleet.agents("a", kubernetes={"patches": refused}))
    fleet.call("once", "--timeout", "12s")

    def told() -> list[str]:
        events = fleet.kubectl("describe", "deployment", "a").partition("\nEvents:")[2].splitlines()
        ours = [line for line in events if f" gitops-agent/{fleet.instance} " in line]
        return [line for line in ours if line.split()[:2] == ["Warning", "Failed"] and bad[:10] in line]

    (line, *_) = until(told, "the event of the failure")
    assert "dnsPolicy" in line


def test_a_secret_is_in_its_secret_and_nowhere_else(fleet: KubeFleet) -> None:
    word = f"canary{secrets.token_hex(12)}"
    env = [{"name": "TOKEN", "valueFrom": {"secretRef": {"provider": "env", "name": "SOURCE"}}}]
    head = fleet.commit(fleet.agents("a", runtime={"env": env}))
    said = [fleet.call("once", SOURCE=word)]
    stored = fleet.kubectl("get", "secret", "a", "-o", "go-template={{.data.TOKEN | base64decode}}")
    assert stored == word
    fleet.kubectl("scale", "deployment/a", "--replicas=2")
    for verb in (["drift"], ["plan"], ["once"], ["status"], ["explain", "a"], ["history"], ["logs", "a"]):
        said.append(fleet.call(*verb, SOURCE=word))
    assert all(word not in answer.out + answer.err for answer in said)
    fleet.kubectl("delete", "secret", "a")
    said.append(fleet.call("once", "-o", "json", SOURCE=word))
    assert word not in said[-1].out
    files = [path for root in (fleet.state, fleet.bare) for path in root.rglob("*") if path.is_file()]
    assert [path for path in files if word.encode() in path.read_bytes()] == []
    assert word not in fleet.note(head)
    for kind in ("events", "deployments", "configmaps", "pods", "services", "replicasets"):
        assert word not in fleet.kubectl("get", kind, "-o", "yaml"), kind
