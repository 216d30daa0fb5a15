"""From settings to a connection: which cluster, as whom, and what a kubeconfig may not ask for.

The ``kubernetes`` package reads the file, refreshes tokens and makes the connections. It is imported when a
cluster is first asked for, never before: verbs that do not look at one must not pay for it. What a kubeconfig says
is checked between reading and using it, on the same bytes, so that nothing in it is run that settings do not
allow. Texts of the package are never shown: they hold what is in the file, tokens included.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gitops_agent.drivers.api import ObserveError
from gitops_agent.drivers.kubernetes.options import Settings

SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"
POOL_CONNECTIONS = 32
"""How many idle connections are kept: as many as there may be actions at once, and some for logs."""

_HEADER_SECONDS = 5.0
_KEEPALIVE = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A peer that is gone without a word is noticed within 30 s."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Which cluster is meant. ``kubeconfig``: a path, or several as in $KUBECONFIG; "" for the usual places.
    ``context``: a name in it, "" for its current one. ``place``: the one that a document names, which is always a
    context. ``in_cluster``: where no place is named, by the service account of our pod, whatever files there are.
    ``allow_exec``: a kubeconfig may have a program run for credentials. ``allow_insecure``: it
    may turn the check of certificates off."""

    kubeconfig: str = ""
    context: str = ""
    in_cluster: bool = False
    allow_exec: bool = False
    allow_insecure: bool = False
    place: str = ""

    @property
    def wanted(self) -> str:
        """The context that is meant; "" for the current one."""
        return self.place or self.context

    @property
    def name(self) -> str:
        """The cluster, for people."""
        return f"context {self.wanted}" if self.wanted else "the cluster"

    def connect(self, environ: Mapping[str, str] | None = None) -> Connection:
        """The way to the cluster, without a request yet; ObserveError with the way out when there is none."""
        found = _kubeconfig_files(self.kubeconfig, os.environ if environ is None else environ)
        by_service_account = not found and not self.kubeconfig and not self.wanted
        in_cluster = self.in_cluster and not self.place  # what is meant for another cluster never ends up in ours
        if in_cluster or (by_service_account and Path(SERVICE_ACCOUNT_DIR, "token").exists()):
            return _in_cluster()
        if not found and self.place:
            raise ObserveError(
                f"context {self.place} needs drivers.kubernetes.kubeconfig: no file with contexts was found",
                hint=f"name a kubeconfig with the context {self.place}, or leave runtime.kubernetes.context out",
            )
        if not found:
            where = self.kubeconfig or "$KUBECONFIG and ~/.kube/config"
            raise ObserveError(
                f"no kubeconfig: nothing is at {where}",
                hint="set drivers.kubernetes.kubeconfig, or inCluster: true inside a cluster",
            )
        return _from_kubeconfig(self, found)


def config_of(settings: Settings, place: str = "") -> ClusterConfig:
    """How the cluster that documents name is reached; without a name, the default one."""
    return ClusterConfig(
        kubeconfig=settings.kubeconfig,
        context=settings.context,
        place=place,
        in_cluster=settings.in_cluster,
        allow_exec=settings.allow_exec,
        allow_insecure=settings.allow_insecure,
    )


class Connection:
    """The way to one cluster: its address, its pool of connections, and the header that says who we are."""

    def __init__(self, settings: Any) -> None:
        from kubernetes.client.rest import RESTClientObject  # late: see the module

        settings.connection_pool_maxsize = POOL_CONNECTIONS
        settings.socket_options = list(_KEEPALIVE)
        settings.retries = False
        self._settings = settings
        self._lock = threading.Lock()
        self._header: Mapping[str, str] = {}
        self._asked_again_at = 0.0
        self.host: str = settings.host.rstrip("/")
        self.pool: Any = RESTClientObject(settings).pool_manager

    def authorization(self) -> Mapping[str, str]:
        """The header that says who we are, with a token that is renewed when it is due."""
        # One at a time: renewing may run a program or read a file. And not for every request: the package takes as
        # long to see that nothing is due as a tenth of a request.
        with self._lock:
            if time.monotonic() >= self._asked_again_at:
                found = self._settings.auth_settings().values()
                self._header = {each["key"]: each["value"].strip() for each in found if each["value"]}
                self._asked_again_at = time.monotonic() + _HEADER_SECONDS
            return self._header

    def websocket(self, path: str, headers: Mapping[str, str], protocol: str, limit: float) -> Any:
        """An open websocket to a path, over TLS as the other requests; OSError or WebSocketException otherwise."""
        import ssl

        import websocket

        settings = self._settings
        options: dict[str, Any] = {"cert_reqs": ssl.CERT_REQUIRED if settings.verify_ssl else ssl.CERT_NONE}
        given = {"ca_certs": settings.ssl_ca_cert, "certfile": settings.cert_file, "keyfile": settings.key_file}
        given["server_hostname"] = settings.tls_server_name
        options |= {name: value for name, value in given.items() if value}
        return websocket.create_connection(
            "ws" + self.host.removeprefix("http") + path,
            timeout=limit,
            header=[f"{name}: {value}" for name, value in {**headers, **self.authorization()}.items()],
            subprotocols=[protocol],
            sslopt=options,
            skip_utf8_validation=True,
        )

    def __repr__(self) -> str:
        return f"Connection({self.host!r})"


def _kubeconfig_files(asked: str, environ: Mapping[str, str]) -> Sequence[str]:
    """The kubeconfig files that exist, in the order in which they are merged."""
    listed = asked or environ.get("KUBECONFIG") or "~/.kube/config"
    paths = (os.path.expanduser(each) for each in listed.split(os.pathsep) if each)  # noqa: PTH111 - text to text
    return [each for each in paths if os.path.exists(each)]  # noqa: PTH110


