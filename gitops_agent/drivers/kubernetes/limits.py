"""What an operator lets documents do: which clusters they name, how far they overwrite, and whether their pods
reach the host they run on. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from gitops_agent.drivers.api import JSON
from gitops_agent.drivers.kubernetes.errors import Rejected
from gitops_agent.drivers.kubernetes.options import Settings
from gitops_agent.drivers.kubernetes.reading import at, map_at, maps_at

OVERWRITES = ("None", "Hands", "All")
"""Whose changes are undone, from nobody's to everybody's."""

BASELINE_CAPABILITIES = frozenset(
    (
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    )
)
"""What the Pod Security level ``baseline`` lets a container ask for."""


def may_name(settings: Settings, context: str, tenant: str | None = None) -> bool:
    """Whether documents of a tenant, or without one of any tenant, may name a context of the kubeconfig."""
    if context in ("", settings.context):
        return True
    for entry in settings.contexts:
        whose, separated, pattern = entry.rpartition("=")  # no name of a context has this sign in it
        if (not separated or tenant in (None, whose)) and fnmatchcase(context, pattern):
            return True
    return False


def require_context(settings: Settings, context: str, tenant: str) -> None:
    """Return when documents of a tenant may name a context; Rejected with the way out."""
    if not may_name(settings, context, tenant):
        raise Rejected(
            "ContextNotAllowed", f"documents of {tenant} may not name the context {context}", hint=way_out(context)
        )


def way_out(context: str) -> str:
    """What to do about a context that documents may not name."""
    ways = f"{context}, or TENANT={context} for one tenant"
    return f"name another one, or add it to drivers.kubernetes.contexts: {ways}"


def effective_overwrite(settings: Settings, fields: Mapping[str, Any]) -> str:
    """Whose changes to a workload are undone: as its document says, within what the settings allow."""
    return min(str(fields.get("overwrite", "Hands")), settings.max_overwrite, key=OVERWRITES.index)


def require_confined(settings: Settings, template: Mapping[str, Any]) -> None:
    """Return when pods of a template stay off their host, or need not; Rejected with the way out."""
    found = "" if settings.allow_host_access else host_access(template)
    if found:
        raise Rejected(
            "HostAccess",
            f"its pods would reach the host they run on: {found}",
            hint="take it out of runtime.kubernetes, or set drivers.kubernetes.allowHostAccess and commit again",
            permanent=True,
        )


def host_access(template: Mapping[str, Any]) -> str:
    """The first thing in a template by which its pods reach their host, as an address; "" when there is none."""
    return next(_ways_to_host(map_at(template, "spec")), "")


def _ways_to_host(pod: Mapping[str, JSON]) -> Iterator[str]:
    yield from (f"spec.{name}" for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name))
    if at(pod, "securityContext", "windowsOptions", "hostProcess"):
        yield "spec.securityContext.windowsOptions.hostProcess"
    for volume in maps_at(pod, "volumes"):
        if "hostPath" in volume:
            yield f"spec.volumes {volume.get('name')}: hostPath"
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in maps_at(pod, kind):
            yield from (f"spec.{kind} {container.get('name')}: {way}" for way in _ways_of_container(container))


def _ways_of_container(container: Mapping[str, JSON]) -> Iterator[str]:
    security = map_at(container, "securityContext")
    if security.get("privileged"):
        yield "privileged"
    if at(security, "windowsOptions", "hostProcess"):
        yield "hostProcess"
    if security.get("procMount") not in (None, "Default"):
        yield "procMount"
    added = at(security, "capabilities", "add")
    for name in added if isinstance(added, list) else ():
        if str(name).upper().removeprefix("CAP_") not in BASELINE_CAPABILITIES:
            yield f"capability {name}"
    for port in maps_at(container, "ports"):
        if port.get("hostPort"):
            yield "hostPort"
