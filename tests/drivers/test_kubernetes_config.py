"""Which cluster is meant, and what a kubeconfig may not ask for. No server: nothing here makes a request."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import websocket

from gitops_agent.drivers.api import ObserveError
from gitops_agent.drivers.kubernetes import config
from gitops_agent.drivers.kubernetes.config import ClusterConfig, config_of
from gitops_agent.drivers.kubernetes.options import Settings

TOKEN = "not-a-real-token"


def kubeconfig(folder: Path, *, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None) -> Path:
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", **(cluster or {})}}],
        "users": [{"name": "u", "user": {"token": TOKEN} if user is None else user}],
        "contexts": [
            {"name": "prod", "context": {"cluster": "c", "user": "u"}},
            {"name": "staging", "context": {"cluster": "c", "user": "u"}},
        ],
        "current-context": "prod",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return path


def test_a_kubeconfig_gives_address_and_token(tmp_path: Path) -> None:
    connection = ClusterConfig(str(kubeconfig(tmp_path))).connect({})
    assert connection.host == "https://127.0.0.1:1"
    assert connection.authorization() == {"authorization": f"Bearer {TOKEN}"}
    assert TOKEN not in repr(connection)


def test_the_environment_names_the_file_when_settings_do_not(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path)
    environ = {"KUBECONFIG": f"{tmp_path / 'missing'}:{path}"}
    assert ClusterConfig(context="staging").connect(environ).host == "https://127.0.0.1:1"


def test_a_missing_context_offers_those_that_exist(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path)
    with pytest.raises(ObserveError, match="has no context prd") as caught:
        ClusterConfig(str(path), context="prd").connect({})
    assert str(path) in caught.value.message
    assert "prod, staging" in caught.value.hint


def test_no_kubeconfig_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(ObserveError, match=r"nothing is at .*missing") as caught:
        ClusterConfig(str(tmp_path / "missing")).connect({})
    assert "inCluster: true" in caught.value.hint


def test_a_place_is_a_context_also_inside_a_cluster(tmp_path: Path) -> None:
    settings = Settings(in_cluster=True)
    with pytest.raises(ObserveError, match=r"context staging needs drivers\.kubernetes\.kubeconfig"):
        config_of(settings, "staging").connect({"KUBECONFIG": str(tmp_path / "missing")})
    with pytest.raises(ObserveError, match="no service account"):
        config_of(settings).connect({})  # the default one is ours, and this is no pod
    path = str(kubeconfig(tmp_path))
    both = Settings(in_cluster=True, kubeconfig=path)
    assert config_of(both, "staging").connect({}).host == "https://127.0.0.1:1"
    with pytest.raises(ObserveError, match="has no context prd") as caught:
        config_of(both, "prd").connect({})
    assert "runtime.kubernetes.context" in caught.value.hint
    with pytest.raises(ObserveError, match="no service account"):
        config_of(both).connect({})


class Renewed:
    """A connection whose files change while it is used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.connection = ClusterConfig(str(kubeconfig(folder))).connect({})
        self.pool = self.connection.pool

    def token(self) -> str:
        """The token of the next request."""
        return self.connection.authorization()["authorization"].removeprefix("Bearer ")


@pytest.fixture
def renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Renewed:
    monkeypatch.setattr(config, "_HEADER_SECONDS", 0.0)
    return Renewed(tmp_path)


