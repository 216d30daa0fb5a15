"""A real Kubernetes control plane on loopback: etcd, API server, controllers, scheduler, and KWOK for kubelets.

Nothing is simulated but the two nodes and what runs on them (``stages.yaml`` says how pods behave). Tokens and
keys are made anew for every start. All lives in one temporary folder, and nothing outlives us (``processes.py``).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.servers import build
from tests.servers.audit import POLICY, Request, read_requests
from tests.servers.certificates import write_certificates, write_signing_keys
from tests.servers.kubeconfig import write_kubeconfig
from tests.servers.processes import ProcessGroup, free_ports

ADMIN = "admin"
USERS = ("agent", "agent-2", "bench", "bob", "alice")
"""Users without any right: a test grants what it needs (``kubectl create clusterrolebinding``)."""
COMPONENT = "component"
NODES = ("node-1", "node-2")
ROOM = {"cpu": "1000", "memory": "4Ti", "pods": "20000", "ephemeral-storage": "4Ti"}
STAGES = Path(__file__).with_name("stages.yaml")
LOG_LINES = ("first line of a simulated agent", "second line of a simulated agent")
PREVIOUS_LINES = ("last words before the restart",)
NOBODY = 65534


class Cluster:
    """A control plane that runs from construction until ``stop``; a context manager."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        folder = build.binaries(say)
        self._binary, self._kwok = folder / "controlplane", folder / "kwok"
        self.folder = Path(tempfile.mkdtemp(prefix="gitops-agent-cluster-"))
        self._processes = ProcessGroup(self.folder)
        try:
            self._start()
        except Exception:
            self._processes.stop()  # the folder stays: it holds the logs that the error speaks of
            raise
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End all processes and remove the folder."""
        self._processes.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    # What a test asks.

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the administrator, context ``default``."""
        return self.folder / "admin.kubeconfig"

    @property
    def log_file(self) -> Path:
        """The file that ``kubectl logs`` of every pod shows, as container runtimes write it (``log_line``)."""
        return self.folder / "pod.log"

    def token(self, user: str) -> str:
        """Return the token of a user."""
        return self._tokens[user]

    def kubeconfig_for(self, user: str, context: str = "default", token: str | None = None) -> Path:
        """Write a kubeconfig of one of ``USERS`` and return its path; another token is one the server refuses."""
        path = self.folder / f"{user}-{context}-{secrets.token_hex(4)}.kubeconfig"
        return write_kubeconfig(path, self.url, self.ca, user, token or self._tokens[user], context)

    def kubectl(self, *args: str, stdin: str | None = None, user: str = ADMIN, check: bool = True) -> str:
        """Return what ``kubectl`` prints; with ``check=False`` also when it fails, with its complaint."""
        done = subprocess.run(
            [self._binary, "kubectl", "--cache-dir", self.folder / "kubectl-cache", *args],
            env={**os.environ, "KUBECONFIG": str(self.folder / f"{user}.kubeconfig")},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(args)} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout if check else done.stdout + done.stderr

    def write_kubectl(self) -> Path:
        """Write a ``kubectl`` for work by hand, as administrator unless KUBECONFIG is set; return its path."""
        script = self.folder / "kubectl"
        script.write_text(
            f'#!/bin/sh\nexport KUBECONFIG="${{KUBECONFIG:-{self.kubeconfig}}}"\n'
            f'exec "{self._binary}" kubectl --cache-dir "{self.folder / "kubectl-cache"}" "$@"\n'
        )
        script.chmod(0o755)
        return script

    def get(self, *args: str, namespace: str | None = None) -> dict[str, Any]:
        """Return an object as ``kubectl get … -o json`` shows it."""
        where = () if namespace is None else ("--namespace", namespace)
        found: dict[str, Any] = json.loads(self.kubectl("get", *args, *where, "-o", "json"))
        return found

    @property
    def audit_log(self) -> Path:
        """The log of all requests, as the API server writes it."""
        return self._audit_log

    def mark(self) -> int:
        """Return the position in the audit log: ``requests`` counts from there."""
        return self._audit_log.stat().st_size

    def requests(self, user: str, since: int = 0) -> list[Request]:
        """Return the requests that a user made since the mark, in their order."""
        return read_requests(self._audit_log, user, since)

    def restart_apiserver(self, kill: bool = True, down: float = 0) -> None:
        """End the API server, leave it down for some seconds, start it again and return when it is ready.

        Killed it is as if its machine went down; else it ends in order, which takes it many seconds.
        """
        self.stop_apiserver(kill)
        time.sleep(down)
        self.start_apiserver()

    def stop_apiserver(self, kill: bool = True) -> None:
        """End the API server and leave it down: connections are refused."""
        self._processes.end("apiserver", signal.SIGKILL if kill else signal.SIGTERM)

    def start_apiserver(self) -> None:
        """Start the API server on its port and return when it is ready; what etcd holds is as it was."""
        self._processes.start("apiserver", self._apiserver())
        self._processes.wait("apiserver", self._serves)

    def restart_nodes(self) -> None:
        """Start the simulated kubelets anew: KWOK gives up on a pod whose request failed while the API server was
        down, and the pod ends never; a real kubelet tries again."""
        self._processes.end("kwok", signal.SIGKILL)
        # The one that was killed holds the nodes by leases, for ten minutes more.
        leases = ("delete", "lease", "--namespace=kube-node-lease", "--ignore-not-found", *NODES)
        self.kubectl(*leases, user=COMPONENT)
        self._processes.start("kwok", self._nodes())

    def pause_apiserver(self) -> None:
        """Freeze the API server: it accepts connections and never answers."""
        os.kill(self._processes.pid("apiserver"), signal.SIGSTOP)

    def resume_apiserver(self) -> None:
        """Let a frozen API server go on."""
        os.kill(self._processes.pid("apiserver"), signal.SIGCONT)

    @contextlib.contextmanager
    def only_the_server(self) -> Iterator[None]:
        """Freeze everything but etcd and the API server meanwhile: what is stored has no consequences yet."""
        frozen = [self._processes.pid(name) for name in ("controllers", "scheduler", "kwok")]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)

    # How it starts.

    def _start(self) -> None:
        pki = self.folder / "pki"
        pki.mkdir()
        self._certificates = write_certificates(pki)
        write_signing_keys(pki / "accounts.key", pki / "accounts.pub")
        self.ca = self._certificates.ca
        etcd, peers, self._port, controllers, scheduler, self._kubelet_port = free_ports(6)
        self._etcd_url, self.url = f"http://127.0.0.1:{etcd}", f"https://127.0.0.1:{self._port}"
        self._tokens = {user: secrets.token_hex(16) for user in (ADMIN, COMPONENT, *USERS)}
        self._audit_log = self.folder / "audit.log"
        self._audit_log.touch(mode=0o600)
        self._write_files()
        self._processes.start("etcd", self._etcd(f"http://127.0.0.1:{peers}"))
        self._processes.start("apiserver", self._apiserver())
        self._processes.wait("apiserver", self._serves)
        self._processes.start("controllers", self._controllers(controllers))
        self._processes.start("scheduler", self._component("scheduler", scheduler))
        self._processes.start("kwok", self._nodes())
        self.kubectl("create", "-f", "-", stdin="\n---\n".join(json.dumps(_node(name)) for name in NODES))
        self._processes.wait("controllers", self._settled)

    def _write_files(self) -> None:
        groups = {ADMIN: "system:masters", COMPONENT: "system:masters,tests:components"}
        lines = [f'{token},{user},{user},"{groups.get(user, "")}"' for user, token in self._tokens.items()]
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text("\n".join(lines) + "\n")
        for user, token in self._tokens.items():
            write_kubeconfig(self.folder / f"{user}.kubeconfig", self.url, self.ca, user, token)
        (self.folder / "audit.yaml").write_text(json.dumps(POLICY))
        self.log_file.write_text("".join(log_line(line) for line in LOG_LINES))
        previous = self.folder / "pod-previous.log"
        previous.write_text("".join(log_line(line) for line in PREVIOUS_LINES))
        (self.folder / "exec").mkdir(mode=0o755)
        self.folder.chmod(0o711)  # a command of `kubectl exec` runs as nobody and must get to its folder
        (self.folder / "kwok.yaml").write_text(
            "\n---\n".join(
                [STAGES.read_text(), *map(json.dumps, _debugging(self.folder, self.log_file, previous))]
            )
        )

    def _etcd(self, peers: str) -> list[str | Path]:
        return [
            self._binary,
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={self._etcd_url}",
            f"--advertise-client-urls={self._etcd_url}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
        ]

    def _apiserver(self) -> list[str | Path]:
        pki = self.folder / "pki"
        return [
            self._binary,
            "apiserver",
            f"--etcd-servers={self._etcd_url}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={pki}",
            f"--tls-cert-file={self._certificates.certificate}",
            f"--tls-private-key-file={self._certificates.private_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki / 'accounts.pub'}",
            f"--service-account-signing-key-file={pki / 'accounts.key'}",
            "--service-cluster-ip-range=10.0.0.0/16",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            f"--audit-policy-file={self.folder / 'audit.yaml'}",
            f"--audit-log-path={self._audit_log}",
            "--endpoint-reconciler-type=none",  # it would publish the address of this machine
            "--kubelet-preferred-address-types=InternalIP",
            "--max-requests-inflight=2000",
            "--max-mutating-requests-inflight=1000",
        ]

    def _component(self, name: str, port: int) -> list[str | Path]:
        kubeconfig = self.folder / f"{COMPONENT}.kubeconfig"
        return [
            self._binary,
            name,
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--authentication-skip-lookup=true",
            "--leader-elect=false",
            "--kube-api-qps=500",  # the limits of clients would set the pace of tests
            "--kube-api-burst=1000",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
        ]

    def _controllers(self, port: int) -> list[str | Path]:
        return [
            *self._component("controllers", port),
            "--use-service-account-credentials=false",
            f"--service-account-private-key-file={self.folder / 'pki' / 'accounts.key'}",
            f"--root-ca-file={self.ca}",
            "--node-monitor-period=1s",  # so that new nodes are free of their taint soon
            "--node-monitor-grace-period=900s",  # simulated nodes are late under load, never lost
        ]

    def _nodes(self) -> list[str | Path]:
        return [
            self._kwok,
            f"--kubeconfig={self.folder / f'{COMPONENT}.kubeconfig'}",
            f"--config={self.folder / 'kwok.yaml'}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=600",
            "--node-ip=127.0.0.1",
            f"--node-port={self._kubelet_port}",
            f"--server-address=127.0.0.1:{self._kubelet_port}",
        ]

    def _serves(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.ca))
        request = urllib.request.Request(  # as a component, who is not counted
            f"{self.url}/readyz", headers={"Authorization": f"Bearer {self._tokens[COMPONENT]}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5, context=context) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as problem:
            problem.close()  # an answer too, with a connection of its own
        except OSError:
            pass
        return False

    def _settled(self) -> bool:
        """Whether nodes take pods and the controllers work: the account that every pod needs was made."""
        nodes = json.loads(self.kubectl("get", "nodes", "-o", "json", user=COMPONENT))["items"]
        account = self.kubectl("get", "serviceaccount", "default", "-o", "name", user=COMPONENT, check=False)
        return len(nodes) == len(NODES) and all(map(_takes_pods, nodes)) and account.startswith("serviceaccount/")


def log_line(text: str) -> str:
    """Return a line as container runtimes write it into log files."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S.000000000Z', time.gmtime())} stdout F {text}\n"


def _node(name: str) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": ROOM, "capacity": ROOM},
    }


def _takes_pods(node: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    conditions = {one["type"]: one["status"] for one in node["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")


def _debugging(folder: Path, log: Path, previous: Path) -> list[dict[str, object]]:
    """Return where ``kubectl logs`` reads and where ``kubectl exec`` runs: here, in an empty folder."""
    local: dict[str, object] = {"workDir": str(folder / "exec")}
    if os.geteuid() == 0:
        local["securityContext"] = {"runAsUser": NOBODY, "runAsGroup": NOBODY}
    logs = {"logsFile": str(log), "previousLogsFile": str(previous), "follow": True}
    return [
        _kwok_object("ClusterLogs", {"logs": [logs]}),
        _kwok_object("ClusterExec", {"execs": [{"local": local}]}),
    ]


def _kwok_object(kind: str, spec: dict[str, object]) -> dict[str, Any]:
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": kind, "metadata": {"name": "all"}, "spec": spec}
