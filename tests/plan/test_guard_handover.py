"""The guard on moves: what is left behind goes when the new one is Ready; an exclusive one never runs twice."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.model.agent import Agent
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import Base, Observation
from gitops_agent.model.outcome import Attempt
from gitops_agent.model.plan import Action, Decision, Plan, Verb
from tests.plan import make

pytestmark = pytest.mark.unit

ME = AgentKey("t", "a")
NEW, OLD = make.key("t/a", identity="tmux"), make.key("t/a", identity="process")
SPEC = {"a": 1}


def moving(**options: Any) -> Agent:
    return make.agent("t/a", [make.resource(NEW, SPEC)], **options)


def plan(agent: Agent, live: list[Observation], bases: list[Base], **options: Any) -> Plan:
    policy = {"rollout": {"bake": options.pop("bake", "0s")}}
    return make.plan(make.snapshot([agent], policy), live, bases, **options)


def both(**options: Any) -> tuple[list[Observation], list[Base]]:
    """Old and new, both there and on record."""
    live = [make.live(OLD, SPEC), make.live(NEW, SPEC)]
    return live, [make.base(OLD, SPEC, **options), make.base(NEW, SPEC)]


def allowed(made: Plan) -> list[tuple[str, str]]:
    return [(str(action.verb), action.key.id) for action in made.allowed]


READY: dict[str, Any] = {"ready": frozenset({ME})}


def test_the_old_one_goes_when_the_new_one_is_ready() -> None:
    live, bases = both()
    waiting = plan(moving(), live, bases)
    assert allowed(waiting) == []
    (finding,) = (each for each in waiting.findings if each.code == "HandoverWaits")
    assert finding.summary == "runs on fake until the one on fake is ready"
    assert allowed(plan(moving(), live, bases, **READY)) == [("delete", "process")]


def test_ready_from_before_the_move_does_not_count() -> None:
    made = plan(moving(), [make.live(OLD, SPEC)], [make.base(OLD, SPEC)], **READY)
    assert allowed(made) == [("create", "tmux")]


def test_ready_for_the_bake_and_its_end_is_known() -> None:
    live, bases = both()
    since: dict[str, Any] = {"ready_since": lambda _key: make.NOW - 4, "bake": "10s", **READY}
    early = plan(moving(), live, bases, **since)
    (verdict,) = (each for each in early.verdicts if each.guard == "handover")
    assert (allowed(early), dict(verdict.due_at)) == ([], {OLD: make.NOW + 6})
    assert allowed(plan(moving(), live, bases, **since, now=make.NOW + 6)) == [("delete", "process")]
    back: dict[str, Any] = {**since, "ready_since": lambda _key: make.NOW + 9_999}
    assert allowed(plan(moving(), live, bases, **back)) == [("delete", "process")], "a clock that was set back"


def test_all_that_is_left_waits_and_goes_backwards() -> None:
    live, bases = both()
    config = make.key("t/a", "config", "process")
    live, bases = [*live, make.live(config, SPEC)], [*bases, make.base(config, SPEC)]
    assert allowed(plan(moving(), live, bases)) == []
    made = plan(moving(), live, bases, **READY)
    assert [action.key for action in made.allowed] == [OLD, config]


def test_what_goes_without_a_move_waits_for_nothing() -> None:
    gone = make.key("t/a", "dns", "old.example")
    live, bases = both()
    made = plan(moving(), [live[1], make.live(gone, SPEC)], [bases[1], make.base(gone, SPEC)])
    assert allowed(made) == [("delete", "old.example")]


def test_an_agent_that_is_to_stop_waits_for_nothing() -> None:
    made = plan(make.stopped(moving()), [make.live(OLD, SPEC)], [make.base(OLD, SPEC)])
    assert ("delete", "process") in allowed(made)


def test_one_that_is_gone_is_brought_back_until_the_new_one_is_ready() -> None:
    absent = [make.live(OLD, None, reason="ProcessGone", authoritative=True), make.live(NEW, SPEC)]
    bases = both(established=True)[1]
    assert allowed(plan(moving(), absent, bases)) == [("create", "process")]
    assert allowed(plan(moving(), absent, bases, **READY)) == [("forget", "process")]
    assert allowed(plan(moving(exclusive=True), absent, bases)) == [("forget", "process")]
    assert allowed(plan(moving(), absent, both(established=False)[1])) == [("forget", "process")], "never Ready"


def test_one_that_cannot_be_brought_back_holds_nothing() -> None:
    absent = [make.live(OLD, None, reason="ProcessGone", authoritative=True)]
    bases = [make.base(OLD, SPEC, established=True)]
    tried = {OLD: Attempt(3, make.NOW + 60, "no")}
    made = plan(moving(), absent, bases, attempts=tried)
    assert allowed(made) == [("create", "tmux")]
    assert next((each.key, each.decision) for each in made.actions) == (OLD, Decision.WAIT)


def test_a_move_is_a_loss_until_the_new_one_was_ready_once() -> None:
    names = [f"t/{number}" for number in range(4)]
    agents = [make.agent(name, [make.resource(make.key(name, identity="tmux"), SPEC)]) for name in names]
    old = [make.key(name, identity="process") for name in names]
    new = [make.key(name, identity="tmux") for name in names]
    live = [make.live(each, SPEC) for each in (*old, *new)]
    known = [make.base(each, SPEC, established=True) for each in old]
    for established, blocks in ((False, True), (True, False)):
        bases = [*known, *(make.base(each, SPEC, established=established) for each in new)]
        assert make.plan(make.snapshot(agents), live, bases).blocked is blocks


def test_it_can_be_moved_away_from_a_driver_that_is_down_unless_it_is_exclusive() -> None:
    config = make.key("t/a", "config", "process")
    bases = [replace(make.base(OLD, SPEC, established=True), driver="down")]
    bases += [replace(make.base(config, SPEC), driver="files")]
    blind: dict[str, Any] = {"unreachable": frozenset({"down"})}
    seen = [replace(make.live(config, SPEC), driver="files")]
    assert allowed(plan(moving(), seen, bases, **blind)) == [("create", "tmux")]
    assert plan(moving(exclusive=True), seen, bases, **blind).actions == ()
    live, known = [*seen, make.live(NEW, SPEC)], [*bases, make.base(NEW, SPEC)]
    assert plan(moving(), live, known, **blind, **READY).actions == (), "what was not seen is not taken for gone"


# -- laws


@dataclass
class Places:
    """Where one agent runs, and what is on record of it."""

    live: set[ResourceKey]
    bases: dict[ResourceKey, Base]
    ready: bool = False
    history: list[set[ResourceKey]] = field(default_factory=list)

    def step(self, agent: Agent) -> Plan:
        """One pass: what is let through is done. It is Ready one pass after what Git wants is there."""
        seen = [make.live(each, SPEC) for each in sorted(self.live)]
        seen += [make.live(each, None, authoritative=True) for each in self.bases if each not in self.live]
        made = plan(agent, seen, list(self.bases.values()), ready=frozenset({ME}) if self.ready else frozenset())
        self.ready = agent.resources[0].key in self.live
        for action in made.allowed:
            self.do(action)
            self.history.append(set(self.live))
        return made

    def do(self, action: Action) -> None:
        if action.verb in (Verb.DELETE, Verb.FORGET):
            self.live.discard(action.key)
            self.bases.pop(action.key, None)
        else:
            self.live.add(action.key)
            self.bases[action.key] = make.base(action.key, SPEC, established=True)


KEYS = [make.key("t/a", identity=name) for name in ("kubernetes@a", "kubernetes@b", "process")]


@given(
    st.sampled_from(KEYS),
    st.sets(st.sampled_from(KEYS)),
    st.lists(st.sampled_from(KEYS), max_size=3),
    st.booleans(),
)
def test_wherever_it_is_it_ends_up_where_git_wants_it(
    first: ResourceKey, lost: set[ResourceKey], then: list[ResourceKey], exclusive: bool
) -> None:
    """Through any moves, each begun before the one before it is over, and any losses on the way."""
    places = Places({first}, {first: make.base(first, SPEC, established=True)}, ready=True)
    wanted = [first, *then]
    for target in wanted:
        agent = make.agent("t/a", [make.resource(target, SPEC)], exclusive=exclusive)
        places.step(agent)
    if not exclusive:
        assert all(places.history), "a moment without it"
    else:
        assert all(len(each) <= 1 for each in places.history), "a moment with two"
    places.live -= lost
    for _ in range(8):
        made = places.step(agent)
    assert (places.live, set(places.bases), made.actions) == ({wanted[-1]}, {wanted[-1]}, ())