def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster gives a new one each hour. It stands beside the kubeconfig."""
    monkeypatch.setattr(config, "_HEADER_SECONDS", 0.0)
    (tmp_path / "token").write_text("first")
    connection = ClusterConfig(str(kubeconfig(tmp_path, user={"tokenFile": "token"}))).connect({})
    assert connection.authorization() == {"authorization": "Bearer first"}
    pool = connection.pool
    (tmp_path / "next").write_text("second")
    (tmp_path / "next").replace(tmp_path / "token")
    assert connection.authorization() == {"authorization": "Bearer second"}
    assert connection.pool is pool, "open connections are kept"


def test_a_new_token_in_the_kubeconfig_is_used_and_what_cannot_be_used_is_not(renewed: Renewed) -> None:
    path = kubeconfig(renewed.folder, user={"token": "another"})
    assert renewed.token() == "another"
    path.write_text("clusters: [")
    assert renewed.token() == "another", "half written"
    kubeconfig(renewed.folder, user={"token": "of-a-person", "as": "someone"})
    assert renewed.token() == "another", "not for us"
    kubeconfig(renewed.folder, user={"token": "and-another"})
    assert renewed.token() == "and-another"
    assert renewed.connection.pool is renewed.pool


def test_a_new_certificate_is_used_by_new_connections(renewed: Renewed) -> None:
    renewed.token()
    user = {"token": "same", "client-certificate-data": "bmV3", "client-key-data": "bmV3"}
    kubeconfig(renewed.folder, user=user)
    renewed.token()
    assert renewed.connection.pool is not renewed.pool


def test_a_running_process_is_never_moved_to_another_cluster(renewed: Renewed) -> None:
    """Neither by ``kubectl config use-context`` nor by a new address: what it knows is of the first one."""
    path = kubeconfig(
        renewed.folder, user={"token": "of-another"}, cluster={"server": "https://elsewhere.example"}
    )
    assert (renewed.connection.host, renewed.token()) == ("https://127.0.0.1:1", TOKEN)
    content = json.loads(kubeconfig(renewed.folder, user={"token": "another"}).read_text())
    content["users"].append({"name": "v", "user": {"token": "of-staging"}})
    content["contexts"][1]["context"]["user"] = "v"
    path.write_text(json.dumps(content | {"current-context": "staging"}))
    assert renewed.token() == "another"


def test_a_websocket_takes_the_proxy_of_the_kubeconfig(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy, ThreadPoolExecutor(1) as pool:
        proxy.settimeout(10)

        def refuse() -> str:
            with proxy.accept()[0] as asked:
                said = asked.recv(4096).decode()
                asked.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            return said.splitlines()[0]

        said = pool.submit(refuse)
        way = {"server": "https://api.example:6443", "proxy-url": f"http://127.0.0.1:{proxy.getsockname()[1]}"}
        connection = ClusterConfig(str(kubeconfig(tmp_path, cluster=way))).connect({})
        with pytest.raises(websocket.WebSocketProxyException):
            connection.websocket("/exec", {}, "v4.channel.k8s.io", 5.0)
        assert said.result() == "CONNECT api.example:6443 HTTP/1.1"


@pytest.mark.parametrize("how", ["exec", "auth-provider"])
def test_a_program_for_credentials_is_not_run_unless_allowed(tmp_path: Path, how: str) -> None:
    trace = tmp_path / "ran"
    program = {"command": "touch", "args": [str(trace)], "apiVersion": "client.authentication.k8s.io/v1"}
    old = {"name": "gcp", "config": {"cmd-path": f"touch {trace}"}}
    path = kubeconfig(tmp_path, user={how: program if how == "exec" else old})
    with pytest.raises(ObserveError, match="has a program run for credentials") as caught:
        ClusterConfig(str(path)).connect({})
    assert "allowExec: true" in caught.value.hint
    assert not trace.exists()


def test_an_allowed_program_gives_the_token(tmp_path: Path) -> None:
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-the-program"},
    }
    program = {
        "command": "echo",
        "args": [json.dumps(answer)],
        "apiVersion": "client.authentication.k8s.io/v1",
        "interactiveMode": "Never",
    }
    path = kubeconfig(tmp_path, user={"exec": program})
    connection = ClusterConfig(str(path), allow_exec=True).connect({})
    assert connection.authorization() == {"authorization": "Bearer from-the-program"}


def test_an_allowed_program_that_fails_is_said_and_nobody_is_anonymous(tmp_path: Path) -> None:
    program = {"command": "false", "args": [], "apiVersion": "client.authentication.k8s.io/v1"}
    path = kubeconfig(tmp_path, user={"exec": program})
    with pytest.raises(ObserveError, match="the program for credentials gave none") as caught:
        ClusterConfig(str(path), allow_exec=True).connect({})
    assert caught.value.hint == "run it by hand: false"


def test_certificates_are_checked_unless_allowed(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, cluster={"insecure-skip-tls-verify": True})
    with pytest.raises(ObserveError, match="insecure-skip-tls-verify"):
        ClusterConfig(str(path)).connect({})
    assert ClusterConfig(str(path), allow_insecure=True).connect({}).host


def test_a_kubeconfig_that_acts_as_another_is_refused(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, user={"token": TOKEN, "as": "someone"})
    with pytest.raises(ObserveError, match="acts as another user"):
        ClusterConfig(str(path)).connect({})


@pytest.mark.parametrize(
    "text",
    [
        f"token: {TOKEN}\n- broken: [",
        "[]",
        "",
        f"users: [{{name: u, user: {{token: {TOKEN}}}}}]\ncurrent-context: x\ncontexts: 3",
        f"users: [{{user: {{token: {TOKEN}}}}}]",
        "!!python/object/apply:os.system ['true']",
        json.dumps({"contexts": [{"name": "x", "context": {"cluster": "c"}}], "current-context": "x"}),
    ],
)
def test_a_broken_kubeconfig_is_named_and_never_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ObserveError) as caught:
        ClusterConfig(str(path)).connect({})
    assert str(path) in caught.value.message
    assert TOKEN not in f"{caught.value.message} {caught.value.hint}"


def test_a_service_account_is_used_when_there_is_no_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes.config import incluster_config

    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "ca.crt").write_text("no certificate, but a file")
    monkeypatch.setattr(config, "SERVICE_ACCOUNT_DIR", str(tmp_path))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    connection = ClusterConfig().connect({"KUBECONFIG": str(tmp_path / "missing")})
    assert connection.host == "https://10.0.0.1:443"
    assert connection.authorization() == {"authorization": f"bearer {TOKEN}"}


def test_in_cluster_without_a_service_account_says_so() -> None:
    with pytest.raises(ObserveError, match="no service account"):
        ClusterConfig(in_cluster=True).connect({})


def test_importing_the_driver_does_not_import_the_package() -> None:
    code = (
        "import sys, gitops_agent.drivers.kubernetes.cache;"
        "sys.exit(any(name in sys.modules for name in ('kubernetes', 'urllib3', 'yaml')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
