"""The live cache on the real API server: lists, watches, and everything that can happen to them."""

from __future__ import annotations

import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops_agent.drivers.api import AgentKey, ObserveError
from gitops_agent.drivers.kubernetes.cache import Limits, ObjectCache
from gitops_agent.drivers.kubernetes.client import Client
from gitops_agent.drivers.kubernetes.config import ClusterConfig
from gitops_agent.drivers.kubernetes.errors import ApiError
from gitops_agent.drivers.kubernetes.kinds import CONFIG_MAP, NAMESPACE, SECRET, WATCHED, ObjectKind
from gitops_agent.drivers.kubernetes.marks import INSTANCE, TENANT, labels_of
from tests.servers.cluster import Cluster
from tests.servers.faults import Fault, FaultProxy, Seen

QUICK = Limits(first_pause_seconds=0.05, max_pause_seconds=0.5)
MANAGER = "gitops-agent-test"


class Fleet:
    """ConfigMaps of agents in a namespace of their own, and caches of them."""

    def __init__(self, admin: Client, name: str) -> None:
        self.admin, self.name = admin, name
        self.changes: list[tuple[str, AgentKey | None, str]] = []
        self._caches: list[ObjectCache] = []
        labels = {TENANT: name}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        admin.apply(NAMESPACE.path(name=name), body, manager=MANAGER, force=True)

    def agent(self, name: str) -> AgentKey:
        return AgentKey(self.name, name)

    def write(self, name: str, text: str = "", kind: ObjectKind = CONFIG_MAP, **labels: str) -> dict[str, Any]:
        meta = {"name": name, "labels": {**labels_of(self.name, self.agent(name)), **labels}}
        field = "stringData" if kind == SECRET else "data"
        body = {"apiVersion": "v1", "kind": kind.kind, "metadata": meta, field: {"text": text}}
        return self.admin.apply(kind.path(self.name, name), body, manager=MANAGER, force=True)

    def delete(self, name: str) -> None:
        self.admin.delete(CONFIG_MAP.path(self.name, name))

    def cache(self, client: Client | None = None, kinds: Any = (CONFIG_MAP,), **rest: Any) -> ObjectCache:
        made = ObjectCache(
            client or self.admin,
            kinds,
            selector=f"{INSTANCE}={self.name}",
            on_change=lambda kind, agent, word: self.changes.append((kind.kind, agent, word)),
            **{"limits": QUICK, **rest},
        )
        self._caches.append(made)
        made.start()
        return made

    def stop(self) -> None:
        for each in self._caches:
            each.stop()
        self.admin.delete(NAMESPACE.path(name=self.name))


@pytest.fixture
def fleet(cluster: Cluster, unique: str) -> Iterator[Fleet]:
    made = Fleet(Client(ClusterConfig(str(cluster.kubeconfig))), unique)
    yield made
    made.stop()


@pytest.fixture
def behind(proxy: FaultProxy, control: Cluster, tmp_path: Path) -> Client:
    path = proxy.kubeconfig(tmp_path / "kubeconfig", "admin", control.token("admin"))
    return Client(ClusterConfig(str(path)), timeout=5)


def until(look: Callable[[], Any], seconds: float = 15) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


def names(cache: ObjectCache, kind: ObjectKind = CONFIG_MAP) -> set[str]:
    return {each.name for each in cache.all(kind)}


def text_of(cache: ObjectCache, fleet: Fleet, name: str) -> str | None:
    found = cache.get(CONFIG_MAP, fleet.name, name)
    return None if found is None else found.object()["data"]["text"]


# -- the ordinary life


def test_lists_in_pages_then_follows(fleet: Fleet) -> None:
    for number in range(7):
        fleet.write(f"bot-{number}", "old")
    fleet.write("foreign", **{INSTANCE: "another"})
    cache = fleet.cache(limits=Limits(page=3))
    cache.synced(10)
    assert names(cache) == {f"bot-{number}" for number in range(7)}
    assert fleet.changes == []
    fleet.write("bot-1", "new")
    fleet.write("bot-9")
    fleet.delete("bot-2")
    until(lambda: len(fleet.changes) == 3)
    assert fleet.changes == [
        ("ConfigMap", fleet.agent("bot-1"), "ConfigMap changed"),
        ("ConfigMap", fleet.agent("bot-9"), "ConfigMap added"),
        ("ConfigMap", fleet.agent("bot-2"), "ConfigMap deleted"),
    ]
    assert text_of(cache, fleet, "bot-1") == "new"
    assert [each.name for each in cache.of_agent(fleet.agent("bot-9"), CONFIG_MAP)] == ["bot-9"]
    assert fleet.agent("bot-2") not in cache.agents()
    assert cache.stale() == {}
    assert cache.blind() == {}


