"""The image, built and run: not as root, on a read-only root, without capabilities, without a shell."""

from __future__ import annotations

import json
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.kubernetes.install import (
    ACCOUNT,
    NAMESPACE,
    TENANTS,
    USER,
    Installation,
    Object,
    copied,
    installed,
    one,
)
from tests.servers.cluster import Cluster
from tests.servers.image import Container, Podman, base_image, build_image, container, podman
from tests.servers.postgres import Postgres
from tests.servers.processes import free_ports
from tests.support.git_servers import http_server
from tests.support.repositories import make_pair

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).parents[2] / "examples"
OURS = 10001
ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
CONVERGED_SECONDS = 120
MAX_MEGABYTES = 300
"""What the image may add to its base."""


@pytest.fixture(scope="module")
def tool() -> Podman:
    """Podman; where it cannot be had the test fails, and says what to do."""
    return podman()


@pytest.fixture(scope="module")
def image(tool: Podman) -> str:
    """The image of this checkout, built once."""
    return build_image(tool)


def test_the_image_is_small_not_root_and_calls_nothing_by_a_shell(tool: Podman, image: str) -> None:
    found = tool.inspect(image)
    config = found["Config"]
    assert config["User"] == f"{OURS}:{OURS}"
    assert config["Entrypoint"] == ["gitops-agent"]
    assert config["Cmd"] == ["run"]
    assert found["Healthcheck"]["Test"] == ["CMD", "gitops-agent", "doctor", "--live"]
    assert not [value for value in config["Env"] if value.startswith(("PIP_", "SSL_"))]
    assert (found["Size"] - tool.inspect(base_image(tool))["Size"]) / 1e6 < MAX_MEGABYTES


def test_a_container_converges_the_example_fleet_of_processes(tool: Podman, image: str, tmp_path: Path) -> None:
    crm, support, listen = free_ports(3)
    files = tuple(
        (name, text.replace("18080", str(crm)).replace("18081", str(support)))
        for name, text in fleet("desired-repo")
    )
    with served(tmp_path, files) as url, volume(tmp_path) as state:
        given = {"GITOPS_AGENT_REPO": url, "GITOPS_AGENT_LISTEN": f"127.0.0.1:{listen}"}
        with container(tool, image, environment=given, mounts=[state]) as running:
            await_converged(running, listen)
            assert running.healthy()
            assert running.exec("gitops-agent", "status").returncode == 0
            assert "permission denied" in running.exec("/bin/sh", "-c", "true").stderr.lower()
            # Over http no shell is needed; for a path git itself starts one.
            assert "permission denied" in running.exec("git", "ls-remote", "/tmp").stderr.lower()
            assert "Read-only file system" in running.exec("python", "-c", "open('/opt/new', 'w')").stderr


def test_a_container_with_the_rights_of_the_manifests_converges_the_example_fleet_in_the_cluster(
    control: Cluster, tool: Podman, image: str, tmp_path: Path
) -> None:
    (listen,) = free_ports(1)
    with served(tmp_path, fleet("desired-repo-kubernetes")) as url:
        overlay = copied(tmp_path, "single", settings=settings(url, "image", listen))
        with installed(control, overlay) as now, volume(tmp_path) as state:
            began = control.mark()
            with container(tool, image, **as_pod(now, tmp_path, state)) as running:
                await_converged(running, listen)
                assert running.healthy()
                assert_live_and_never_refused(control, began)


def test_two_containers_with_rights_by_tenant_elect_one_and_share_a_journal(
    control: Cluster, tool: Podman, image: str, tmp_path: Path
) -> None:
    ports = free_ports(2)
    with served(tmp_path, fleet("desired-repo-kubernetes")) as url, Postgres() as database, ExitStack() as stack:
        overlay = copied(tmp_path, "tenants", settings=settings(url, "tenants", ports[0], BY_TENANT))
        now = stack.enter_context(installed(control, overlay))
        began, replicas = control.mark(), list[Container]()
        for name, port in zip(("first", "second"), ports, strict=True):
            (tmp_path / name).mkdir()
            state = stack.enter_context(volume(tmp_path / name))
            pod = as_pod(now, tmp_path / name, state, name, database.url())
            pod["environment"]["GITOPS_AGENT_LISTEN"] = f"127.0.0.1:{port}"
            replicas.append(stack.enter_context(container(tool, image, **pod)))
            if name == "first":
                await_converged(replicas[0], port)
        await_answer(replicas[1], ports[1], "standby")
        assert all(replica.healthy() for replica in replicas)
        lease = control.get("lease", "gitops-agent-tenants", namespace=NAMESPACE)
        assert lease["spec"]["holderIdentity"].startswith("first_")
        assert_live_and_never_refused(control, began)


