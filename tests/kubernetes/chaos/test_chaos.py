"""The campaign in small, and that it would see what it looks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kubernetes.chaos.author import objects_of
from tests.kubernetes.chaos.campaign import Campaign
from tests.kubernetes.chaos.live import differences
from tests.kubernetes.chaos.trail import (
    Entry,
    Key,
    Span,
    Wanted,
    changes_of_leader,
    created_twice,
    overlap,
    read_trail,
    stale_writes,
    wrongly_deleted,
)
from tests.servers.cluster import Cluster
from tests.servers.postgres import Postgres

BOT, LEASE = Key("deployments", "t", "bot"), Key("leases", "default", "lease")
USERS = {"agent": "a", "agent-2": "b"}


def entry(
    user: str, verb: str, at: float, code: int | None = 200, key: Key = BOT, holder: str | None = None
) -> Entry:
    return Entry(user, verb, key, at, None if code is None else at + 0.1, code, holder)


def vote(user: str, at: float, code: int | None = 200, holder: str | None = None) -> Entry:
    return entry(user, "patch", at, code, LEASE, USERS[user] if holder is None else holder)


CREATED, AGAIN = entry("agent", "patch", 1.0, 201), entry("agent-2", "patch", 9.0, 201)


@pytest.mark.parametrize(
    ("between", "is_twice"),
    [
        ([], True),
        ([entry("admin", "delete", 5.0)], False),
        ([entry("admin", "delete", 5.0, 404)], True),
        ([entry("agent", "delete", 5.0, None)], False),  # the server was killed: it may have happened
        ([entry("admin", "delete", 5.0, key=Key("deployments", "t", "other"))], True),
        ([entry("agent", "patch", 5.0, 200)], True),
    ],
)
def test_a_creation_of_what_was_there_is_seen(between: list[Entry], is_twice: bool) -> None:
    assert bool([*created_twice([CREATED, *between, AGAIN])]) is is_twice


HISTORY = [Wanted(0.0, frozenset({BOT})), Wanted(50.0, frozenset()), Wanted(60.0, frozenset({BOT}))]


@pytest.mark.parametrize(
    ("at", "key", "is_wrong"),
    [
        (40.0, BOT, True),  # Git has it
        (55.0, BOT, False),  # it has left Git
        (70.0, BOT, False),  # it is back, and that may not be known yet
        (100.0, BOT, True),
        (55.0, Key("pods", "t", "bot-1"), True),
        (40.0, Key("services", "t", "bot"), False),  # Git never had it
    ],
)
def test_a_deletion_of_what_git_has_is_seen(at: float, key: Key, is_wrong: bool) -> None:
    found = [*wrongly_deleted([entry("agent", "delete", at, key=key)], list(USERS), HISTORY, 20.0)]
    assert bool(found) is is_wrong
    assert not [*wrongly_deleted([entry("admin", "delete", at, key=key)], list(USERS), HISTORY, 20.0)]


@pytest.mark.parametrize(
    ("votes", "is_stale"),
    [
        ([vote("agent", 95.0)], False),
        ([vote("agent", 95.0), vote("agent-2", 99.0)], True),  # another one led already
        ([vote("agent", 95.0), vote("agent-2", 99.0, 409)], False),
        ([vote("agent", 95.0), vote("agent-2", 99.95)], False),  # not answered yet
        ([vote("agent-2", 90.0), vote("agent", 98.0, None)], False),  # it may have won, and its answer was lost
        ([vote("agent", 95.0, holder="")], True),  # given back
        ([vote("agent", 80.0)], True),  # nobody else led, and it could not know that
        ([], True),
    ],
)
def test_a_write_by_one_that_does_not_lead_is_seen(votes: list[Entry], is_stale: bool) -> None:
    trail = [*votes, entry("agent", "patch", 100.0)]
    assert bool([*stale_writes(trail, USERS, LEASE.name)]) is is_stale
    assert not [*stale_writes([*votes, entry("agent", "list", 100.0)], USERS, LEASE.name)]


def test_changes_of_leader_and_what_lasted_meanwhile() -> None:
    trail = [vote("agent", 1.0), vote("agent", 3.0), vote("agent", 4.0, holder=""), vote("agent-2", 5.0)]
    assert [change.holder for change in changes_of_leader(trail, LEASE.name)] == ["a", "b"]
    assert overlap(Span(0.0, 10.0), [Span(8.0, 20.0), Span(1.0, 3.0), Span(2.0, 4.0)]) == 5.0


def test_the_log_of_the_server_is_read_as_it_is(control: Cluster, unique: str) -> None:
    mark = control.mark()
    control.kubectl("create", "configmap", unique)
    control.kubectl("delete", "configmap", unique)
    metadata = {"name": unique, "namespace": "default"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    control.kubectl("create", "-f", "-", stdin=json.dumps({**lease, "spec": {"holderIdentity": "somebody"}}))
    control.kubectl("delete", "lease", unique)
    trail = [each for each in read_trail(control.audit_log, mark) if each.verb in ("create", "delete")]
    assert [(each.verb, each.key.resource, each.code, each.holder) for each in trail] == [
        ("create", "configmaps", 201, None),
        ("delete", "configmaps", 200, None),
        ("create", "leases", 201, "somebody"),
        ("delete", "leases", 200, None),
    ]
    assert {each.key.name for each in trail} <= {unique, ""}


DOCUMENT = {
    "metadata": {"tenant": "t", "name": "bot"},
    "spec": {
        "instructions": "Hello.",
        "runtime": {
            "image": "bot:1",
            "replicas": 1,
            "env": [{"name": "TOKEN", "valueFrom": {}}],
            "kubernetes": {"workload": "StatefulSet"},
        },
    },
}


def test_what_a_document_stands_for_and_where_live_differs() -> None:
    kinds = ("statefulsets", "configmaps", "secrets", "services")
    assert objects_of([DOCUMENT]) == {Key(kind, "t", "bot") for kind in kinds}
    pod = {"spec": {"containers": [{"image": "bot:1"}]}}
    workload = {
        "metadata": {"generation": 2, "labels": {"gitops-agent.dev/instance": "i"}},
        "spec": {"replicas": 1, "template": pod},
        "status": {"readyReplicas": 1, "observedGeneration": 2},
    }
    config = {"data": {"bundle.json": '{"instructions": "Hello.", "name": "bot"}'}}
    own = {"statefulsets": workload, "configmaps": config, "secrets": {"data": {"TOKEN": "YQ=="}}}
    assert [*differences(DOCUMENT, "i", own, [pod], "a")] == []
    assert [*differences(DOCUMENT, "i", own, [pod], "b")] == ["secret: live {'TOKEN': 'a'}, Git {'TOKEN': 'b'}"]
    assert len([*differences(DOCUMENT, "i", own, [pod, pod], "a")]) == 1
    edited = {**own, "configmaps": {"data": {"bundle.json": "{}"}}}
    assert len([*differences(DOCUMENT, "i", edited, [pod], "a")]) == 2


@pytest.mark.timeout(400)
def test_a_little_chaos(tmp_path: Path, control: Cluster) -> None:
    with Postgres() as postgres:
        found = Campaign(tmp_path / "fleet", control, postgres, 7, commits=9, seconds=20.0).play()
    print(found)
    assert found.problems == []
    assert found.failovers
    assert found.harm.total() > 5
