"""Which agents a commit moves: whatever differs between two snapshots, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.model.agent import Agent, Origin
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.key import AgentKey
from gitops_agent.model.revision import Revision
from gitops_agent.model.snapshot import Snapshot, changed_agents

pytestmark = pytest.mark.unit

fleets = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["one", "two"]))


def a_snapshot(fleet: dict[str, str]) -> Snapshot:
    revision = Revision("a" * 40, "b" * 40, (), "", 0.0, 0.0, "")
    keys = {AgentKey("acme", name): said for name, said in fleet.items()}
    agents = {key: Agent(key, Origin("a.yaml", 1, ""), (), description=said) for key, said in keys.items()}
    return Snapshot(revision, agents, PolicySpec())


@given(before=fleets, after=fleets)
def test_added_changed_and_removed_agents_move(before: dict[str, str], after: dict[str, str]) -> None:
    moved = changed_agents(a_snapshot(before), a_snapshot(after))
    assert {key.name for key in moved} == {n for n in {*before, *after} if before.get(n) != after.get(n)}


@given(fleet=fleets)
def test_at_first_everybody_moves(fleet: dict[str, str]) -> None:
    assert {key.name for key in changed_agents(None, a_snapshot(fleet))} == set(fleet)
