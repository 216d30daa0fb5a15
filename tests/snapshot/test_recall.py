"""A commit that was accepted once can be recalled when a newer version refuses it; nothing else is let in so."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from gitops_agent.model.snapshot import Snapshot
from gitops_agent.settings import Limits, Settings
from gitops_agent.snapshot import file_reader, schema
from gitops_agent.snapshot.cache import Cache
from gitops_agent.snapshot.compiled_file import decode, encode
from tests.snapshot.world import COMPILERS, Content, MemoryReader, World, agent, codes, other

pytestmark = pytest.mark.unit

WITH_POOLS = (("credential", lambda _key, _document: ()), *COMPILERS)
KEYS = [{"name": "k", "secretRef": {"provider": "env", "name": "K"}}]
FLEET: dict[str, Content] = {
    "agents/acme/a.yaml": agent("a", description="x" * 99),
    "agents/acme/b.yaml": agent("b", instructionsFrom={"file": "b.md"}),
    "agents/acme/b.md": "Be kind.\n",
    "pools/p.yaml": other("CredentialPool", {"provider": "p", "keys": KEYS}, name="pool"),
    "gitops-agent.yaml": other("Policy", {"actionsPerMinute": 7}),
}
OVERLAY = other(
    "Overlay",
    {
        "instance": "prod",
        "selector": {"names": ["a"]},
        "patches": [{"op": "add", "path": "/spec/adopt", "value": True}],
    },
)
SMALL = Settings(instance="prod", limits=Limits(file_bytes=300))


class Upgrades:
    """One repository and one state directory under versions that follow each other."""

    def __init__(self, folder: Path) -> None:
        self.path, self.reader = folder / "cache", MemoryReader()

    def version(self, name: str, settings: Settings | None = None, compilers: Any = WITH_POOLS) -> World:
        world = World(settings, Cache(self.path, name), compilers)
        world.reader.trees, world.reader.contents = self.reader.trees, self.reader.contents
        return world


@pytest.fixture
def upgrades(tmp_path: Path) -> Upgrades:
    return Upgrades(tmp_path)


def content(snapshot: Snapshot | None) -> tuple[Any, ...]:
    assert snapshot is not None
    return snapshot.agents, snapshot.policy


def refuse_long_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of documents that was added: no text of more than 50 characters."""
    monkeypatch.setattr(schema, "may_hold_secret", lambda _: True)
    monkeypatch.setattr(schema, "looks_secret", lambda text: len(text) > 50)


def refuse_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        file_reader, "loosened", lambda origin, _: [schema.Issue("X", (), "no policy", origin=origin)]
    )


RULES: Mapping[str, tuple[Any, dict[str, Any]]] = {
    "a text in a document": (refuse_long_texts, {}),
    "the policy": (refuse_policies, {}),
    "a pool that nothing uses": (lambda _: None, {"compilers": COMPILERS}),
    "a limit in the settings": (lambda _: None, {"settings": SMALL}),
}


@pytest.mark.parametrize("rule", RULES)
def test_what_a_new_rule_refuses_is_as_it_was(
    upgrades: Upgrades, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    good = upgrades.version("1").load(FLEET)
    tighten, changed = RULES[rule]
    tighten(monkeypatch)
    for name in ("2", "2", "3"):  # restarted, and upgraded once more
        world = upgrades.version(name, **changed)
        assert codes(world.refuse_after(None, good.revision))
        assert content(world.loader.recall(good.revision)) == content(good)


def test_a_commit_that_leaves_the_mistake_where_it_is_stays_refused(
    upgrades: Upgrades, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = upgrades.version("1").load(FLEET)
    refuse_long_texts(monkeypatch)
    world = upgrades.version("2")
    recalled = world.loader.recall(good.revision)
    assert recalled is not None
    more = {**FLEET, "agents/acme/c.yaml": agent("c")}
    assert codes(world.refuse_after(recalled, world.reader.commit(more))) == ["LiteralSecret"]
    world.loader.load(world.reader.commit({**more, "agents/acme/a.yaml": agent("a")}), recalled)


@pytest.mark.parametrize("lost", ["cache", "row", "path", "overlay"])
def test_what_is_not_known_in_full_is_not_recalled(
    upgrades: Upgrades, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    first = upgrades.version("1")
    good = first.load(FLEET)
    if lost == "overlay":  # a later commit compiled the same file with another overlay
        first.load({**FLEET, "overlays/prod.yaml": OVERLAY})
    refuse_long_texts(monkeypatch)
    if lost == "cache":
        upgrades.path.unlink()
    if lost == "row":
        with sqlite3.connect(upgrades.path) as connection:
            connection.execute("UPDATE files SET data = zeroblob(50)")
    world = upgrades.version("2")
    if lost == "path":  # a rule about names: what it held must not look deleted
        monkeypatch.setattr("gitops_agent.snapshot.tree._unfit", lambda path: "is odd" * path.endswith("a.yaml"))
    assert world.loader.recall(good.revision) is None


FIRST_COLUMNS = 20
"""What the row of an agent held when there were rows of earlier versions to read for the first time."""


def test_a_row_without_what_was_added_to_its_end_is_read(upgrades: Upgrades) -> None:
    world = upgrades.version("1")
    world.load(FLEET)
    assert world.loader._last is not None
    for file in world.loader._last.index.files.values():
        head, *contents = encode(file).split(b"\n")
        rows, others = orjson.loads(head)
        earlier = orjson.dumps([[row[:FIRST_COLUMNS] for row in rows], others])
        assert decode(file.path, file.blob, b"\n".join([earlier, *contents])) == file


BEFORE = """
CREATE TABLE IF NOT EXISTS meta (version TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS units (name BLOB PRIMARY KEY, data BLOB NOT NULL);
"""
"""What a version opens that knows of no other versions: unless ``meta`` names it, it empties ``units``."""


def test_a_cache_of_the_version_before_is_understood_and_not_shared_with_it(
    upgrades: Upgrades, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = upgrades.version("1").load(FLEET)
    with sqlite3.connect(upgrades.path) as connection:
        connection.executescript(BEFORE)
        connection.execute("INSERT INTO units SELECT name, data FROM files")
        connection.executescript("DROP TABLE files; INSERT INTO meta VALUES ('0')")
    refuse_long_texts(monkeypatch)
    for _ in range(2):
        assert content(upgrades.version("2").loader.recall(good.revision)) == content(good)
    with sqlite3.connect(upgrades.path) as connection:  # back to the version before
        connection.executescript(BEFORE)
        assert connection.execute("SELECT version FROM meta").fetchall() == []
        connection.execute("INSERT INTO units VALUES (x'00', x'00')")
        connection.execute("INSERT INTO meta VALUES ('0')")
    assert content(upgrades.version("2").loader.recall(good.revision)) == content(good), "and forth"
