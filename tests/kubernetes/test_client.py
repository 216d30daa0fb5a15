"""Requests to the real API server, and what each of its refusals becomes for an operator."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.drivers.api import ApplyError, NotYet
from gitops_agent.drivers.kubernetes.client import Client
from gitops_agent.drivers.kubernetes.config import ClusterConfig
from gitops_agent.drivers.kubernetes.errors import (
    CUT,
    REFUSED,
    TIMEOUT,
    TLS,
    ApiError,
    Delayed,
    Rejected,
    apply_error,
)
from gitops_agent.drivers.kubernetes.kinds import CONFIG_MAP, DEPLOYMENT, NAMESPACE, POD, ObjectKind
from tests.servers.certificates import write_certificates
from tests.servers.cluster import Cluster
from tests.servers.faults import Fault, FaultProxy

MANAGER = "gitops-agent-test"


@pytest.fixture
def client(cluster: Cluster) -> Client:
    return Client(ClusterConfig(str(cluster.kubeconfig)))


@pytest.fixture
def namespace(client: Client, unique: str) -> Iterator[str]:
    client.apply(NAMESPACE.path(name=unique), manifest(NAMESPACE, "", unique), manager=MANAGER, force=False)
    yield unique
    client.delete(NAMESPACE.path(name=unique))


@pytest.fixture
def behind(proxy: FaultProxy, control: Cluster, tmp_path: Path) -> Client:
    path = proxy.kubeconfig(tmp_path / "kubeconfig", "admin", control.token("admin"))
    return Client(ClusterConfig(str(path)), timeout=3)


def manifest(kind: ObjectKind, namespace: str, name: str, **rest: Any) -> dict[str, Any]:
    where = {"namespace": namespace} if namespace else {}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name, **where}, **rest}


def deployment(namespace: str, name: str = "bot", replicas: int = 1, image: str = "agent:1") -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "agent", "image": image}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return manifest(DEPLOYMENT, namespace, name, spec=spec)


def put(client: Client, kind: ObjectKind, wanted: dict[str, Any], **how: Any) -> dict[str, Any]:
    meta = wanted["metadata"]
    path = kind.path(meta.get("namespace"), meta["name"])
    return client.apply(path, wanted, **{"manager": MANAGER, "force": False, **how})


def refused(client: Client, kind: ObjectKind, wanted: dict[str, Any], **how: Any) -> Rejected | Delayed:
    with pytest.raises(ApiError) as caught:
        put(client, kind, wanted, **how)
    meant = apply_error(caught.value, "apply it")
    assert meant.message.startswith("apply it: ")
    assert meant.hint or isinstance(meant, Delayed)
    return meant


def _is_refused(client: Client, kind: ObjectKind, wanted: dict[str, Any]) -> bool:
    """Whether the server would refuse it by now."""
    try:
        put(client, kind, wanted, dry_run=True)
    except ApiError as problem:
        return problem.status == 403
    return False


def eventually(look: Callable[[], object], seconds: float = 20) -> None:
    """The API server learns of roles, quotas and policies by watches of its own."""
    deadline = time.monotonic() + seconds
    while True:
        with suppress(ApiError):
            if look():
                return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def denial(client: Client, namespace: str) -> Rejected | Delayed:
    """What becomes of a ConfigMap without data, as soon as something is against it."""
    found: list[Rejected | Delayed] = []

    def look() -> bool:
        try:
            put(client, CONFIG_MAP, manifest(CONFIG_MAP, namespace, "denied"), dry_run=True)
        except ApiError as problem:
            found.append(apply_error(problem, "apply it"))
        return bool(found)

    eventually(look)
    return found[0]


# -- what works


def test_apply_twice_changes_nothing_and_a_dry_run_writes_nothing(client: Client, namespace: str) -> None:
    dry = put(client, DEPLOYMENT, deployment(namespace), dry_run=True)
    assert dry["spec"]["replicas"] == 1
    with pytest.raises(ApiError) as caught:
        client.get(DEPLOYMENT.path(namespace, "bot"))
    assert caught.value.status == 404
    first = put(client, CONFIG_MAP, manifest(CONFIG_MAP, namespace, "bot", data={"a": "1"}))
    again = put(client, CONFIG_MAP, manifest(CONFIG_MAP, namespace, "bot", data={"a": "1"}))
    assert first["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]
    assert [each["manager"] for each in again["metadata"]["managedFields"]] == [MANAGER]


def test_delete_only_what_is_meant(client: Client, namespace: str) -> None:
    made = put(client, CONFIG_MAP, manifest(CONFIG_MAP, namespace, "bot"))["metadata"]
    path = CONFIG_MAP.path(namespace, "bot")
    for wrong in ({"uid": "00000000-0000-0000-0000-000000000000"}, {"resource_version": "1"}):
        with pytest.raises(ApiError) as caught:
            client.delete(path, **wrong)
        meant = apply_error(caught.value, "delete it")
        assert meant.reason == "Changed"
    answer = client.delete(path, uid=made["uid"], resource_version=made["resourceVersion"])
    assert answer["kind"] == "Status"


def test_a_stream_is_closed_from_another_thread(client: Client) -> None:
    version = client.get("/api/v1/pods", limit=1)["metadata"]["resourceVersion"]
    query = {"watch": True, "resourceVersion": version, "labelSelector": "no=such"}
    stream = client.stream("GET", "/api/v1/pods", query, 60)
    ended: list[object] = []
    reader = threading.Thread(target=lambda: ended.append(list(stream)))
    reader.start()
    time.sleep(0.3)
    begin = time.monotonic()
    stream.close()
    reader.join(5)
    assert ended == [[]]
    assert time.monotonic() - begin < 1
    stream.close()


def test_impersonation_has_the_rights_of_the_other(client: Client, control: Cluster, namespace: str) -> None:
    control.kubectl(
        "create", "role", "reader", "--verb=get,list", "--resource=configmaps", "--namespace", namespace
    )
    control.kubectl("create", "rolebinding", "r", "--role=reader", "--user=tenant-a", "--namespace", namespace)
    tenant = client.as_user("tenant-a")
    eventually(lambda: "items" in tenant.get(CONFIG_MAP.path(namespace)))
    meant = refused(tenant, CONFIG_MAP, manifest(CONFIG_MAP, namespace, "bot"))
    assert meant.reason == "Forbidden"
    assert meant.message == f"apply it: tenant-a may not patch configmaps in namespace {namespace}"
    assert "Role" in meant.hint
    put(client, CONFIG_MAP, manifest(CONFIG_MAP, namespace, "bot"))


# -- the fence


def test_the_fence_is_asked_before_every_write_and_ends_it(cluster: Cluster, namespace: str) -> None:
    asked: list[str] = []

    class Fenced(Exception):
        pass

    def fence() -> None:
        asked.append("")
        raise Fenced

    fenced = Client(ClusterConfig(str(cluster.kubeconfig)), before_write=fence)
    wanted = manifest(CONFIG_MAP, namespace, "fenced")
    for one in (fenced, fenced.as_user("admin")):
        with pytest.raises(Fenced):
            put(one, CONFIG_MAP, wanted)
        with pytest.raises(Fenced):
            one.delete(CONFIG_MAP.path(namespace, "fenced"))
        with pytest.raises(Fenced):
            one.request("POST", CONFIG_MAP.path(namespace), body=wanted)
    assert len(asked) == 6
    names = [each["metadata"]["name"] for each in fenced.get(CONFIG_MAP.path(namespace))["items"]]
    assert "fenced" not in names
    put(fenced, CONFIG_MAP, wanted, dry_run=True)


def test_the_fence_is_asked_again_when_the_request_is_about_to_leave(
    client: Client, cluster: Cluster, namespace: str
) -> None:
    """Between the two a connection is made, which may take seconds, and in which a process may be paused."""
    leads: list[bool] = []

    def fence() -> None:
        if not leads.pop():
            raise ApplyError("another one leads")

    fenced = Client(ClusterConfig(str(cluster.kubeconfig)), before_write=fence)
    kept, late = manifest(CONFIG_MAP, namespace, "kept"), manifest(CONFIG_MAP, namespace, "late")
    leads[:] = [True, True]
    put(fenced, CONFIG_MAP, kept)
    leads[:] = [False, True]
    with pytest.raises(ApplyError, match="another one leads"):
        put(fenced, CONFIG_MAP, late)
    leads[:] = [False, True]
    with pytest.raises(ApplyError, match="another one leads"):
        fenced.delete(CONFIG_MAP.path(namespace, "kept"))
    assert leads == []
    names = {each["metadata"]["name"] for each in client.get(CONFIG_MAP.path(namespace))["items"]}
    assert "kept" in names
    assert "late" not in names


# -- refusals of the real server


def test_a_user_without_rights_is_told_which(control: Cluster, namespace: str) -> None:
    bob = Client(ClusterConfig(str(control.kubeconfig_for("bob"))))
    meant = refused(bob, DEPLOYMENT, deployment(namespace))
    assert meant.message == f"apply it: bob may not patch deployments.apps in namespace {namespace}"
    stranger = Client(ClusterConfig(str(control.kubeconfig_for("bob", token="not-a-token"))))
    assert refused(stranger, DEPLOYMENT, deployment(namespace)).reason == "Unauthorized"


def test_a_quota_is_named_with_its_numbers(client: Client, namespace: str) -> None:
    quota = ObjectKind("ResourceQuota", "v1", "resourcequotas")
    put(client, quota, manifest(quota, namespace, "small", spec={"hard": {"count/secrets": "0"}}))
    secret = ObjectKind("Secret", "v1", "secrets")
    wanted = manifest(secret, namespace, "bot")
    eventually(lambda: _is_refused(client, secret, wanted))
    meant = refused(client, secret, wanted)
    assert meant.reason == "QuotaExceeded"
    assert "quota small is used up (requested: count/secrets=1, used: count/secrets=0" in meant.message
    assert not meant.permanent


def test_pod_security_is_named(client: Client, unique: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    wanted = manifest(NAMESPACE, "", unique)
    wanted["metadata"]["labels"] = labels
    put(client, NAMESPACE, wanted)
    try:
        account = ObjectKind("ServiceAccount", "v1", "serviceaccounts")
        put(client, account, manifest(account, unique, "default"))
        spec = {"containers": [{"name": "agent", "image": "agent:1"}]}
        meant = refused(client, POD, manifest(POD, unique, "bot", spec=spec))
        assert meant.reason == "AdmissionDenied"
        assert 'PodSecurity "restricted:latest" denied it: allowPrivilegeEscalation' in meant.message
    finally:
        client.delete(NAMESPACE.path(name=unique))


def test_a_policy_is_named(client: Client, namespace: str) -> None:
    group = "admissionregistration.k8s.io/v1"
    policies = ObjectKind("ValidatingAdmissionPolicy", group, "validatingadmissionpolicies", namespaced=False)
    bindings = ObjectKind(
        "ValidatingAdmissionPolicyBinding", group, "validatingadmissionpolicybindings", namespaced=False
    )
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    spec = {
        "matchConstraints": {
            "resourceRules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        },
        "validations": [{"expression": "has(object.data)", "message": "data is needed"}],
    }
    put(client, policies, manifest(policies, "", namespace, spec=spec))
    binding = {"policyName": namespace, "validationActions": ["Deny"]}
    put(client, bindings, manifest(bindings, "", namespace, spec=binding))
    try:
        meant = denial(client, namespace)
        assert meant.reason == "AdmissionDenied"
        assert meant.message == f"apply it: policy {namespace} denied it: data is needed"
    finally:
        client.delete(bindings.path(name=namespace))
        client.delete(policies.path(name=namespace))


@contextmanager
def webhook(client: Client, namespace: str, **server: str) -> Iterator[None]:
    """A webhook that is asked about ConfigMaps of a namespace. ``server``: where it is and who vouches for it."""
    group = "admissionregistration.k8s.io/v1"
    hooks = ObjectKind(
        "ValidatingWebhookConfiguration", group, "validatingwebhookconfigurations", namespaced=False
    )
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    hook = {
        "name": "check.example.com",
        "clientConfig": server,
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
    }
    put(client, hooks, manifest(hooks, "", namespace, webhooks=[hook]))
    try:
        yield
    finally:
        client.delete(hooks.path(name=namespace))


@contextmanager
def closed_port() -> Iterator[str]:
    """The address of a server that is not there."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield f"https://127.0.0.1:{closed.getsockname()[1]}/"


