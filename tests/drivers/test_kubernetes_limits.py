"""What an operator lets documents do, and what settings may say."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from gitops_agent.drivers.kubernetes.contexts import may_name
from gitops_agent.drivers.kubernetes.errors import Rejected
from gitops_agent.drivers.kubernetes.limits import (
    effective_overwrite,
    host_access,
    require_confined,
    require_context,
)
from gitops_agent.drivers.kubernetes.objects import template_of
from gitops_agent.drivers.kubernetes.options import Settings
from tests.drivers.test_kubernetes_manifests import manifest


def settings(**given: Any) -> Settings:
    return Settings.model_validate(given)


# -- contexts


def test_documents_name_no_context_but_the_default_one_unless_told() -> None:
    assert may_name(settings(), "")
    assert may_name(settings(context="here"), "here")
    assert not may_name(settings(), "staging")
    with pytest.raises(Rejected, match="documents of acme may not name the context staging") as caught:
        require_context(settings(), "staging", "acme")
    assert (caught.value.reason, "acme" in caught.value.message) == ("ContextNotAllowed", True)
    assert "drivers.kubernetes.contexts" in caught.value.hint


def test_contexts_are_patterns_and_may_be_one_tenants() -> None:
    allowed = settings(contexts=["eu-*", "acme=prod", "arn:aws:eks:*"])
    assert may_name(allowed, "eu-1", "anybody")
    assert may_name(allowed, "arn:aws:eks:eu:1:cluster/x", "anybody")
    assert may_name(allowed, "prod"), "somebody may"
    assert may_name(allowed, "prod", "acme")
    assert not may_name(allowed, "prod", "other")
    assert not may_name(allowed, "secret", "eu-x"), "the name of a tenant is not taken for that of a context"


# -- overwrite


@pytest.mark.parametrize(
    ("most", "asked", "found"),
    [
        ("Hands", None, "Hands"),
        ("Hands", "All", "Hands"),
        ("Hands", "None", "None"),
        ("All", "All", "All"),
        ("All", None, "Hands"),
        ("None", "All", "None"),
    ],
)
def test_a_document_overwrites_no_more_than_the_operator_lets_it(most: str, asked: str | None, found: str) -> None:
    fields = {"overwrite": asked} if asked else {}
    assert effective_overwrite(settings(maxOverwrite=most), fields) == found


# -- the host


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"hostNetwork": True}, "spec.hostNetwork"),
        ({"hostPID": True}, "spec.hostPID"),
        ({"hostIPC": True}, "spec.hostIPC"),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "spec.volumes v: hostPath"),
        (
            {"containers": [{"name": "c", "securityContext": {"privileged": True}}]},
            "spec.containers c: privileged",
        ),
        (
            {"initContainers": [{"name": "i", "securityContext": {"capabilities": {"add": ["CAP_SYS_ADMIN"]}}}]},
            "spec.initContainers i: capability CAP_SYS_ADMIN",
        ),
        ({"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]}, "spec.containers c: hostPort"),
        ({"containers": [{"name": "c", "securityContext": {"procMount": "Unmasked"}}]}, "c: procMount"),
        ({"securityContext": {"windowsOptions": {"hostProcess": True}}}, "hostProcess"),
        (
            {"containers": [{"name": "c", "livenessProbe": {"httpGet": {"host": "169.254.169.254", "port": 80}}}]},
            "spec.containers c: livenessProbe.httpGet.host",
        ),
        (
            {"containers": [{"name": "c", "lifecycle": {"preStop": {"tcpSocket": {"host": "10.0.0.1"}}}}]},
            "spec.containers c: preStop.tcpSocket.host",
        ),
        ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "seccompProfile Unconfined"),
        (
            {"containers": [{"name": "c", "securityContext": {"appArmorProfile": {"type": "Unconfined"}}}]},
            "spec.containers c: appArmorProfile Unconfined",
        ),
        ({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}, "sysctls kernel.msgmax"),
        ({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, "securityContext.seLinuxOptions"),
        (
            {"containers": [{"name": "c", "securityContext": {"seLinuxOptions": {"user": "root"}}}]},
            "seLinuxOptions",
        ),
    ],
)
def test_pods_stay_off_their_host_unless_the_operator_lets_them(spec: Any, said: str) -> None:
    asked = {"kind": "Deployment", "spec": {"template": {"spec": spec}}}
    assert said in host_access({"spec": spec})
    with pytest.raises(Rejected, match="would reach the host") as caught:
        require_confined(settings(), asked)
    assert caught.value.permanent
    assert "allowHostAccess" in caught.value.hint
    require_confined(settings(allowHostAccess=True), asked)


def test_an_annotation_takes_no_profile_away() -> None:
    named = "container.apparmor.security.beta.kubernetes.io/agent"
    assert host_access({"metadata": {"annotations": {named: "unconfined"}}}) == named
    assert host_access({"metadata": {"annotations": {named: "runtime/default", "other": "unconfined"}}}) == ""


def test_what_pod_security_calls_baseline_is_no_way_to_the_host() -> None:
    own = {
        "securityContext": {
            "seccompProfile": {"type": "RuntimeDefault"},
            "seLinuxOptions": {"type": "container_t"},
        }
    }
    probe = {"httpGet": {"port": 80}, "periodSeconds": 5}
    sysctls = [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]
    container = {
        "name": "c",
        **own,
        "readinessProbe": probe,
        "lifecycle": {"preStop": {"exec": {"command": ["x"]}}},
    }
    assert host_access({"spec": {"securityContext": {"sysctls": sysctls}, "containers": [container]}}) == ""


def test_a_service_has_no_address_of_others_unless_the_operator_lets_it() -> None:
    ports = [{"name": "http", "port": 80}]
    taken = {"op": "add", "path": "/spec/externalIPs", "value": ["10.0.0.1"], "kind": "Service"}
    require_confined(settings(), manifest("service", options={"ports": ports}))
    asked = manifest("service", options={"ports": ports, "patches": [taken]})
    with pytest.raises(Rejected, match="externalIPs") as caught:
        require_confined(settings(), asked)
    assert (caught.value.reason, caught.value.permanent) == ("HostAccess", True)
    require_confined(settings(allowHostAccess=True), asked)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "CronJob"])
def test_what_a_document_asks_for_is_found_in_every_workload(kind: str) -> None:
    volume = {"name": "v", "mountPath": "/v", "source": {"hostPath": {"path": "/"}}}
    options = {"workload": kind, **({"schedule": "@daily"} if kind == "CronJob" else {})}
    assert host_access(template_of(manifest(options=options))) == ""
    found = template_of(manifest(options={**options, "volumes": [volume]}))
    assert host_access(found) == "spec.volumes v: hostPath"


# -- settings


def test_lists_are_written_with_commas_in_the_environment() -> None:
    found = settings(namespaces="a, b", contexts="eu-*,us-*", hands="me")
    assert (found.namespaces, found.contexts, found.hands) == (("a", "b"), ("eu-*", "us-*"), ("me",))


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("agents", "two tenants would share"),
        ("{instance}", "two tenants would share"),
        ("{tenant}-{place}", "only lower-case"),
        ("{tenant", "two tenants would share"),
        ("{tenant}}", "only lower-case"),
        ("-{tenant}", "only lower-case"),
        ("{tenant}-" + "x" * 62, "at most 63"),
    ],
)
def test_the_namespace_of_a_tenant_is_its_own(template: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        settings(namespace=template)


@pytest.mark.parametrize("template", ["{tenant}", "agents-{tenant}", "{instance}-{tenant}-x"])
def test_a_namespace_is_made_of_tenant_and_instance(template: str) -> None:
    assert settings(namespace=template).namespace == template