def _in_cluster() -> Connection:
    package = _package()
    settings = type.__call__(package.client.Configuration)
    try:
        package.config.load_incluster_config(client_configuration=settings)
    except (package.config.ConfigException, OSError):
        raise ObserveError(
            f"no service account: this is no pod of a cluster, or {SERVICE_ACCOUNT_DIR} cannot be read",
            hint="set automountServiceAccountToken: true, or drivers.kubernetes.kubeconfig outside of a cluster",
        ) from None
    return Connection(settings)


def context_names(kubeconfig: str, environ: Mapping[str, str] | None = None) -> Sequence[str]:
    """The contexts of a kubeconfig; ObserveError when it cannot be read."""
    paths = _kubeconfig_files(kubeconfig, os.environ if environ is None else environ)
    if not paths:
        return ()
    files = os.pathsep.join(paths)
    try:
        return tuple(_named(_merged(files).value.get("contexts")))
    except (AttributeError, TypeError, KeyError):
        raise _unusable(files, "is no kubeconfig") from None


def _merged(files: str) -> Any:
    """Some kubeconfig files as one; ObserveError when they cannot be read."""
    try:
        return _package().config.kube_config.KubeConfigMerger(files).config  # a safe parser, and nothing is run
    except OSError as problem:
        raise _unusable(files, f"cannot be read: {problem.strerror}") from None
    except ObserveError:
        raise
    except Exception as problem:  # whatever is wrong with a file of others
        raise _unusable(files, f"is no kubeconfig{_line_of(problem)}") from None


def _from_kubeconfig(asked: ClusterConfig, paths: Sequence[str]) -> Connection:
    package = _package()
    kube_config = package.config.kube_config
    files = os.pathsep.join(paths)
    merged = _merged(files)
    context, user = _checked(asked, files, merged)
    settings = type.__call__(package.client.Configuration)
    try:
        loader = kube_config.KubeConfigLoader(merged, active_context=context, config_base_path=None)
        loader.load_and_set(settings)
    except Exception:  # its text may hold what is in the file
        hint = "check that its cluster has a server, and that the files it names exist"
        raise _unusable(files, f"context {context} cannot be used", hint) from None
    if "exec" in user and not settings.api_key and not settings.cert_file:
        hint = f"run it by hand: {_program(user)}"
        raise _unusable(files, f"context {context}: the program for credentials gave none", hint)
    return Connection(settings)


def _checked(asked: ClusterConfig, files: str, merged: Any) -> tuple[str, Mapping[str, Any]]:
    """The context that is meant, and its user; ObserveError for what settings do not allow."""
    try:
        top = merged.value
        contexts, clusters, users = (_named(top.get(part)) for part in ("contexts", "clusters", "users"))
    except (AttributeError, TypeError, KeyError):
        raise _unusable(files, "is no kubeconfig") from None
    name = asked.wanted or top.get("current-context") or ""
    context = contexts.get(name, {}).get("context")
    if not isinstance(context, dict):
        there = ", ".join(sorted(contexts)) or "none"
        what = f"has no context {name}" if name else "has no current context"
        where = "runtime.kubernetes.context" if asked.place else "drivers.kubernetes.context"
        raise _unusable(files, what, f"set {where} to one of its contexts: {there}")
    cluster = clusters.get(context.get("cluster", ""), {}).get("cluster") or {}
    user = users.get(context.get("user", ""), {}).get("user") or {}
    if not isinstance(cluster, dict) or not isinstance(user, dict) or not cluster.get("server"):
        raise _unusable(files, f"context {name} names no cluster with a server")
    for program in ("exec", "auth-provider"):
        if program in user and not asked.allow_exec:
            what = f"context {name} has a program run for credentials ({program}{_program(user, ': ')})"
            raise _unusable(files, what, "use a token or certificate, or set drivers.kubernetes.allowExec: true")
    if cluster.get("insecure-skip-tls-verify") and not asked.allow_insecure:
        what = f"context {name} does not check the certificate of the API server (insecure-skip-tls-verify)"
        raise _unusable(
            files, what, "name its certificate-authority, or set drivers.kubernetes.allowInsecure: true"
        )
    if any(key.startswith("as") for key in user if key in ("as", "as-groups", "as-uid", "as-user-extra")):
        # The package ignores it, so we would act with more rights than the file gives.
        what = f"context {name} acts as another user (as: …), which is not supported in a kubeconfig"
        raise _unusable(files, what, "give the context credentials of that user")
    return name, user


def _named(part: Any) -> dict[str, dict[str, Any]]:
    """The entries of one part of a kubeconfig by name; of several with one name the first counts."""
    found: dict[str, dict[str, Any]] = {}
    for node in part or ():
        entry = getattr(node, "value", node)
        found.setdefault(str(entry["name"]), entry)
    return found


def _program(user: Mapping[str, Any], before: str = "") -> str:
    """The program that a user of a kubeconfig names, without its arguments: they may hold secrets."""
    plugin = user.get("exec")
    command = plugin.get("command") if isinstance(plugin, dict) else None
    return f"{before}{command}" if isinstance(command, str) else ""


def _line_of(problem: Exception) -> str:
    mark = getattr(problem, "problem_mark", None)
    return f" (line {mark.line + 1})" if mark is not None else ""


def _unusable(files: str, what: str, hint: str = "") -> ObserveError:
    return ObserveError(f"kubeconfig {files}: {what}", hint=hint or "see kubectl config view")


def _package() -> Any:
    try:
        import kubernetes
        import kubernetes.config.kube_config
    except ImportError:
        raise ObserveError(
            "the kubernetes package is not installed", hint="pip install 'gitops-agent[kubernetes]'"
        ) from None
    return kubernetes