def test_a_webhook_that_does_not_answer_is_named(client: Client, namespace: str) -> None:
    with closed_port() as url, webhook(client, namespace, url=url):
        meant = denial(client, namespace)
    assert meant.reason == "WebhookUnavailable"
    assert "webhook check.example.com does not answer" in meant.message
    assert not meant.permanent


@contextmanager
def refusing(folder: Path, status: dict[str, Any]) -> Iterator[dict[str, str]]:
    """A server that answers no to every review, and what a webhook has to say to reach it."""
    files = write_certificates(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = {"uid": asked["request"]["uid"], "allowed": False, "status": status}
            body = json.dumps({**asked, "response": answer}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.private_key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        bundle = base64.b64encode(files.ca.read_bytes()).decode()
        yield {"url": f"https://127.0.0.1:{server.server_address[1]}/", "caBundle": bundle}
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"message": "no agents on Fridays"}, "no agents on Fridays"),
        ({"message": "no agents on Fridays", "code": 400}, "no agents on Fridays"),
        ({"message": "no agents on Fridays", "code": 422}, "no agents on Fridays"),
        ({}, "no reason was given"),
    ],
)
def test_a_webhook_that_says_no_is_named_with_its_words(
    client: Client, namespace: str, tmp_path: Path, status: dict[str, Any], why: str
) -> None:
    with refusing(tmp_path, status) as server, webhook(client, namespace, **server):
        meant = denial(client, namespace)
    assert meant.reason == "AdmissionDenied"
    assert meant.message == f"apply it: webhook check.example.com denied it: {why}"
    assert not meant.permanent, "what it thinks may change without a commit"


