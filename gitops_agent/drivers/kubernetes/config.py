"""From settings to a connection: which cluster, as whom, and what a kubeconfig may not ask for.

The ``kubernetes`` package reads the file, refreshes tokens and makes the connections. It is imported when a
cluster is first asked for, never before: verbs that do not look at one must not pay for it. What a kubeconfig says
is checked between reading and using it, on the same bytes, so that nothing in it is run that settings do not
allow. Texts of the package are never shown: they hold what is in the file, tokens included. Files that change are
read again, so that credentials are renewed in place; which cluster it is never changes.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gitops_agent.drivers.api import ObserveError, UsageError
from gitops_agent.drivers.kubernetes.options import Settings

SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"
POOL_CONNECTIONS = 32
"""How many idle connections are kept: as many as there may be actions at once, and some for logs."""

_HEADER_SECONDS = 5.0
_OF_CONNECTIONS = ("ssl_ca_cert", "cert_file", "key_file", "verify_ssl", "tls_server_name", "proxy")
"""The settings by which connections are made."""

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
        source = _Kubeconfig(self, found)
        return Connection(source.settings(), source.renewed)


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


def require_kubeconfig(settings: BaseModel) -> None:
    """Return when the kubeconfig that the settings name is there, or they name none; UsageError otherwise."""
    named = settings.kubeconfig if isinstance(settings, Settings) else ""
    if named and not _kubeconfig_files(named, {}):
        raise UsageError(
            f"drivers.kubernetes.kubeconfig: nothing is at {named}",
            hint="correct the path, or remove the setting for $KUBECONFIG or ~/.kube/config",
        )


def _no_news() -> None:
    """The files say what they said."""


class Connection:
    """The way to one cluster: its address, its pool of connections, and the header that says who we are.
    ``renewed``: what the files say that ``settings`` are from, when they have changed since."""

    def __init__(self, settings: Any, renewed: Callable[[], Any | None] = _no_news) -> None:
        self._settings = settings
        self._renewed = renewed
        self._lock = threading.Lock()
        self._header: Mapping[str, str] = {}
        self._asked_again_at = 0.0
        self.host: str = settings.host.rstrip("/")
        self.pool: Any = _pool(settings)

    def authorization(self) -> Mapping[str, str]:
        """The header that says who we are, with a token that is renewed when it is due."""
        # One at a time: renewing may run a program or read a file. And not for every request: the package takes as
        # long to see that nothing is due as a tenth of a request.
        with self._lock:
            if time.monotonic() >= self._asked_again_at:
                self._renew()
                found = self._settings.auth_settings().values()
                self._header = {each["key"]: each["value"].strip() for each in found if each["value"]}
                self._asked_again_at = time.monotonic() + _HEADER_SECONDS
            return self._header

    def _renew(self) -> None:
        """Use what the files say now, unless that is another cluster."""
        found, before = self._renewed(), self._settings
        if found is None or found.host.rstrip("/") != self.host:
            return
        self._settings = found
        if any(getattr(found, each) != getattr(before, each) for each in _OF_CONNECTIONS):
            old, self.pool = self.pool, _pool(found)
            old.clear()  # those in use end with their answers

    def websocket(self, path: str, headers: Mapping[str, str], protocol: str, limit: float) -> Any:
        """An open websocket to a path, by the way that the other requests take; OSError or WebSocketException
        otherwise. ``headers``: with the one that says who we are."""
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
            header=[f"{name}: {value}" for name, value in headers.items()],
            subprotocols=[protocol],
            sslopt=options,
            skip_utf8_validation=True,
            **_proxy_of(self.pool),
        )

    def __repr__(self) -> str:
        return f"Connection({self.host!r})"


def _pool(settings: Any) -> Any:
    """The connections that settings ask for."""
    from kubernetes.client.rest import RESTClientObject  # late: see the module

    settings.connection_pool_maxsize = POOL_CONNECTIONS
    settings.socket_options = list(_KEEPALIVE)
    settings.retries = False
    return RESTClientObject(settings).pool_manager


def _proxy_of(pool: Any) -> dict[str, Any]:
    """The options by which a websocket takes the proxy of a pool."""
    import urllib3

    asked = getattr(pool, "proxy_url", None) or pool.proxy  # of SOCKS, or of HTTP
    if asked is None:
        return {}
    proxy = urllib3.util.parse_url(str(asked))
    user, _, password = (proxy.auth or "").partition(":")
    return {
        "http_proxy_host": proxy.host,
        "http_proxy_port": proxy.port,
        "http_proxy_auth": (user, password) if user else None,
        "proxy_type": proxy.scheme if str(proxy.scheme).startswith("socks") else "http",
    }


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


class _Kubeconfig:
    """The files that a connection is from. The context that is meant stays the one that it was at first, whatever
    becomes the current one."""

    def __init__(self, asked: ClusterConfig, paths: Sequence[str]) -> None:
        self._asked = asked
        self._paths = paths
        self._seen: dict[str, object] = {}

    def settings(self) -> Any:
        """Settings of the package for what the files say; ObserveError when that cannot be used."""
        package = _package()
        files = os.pathsep.join(self._paths)
        seen = _marks(self._paths)  # before it is read: what changes meanwhile is read again
        merged = _merged(files)
        context, user = _checked(self._asked, files, merged)
        self._seen = {**seen, **_marks(_token_files(user, self._paths))}
        settings = type.__call__(package.client.Configuration)
        try:
            loader = package.config.kube_config.KubeConfigLoader(
                merged, active_context=context, config_base_path=None
            )
            loader.load_and_set(settings)
        except Exception:  # its text may hold what is in the file
            hint = "check that its cluster has a server, and that the files it names exist"
            raise _unusable(files, f"context {context} cannot be used", hint) from None
        if "exec" in user and not settings.api_key and not settings.cert_file:
            hint = f"run it by hand: {_program(user)}"
            raise _unusable(files, f"context {context}: the program for credentials gave none", hint)
        self._asked = replace(self._asked, context=context)
        return settings

    def renewed(self) -> Any | None:
        """The same when a file has changed since; None while it has not, or cannot be used."""
        if _marks(self._seen) == self._seen:
            return None
        try:
            return self.settings()
        except ObserveError:
            return None


def _marks(paths: Iterable[str]) -> dict[str, object]:
    """By what it is seen that a file has changed."""
    return {path: _mark(path) for path in paths}


def _mark(path: str) -> object:
    try:
        found = os.stat(path)  # noqa: PTH116 - text to text
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _token_files(user: Mapping[str, Any], paths: Sequence[str]) -> Sequence[str]:
    """Where the token file of a user may be, whichever of the files names it."""
    name = user.get("tokenFile")
    return [str(Path(each).parent / name) for each in paths] if isinstance(name, str) else ()


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
