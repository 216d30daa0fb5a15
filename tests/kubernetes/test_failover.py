"""Two gitops-agents of one instance with a real Lease, a real cluster, a shared journal and default times. The
leader is killed, paused and cut off in the middle of a rollout, and the other one finishes it.

Each has a user of its own, so that the audit log of the API server says who wrote what.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import cast

import pytest

from gitops_agent.errors import JournalError
from gitops_agent.query.fleet import open_reader
from gitops_agent.settings import build_settings
from tests.kubernetes.fleet import KubeFleet
from tests.servers.audit import Request
from tests.servers.cluster import Cluster
from tests.servers.faults import FaultProxy
from tests.servers.postgres import Postgres
from tests.support.election import HERE, answer, leads, on_another_machine, stands_by
from tests.support.fleet import Json, until
from tests.support.launcher import Launched

pytestmark = pytest.mark.servers

FAILOVER_SECONDS = 20.0
"""What docs/clustered.md promises, from the death of a leader to the next one that leads."""

NAMES = tuple(f"n{number}" for number in range(8))
NEXT = "registry.example/bot:2"
READS = ("get", "list", "watch")


class Machine(KubeFleet):
    """The fleet as one of several gitops-agents has it, with the user of the API that it is."""

    user: str

    def status(self) -> Json:
        """What the shared journal says."""
        options = {"instance": self.instance, "state_dir": str(self.state)}
        try:
            with open_reader(build_settings({}, self.environment, options), {}) as reader:
                shape: Json = json.loads(json.dumps(reader.fleet()))
        except JournalError:
            return {"commit": None, "phase": None, "agents": [], "findings": []}
        return shape

    def writes(self, since: int) -> list[Request]:
        """What this one changed in the cluster; its Lease is not counted."""
        made = cast("Cluster", self.cluster).requests(self.user, since)
        return [each for each in made if each.verb not in READS and "/leases" not in each.uri]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as started:
        yield started


@pytest.fixture
def fleet(tmp_path: Path, control: Cluster, postgres: Postgres) -> Iterator[Machine]:
    made = Machine(tmp_path, control)
    made.environment |= {
        "GITOPS_AGENT_ELECTION": "kubernetes",
        "GITOPS_AGENT_DRIVERS__KUBERNETES__ELECTION_NAMESPACE": "default",
        "GITOPS_AGENT_JOURNAL_URL": postgres.url(),
        **HERE,
    }
    for user in ("agent", "agent-2"):
        control.kubectl(
            *("create", "clusterrolebinding", f"{made.instance}-{user}", "--clusterrole=cluster-admin"),
            f"--user={user}",
        )
    yield made
    made.remove()
    for user in ("agent", "agent-2"):
        control.kubectl("delete", "clusterrolebinding", f"{made.instance}-{user}")


def machine(fleet: Machine, name: str, user: str, kubeconfig: Path | None = None) -> Machine:
    """One gitops-agent with nothing in common but repository, cluster and journal."""
    made = cast("Machine", on_another_machine(fleet, name))
    made.user = user
    path = kubeconfig or cast("Cluster", fleet.cluster).kubeconfig_for(user)
    made.environment = {**made.environment, "GITOPS_AGENT_DRIVERS__KUBERNETES__KUBECONFIG": str(path)}
    return made


def images(fleet: Machine) -> dict[str, str]:
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]["containers"][0]["image"]
        for each in fleet.objects("deployment")
    }


def identities(fleet: Machine) -> dict[str, str]:
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in fleet.objects("deployment")}


@contextmanager
def in_the_middle(a: Machine, b: Machine) -> Iterator[tuple[Launched, str, dict[str, str]]]:
    """``a`` leads and has begun a rollout that takes waves; ``b`` stands by."""
    policy = a.policy(rollout={"canary": 1, "second": "40%", "bake": "3s"})
    a.commit({**a.agents(*NAMES), "policy.yaml": policy})
    with a.running() as first:
        a.await_phase(a.head(), "Converged")
        with b.running():
            until(lambda: stands_by(b, "a"), "b stands by")
            before = identities(a)
            assert set(before) == set(NAMES)
            sha = a.commit({f"{name}.yaml": a.agent(name, runtime={"image": NEXT}) for name in NAMES})
            until(lambda: NEXT in images(a).values(), "the canary follows")
            yield first, sha, before


def follows(b: Machine, since: float) -> float:
    """Wait until this one leads, and say after how many seconds."""
    until(lambda: leads(b), "b leads")
    seconds = time.monotonic() - since
    assert seconds < FAILOVER_SECONDS
    return seconds


def test_a_killed_leader_is_followed_in_the_middle_of_a_rollout(fleet: Machine) -> None:
    a, b = machine(fleet, "a", "agent"), machine(fleet, "b", "agent-2")
    with in_the_middle(a, b) as (first, sha, before):
        changed = [name for name, image in images(fleet).items() if image == NEXT]
        assert len(changed) < len(NAMES), "in the middle"
        first.kill()
        first.wait()
        killed = time.monotonic()
        seconds = follows(b, killed)
        b.await_phase(sha, "Converged")
        print(f"killed: leads after {seconds:.1f} s, converged after {time.monotonic() - killed:.1f} s")
        assert set(images(fleet).values()) == {NEXT}
        assert identities(fleet) == before, "nothing was made anew"
        until(lambda: f"{fleet.instance}: Converged" in fleet.note(sha), "b reports")


def test_a_paused_leader_is_followed_and_changes_nothing_more(fleet: Machine, control: Cluster) -> None:
    a, b = machine(fleet, "a", "agent"), machine(fleet, "b", "agent-2")
    with in_the_middle(a, b) as (first, sha, before):
        first.send_signal(signal.SIGSTOP)
        try:
            paused = time.monotonic()
            seconds = follows(b, paused)
            b.await_phase(sha, "Converged")
            print(f"paused: leads after {seconds:.1f} s, converged after {time.monotonic() - paused:.1f} s")
            versions = {
                each["metadata"]["name"]: each["metadata"]["generation"] for each in b.objects("deployment")
            }
            mark = control.mark()
        finally:
            first.send_signal(signal.SIGCONT)
        until(lambda: stands_by(a, "b"), "a stands by")
        assert "no longer leading" in a.daemon_log()
        assert a.writes(mark) == [], "not one request that changes something"
        now = {each["metadata"]["name"]: each["metadata"]["generation"] for each in b.objects("deployment")}
        assert now == versions
        assert identities(fleet) == before
        assert set(images(fleet).values()) == {NEXT}
        # And b goes on to act.
        fleet.kubectl("delete", "deployment", "n0")
        until(
            lambda: (found := fleet.object("deployment", "n0")) and found["metadata"]["uid"] != before["n0"], "n0"
        )


def test_a_leader_without_its_api_server_is_followed_too(
    fleet: Machine, control: Cluster, proxy: FaultProxy, tmp_path: Path
) -> None:
    path = proxy.kubeconfig(tmp_path / "proxied", "agent", control.token("agent"))
    a, b = machine(fleet, "a", "agent", path), machine(fleet, "b", "agent-2")
    with in_the_middle(a, b) as (_, sha, before):
        proxy.fail(503)
        mark = control.mark()
        seconds = follows(b, time.monotonic())
        print(f"cut off: leads after {seconds:.1f} s")
        b.await_phase(sha, "Converged")
        proxy.heal()
        until(lambda: stands_by(a, "b"), "a stands by")
        assert a.writes(mark) == []
        assert identities(fleet) == before
        assert set(images(fleet).values()) == {NEXT}


FENCING = Path(__file__).parents[2] / "docker" / "kubernetes" / "components" / "fencing"


@contextmanager
def fenced(fleet: Machine) -> Iterator[None]:
    """The policy of the component, for the users and the Lease of this test."""
    text = (FENCING / "policy.yaml").read_text(encoding="utf-8")
    ours = "request.userInfo.username == 'system:serviceaccount:gitops-agent:gitops-agent'"
    assert ours in text
    text = text.replace(ours, "request.userInfo.username in ['agent', 'agent-2']")
    text = text.replace("name: gitops-agent-default", f"name: gitops-agent-{fleet.instance}")
    text = text.replace("namespace: gitops-agent", "namespace: default")
    text = text.replace("gitops-agent-fencing", f"fencing-{fleet.instance}")
    fleet.cluster.kubectl("apply", "-f", "-", stdin=text)
    try:
        yield
    finally:
        fleet.cluster.kubectl("delete", "-f", "-", stdin=text)


@pytest.mark.parametrize("with_policy", [True, False])
def test_a_request_that_was_on_its_way_is_refused_by_the_api_server(
    fleet: Machine, control: Cluster, proxy: FaultProxy, tmp_path: Path, with_policy: bool
) -> None:
    """The old leader is paused, and what it had sent is held up until another one leads: nothing in the old
    process could stop it any more. Without the policy it gets through: this is the window that is left."""
    path = proxy.kubeconfig(tmp_path / "proxied", "agent", control.token("agent"))
    a, b = machine(fleet, "a", "agent", path), machine(fleet, "b", "agent-2")
    for each in (a, b):
        each.environment["GITOPS_AGENT_DRIVERS__KUBERNETES__FENCE_AS"] = each.user
    late = lambda seen: seen.method == "PATCH" and seen.path.endswith("/deployments/late")  # noqa: E731
    fleet.commit(fleet.agents("x"))
    with fenced(fleet) if with_policy else nullcontext(), a.running() as first:
        a.await_phase(fleet.head(), "Converged")
        with b.running():
            until(lambda: answer(b, "/readyz")[0] == 200, "b stands by")
            proxy.delay(30, late, times=1)
            mark = control.mark()
            sha = fleet.commit(fleet.agents("late"))
            until(lambda: [seen for seen in proxy.requests("PATCH") if late(seen)], "it is on its way")
            first.send_signal(signal.SIGSTOP)
            try:
                follows(b, time.monotonic())
                b.await_phase(sha, "Converged")
                made = fleet.object("deployment", "late")
                assert made is not None
                arrived = until(
                    lambda: [each for each in a.writes(mark) if "/deployments/late" in each.uri and each.code],
                    "it arrives",
                )
                assert [each.code for each in arrived] == [403 if with_policy else 200]
            finally:
                first.send_signal(signal.SIGCONT)
            until(lambda: stands_by(a, "b"), "a stands by")
            now = fleet.object("deployment", "late")
            assert now is not None
            assert (now["metadata"]["uid"], now["metadata"]["generation"]) == (
                made["metadata"]["uid"],
                made["metadata"]["generation"],
            )
