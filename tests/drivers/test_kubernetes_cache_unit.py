"""The store of the live cache, without a server: whatever order events and our own answers come in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.drivers.api import AgentKey
from gitops_agent.drivers.kubernetes.cache import ObjectCache
from gitops_agent.drivers.kubernetes.errors import ApiError
from gitops_agent.drivers.kubernetes.kinds import DEPLOYMENT, NAMESPACE, POD, SECRET, ObjectKind
from gitops_agent.drivers.kubernetes.marks import HEARTBEAT, labels_of
from gitops_agent.drivers.kubernetes.store import Entry, Scope, Store, as_served, keep_raw

pytestmark = pytest.mark.unit
EVERYWHERE = Scope(DEPLOYMENT)
BOT, OTHER = AgentKey("acme", "bot"), AgentKey("acme", "other")


def made(
    version: int | str, *, name: str = "bot", uid: str = "1", namespace: str = "acme", agent: AgentKey = BOT
) -> Entry:
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "resourceVersion": str(version),
        "labels": labels_of("test", agent),
    }
    return keep_raw(DEPLOYMENT, {"metadata": meta})


def version_of(store: Store, name: str = "bot") -> str | None:
    found = store.get(DEPLOYMENT, "acme", name)
    return None if found is None else found.resource_version


class Step(NamedTuple):
    """One thing that happened to an object on the server; its number is its version."""

    there: bool
    entry: Entry


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    """What happened to one object: made, changed, deleted, made again."""
    steps: list[Step] = []
    for version in range(1, draw(st.integers(1, 8)) + 1):
        before = steps[-1] if steps else None
        alive = before is not None and before.there
        uid = before.entry.uid if before is not None and alive else str(version)
        steps.append(Step(not alive or draw(st.booleans()), made(version, uid=uid)))
    return steps


@given(histories(), st.data())
def test_events_and_answers_in_any_order_end_at_the_newest_and_never_go_back(
    steps: list[Step], data: st.DataObject
) -> None:
    """Every step may have been ours: its answer comes at any time, before, between or after the events."""
    store = Store([EVERYWHERE])
    first = data.draw(st.integers(0, len(steps) // 2), label="how many steps the first list covers")
    arrivals = {
        step: data.draw(st.integers(first, len(steps) + 1), label="its answer comes after") for step in steps
    }
    seen = 0
    for at in range(first, len(steps) + 1):
        if at == first:
            store.listed(EVERYWHERE, [step.entry for step in steps[:at][-1:] if step.there], str(at))
        else:
            (store.changed if steps[at - 1].there else store.deleted)(EVERYWHERE, steps[at - 1].entry)
        for step in data.draw(st.permutations([step for step in steps if arrivals[step] == at])):
            (store.note if step.there else store.gone)(step.entry)
            shown = int(version_of(store) or seen)
            assert shown >= seen
            seen = shown
    last = steps[-1]
    assert version_of(store) == (last.entry.resource_version if last.there else None)
    assert store.agents() == (frozenset({BOT}) if last.there else frozenset())
    assert not store._gone


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=20), st.integers(0, 20))
def test_a_new_list_ends_where_the_events_would_have(changes: list[tuple[str, bool]], cut: int) -> None:
    watched, listed = Store([EVERYWHERE]), Store([EVERYWHERE])
    live: dict[str, Entry] = {}
    for each in (watched, listed):
        each.listed(EVERYWHERE, [], "1")
    for version, (name, there) in enumerate(changes, 2):
        entry = made(version, name=name)
        for each in (watched, listed) if version < cut else (watched,):
            (each.changed if there else each.deleted)(EVERYWHERE, entry)
        if there:
            live[name] = entry
        else:
            live.pop(name, None)
    listed.listed(EVERYWHERE, live.values(), str(len(changes) + 1))
    assert set(listed.all(DEPLOYMENT)) == set(watched.all(DEPLOYMENT)) == set(live.values())
    assert listed.of_agent(BOT, DEPLOYMENT) == watched.of_agent(BOT, DEPLOYMENT)


def test_the_answer_to_a_write_is_seen_at_once_and_its_event_says_nothing_new() -> None:
    store = Store([EVERYWHERE])
    store.listed(EVERYWHERE, [], "5")
    store.note(made(7))
    assert version_of(store) == "7"
    assert store.changed(EVERYWHERE, made(6)) == []
    assert store.changed(EVERYWHERE, made(7)) == []
    assert [change.word for change in store.changed(EVERYWHERE, made(8))] == ["Deployment changed"]


def test_a_list_that_was_made_before_our_write_does_not_undo_it() -> None:
    store = Store([EVERYWHERE])
    store.note(made(7))
    assert store.listed(EVERYWHERE, [], "6") == []
    assert version_of(store) == "7"
    assert [change.word for change in store.listed(EVERYWHERE, [], "8")] == ["Deployment deleted"]


def test_a_late_answer_does_not_bring_back_what_was_deleted_since() -> None:
    store = Store([EVERYWHERE])
    store.listed(EVERYWHERE, [made(3)], "3")
    store.deleted(EVERYWHERE, made(9))
    store.note(made(8))
    assert version_of(store) is None


def test_what_we_deleted_stays_gone_until_it_is_made_again() -> None:
    store = Store([EVERYWHERE])
    store.listed(EVERYWHERE, [made(3)], "3")
    store.gone(made(3))
    assert store.changed(EVERYWHERE, made(4)) == []
    assert version_of(store) is None
    store.note(made(8, uid="2"))
    assert store.deleted(EVERYWHERE, made(5)) == []
    assert version_of(store) == "8"


def test_a_cluster_that_was_restored_from_a_backup_counts_from_then_on() -> None:
    store = Store([EVERYWHERE])
    store.listed(EVERYWHERE, [made(90), made(80, name="lost")], "100")
    store.listed(EVERYWHERE, [made(20)], "50")
    assert version_of(store) == "20"
    assert version_of(store, "lost") is None
    store.note(made(51))
    assert version_of(store) == "51"


def test_versions_that_are_no_numbers_are_taken_as_they_come() -> None:
    store = Store([EVERYWHERE])
    store.listed(EVERYWHERE, [made("a")], "a")
    store.note(made("c"))
    assert version_of(store) == "c"
    store.changed(EVERYWHERE, made("b"))
    assert version_of(store) == "b"


def test_a_list_of_one_namespace_says_nothing_of_another() -> None:
    one, two = Scope(DEPLOYMENT, "acme"), Scope(DEPLOYMENT, "beta")
    store = Store([one, two])
    store.listed(one, [made(3)], "9")
    store.listed(two, [made(4, namespace="beta")], "9")
    store.listed(two, [], "10")
    assert [each.namespace for each in store.all(DEPLOYMENT)] == ["acme"]
    store.note(made(12, namespace="elsewhere"))
    assert len(store.all(DEPLOYMENT)) == 1


def test_an_object_that_changes_its_agent_is_a_change_of_both() -> None:
    store = Store([EVERYWHERE])
    store.listed(EVERYWHERE, [made(1)], "1")
    changes = store.changed(EVERYWHERE, made(2, agent=OTHER))
    assert [(change.agent, change.word) for change in changes] == [
        (BOT, "Deployment relabelled"),
        (OTHER, "Deployment changed"),
    ]
    assert store.agents() == {OTHER}
    assert store.of_agent(BOT, DEPLOYMENT) == ()


def test_a_namespace_is_told_of_by_the_watch_of_its_name() -> None:
    scope = Scope(NAMESPACE, "acme")
    store = Store([scope])
    store.listed(scope, [], "1")
    store.note(keep_raw(NAMESPACE, {"metadata": {"name": "acme", "resourceVersion": "2"}}))
    assert [each.name for each in store.all(NAMESPACE)] == ["acme"]


@pytest.mark.parametrize("kind", [SECRET, DEPLOYMENT])
def test_of_secrets_only_metadata_is_kept(kind: ObjectKind) -> None:
    note = "kubectl.kubernetes.io/last-applied-configuration"
    found: dict[str, Any] = {
        "kind": "PartialObjectMetadata",
        "metadata": {"name": "a", "annotations": {note: '{"data":"hush"}', "other": "text"}},
        "data": {"token": "hush"},
    }
    raw = keep_raw(kind, as_served(kind, found)).raw
    assert (b"hush" in raw) is not kind.metadata_only
    assert b'"other":"text"' in raw
    assert kind.kind.encode() in raw


def beating(version: int, beat: str = "", phase: str = "Running") -> Entry:
    """A pod as a watch shows it. ``beat``: its heartbeat, whose owner the server notes."""
    meta: dict[str, Any] = {"name": "bot-1", "namespace": "acme", "uid": "1", "resourceVersion": str(version)}
    meta |= {"labels": labels_of("test", BOT), "annotations": {HEARTBEAT: beat} if beat else {}}
    owned = {"f:metadata": {"f:annotations": {f"f:{HEARTBEAT}": {}}}}
    meta["managedFields"] = [{"manager": "python", "fieldsV1": owned, "time": version}] if beat else []
    return keep_raw(POD, as_served(POD, {"metadata": meta, "spec": {}, "status": {"phase": phase}}))


def test_another_heartbeat_is_kept_and_is_no_news() -> None:
    everywhere = Scope(POD)
    store = Store([everywhere])
    store.listed(everywhere, [beating(1)], "1")
    words = []
    for entry in (beating(2, "first"), beating(3, "second"), beating(4, "third", "Failed"), beating(5)):
        words.append([change.word for change in store.changed(everywhere, entry)])
        assert store.get(POD, "acme", "bot-1") == entry
    assert words == [["Pod changed"], [], ["Pod changed"], ["Pod changed"]], "the first, an end, and none any more"


class Expiring:
    """A server whose lists take long, and whose every watch opens and says at once that it has come too late."""

    lists = 0

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """The time, which passes with lists alone."""
        return self.now

    def request(self, *_asked: Any, **_more: Any) -> dict[str, Any]:
        """A list without anything in it."""
        self.now += 5.0
        self.lists += 1
        assert self.lists < 20, "too many"
        return {"items": [], "metadata": {"resourceVersion": "7"}}

    def stream(self, *_asked: Any, **_more: Any) -> list[bytes]:
        """A watch that ends with its first event."""
        return [orjson.dumps({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}})]


def test_lists_that_are_too_old_when_they_are_there_are_asked_for_ever_more_slowly() -> None:
    """However long a list took: only a watch that lasted says that the server is well."""
    server: Any = Expiring()
    cache = ObjectCache(server, [DEPLOYMENT], selector="", clock=server)
    (watch,) = cache._watches
    pauses: list[float] = []

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 5:
            watch._stopping.set()

    watch._wake = SimpleNamespace(wait=wait, clear=lambda: None)  # type: ignore[assignment]
    watch._run()
    assert server.lists == 6, "the first time it is tried again at once"
    assert pauses == sorted(pauses)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_fails_is_waited_for_once(status: int) -> None:
    client: Any = None  # nothing is started, so nothing is asked
    cache = ObjectCache(client, [DEPLOYMENT], selector="")
    (watch,) = cache._watches
    waits: list[bool] = []
    watch.problem = ApiError(status, "Busy", "later")
    cache._state.wait_for = lambda decided, _timeout=None: waits.append(not decided()) or True  # type: ignore[method-assign,func-returns-value]
    cache.synced(20)
    cache.synced(1)
    assert waits == [True, False]
    watch.problem = None
    cache.synced(1)
    assert waits[2:] == [True], "a list under way is waited for"