def test_what_a_list_gives_is_what_a_watch_gives(fleet: Fleet) -> None:
    early = fleet.cache()
    early.synced(10)
    fleet.write("bot", "text")
    until(lambda: names(early))
    late = fleet.cache()
    late.synced(10)
    assert early.get(CONFIG_MAP, fleet.name, "bot") == late.get(CONFIG_MAP, fleet.name, "bot")


def test_an_object_that_loses_our_label_is_gone_for_us(fleet: Fleet) -> None:
    fleet.write("bot")
    cache = fleet.cache()
    cache.synced(10)
    fleet.write("bot", **{INSTANCE: "another"})
    until(lambda: not names(cache))
    assert fleet.changes == [("ConfigMap", fleet.agent("bot"), "ConfigMap deleted")]


def test_everything_is_watched_without_a_request_in_a_quiet_time(
    fleet: Fleet, behind: Client, proxy: FaultProxy
) -> None:
    fleet.write("bot")
    fleet.write("bot", "hush", SECRET)
    cache = fleet.cache(behind, WATCHED)
    cache.synced(10)
    until(lambda: not cache.stale())
    assert len(proxy.requests(watch=False)) == len(proxy.requests(watch=True)) == len(WATCHED)
    proxy.forget()
    fleet.write("bot", "new")
    until(lambda: text_of(cache, fleet, "bot") == "new")
    for _ in range(100):
        assert cache.blind() == {}
        cache.of_agent(fleet.agent("bot"), CONFIG_MAP)
    time.sleep(1)
    assert proxy.requests() == []


def test_no_secret_is_ever_in_memory(fleet: Fleet) -> None:
    fleet.write("before", "hush-before", SECRET)
    cache = fleet.cache(kinds=(SECRET,))
    cache.synced(10)
    answer = fleet.write("after", "hush-after", SECRET)
    until(lambda: names(cache, SECRET) == {"before", "after"})
    fleet.write("noted", "hush-noted", SECRET)
    cache.note_object(SECRET, {**answer, "metadata": {**answer["metadata"], "name": "noted-too"}})
    for each in cache.all(SECRET):
        assert b"hush" not in each.raw
        assert b'"data"' not in each.raw
        assert each.object()["kind"] == "Secret"
    assert fleet.agent("before") in cache.agents()


def test_namespaces_are_watched_by_tenant_and_by_name(fleet: Fleet) -> None:
    cache, one = (
        fleet.cache(kinds=(NAMESPACE,)),
        fleet.cache(kinds=(NAMESPACE, CONFIG_MAP), namespaces=[fleet.name]),
    )
    for each in (cache, one):
        each.synced(10)
    assert fleet.name in names(cache, NAMESPACE)
    assert "default" not in names(cache, NAMESPACE)
    assert names(one, NAMESPACE) == {fleet.name}
    fleet.write("bot")
    until(lambda: names(one) == {"bot"})


def test_our_own_write_is_seen_at_once_and_wakes_nobody(fleet: Fleet, behind: Client, proxy: FaultProxy) -> None:
    cache = fleet.cache(behind)
    cache.synced(10)
    answer = fleet.write("bot", "mine")
    cache.note_object(CONFIG_MAP, answer)
    assert text_of(cache, fleet, "bot") == "mine"
    entry = cache.get(CONFIG_MAP, fleet.name, "bot")
    assert entry is not None
    fleet.delete("bot")
    cache.note_gone(entry)
    assert cache.get(CONFIG_MAP, fleet.name, "bot") is None
    fleet.write("end")
    until(lambda: "end" in names(cache))
    assert fleet.changes == [("ConfigMap", fleet.agent("end"), "ConfigMap added")]


def test_stops_within_two_seconds_although_streams_are_open(fleet: Fleet) -> None:
    before = threading.active_count()
    cache = fleet.cache(kinds=WATCHED)
    cache.synced(10)
    until(lambda: not cache.stale())
    begin = time.monotonic()
    cache.stop()
    assert time.monotonic() - begin < 2
    until(lambda: threading.active_count() == before)
    cache.stop()