def test_a_kind_that_cannot_be_converted_is_named(client: Client, namespace: str) -> None:
    group = f"{namespace}.example.com"
    kinds = ObjectKind(
        "CustomResourceDefinition", "apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False
    )
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v2")]
    names = {"plural": "robots", "kind": "Robot"}
    with closed_port() as url:
        hook = {"clientConfig": {"url": url}, "conversionReviewVersions": ["v1"]}
        conversion = {"strategy": "Webhook", "webhook": hook}
        spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
        put(client, kinds, manifest(kinds, "", f"robots.{group}", spec={**spec, "conversion": conversion}))
        try:
            stored, newer = (ObjectKind("Robot", f"{group}/{name}", "robots") for name in ("v1", "v2"))
            eventually(lambda: put(client, stored, manifest(stored, namespace, "bot")))
            meant = refused(client, newer, manifest(newer, namespace, "bot"))
        finally:
            client.delete(kinds.path(name=f"robots.{group}"))
    assert meant.reason == "ConversionFailed"
    assert "conversion webhook" in meant.message
    assert not meant.permanent


def test_an_invalid_object_lists_its_fields_and_is_final(client: Client, namespace: str) -> None:
    wrong = deployment(namespace, replicas=-1)
    wrong["spec"]["template"]["spec"]["containers"][0]["name"] = "Not A Name"
    meant = refused(client, DEPLOYMENT, wrong)
    assert meant.reason == "Invalid"
    assert meant.permanent
    assert "spec.replicas: " in meant.message
    assert "spec.template.spec.containers[0].name: " in meant.message
    garbled = refused(client, DEPLOYMENT, {**deployment(namespace), "spec": {"replicas": "many"}})
    assert garbled.permanent