def assert_live_and_never_refused(control: Cluster, began: int) -> None:
    """The agents are there, and the service account asked for nothing that it has no right to."""
    ready = control.kubectl("wait", "deployments", "--all", "--for=condition=Available", "-n", "acme")
    assert ready.count("condition met") == 2
    asked = control.requests(USER, began)
    assert asked
    assert [each for each in asked if each.code == 403] == []


BY_TENANT = {"createNamespaces": False, "namespaces": list(TENANTS)}


def settings(url: str, instance: str, listen: int, more: Object | None = None) -> str:
    """The settings of an overlay, for the repository of the test and on loopback."""
    return json.dumps(
        {
            "repo": url,
            "instance": instance,
            "listen": f"127.0.0.1:{listen}",
            "logFormat": "json",
            "drivers": {"kubernetes": {"inCluster": True, **(more or {})}},
        }
    )


def fleet(example: str) -> tuple[tuple[str, str], ...]:
    """The files of an example, by name."""
    root = EXAMPLES / example
    return tuple(
        (str(path.relative_to(root)), path.read_text()) for path in sorted(root.rglob("*")) if path.is_file()
    )


@contextmanager
def served(folder: Path, files: tuple[tuple[str, str], ...]) -> Iterator[str]:
    """The address of a repository with these files: over http, which git needs no shell for."""
    bare, _ = make_pair(folder, files=files)
    with http_server(bare.parent) as server:
        yield server.url(bare.name)


@contextmanager
def volume(folder: Path) -> Iterator[str]:
    """A folder of our user in the container, mounted where its state goes."""
    state = folder / "state"
    state.mkdir()
    shutil.chown(state, OURS, OURS)
    yield f"{state}:/var/lib/gitops-agent:rw"


def as_pod(now: Installation, folder: Path, state: str, name: str = "only", journal: str = "") -> Object:
    """How the kubelet would run a pod of the Deployment: its environment, its files, its service account."""
    pod = one(now.objects, "Deployment")["spec"]["template"]["spec"]
    (spec,) = pod["containers"]
    assert pod["serviceAccountName"] == ACCOUNT
    environment = {each["name"]: each.get("value", name) for each in spec["env"]}
    host, _, port = now.cluster.url.removeprefix("https://").partition(":")
    environment |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    configured = one(now.objects, "ConfigMap", "gitops-agent-settings")["data"]
    account = {"token": now.token(), "namespace": NAMESPACE, "ca.crt": now.cluster.ca.read_text()}
    paths = {each["name"]: each["mountPath"] for each in spec["volumeMounts"]}
    mounts = [
        f"{written(folder / 'settings', configured)}:{paths['settings']}:ro",
        f"{written(folder / 'account', account)}:{ACCOUNT_FOLDER}:ro",
        state.replace("/var/lib/gitops-agent", paths["state"]),
    ]
    if "journal" in paths:
        mounts.append(f"{written(folder / 'journal', {'url': journal})}:{paths['journal']}:ro")
    return {"environment": environment, "mounts": mounts}


def written(folder: Path, files: dict[str, str]) -> Path:
    """The folder, with these files in it that our user in the container may read."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
        shutil.chown(folder / name, OURS, OURS)
        (folder / name).chmod(0o400)
    return folder


def await_converged(running: Container, port: int) -> None:
    """Return when all agents are ready; else the test fails with the end of the container's log."""
    await_answer(running, port, r"agents: ([1-9]\d*) of \1 ready")


def await_answer(running: Container, port: int, pattern: str) -> None:
    """Return when ``/readyz`` answers so."""
    deadline = time.monotonic() + CONVERGED_SECONDS
    while not re.search(pattern, text := answer(port, "/readyz")):
        if time.monotonic() > deadline:
            pytest.fail(f"not so after {CONVERGED_SECONDS} s, but: {text}\n{running.logs()[-6000:]}")
        time.sleep(0.5)


def answer(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as found:
            return str(found.read().decode())
    except urllib.error.HTTPError as problem:
        return problem.read().decode()
    except OSError as problem:
        return str(problem)