# -- what can go wrong


def test_watches_that_are_cut_go_on_where_they_were(fleet: Fleet, behind: Client, proxy: FaultProxy) -> None:
    cache = fleet.cache(behind)
    cache.synced(10)
    for number in range(5):
        until(lambda: proxy.open_watches == 1 and not cache.stale())
        proxy.cut_watches()
        fleet.write(f"bot-{number}")
    until(lambda: len(names(cache)) == 5)
    assert len(proxy.requests(watch=False)) == 1
    assert [word for _, _, word in fleet.changes] == ["ConfigMap added"] * 5


def test_a_watch_that_ends_by_itself_goes_on(fleet: Fleet, behind: Client, proxy: FaultProxy) -> None:
    cache = fleet.cache(behind, limits=Limits(watch_seconds=(1, 1)))
    cache.synced(10)
    until(lambda: len(proxy.requests(watch=True)) >= 3)
    fleet.write("bot")
    until(lambda: names(cache) == {"bot"})
    assert len(proxy.requests(watch=False)) == 1


def test_after_a_bookmark_a_watch_goes_on_from_there(fleet: Fleet, behind: Client, proxy: FaultProxy) -> None:
    """The server sends one a minute, and one two seconds before a watch ends. Nothing of ours changes meanwhile:
    without it the next watch would ask for the same, ever older version."""
    cache = fleet.cache(behind, limits=Limits(watch_seconds=(4, 4)))
    cache.synced(10)
    until(lambda: proxy.open_watches == 1)
    latest = 0
    for number in range(3):
        latest = int(fleet.write(f"foreign-{number}", **{INSTANCE: "another"})["metadata"]["resourceVersion"])
    until(lambda: len(proxy.requests(watch=True)) >= 2)
    first, second = (version_of(each) for each in proxy.requests(watch=True)[:2])
    assert first < latest <= second
    assert len(proxy.requests(watch=False)) == 1


def version_of(seen: Seen) -> int:
    """The version that a watch goes on from."""
    return int(urllib.parse.parse_qs(seen.query)["resourceVersion"][0])


def test_410_lists_again_and_finds_what_vanished(fleet: Fleet, behind: Client, proxy: FaultProxy) -> None:
    for name in ("stays", "changes", "goes"):
        fleet.write(name, "old")
    cache = fleet.cache(behind)
    cache.synced(10)
    until(lambda: not cache.stale())
    blocked = threading.Event()
    blocked.set()
    proxy.fail(503, lambda seen: seen.watch and blocked.is_set())
    proxy.fail(410, lambda seen: seen.watch, times=1)
    proxy.cut_watches()
    until(cache.stale)
    fleet.delete("goes")
    fleet.write("changes", "new")
    fleet.write("comes")
    assert fleet.changes == []
    blocked.clear()
    until(lambda: names(cache) == {"stays", "changes", "comes"})
    assert text_of(cache, fleet, "changes") == "new"
    until(lambda: len(fleet.changes) == 3)
    assert sorted((agent.name, word) for _, agent, word in fleet.changes if agent) == [
        ("changes", "ConfigMap changed"),
        ("comes", "ConfigMap added"),
        ("goes", "ConfigMap deleted"),
    ]
    assert len(proxy.requests(watch=False)) == 2


def test_410_as_an_event_of_a_watch(fleet: Fleet, behind: Client, proxy: FaultProxy) -> None:
    cache = fleet.cache(behind)
    cache.synced(10)
    until(lambda: not cache.stale())
    assert proxy.expire_watches() == 1
    until(lambda: len(proxy.requests(watch=False)) == 2)
    fleet.write("bot")
    until(lambda: names(cache) == {"bot"})
    assert len(proxy.requests(watch=True)) == 2


def test_410_as_the_answer_to_a_watch(fleet: Fleet, behind: Client, proxy: FaultProxy) -> None:
    proxy.fail(410, lambda seen: seen.watch, times=2)
    cache = fleet.cache(behind)
    cache.synced(10)
    fleet.write("bot")
    until(lambda: names(cache) == {"bot"} and not cache.stale())
    assert len(proxy.requests(watch=False)) == 3


def test_410_while_turning_pages(fleet: Fleet, behind: Client, proxy: FaultProxy) -> None:
    for number in range(5):
        fleet.write(f"bot-{number}")
    proxy.fail(410, lambda seen: "continue=" in seen.query)
    cache = fleet.cache(behind, limits=Limits(page=2))
    cache.synced(10)
    assert len(names(cache)) == 5
    assert len(proxy.requests(watch=False)) == 3