def test_a_field_of_another_manager_is_a_conflict_that_names_both(client: Client, namespace: str) -> None:
    put(client, DEPLOYMENT, deployment(namespace), manager="hpa")
    meant = refused(client, DEPLOYMENT, deployment(namespace, replicas=3, image="agent:2"))
    assert isinstance(meant, Rejected)
    assert meant.reason == "FieldConflict"
    assert (".spec.replicas", "hpa") in meant.conflicts
    assert ".spec.replicas (hpa)" in meant.message
    put(client, DEPLOYMENT, deployment(namespace, replicas=3, image="agent:2"), force=True)


def test_an_object_that_changed_or_exists(client: Client, namespace: str) -> None:
    made = put(client, CONFIG_MAP, manifest(CONFIG_MAP, namespace, "bot"))
    old = {**made, "metadata": {**made["metadata"], "resourceVersion": "1", "labels": {"a": "b"}}}
    for method, path, reason in (
        ("PUT", CONFIG_MAP.path(namespace, "bot"), "Changed"),
        ("POST", CONFIG_MAP.path(namespace), "AlreadyExists"),
    ):
        body = old if method == "PUT" else manifest(CONFIG_MAP, namespace, "bot")
        with pytest.raises(ApiError) as caught:
            client.request(method, path, body=body)
        meant = apply_error(caught.value, "do it")
        assert meant.reason == reason


