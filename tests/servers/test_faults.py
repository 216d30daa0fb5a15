"""The proxy hands on what it is given, fails as it is told, and counts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from tests.servers.cluster import Cluster
from tests.servers.faults import Fault, FaultProxy, Seen
from tests.support.fleet import until

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def client(control: Cluster, proxy: FaultProxy) -> Iterator[urllib3.HTTPSConnectionPool]:
    with urllib3.HTTPSConnectionPool(
        "127.0.0.1",
        int(proxy.url.rpartition(":")[2]),
        ca_certs=str(proxy.ca),
        headers={"Authorization": f"Bearer {control.token('admin')}"},
        retries=False,
        timeout=20,
        maxsize=4,
    ) as pool:
        yield pool


def body(name: str) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).encode()


def create(client: urllib3.HTTPSConnectionPool, name: str) -> urllib3.BaseHTTPResponse:
    return client.request(
        "POST", MAPS, body=body(name), headers={**client.headers, "Content-Type": "application/json"}
    )


class Watcher:
    """A watch in a thread: the lines that came, and whether it has ended."""

    def __init__(self, client: urllib3.HTTPSConnectionPool, name: str) -> None:
        self.lines: list[dict[str, object]] = []
        self.ended = threading.Event()
        query = f"?watch=true&fieldSelector=metadata.name%3D{name}"
        self._args = (client, f"{MAPS}{query}")
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        client, url = self._args
        try:
            answer = client.request("GET", url, preload_content=False, timeout=urllib3.Timeout(connect=5, read=20))
            rest = b""
            for data in answer.stream(65536):
                *lines, rest = (rest + data).split(b"\n")
                self.lines.extend(map(json.loads, lines))
        except (urllib3.exceptions.HTTPError, OSError):
            pass
        finally:
            self.ended.set()


def test_requests_and_answers_go_through_as_they_are(client, control: Cluster, unique: str) -> None:
    assert create(client, unique).status == 201
    through = client.request("GET", f"{MAPS}/{unique}")
    assert json.loads(through.data) == control.get("configmap", unique)
    assert client.request("DELETE", f"{MAPS}/{unique}").status == 200
    assert client.request("GET", f"{MAPS}/{unique}").status == 404
    assert client.request("GET", "/openapi/v2").status == 200  # large, with another encoding


def test_requests_are_counted_by_method_path_and_watch(client, proxy: FaultProxy, unique: str) -> None:
    create(client, unique)
    client.request("GET", MAPS)
    Watcher(client, unique)
    until(lambda: proxy.open_watches == 1, "one watch")
    assert [len(proxy.requests(method)) for method in ("POST", "GET", "DELETE")] == [1, 2, 0]
    assert len(proxy.requests(watch=True)) == 1
    assert len(proxy.requests(path="/configmaps")) == 3
    proxy.forget()
    assert proxy.requests() == []


@pytest.mark.parametrize("code", [403, 429, 500, 503])
def test_a_status_is_answered_without_asking_the_server(
    client, proxy, control: Cluster, code: int, unique
) -> None:
    proxy.fail(code, retry_after=7 if code == 429 else None, times=2)
    mark = control.mark()
    for _ in range(2):
        answer = create(client, unique)
        assert answer.status == code
        assert json.loads(answer.data)["code"] == code
        assert answer.headers.get("Retry-After") == ("7" if code == 429 else None)
    assert control.requests("admin", mark) == []
    assert create(client, unique).status == 201


def test_a_fault_happens_to_what_it_matches_until_healed(client, proxy: FaultProxy, unique: str) -> None:
    proxy.fail(503, match=lambda request: request.method == "POST")
    assert client.request("GET", MAPS).status == 200
    assert create(client, unique).status == 503
    proxy.heal()
    assert create(client, unique).status == 201


def test_a_delay_holds_requests_back(client, proxy: FaultProxy) -> None:
    proxy.delay(1.0, times=1)
    with pytest.raises(urllib3.exceptions.ReadTimeoutError):
        client.request("GET", MAPS, timeout=0.3)
    assert client.request("GET", MAPS, timeout=10).status == 200


def test_an_answer_that_is_lost_was_a_request_that_was_done(client, proxy, control: Cluster, unique: str) -> None:
    proxy.inject(Fault(lose_answer=True, times=1))
    with pytest.raises((urllib3.exceptions.ProtocolError, urllib3.exceptions.SSLError)):
        create(client, unique)
    assert control.get("configmap", unique)["metadata"]["name"] == unique


def test_a_refused_request_never_reaches_the_server(client, proxy, control: Cluster, unique: str) -> None:
    proxy.inject(Fault(refuse=True, times=1))
    mark = control.mark()
    with pytest.raises((urllib3.exceptions.ProtocolError, urllib3.exceptions.SSLError)):
        create(client, unique)
    assert control.requests("admin", mark) == []


def test_watches_are_cut_and_new_ones_work(client, proxy: FaultProxy, unique: str) -> None:
    watcher = Watcher(client, unique)
    create(client, unique)
    until(lambda: len(watcher.lines) == 1, "the event came through")
    assert proxy.cut_watches() == 1
    assert watcher.ended.wait(5)
    again = Watcher(client, unique)
    until(lambda: len(again.lines) == 1, "a new watch hears")


def test_a_silent_watch_stays_open_and_hears_nothing(client, proxy: FaultProxy, unique: str) -> None:
    watcher, other = Watcher(client, unique), f"{unique}-new"
    until(lambda: proxy.open_watches == 1, "open")
    assert proxy.silence_watches() == 1
    fresh = Watcher(client, other)
    until(lambda: proxy.open_watches == 2, "accepted while silent")
    proxy.heal()
    create(client, unique)
    hears = Watcher(client, unique)
    until(lambda: len(hears.lines) == 1, "watches that are opened after healing hear")
    assert watcher.lines == fresh.lines == []
    assert not watcher.ended.is_set()
    assert not fresh.ended.is_set()


def test_a_watch_expires_as_the_server_says_it(client, proxy: FaultProxy, unique: str) -> None:
    watcher = Watcher(client, unique)
    until(lambda: proxy.open_watches == 1, "open")
    assert proxy.expire_watches() == 1
    assert watcher.ended.wait(5)
    assert watcher.lines[-1]["type"] == "ERROR"
    assert watcher.lines[-1]["object"]["code"] == 410


def test_a_kubeconfig_leads_through_it(control: Cluster, proxy: FaultProxy, tmp_path: Path) -> None:
    path = proxy.kubeconfig(tmp_path / "config", "admin", control.token("admin"))
    control.kubectl("get", "nodes", f"--kubeconfig={path}")
    assert Seen("GET", "/api/v1/nodes", "limit=500", False) in proxy.requests()
