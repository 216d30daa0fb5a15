"""Laws of our record: what there is of some agents is the same, however the record came about."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base
from gitops_agent.model.state import Bases
from tests.plan.make import base

pytestmark = pytest.mark.unit

AGENTS = [AgentKey("acme", name) for name in "abc"]
KEYS = st.builds(ResourceKey, st.sampled_from(AGENTS), st.sampled_from(["config", "runtime"]), st.just("memory"))
CHANGES = st.dictionaries(KEYS, st.sampled_from(["one", "two", None]))


def _recorded(content: dict[ResourceKey, str | None]) -> dict[ResourceKey, Base | None]:
    return {key: None if text is None else base(key, {"text": text}) for key, text in content.items()}


@given(st.lists(CHANGES, max_size=5), st.frozensets(st.sampled_from(AGENTS)), st.booleans())
def test_what_is_within_a_scope_does_not_depend_on_when_it_was_first_asked(
    steps: list[dict[ResourceKey, str | None]], scope: frozenset[AgentKey], asked_early: bool
) -> None:
    bases, known = Bases(dict), dict[ResourceKey, Base]()
    for step in map(_recorded, steps):
        if asked_early:
            bases.within(scope)
        bases = bases.updated(step)
        known = {key: each for key, each in {**known, **step}.items() if each is not None}
    assert dict(bases) == known
    assert sorted(bases.within(scope)) == sorted(key for key in known if key.agent in scope)
    assert sorted(bases.within(None)) == sorted(known)


def test_what_was_given_out_stays_as_it_was() -> None:
    key = ResourceKey(AGENTS[0], "runtime", "memory")
    before = Bases.of({key: base(key, {"text": "one"})})
    before.within(frozenset(AGENTS))
    assert not list(before.updated({key: None}).within(frozenset(AGENTS)))
    assert list(before.within(frozenset(AGENTS))) == [key]