def test_a_namespace_that_is_gone_or_going(client: Client, namespace: str, unique: str) -> None:
    meant = refused(client, CONFIG_MAP, manifest(CONFIG_MAP, "no-such-namespace", "bot"))
    assert meant.reason == "NamespaceGone"
    going = f"{unique}-going"
    held = manifest(CONFIG_MAP, going, "held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    put(client, NAMESPACE, manifest(NAMESPACE, "", going))
    put(client, CONFIG_MAP, held)
    client.delete(NAMESPACE.path(name=going))
    try:
        meant = refused(client, CONFIG_MAP, manifest(CONFIG_MAP, going, "bot"))
        assert isinstance(meant, NotYet)
        assert meant.reason == "Terminating"
        assert meant.retry_after > 0
    finally:
        free = {"metadata": {"finalizers": None}}
        path = CONFIG_MAP.path(going, "held")
        client.request("PATCH", path, body=free, content_type="application/merge-patch+json")


def test_a_kind_that_is_not_served(client: Client, namespace: str) -> None:
    unknown = ObjectKind("Robot", "example.com/v1", "robots")
    assert refused(client, unknown, manifest(unknown, namespace, "bot")).reason == "NotServed"


# -- faults on the way


def of_method(*methods: str) -> Any:
    return lambda seen: seen.method in methods


def test_429_is_no_failure_and_says_how_long(behind: Client, proxy: FaultProxy, namespace: str) -> None:
    proxy.fail(429, of_method("PATCH"), retry_after=7)
    meant = refused(behind, CONFIG_MAP, manifest(CONFIG_MAP, namespace, "bot"))
    assert isinstance(meant, NotYet)
    assert meant.retry_after == 7
    assert "asks to wait 7 s; nothing was done" in meant.message
    assert len(proxy.requests("PATCH")) == 1


@pytest.mark.parametrize(("status", "reason"), [(500, "ServerError"), (503, "Unavailable"), (410, "Expired")])
def test_failures_of_the_server_can_be_tried_again(
    behind: Client, proxy: FaultProxy, namespace: str, status: int, reason: str
) -> None:
    proxy.fail(status, of_method("PATCH"))
    meant = refused(behind, CONFIG_MAP, manifest(CONFIG_MAP, namespace, "bot"))
    assert meant.reason == reason
    assert not meant.permanent
    assert len(proxy.requests("PATCH")) == 1


def test_a_kept_connection_that_was_closed_is_replaced_once(
    behind: Client, proxy: FaultProxy, namespace: str
) -> None:
    proxy.inject(Fault(of_method("PATCH"), refuse=True, times=1))
    assert put(behind, CONFIG_MAP, manifest(CONFIG_MAP, namespace, "bot"))["kind"] == "ConfigMap"
    assert len(proxy.requests("PATCH")) == 2
    proxy.forget()
    proxy.inject(Fault(of_method("PATCH", "POST"), refuse=True))
    meant = refused(behind, CONFIG_MAP, manifest(CONFIG_MAP, namespace, "bot"))
    assert meant.reason == CUT
    assert "whether it happened is not known" in meant.message
    assert len(proxy.requests("PATCH")) == 2
    with pytest.raises(ApiError):
        behind.request("POST", CONFIG_MAP.path(namespace), body=manifest(CONFIG_MAP, namespace, "new"))
    assert len(proxy.requests("POST")) == 1


def test_a_lost_answer_is_found_done_by_the_second_try(behind: Client, proxy: FaultProxy, namespace: str) -> None:
    proxy.inject(Fault(of_method("PATCH"), lose_answer=True, times=1))
    made = put(behind, CONFIG_MAP, manifest(CONFIG_MAP, namespace, "bot", data={"a": "1"}))
    assert made["metadata"]["managedFields"][0]["manager"] == MANAGER
    assert len(proxy.requests("PATCH")) == 2


def test_a_server_that_does_not_answer_in_time(behind: Client, proxy: FaultProxy, namespace: str) -> None:
    proxy.delay(10, of_method("GET"), times=1)
    begin = time.monotonic()
    with pytest.raises(ApiError) as caught:
        behind.request("GET", CONFIG_MAP.path(namespace), timeout=0.5)
    assert time.monotonic() - begin < 2
    assert caught.value.reason == TIMEOUT
    meant = apply_error(caught.value, "get it")
    assert "no answer within 0.5 s; whether it happened is not known" in meant.message
    assert isinstance(meant, ApplyError)


def test_an_answer_that_drips_is_cut_at_the_limit(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                try:
                    for _ in range(100):
                        peer.sendall(b" ")
                        time.sleep(0.05)
                except OSError:
                    pass

        threading.Thread(target=drip, daemon=True).start()
        path = plain_kubeconfig(tmp_path, f"http://127.0.0.1:{server.getsockname()[1]}")
        begin = time.monotonic()
        with pytest.raises(ApiError) as caught:
            Client(ClusterConfig(str(path)), timeout=0.5).get("/version")
        assert caught.value.reason == TIMEOUT
        assert time.monotonic() - begin < 2


def test_nothing_listens(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"https://127.0.0.1:{closed.getsockname()[1]}"
        path = plain_kubeconfig(tmp_path, address)
        with pytest.raises(ApiError) as caught:
            Client(ClusterConfig(str(path))).get("/version")
    assert caught.value.reason == REFUSED
    meant = apply_error(caught.value, "look")
    assert meant.message == f"look: the API server does not accept connections: Connection refused ({address})"


def test_a_certificate_of_another_authority(control: Cluster, tmp_path: Path) -> None:
    path = plain_kubeconfig(tmp_path, control.url)
    with pytest.raises(ApiError) as caught:
        Client(ClusterConfig(str(path))).get("/version")
    assert caught.value.reason == TLS
    assert "is not trusted: unable to get local issuer certificate" in apply_error(caught.value, "look").message


def plain_kubeconfig(folder: Path, url: str) -> Path:
    content = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "none"}}],
        "current-context": "c",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return path
