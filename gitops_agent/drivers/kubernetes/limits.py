"""What an operator lets documents do: which clusters they name, how far they overwrite, and whether their pods
reach the host they run on. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from gitops_agent.drivers.api import JSON
from gitops_agent.drivers.kubernetes.contexts import may_name, not_allowed, way_out
from gitops_agent.drivers.kubernetes.errors import Rejected
from gitops_agent.drivers.kubernetes.kinds import SERVICE
from gitops_agent.drivers.kubernetes.objects import template_of
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

BASELINE_SYSCTLS = frozenset(
    (
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    )
)
BASELINE_SELINUX = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
"""How annotations of a pod name the AppArmor profile of a container; a field does so as well."""

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")


def require_context(settings: Settings, context: str, tenant: str) -> None:
    """Return when documents of a tenant may name a context; Rejected with the way out."""
    if not may_name(settings, context, tenant):
        raise Rejected("ContextNotAllowed", not_allowed(context, tenant), hint=way_out(context))


def effective_overwrite(settings: Settings, fields: Mapping[str, Any]) -> str:
    """Whose changes to a workload are undone: as its document says, within what the settings allow."""
    return min(str(fields.get("overwrite", "Hands")), settings.max_overwrite, key=OVERWRITES.index)


def require_confined(settings: Settings, manifest: Mapping[str, Any]) -> None:
    """Return when an object stays off hosts and addresses that are not its own, or need not; Rejected with the way
    out."""
    found = host_access(template_of(manifest))
    said = f"its pods would reach the host they run on: {found}" if found else foreign_addresses(manifest)
    if said and not settings.allow_host_access:
        raise Rejected(
            "HostAccess",
            said,
            hint="take it out of runtime.kubernetes, or set drivers.kubernetes.allowHostAccess and commit again",
            permanent=True,
        )


def foreign_addresses(manifest: Mapping[str, Any]) -> str:
    """What a Service has against it that takes the traffic of addresses that are not its own; "" for all else."""
    taken = at(manifest, "spec", "externalIPs") if manifest.get("kind") == SERVICE.kind else None
    return f"its Service would take what is sent to other addresses: spec.externalIPs {taken}" if taken else ""


def host_access(template: Mapping[str, Any]) -> str:
    """The first thing in a template by which its pods reach their host, as an address; "" when there is none."""
    named = map_at(template, "metadata", "annotations")
    unconfined = (name for name, profile in named.items() if name.startswith(APPARMOR) and profile == "unconfined")
    return next(chain(_ways_to_host(map_at(template, "spec")), unconfined), "")


def _ways_to_host(pod: Mapping[str, JSON]) -> Iterator[str]:
    yield from (f"spec.{name}" for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name))
    security = map_at(pod, "securityContext")
    yield from (f"spec.securityContext.{way}" for way in _ways_of_security(security))
    for sysctl in maps_at(security, "sysctls"):
        if sysctl.get("name") not in BASELINE_SYSCTLS:
            yield f"spec.securityContext.sysctls {sysctl.get('name')}"
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
    yield from _ways_of_security(security)
    if security.get("procMount") not in (None, "Default"):
        yield "procMount"
    added = at(security, "capabilities", "add")
    for name in added if isinstance(added, list) else ():
        if str(name).upper().removeprefix("CAP_") not in BASELINE_CAPABILITIES:
            yield f"capability {name}"
    for port in maps_at(container, "ports"):
        if port.get("hostPort"):
            yield "hostPort"
    handlers = {name: map_at(container, name) for name in _PROBES}
    handlers |= {name: map_at(container, "lifecycle", name) for name in _HOOKS}
    for name, handler in handlers.items():  # the kubelet calls these, from the host
        yield from (f"{name}.{way}.host" for way in ("httpGet", "tcpSocket") if at(handler, way, "host"))


def _ways_of_security(security: Mapping[str, JSON]) -> Iterator[str]:
    """What the security context of a pod or of a container must not say."""
    if at(security, "windowsOptions", "hostProcess"):
        yield "windowsOptions.hostProcess"
    for field in ("seccompProfile", "appArmorProfile"):
        if at(security, field, "type") == "Unconfined":
            yield f"{field} Unconfined"
    selinux = map_at(security, "seLinuxOptions")
    if selinux.get("user") or selinux.get("role") or (selinux.get("type") or "") not in BASELINE_SELINUX:
        yield "seLinuxOptions"