def test_a_silent_watch_is_noticed(fleet: Fleet, behind: Client, proxy: FaultProxy) -> None:
    cache = fleet.cache(
        behind, limits=Limits(silence_seconds=1.5, first_pause_seconds=0.05, max_pause_seconds=0.5)
    )
    cache.synced(10)
    until(lambda: not cache.stale())
    proxy.silence_watches()
    proxy.fail(503)
    fleet.write("bot")
    until(cache.stale)
    assert cache.stale()["configmaps"] >= 1.5
    with pytest.raises(ObserveError, match=r"no news of configmaps for \d s: .*503"):
        cache.blind(1)
    proxy.heal()
    until(lambda: names(cache) == {"bot"} and not cache.stale())
    assert cache.blind(1) == {}


def test_a_quiet_watch_is_not_called_stale(fleet: Fleet, behind: Client, proxy: FaultProxy) -> None:
    """Servers on an etcd that reports no progress send no bookmarks of a kind in which nothing happens."""
    cache = fleet.cache(behind, limits=Limits(silence_seconds=1.2))
    cache.synced(10)
    until(lambda: not cache.stale())
    while len(proxy.requests(watch=True)) < 4:
        assert cache.blind(0) == {}
        assert cache.stale() == {}
        time.sleep(0.001)
    assert len(proxy.requests(watch=False)) == 1


def test_errors_are_waited_out_and_none_is_taken_for_an_empty_list(
    fleet: Fleet, behind: Client, proxy: FaultProxy
) -> None:
    fleet.write("bot")
    cache = fleet.cache(behind)
    cache.synced(10)
    until(lambda: not cache.stale())
    proxy.fail(410, lambda seen: seen.watch)
    proxy.fail(500, lambda seen: not seen.watch)
    proxy.cut_watches()
    until(lambda: len(proxy.requests(watch=False)) > 4)
    assert names(cache) == {"bot"}
    until(lambda: cache.stale()["configmaps"] > 1)
    with pytest.raises(ObserveError, match="no news of configmaps"):
        cache.blind(1)
    assert cache.blind(60) == {}
    proxy.heal()
    fleet.delete("bot")
    until(lambda: not names(cache))


def test_429_is_honoured(fleet: Fleet, behind: Client, proxy: FaultProxy) -> None:
    proxy.fail(429, retry_after=2, times=1)
    begin = time.monotonic()
    cache = fleet.cache(behind)
    cache.synced(10)
    assert time.monotonic() - begin >= 2
    assert len(proxy.requests(watch=False)) == 2


def test_a_right_that_is_missing_is_named(fleet: Fleet, control: Cluster) -> None:
    bob = Client(ClusterConfig(str(control.kubeconfig_for("bob"))))
    control.kubectl(
        "create", "role", "some", "--verb=list,watch", "--resource=configmaps", "--namespace", fleet.name
    )
    control.kubectl("create", "rolebinding", "some", "--role=some", "--user=bob", "--namespace", fleet.name)
    until(lambda: _done(lambda: bob.get(CONFIG_MAP.path(fleet.name))))
    cache = fleet.cache(bob, (CONFIG_MAP, SECRET), namespaces=[fleet.name])
    begin = time.monotonic()
    cache.synced(20)
    with pytest.raises(ObserveError) as caught:
        cache.blind()
    assert time.monotonic() - begin < 10
    where = f"in namespace {fleet.name}"
    assert caught.value.message == f"list secrets {where}: bob may not list secrets {where}"
    assert caught.value.hint == f"grant it by a Role: list secrets {where}"
    control.kubectl("create", "role", "more", "--verb=list,watch", "--resource=secrets", "--namespace", fleet.name)
    control.kubectl("create", "rolebinding", "more", "--role=more", "--user=bob", "--namespace", fleet.name)
    until(lambda: not cache.stale())
    assert cache.blind() == {}


