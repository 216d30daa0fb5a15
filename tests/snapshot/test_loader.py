"""Loads follow one another: what a commit did not touch is not read, not compiled, and stays the same object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from gitops_agent.errors import InvalidDesiredState, SourceRefused
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import changed_agents
from gitops_agent.settings import Limits, Settings
from gitops_agent.snapshot.loader import Loader
from tests.snapshot.world import PLUGINS, MemoryReader, World, agent, codes, load, other

pytestmark = pytest.mark.unit

FLEET = {f"agents/acme/a{n}.yaml": agent(f"a{n}") for n in range(20)}
ONE = "agents/acme/a7.yaml"


def test_a_commit_that_touches_one_file_costs_one_parse() -> None:
    world = World()
    first = world.load(FLEET)
    world.reader.read.clear()
    second = world.load({**FLEET, ONE: agent("a7", lifecycle="Stopped")})
    assert len(world.reader.read) == 1
    assert {str(key) for key in changed_agents(first, second)} == {"acme/a7"}
    assert all(second.agents[key] is first.agents[key] for key in first.agents if key.name != "a7")


def test_an_equal_tree_costs_nothing() -> None:
    world = World()
    first = world.load(FLEET)
    world.reader.read.clear()
    revision = world.reader.commit(FLEET)
    second = world.loader.load(revision)
    assert world.reader.read == []
    assert second.agents is first.agents
    assert second.revision == revision


def test_earlier_snapshots_are_not_touched_by_later_ones() -> None:
    world = World()
    first = world.load(FLEET)
    before = dict(first.agents)
    world.load({ONE: agent("a7", adopt=True)})
    assert first.agents == before


def test_additions_and_removals() -> None:
    world = World()
    first = world.load(FLEET)
    fewer = {path: text for path, text in FLEET.items() if path != ONE}
    second = world.load({**fewer, "agents/acme/new.yaml": agent("new")})
    assert {key.name for key in changed_agents(first, second)} == {"a7", "new"}
    moved = world.load({**fewer, "agents/globex/a7.yaml": agent("a7")})
    assert ("globex", "a7") in moved.agents
    assert ("acme", "a7") not in moved.agents


def test_an_invalid_commit_leaves_no_trace() -> None:
    world = World()
    first = world.load(FLEET)
    bad = {**FLEET, ONE: agent("a7", typo=1), "agents/acme/a8.yaml": agent("a8", adopt=True)}
    assert codes(world.refuse(bad)) == ["UnknownField"]
    again = world.load({**FLEET, "agents/acme/a8.yaml": agent("a8", adopt=True)})
    assert {key.name for key in changed_agents(first, again)} == {"a8"}
    assert world.load(FLEET).agents == first.agents


def test_a_changed_prompt_recompiles_its_readers_only() -> None:
    world = World()
    reader = agent("a7", instructionsFrom={"file": "p.md"})
    files = {**FLEET, ONE: reader, "agents/acme/p.md": "one\n", "agents/acme/unread.md": "x"}
    first = world.load(files)
    world.reader.read.clear()
    second = world.load({**files, "agents/acme/p.md": "two\n", "agents/acme/unread.md": "y"})
    assert {key.name for key in changed_agents(first, second)} == {"a7"}
    assert len(world.reader.read) == 2
    assert codes(world.refuse({path: text for path, text in files.items() if not path.endswith("p.md")})) == [
        "MissingFile"
    ]
    swapped = world.load({**files, "agents/acme/p.md": "one\n", "agents/acme/unread.md": "y"})
    assert swapped.agents == first.agents


def test_duplicates_that_a_commit_makes_are_seen() -> None:
    world = World()
    world.load(FLEET)
    assert codes(world.refuse({**FLEET, "agents/acme/copy.yaml": agent("a7")})) == ["DuplicateAgent"] * 2
    renamed = {**FLEET, "agents/acme/copy.yaml": FLEET[ONE]}
    del renamed[ONE]
    assert ("acme", "a7") in world.load(renamed).agents


def test_a_policy_change_touches_no_agent() -> None:
    world = World()
    first = world.load(FLEET)
    second = world.load({**FLEET, "gitops-agent.yaml": other("Policy", {"actionsPerMinute": 3})})
    assert changed_agents(first, second) == frozenset()
    assert (first.policy.actions_per_minute, second.policy.actions_per_minute) == (500, 3)


def test_findings_of_untouched_files_stay() -> None:
    world = World()
    first = world.load({**FLEET, "foreign.yaml": "a: 1\n"})
    second = world.load({**FLEET, "foreign.yaml": "a: 1\n", ONE: agent("a7", adopt=True)})
    assert first.findings == second.findings != ()


def test_a_blob_too_large_to_hand_out_becomes_a_finding() -> None:
    class Capped(MemoryReader):
        def blobs(self, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
            if any(len(self.contents[blob]) > 1_000 for blob in ids):
                raise SourceRefused("blob too large")
            yield from super().blobs(ids)

    reader = Capped()
    loader = Loader(reader, PLUGINS, Settings(limits=Limits(file_bytes=1_000)))
    loader.load(reader.commit(FLEET))
    with pytest.raises(InvalidDesiredState) as refused:
        loader.load(reader.commit({**FLEET, ONE: "#" * 2_000}))
    assert codes(refused.value.findings) == ["TooLarge"]


def test_the_number_of_files_counts_those_of_earlier_commits() -> None:
    world = World(Settings(limits=Limits(files=20)))
    world.load(FLEET)
    more = {**FLEET, "agents/acme/more.yaml": agent("more")}
    assert codes(world.refuse(more)) == codes(World(world.settings).refuse(more)) == ["TooManyFiles"]
    swapped = {path: text for path, text in more.items() if path != ONE}
    assert world.load(swapped).agents == World(world.settings).load(swapped).agents


def test_a_missing_path_is_refused_with_a_way_out() -> None:
    revision = Revision("a" * 40, "", (), author="", authored_at=0.0, committed_at=0.0, message="")
    with pytest.raises(InvalidDesiredState) as refused:
        Loader(MemoryReader(), PLUGINS, Settings(path="fleet")).load(revision)
    assert codes(refused.value.findings) == ["MissingPath"]
    assert "--path" in refused.value.findings[0].detail


def test_the_message_counts_and_the_hint_says_what_stays_in_force() -> None:
    world = World()
    revision = world.reader.commit({ONE: agent("a7", typo=1, tpyo=2)})
    with pytest.raises(InvalidDesiredState) as refused:
        world.loader.load(revision)
    assert refused.value.message == f"commit {revision.short} is not valid: 2 errors in 1 file"
    assert "last good commit" in refused.value.hint


def test_the_order_of_files_does_not_matter() -> None:
    files = {**FLEET, "foreign.yaml": "a: 1\n", "z.yaml": "b: 1\n"}
    assert load(files).agents == load(dict(reversed(files.items()))).agents
    assert load(files).findings == load(dict(reversed(files.items()))).findings
