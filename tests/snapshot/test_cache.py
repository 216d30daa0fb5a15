"""The cache is a shortcut: it never changes what a load says, and nothing that happens to it is fatal."""

from __future__ import annotations

import sqlite3
from importlib import import_module
from pathlib import Path

import pytest

from gitops_agent.drivers.api import Plugin
from gitops_agent.drivers.plugins import Plugins
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.settings import Limits, Settings
from gitops_agent.snapshot import cache as caching
from gitops_agent.snapshot.cache import FILE_NAME, Cache, version_of
from gitops_agent.testing.memory_driver import MemoryDriver
from tests.snapshot.world import COMPILERS, PLUGINS, MemoryReader, World, agent, codes, other

WITH_POOLS = (("credential", lambda _key, _document: ()), *COMPILERS)
FLEET = {
    **{f"agents/acme/a{n}.yaml": agent(f"a{n}", labels={"n": str(n)}) for n in range(8)},
    "agents/acme/p.yaml": agent("p", instructionsFrom={"file": "p.md"}, rollout={"dependsOn": ["a1"]}),
    "agents/acme/p.md": "Be kind.\n",
    "agents/acme/q.yaml": agent(
        "q",
        description="ü",
        reconcile={"paused": True, "until": "2030-01-31T18:00:00Z", "reason": "audit"},
        authority={"runtime.replicas": "live"},
    ),
    "foreign.yaml": "a: 1\n",
    "gitops-agent.yaml": other("Policy", {"tenants": {"acme": {"actionsPerMinute": 3}}}),
    "overlays/prod.yaml": other(
        "Overlay",
        {
            "instance": "prod",
            "selector": {"names": ["a3"]},
            "patches": [{"op": "add", "path": "/spec/adopt", "value": True}],
        },
    ),
    "pools/p.yaml": other(
        "CredentialPool",
        {"provider": "p", "keys": [{"name": "k", "secretRef": {"provider": "env", "name": "K"}}]},
        name="pool",
    ),
}


class Restarting:
    """A repository that outlives its loaders, as a state directory does."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self.reader = MemoryReader()

    def load(self, files: dict[str, str], settings: Settings | None = None) -> tuple[Snapshot, int]:
        """A snapshot from a fresh process, and how many blobs it had to read."""
        settings = settings or Settings(instance="prod")
        cache = Cache(self.path, version_of(settings, PLUGINS))
        world = World(settings, cache, WITH_POOLS)
        world.reader.trees, world.reader.contents = self.reader.trees, self.reader.contents
        try:
            return world.load(files), len(world.reader.read)
        finally:
            cache.close()


@pytest.fixture
def restarting(tmp_path: Path) -> Restarting:
    return Restarting(tmp_path / "state")


def same(first: Snapshot, second: Snapshot) -> bool:
    return (first.agents, first.policy, first.findings) == (second.agents, second.policy, second.findings)


def test_a_restart_with_nothing_changed_reads_nothing(restarting: Restarting) -> None:
    cold, read = restarting.load(FLEET)
    warm, again = restarting.load(FLEET)
    assert (read, again) == (len(FLEET), 0)
    assert same(cold, warm)


def test_a_restart_reads_only_what_changed_and_what_hangs_on_it(restarting: Restarting) -> None:
    restarting.load(FLEET)
    _, read = restarting.load({**FLEET, "agents/acme/p.md": "Be short.\n"})
    assert read == 2
    _, read = restarting.load({**FLEET, "agents/acme/a1.yaml": agent("a1", adopt=True)})
    assert read == 1 + 2  # and the prompt, which went back
    without = {path: text for path, text in FLEET.items() if not path.startswith("overlays/")}
    snapshot, read = restarting.load(without)
    assert read == 1  # a1 is known; the agent the overlay had patched is not
    assert not any(agent.adopt for agent in snapshot.agents.values())


def test_another_instance_or_other_limits_share_nothing(restarting: Restarting) -> None:
    restarting.load(FLEET)
    staging, read = restarting.load(FLEET, Settings(instance="staging"))
    assert read == len(FLEET)
    assert not any(agent.adopt for agent in staging.agents.values())
    _, read = restarting.load(FLEET, Settings(instance="staging", limits=Limits(depth=20)))
    assert read == len(FLEET)


def test_what_a_driver_compiles_with_is_part_of_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_driver" / "inner").mkdir(parents=True)
    (tmp_path / "some_driver" / "__init__.py").write_text("def resources(asked): return ()\n")
    (tmp_path / "some_driver" / "inner" / "spec.py").write_text("GRACE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins = Plugins([Plugin("some", (), import_module("some_driver").resources, lambda _: MemoryDriver("some"))])
    before = version_of(Settings(), plugins)
    assert version_of(Settings(), plugins) == before
    (tmp_path / "some_driver" / "inner" / "spec.py").write_text("GRACE = 2\n")
    assert version_of(Settings(), plugins) != before


@pytest.mark.parametrize("damage", ["garbage", "truncated", "rows", "folder", "schema"])
def test_a_damaged_cache_is_never_fatal(restarting: Restarting, damage: str) -> None:
    cold, _ = restarting.load(FLEET)
    path = restarting.path
    if damage == "garbage":
        path.write_bytes(b"not a database" * 1_000)
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:5_000])
    elif damage == "folder":
        for file in path.parent.glob(f"{FILE_NAME}*"):
            file.unlink()
        path.mkdir()
    else:
        statement = "UPDATE files SET data = zeroblob(50)" if damage == "rows" else "DROP TABLE files"
        with sqlite3.connect(path) as connection:
            connection.execute(statement)
        connection.close()
    again, read = restarting.load(FLEET)
    assert read >= len(FLEET) - 1
    assert same(cold, again)
    if damage != "folder":
        assert restarting.load(FLEET)[1] == 0


def test_rows_of_an_invalid_commit_help_the_next_one(restarting: Restarting) -> None:
    settings = Settings(instance="prod")
    cache = Cache(restarting.path, version_of(settings, PLUGINS))
    world = World(settings, cache, WITH_POOLS)
    assert codes(world.refuse({**FLEET, "bad.yaml": "a: [\n"})) == ["InvalidYaml"]
    cache.close()
    assert restarting.load(FLEET)[1] == 0


def test_the_cache_stays_bounded(restarting: Restarting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "SPARE_ROWS", 5)
    for turn in range(4):
        restarting.load({f"agents/t/x{n}.yaml": agent(f"x{n}", description=f"{turn}") for n in range(10)})
    with sqlite3.connect(restarting.path) as connection:
        (count,) = connection.execute("SELECT COUNT(*) FROM files").fetchone()
    connection.close()
    assert count <= 15


def test_many_rows_are_written_behind_and_found_again(restarting: Restarting) -> None:
    files = {f"agents/t/x{n}.yaml": agent(f"x{n}") for n in range(600)}
    cold, _ = restarting.load(files)
    warm, read = restarting.load(files)
    assert read == 0
    assert same(cold, warm)