def test_a_namespace_without_rights_is_blind_alone(fleet: Fleet, control: Cluster) -> None:
    bob = Client(ClusterConfig(str(control.kubeconfig_for("bob"))))
    right = ("--verb=list,watch", "--resource=configmaps", "--namespace", fleet.name)
    control.kubectl("create", "role", "some", *right)
    control.kubectl("create", "rolebinding", "some", "--role=some", "--user=bob", "--namespace", fleet.name)
    until(lambda: _done(lambda: bob.get(CONFIG_MAP.path(fleet.name))))
    fleet.write("bot")
    cache = fleet.cache(bob, namespaces=[fleet.name, "kube-public"])
    cache.synced(20)
    assert names(cache) == {"bot"}, "a refusal elsewhere did not end the wait for this list"
    assert list(cache.blind()) == ["kube-public"]
    assert "bob may not list configmaps in namespace kube-public" in cache.blind()["kube-public"].message


def test_a_right_that_is_taken_away_blinds_its_namespace_and_no_other(
    fleet: Fleet, behind: Client, proxy: FaultProxy
) -> None:
    fleet.write("bot")
    limits = Limits(first_pause_seconds=0.05, max_pause_seconds=0.5)
    cache = fleet.cache(behind, namespaces=[fleet.name, "kube-public"], limits=limits)
    cache.synced(10)
    until(lambda: not cache.stale())
    proxy.fail(403, lambda seen: "/namespaces/kube-public/" in seen.path)
    proxy.cut_watches()
    until(lambda: list(cache.blind(1)) == ["kube-public"])
    fleet.write("bot", "new")
    until(lambda: text_of(cache, fleet, "bot") == "new")
    proxy.heal()
    until(lambda: cache.blind(1) == {})


def test_a_kind_that_the_server_does_not_serve_is_named(fleet: Fleet) -> None:
    robot = ObjectKind("Robot", "example.com/v1", "robots")
    cache = fleet.cache(kinds=(CONFIG_MAP, robot))
    cache.synced(10)
    with pytest.raises(ObserveError, match="list robots: this cluster does not serve that kind"):
        cache.blind()


def test_a_server_that_is_not_there_is_said_when_the_time_is_up(
    fleet: Fleet, behind: Client, proxy: FaultProxy
) -> None:
    proxy.inject(Fault(refuse=True))
    cache = fleet.cache(behind)
    cache.synced(1)
    with pytest.raises(ObserveError, match="list configmaps: the connection was cut"):
        cache.blind()


# A connection that the server ends before its handshake is left to the garbage collector by the standard library.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_the_restart_of_the_api_server(fleet: Fleet, control: Cluster) -> None:
    fleet.write("stays")
    fleet.write("goes")
    cache = fleet.cache(kinds=WATCHED)
    cache.synced(10)
    until(lambda: not cache.stale())
    control.stop_apiserver()
    until(lambda: len(cache.stale()) == len(WATCHED))
    assert names(cache) == {"stays", "goes"}
    with pytest.raises(ObserveError, match="no news of"):
        cache.blind(0)
    control.start_apiserver()
    until(lambda: _done(lambda: fleet.delete("goes")))
    fleet.write("comes")
    until(lambda: names(cache) == {"stays", "comes"} and not cache.stale(), 30)
    assert cache.blind() == {}


def test_many_writers_and_many_cuts_end_at_what_the_server_has(
    fleet: Fleet, behind: Client, proxy: FaultProxy
) -> None:
    cache = fleet.cache(behind, limits=Limits(page=5, first_pause_seconds=0.02, max_pause_seconds=0.2))
    cache.synced(10)

    def write(start: int) -> None:
        for number in range(40):
            name = f"bot-{(start + number) % 12}"
            answer = fleet.write(name, f"{start}-{number}")
            cache.note_object(CONFIG_MAP, answer)
            if number % 7 == start:
                _done(lambda name=name: fleet.delete(name))

    writers = [threading.Thread(target=write, args=(start,)) for start in range(3)]
    for each in writers:
        each.start()
    while any(each.is_alive() for each in writers):
        proxy.cut_watches()
        time.sleep(0.1)
        proxy.expire_watches()
        time.sleep(0.1)
    fleet.write("end")
    until(lambda: "end" in names(cache))

    live = {
        each["metadata"]["name"]: each["metadata"]["resourceVersion"]
        for each in fleet.admin.get(CONFIG_MAP.path(fleet.name), labelSelector=f"{INSTANCE}={fleet.name}")["items"]
    }
    assert {each.name: each.resource_version for each in cache.all(CONFIG_MAP)} == live


def _done(act: Callable[[], object]) -> bool:
    try:
        act()
    except ApiError:
        return False
    return True
