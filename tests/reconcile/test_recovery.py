"""What a crash left open is settled by looking: Done when it shows, tried again when harmless, else for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_agent.journal.store import SqlJournal
from gitops_agent.model.agent import DeletionPolicy
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import AgentInstance, Base, Observation, Owner
from gitops_agent.model.outcome import Intent, Result
from gitops_agent.model.passes import Now, Observed
from gitops_agent.model.plan import Plan, Verb
from gitops_agent.reconcile.recovery import Recovery, settle_intents
from tests.journal import values
from tests.journal.values import RUNTIME, SHA, WANTED, a_base, an_action, an_intent, an_observation
from tests.plan import make

pytestmark = pytest.mark.unit
OTHER = Fields.of({"command": ["other"], "replicas": 1})
NOW = 40.0


def result_of(intent: Intent, seen: Observation | None) -> Result | None:
    outcomes, _, _ = settle_intents([intent], {} if seen is None else {seen.key: seen}, NOW, {})
    assert len(outcomes) <= 1
    return outcomes[0].result if outcomes else None


ABSENT = an_observation(fields=None, owner=Owner.NONE, state="Missing", reason="ProcessGone")


@pytest.mark.parametrize(
    ("verb", "seen", "expected"),
    [
        (Verb.CREATE, an_observation(), Result.DONE),
        (Verb.CREATE, an_observation(fields=OTHER), None),
        (Verb.CREATE, an_observation(owner=Owner.OTHER), None),
        (Verb.CREATE, an_observation(owner=Owner.NONE), None),
        (Verb.CREATE, ABSENT, None),
        (Verb.CREATE, None, None),
        (Verb.UPDATE, an_observation(), Result.DONE),
        (Verb.UPDATE, an_observation(fields=OTHER), None),
        (Verb.DELETE, None, Result.DONE),
        (Verb.DELETE, ABSENT, Result.DONE),
        (Verb.DELETE, an_observation(owner=Owner.OTHER), Result.DONE),
        (Verb.DELETE, an_observation(), None),
        (Verb.STOP, None, Result.DONE),
        (Verb.STOP, an_observation(), None),
        (Verb.ADOPT, an_observation(), Result.DONE),
        (Verb.ADOPT, an_observation(fields=OTHER), Result.SKIPPED),
        (Verb.FORGET, None, Result.DONE),
        (Verb.FORGET, an_observation(), Result.SKIPPED),
        (Verb.RELEASE, an_observation(), Result.DONE),
    ],
)
def test_the_table(verb: Verb, seen: Observation | None, expected: Result | None) -> None:
    action = an_action(verb=verb, base=OTHER)
    assert result_of(an_intent(action=action), seen) is expected
    # What cannot be repeated is not: undecided becomes Unknown, and everything else stays as it was.
    once = an_intent(action=replace(action, idempotent=False))
    assert result_of(once, seen) is (Result.UNKNOWN if expected is None else expected)


@pytest.mark.parametrize(
    ("base", "expected"), [(None, None), (WANTED, None), (OTHER, Result.DONE)], ids=["new", "repair", "change"]
)
@pytest.mark.parametrize("verb", [Verb.CREATE, Verb.RESTART, Verb.UPDATE])
def test_what_a_driver_objects_to_counts_unless_our_record_is_what_is_behind(
    verb: Verb, base: Fields | None, expected: Result | None
) -> None:
    """The process driver says SpecDiffers of a replica that already runs the spec we were about to record."""
    action = an_action(verb=verb, base=base, handle=Fields.of({"pid": 7}))
    seen = an_observation(reason="SpecDiffers", handle=Fields.of({"pid": 8}))
    assert result_of(an_intent(action=action), seen) is expected


@pytest.mark.parametrize(
    ("handle", "started_at", "expected"),
    [
        (Fields.of({"pid": 7}), 19.0, None),
        (Fields.of({"pid": 8}), 19.0, Result.DONE),
        (Fields.of({"pid": 7}), 20.0, Result.DONE),
        (Fields.of({"pid": 7}), None, None),
    ],
)
def test_equal_fields_do_not_show_a_restart(
    handle: Fields, started_at: float | None, expected: Result | None
) -> None:
    action = an_action(verb=Verb.RESTART, live=WANTED, base=WANTED, handle=Fields.of({"pid": 7}))
    seen = an_observation(handle=handle, instances=(AgentInstance("7", started_at),))
    assert result_of(an_intent(action=action, at=20.0), seen) is expected


def test_what_the_driver_cannot_see_is_not_assumed() -> None:
    """An update of a hidden field leaves no trace: it must be applied again."""
    before, wanted = Fields.of({"shown": 1, "hidden": 1}), Fields.of({"shown": 1, "hidden": 2})
    seen = an_observation(fields=Fields.of({"shown": 1}))
    assert result_of(an_intent(action=an_action(verb=Verb.UPDATE, base=before, desired=wanted)), seen) is None
    both = Fields.of({"shown": 2, "hidden": 1})
    shown = an_observation(fields=Fields.of({"shown": 2}))
    update = an_action(verb=Verb.UPDATE, base=before, desired=both)
    assert result_of(an_intent(action=update), shown) is Result.DONE
    # What makes the thing anew applies all of it.
    create = an_action(verb=Verb.CREATE, base=before, desired=wanted)
    assert result_of(an_intent(action=create), seen) is Result.DONE


def test_fields_that_are_not_ours_do_not_count() -> None:
    seen = an_observation(fields=Fields.of({**WANTED.value, "uptime": 3}))
    assert result_of(an_intent(), seen) is Result.DONE
    removed = an_action(verb=Verb.UPDATE, base=Fields.of({**WANTED.value, "uptime": 3}))
    assert result_of(an_intent(action=removed), seen) is None


def test_one_is_not_true() -> None:
    action = an_action(desired=Fields.of({"flag": 1}))
    assert result_of(an_intent(action=action), an_observation(fields=Fields.of({"flag": True}))) is None


def test_a_settled_intent_brings_the_record_up_to_date() -> None:
    action = an_action(deletion_policy=DeletionPolicy.RETAIN, idempotent=False)
    outcomes, bases, forgotten = settle_intents(
        [an_intent(action=action)], {RUNTIME: an_observation(handle=Fields.of({"pid": 9}))}, NOW, {}
    )
    expected = Base(
        RUNTIME,
        "memory",
        WANTED,
        SHA,
        NOW,
        DeletionPolicy.RETAIN,
        idempotent=False,
        handle=Fields.of({"pid": 9}),
        established=False,
    )
    assert (bases, forgotten) == ([expected], [])
    assert [(item.intent, item.result, item.at, item.duration) for item in outcomes] == [
        ("i1", Result.DONE, NOW, 0.0)
    ]


def test_a_settled_repair_keeps_the_commit_it_repaired() -> None:
    old = a_base(commit="earlier", applied_at=5.0)
    repair = an_intent(action=an_action(base=WANTED))
    _, (base,), _ = settle_intents([repair], {RUNTIME: an_observation()}, NOW, {RUNTIME: old})
    assert (base.commit, base.applied_at) == ("earlier", 5.0)


def test_a_deleted_resource_is_forgotten_and_a_stopped_one_is_not() -> None:
    delete = an_intent(action=an_action(verb=Verb.DELETE, desired=None, base=WANTED))
    assert settle_intents([delete], {}, NOW, {})[1:] == ([], [RUNTIME])
    stopped = Fields.of({**WANTED.value, "stopped": True})
    stop = an_intent(action=an_action(verb=Verb.STOP, desired=stopped, base=WANTED))
    _, (base,), forgotten = settle_intents([stop], {}, NOW, {})
    assert (base.fields, forgotten) == (stopped, [])


def test_a_released_resource_is_retained() -> None:
    release = an_intent(action=an_action(verb=Verb.RELEASE, desired=None, base=WANTED))
    _, (base,), _ = settle_intents([release], {RUNTIME: an_observation()}, NOW, {})
    assert (base.fields, base.retained) == (WANTED, True)


observed = st.lists(values.observations, max_size=3)


@given(intents=st.lists(values.intents, max_size=3, unique_by=lambda item: item.id), seen=observed)
def test_whatever_is_found_the_answer_is_consistent(intents: list[Intent], seen: list[Observation]) -> None:
    # Half of the observations are about what the intents are about.
    keyed = [replace(o, key=i.action.key) for o, i in zip(seen, intents, strict=False)]
    live = {observation.key: observation for observation in [*seen, *keyed]}
    outcomes, bases, forgotten = settle_intents(intents, live, NOW, {})
    known = {intent.id: intent for intent in intents}
    assert len({outcome.intent for outcome in outcomes}) == len(outcomes)
    assert {outcome.intent for outcome in outcomes} <= known.keys()
    assert not {base.key for base in bases} & set(forgotten)
    done = {known[item.intent].action.key for item in outcomes if item.result in (Result.DONE, Result.UNKNOWN)}
    assert {base.key for base in bases} | set(forgotten) <= done
    left = [intent for intent in intents if intent.id not in {item.intent for item in outcomes}]
    assert all(intent.action.idempotent and intent.action.verb.touches_live for intent in left)
    assert settle_intents(left, live, NOW, {}) == ([], [], [])


# -- any prefix of a journal replays safely

Targets = list[tuple[ResourceKey, Fields | None]]
KEYS = [ResourceKey(AgentKey("acme", name), "runtime", "main") for name in ("one", "two")]
targets = st.lists(
    st.tuples(
        st.sampled_from(KEYS), st.none() | st.integers(0, 2).map(lambda number: Fields.of({"number": number}))
    ),
    max_size=6,
)


@dataclass
class Fleet:
    """A journal and a live system, worked on in steps between which one may die."""

    live: dict[ResourceKey, Fields] = field(default_factory=dict)
    bases: dict[ResourceKey, Base] = field(default_factory=dict)
    open: dict[str, Intent] = field(default_factory=dict)
    effects: list[Any] = field(default_factory=list)
    begun: int = 0

    def converge(self, wanted: Targets) -> Iterator[None]:
        """Intent, effect, outcome for each target in turn; a yield is a moment to die at."""
        for key, desired in wanted:
            base, was = self.bases.get(key), self.live.get(key)
            if was == desired and (base.fields if base else None) == desired:
                continue
            verb = Verb.DELETE if desired is None else Verb.UPDATE if was is not None else Verb.CREATE
            known = base.fields if base else None
            self.begun += 1
            intent = an_intent(f"i{self.begun}", an_action(key, verb, desired=desired, base=known, live=was))
            self.open[intent.id] = intent
            yield
            self.live.pop(key, None)
            if desired is not None:
                self.live[key] = desired
            self.effects.append((key, desired))
            yield
            del self.open[intent.id]
            self.bases.pop(key, None)
            if desired is not None:
                self.bases[key] = a_base(key, desired)
            yield

    def restart(self) -> None:
        seen = {key: an_observation(key, fields=fields) for key, fields in self.live.items()}
        outcomes, bases, forgotten = settle_intents(list(self.open.values()), seen, NOW, self.bases)
        for outcome in outcomes:
            del self.open[outcome.intent]
        self.bases.update((base.key, base) for base in bases)
        for key in forgotten:
            self.bases.pop(key, None)

    @property
    def record(self) -> dict[ResourceKey, Fields]:
        return {key: base.fields for key, base in self.bases.items()}


def die_after(steps: Iterator[None], count: int) -> None:
    """Take some steps and no more."""
    for _ in zip(range(count), steps, strict=False):
        pass


@given(wanted=targets, moment=st.integers(0, 20))
def test_any_prefix_replays_safely(wanted: Targets, moment: int) -> None:
    final = dict(wanted)
    fleet = Fleet()
    die_after(fleet.converge(wanted), moment)
    fleet.restart()
    unsure = {intent.action.key for intent in fleet.open.values()}
    for key in KEYS:
        assert key in unsure or fleet.record.get(key) == fleet.live.get(key)
    for _ in fleet.converge(list(final.items())):
        pass
    assert fleet.live == fleet.record == {key: fields for key, fields in final.items() if fields is not None}


@given(wanted=targets, moment=st.integers(0, 20))
def test_no_effect_happens_twice(wanted: Targets, moment: int) -> None:
    final = list(dict(wanted).items())
    fleet = Fleet()
    die_after(fleet.converge(final), moment)
    fleet.restart()
    for _ in fleet.converge(final):
        pass
    assert len(fleet.effects) == len(set(fleet.effects))


def test_what_this_process_has_begun_is_its_own_while_a_crash_is_still_looked_into(journal: SqlJournal) -> None:
    """What was left of an agent that cannot be looked at stays open, so recovery goes on. An action that runs
    meanwhile is not interrupted: it has its intent until it ends."""
    hidden, other = (ResourceKey(AgentKey("acme", name), RUNTIME.kind, RUNTIME.id) for name in ("hidden", "slow"))
    left, running = (replace(an_intent(), id=str(key), action=an_action(key=key)) for key in (hidden, other))
    recovery, observed = Recovery(journal), Observed({}, {}, {hidden: "no right to look"})
    journal.begin([left])
    for _ in range(2):
        state = recovery.settle(journal.state(), observed, Now(NOW, NOW, NOW))
        context = make.context(make.snapshot(()), unseen=observed.unseen_agents)
        recovery.close_unwanted(state, Plan(SHA, (), "digest"), context, Now(NOW, NOW, NOW))
        journal.begin([running])
    assert not recovery.finished
    assert journal.state().reconcile.open_intents.keys() == {left.id, running.id}
