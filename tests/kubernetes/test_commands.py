"""Commands in pods and their logs, both through the API server."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from gitops_agent.drivers.api import AgentKey
from tests.kubernetes.fleet import KubeFleet
from tests.kubernetes.test_safety import connected
from tests.servers.cluster import LOG_LINES, Cluster, log_line
from tests.servers.faults import FaultProxy
from tests.support.fleet import until


def names(fleet: KubeFleet) -> list[str]:
    return [each["metadata"]["name"] for each in fleet.objects("pod")]


def test_logs_of_every_pod_and_what_they_add(control: Cluster, fleet: KubeFleet, tmp_path: Path) -> None:
    fleet.commit(fleet.agents("a", runtime={"replicas": 2}))
    fleet.once()
    answer = fleet.call("logs", "a")
    assert answer.code == 0
    pods = names(fleet)
    for pod in pods:
        assert pod in answer.out
    assert answer.out.count(LOG_LINES[0]) == 2
    assert LOG_LINES[0] not in fleet.call("logs", "a", "--lines", "1").out

    out = tmp_path / "followed"
    out.touch()
    words, world = fleet.command("logs", "a", "--follow")[3:], fleet.environment
    follower = fleet._launcher.start(words, fleet.work, world, (out, out))
    try:
        until(lambda: LOG_LINES[-1] in out.read_text(), "the lines so far")
        with control.log_file.open("a") as log:
            log.write(log_line("a line that came later"))
        until(lambda: out.read_text().count("a line that came later") >= 2, "the line of both pods")
        fleet.kubectl("delete", "pod", pods[0], "--wait=false")
        until(lambda: set(names(fleet)) - set(pods) and len(names(fleet)) == 2, "another pod in its place")
        (later,) = set(names(fleet)) - set(pods)
        until(lambda: later in out.read_text(), "the lines of a pod that came later")
        with control.log_file.open("a") as log:
            log.write(log_line("a line after that"))
        until(lambda: out.read_text().count("a line after that") >= 2, "the line of both pods that are left")
    finally:
        follower.terminate()
        follower.wait(20)
    missing = fleet.call("logs", "nobody")
    assert missing.code != 0


def test_a_log_that_is_cut_goes_on_where_it_was(
    fleet: KubeFleet, proxy: FaultProxy, control: Cluster, tmp_path: Path
) -> None:
    fleet.commit(fleet.agents("a"))
    fleet.once()
    path = proxy.kubeconfig(tmp_path / "proxied", "admin", control.token("admin"))
    fleet.environment["GITOPS_AGENT_DRIVERS__KUBERNETES__KUBECONFIG"] = str(path)
    said = [f"{fleet.tenant} line {number}" for number in range(9)]

    def write(*lines: str) -> None:
        with control.log_file.open("a") as log:
            log.write("".join(map(log_line, lines)))

    out = tmp_path / "followed"
    out.touch()
    words, world = fleet.command("logs", "a", "--follow")[3:], fleet.environment
    follower = fleet._launcher.start(words, fleet.work, world, (out, out))
    try:
        until(lambda: LOG_LINES[-1] in out.read_text(), "the lines so far")
        for cut in range(3):
            before, meanwhile, after = said[cut * 3 : cut * 3 + 3]
            write(before)
            until(lambda line=before: line in out.read_text(), "a line before the cut")
            proxy._server.cut_all()
            write(meanwhile)
            until(lambda line=meanwhile: line in out.read_text(), "the line that came while it was cut")
            write(after)
            until(lambda line=after: line in out.read_text(), "a line after it")
    finally:
        follower.terminate()
        follower.wait(20)
    shown = out.read_text()
    assert [line for line in said if shown.count(line) != 1] == [], "each once"
    assert shown.count(LOG_LINES[0]) == 1


def test_who_looks_away_leaves_no_connection_open(fleet: KubeFleet) -> None:
    fleet.commit(fleet.agents("a"))
    fleet.once()
    with connected(fleet) as driver:
        lines = driver.logs(AgentKey(fleet.tenant, "a"), 10, follow=True)
        assert next(iter(lines)).text
        assert readers()
        lines.close()  # type: ignore[attr-defined]
        until(lambda: not readers(), "nothing is read any more")


def readers() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("logs-")]


def test_one_pod_that_cannot_be_read_keeps_nothing_from_the_others(
    fleet: KubeFleet, proxy: FaultProxy, control: Cluster, tmp_path: Path
) -> None:
    fleet.commit(fleet.agents("a", runtime={"replicas": 2}))
    fleet.once()
    bad, good = names(fleet)
    path = proxy.kubeconfig(tmp_path / "proxied", "admin", control.token("admin"))
    fleet.environment["GITOPS_AGENT_DRIVERS__KUBERNETES__KUBECONFIG"] = str(path)
    proxy.fail(404, lambda seen: seen.path.endswith(f"/{bad}/log"))
    answer = fleet.call("logs", "a")
    assert answer.code == 0
    assert good in answer.out
    assert answer.out.count(LOG_LINES[0]) == 1
    proxy.fail(404, lambda seen: seen.path.endswith("/log"))
    assert fleet.call("logs", "a").code != 0, "none could be read"


def test_a_pod_that_only_carries_our_labels_is_not_the_agents(
    control: Cluster, fleet: KubeFleet, unique: str
) -> None:
    """Neither in a namespace of another, nor without a controller that keeps it: no log of it, and no command."""
    fleet.commit(fleet.agents("a"))
    fleet.once()
    labels = fleet.objects("pod")[0]["metadata"]["labels"]
    chosen = {name: value for name, value in labels.items() if "gitops-agent" in name}
    spec = {"containers": [{"name": "agent", "image": "registry.example/bot:1"}]}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a-1", "uid": "none", "controller": True}
    fleet.cluster.kubectl("create", "namespace", unique)
    try:
        for namespace, owners in ((unique, [owner]), (fleet.tenant, [])):
            metadata = {"name": "aa-forged", "labels": chosen, "ownerReferences": owners}
            forged = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            fleet.cluster.kubectl("-n", namespace, "create", "-f", "-", stdin=json.dumps(forged))
        told = fleet.call("logs", "a")
        assert told.code == 0
        assert "aa-forged" not in told.out
        assert told.out.count(LOG_LINES[0]) == 1
    finally:
        fleet.cluster.kubectl("delete", "namespace", unique, "--wait=false")


def test_hooks_run_inside_the_pod(control: Cluster, fleet: KubeFleet) -> None:
    diary = control.folder / "exec" / f"{fleet.tenant}.txt"
    control.folder.joinpath("exec").chmod(0o777)
    hooks = {"onProvisioned": {"command": ["sh", "-c", f'echo "hello $MANAGED_AGENT_HOOK_KEY" >> {diary}']}}
    fleet.commit({"a.yaml": fleet.agent("a", hooks=hooks), **fleet.agents("z")})
    assert fleet.once()["phase"] == "Converged"
    assert diary.read_text().startswith("hello ")
    assert fleet.once()["phase"] == "Converged"
    assert diary.read_text().count("hello") == 1


def test_a_hook_that_fails_says_what_it_said(fleet: KubeFleet) -> None:
    hooks = {"onProvisioned": {"command": ["sh", "-c", "echo no luck today >&2; exit 3"]}}
    fleet.commit({"a.yaml": fleet.agent("a", hooks=hooks), **fleet.agents("z")})
    fleet.call("once", "--timeout", "12s")
    explained = fleet.call("explain", "a").out
    assert "no luck today" in explained
    assert "exit code 3" in explained or "exit status 3" in explained, explained


def test_logs_hide_the_secrets_of_the_agent(control: Cluster, fleet: KubeFleet) -> None:
    word = f"canary{fleet.tenant}"
    env = [{"name": "TOKEN", "valueFrom": {"secretRef": {"provider": "env", "name": "SOURCE"}}}]
    fleet.commit(fleet.agents("a", runtime={"env": env}))
    fleet.once(SOURCE=word)
    with control.log_file.open("a") as log:
        log.write(log_line(f"the token is {word}"))
    told = fleet.call("logs", "a").out
    assert "the token is" in told
    assert word not in told
