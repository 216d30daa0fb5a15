"""Hypothesis strategies: small fleets in every possible disorder."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gitops_agent.model.agent import Agent, DeletionPolicy, Lifecycle, Mode, Pause
from gitops_agent.model.key import AgentKey, Kind, ResourceKey
from gitops_agent.model.observation import Base, Owner
from gitops_agent.model.snapshot import Snapshot
from tests.plan import make
from tests.plan.simulator import HIDDEN, Thing, World

NAMES = tuple(f"{tenant}/{name}" for tenant in ("acme", "umbrella") for name in ("a", "b", "c"))
KEYS = tuple(make.key(name, kind, "x") for name in NAMES for kind in (Kind.CONFIG, Kind.RUNTIME))
FREE = {"actionsPerMinute": 100_000, "massDelete": {"min": 1000, "ratio": 1.0}}
"""A policy that never holds anything."""

contents = st.fixed_dictionaries(
    {"a": st.sampled_from([1, 2, True]), "list": st.sampled_from([[], ["x"], ["x", "y"]])},
    optional={HIDDEN: st.integers(0, 1), "replicas": st.integers(1, 2)},
)


@st.composite
def agents(draw: st.DrawFn, name: str, others: list[str], *, free: bool) -> Agent:
    """One agent that may depend on the others; a free one has nothing else that makes a guard hold it."""
    lifecycle = draw(st.sampled_from(Lifecycle))
    keys = [key for key in KEYS if str(key.agent) == name] if lifecycle is not Lifecycle.RETIRED else []
    resources = [
        make.resource(
            key,
            draw(contents),
            stopped=lifecycle is Lifecycle.STOPPED and key.kind == Kind.RUNTIME,
            restart_on=draw(st.sampled_from([(), ("a",)])),
        )
        for key in draw(st.permutations(keys))
        if draw(st.booleans())
    ]
    options: dict[str, Any] = {
        "lifecycle": lifecycle,
        "deletion_policy": draw(st.sampled_from(DeletionPolicy)),
        "adopt": draw(st.booleans()),
        "authority": draw(st.sampled_from([(), (("runtime.replicas", "live"),)])),
        "depends_on": tuple(
            map(AgentKey.parse, draw(st.sets(st.sampled_from(others)) if others else st.just(())))
        ),
    }
    if not free:
        options["mode"] = draw(st.sampled_from(Mode))
        options["pause"] = draw(st.sampled_from([None, Pause("x"), Pause("y", make.NOW - 1)]))
    return make.agent(name, resources, **options)


@st.composite
def snapshots(draw: st.DrawFn, *, free: bool = True) -> Snapshot:
    """A fleet as Git declares it; never empty, for an empty one is blocked."""
    names = sorted(draw(st.sets(st.sampled_from(NAMES), min_size=1)))
    policy = FREE
    if not free:
        policy = {"actionsPerMinute": draw(st.integers(1, 6)), "massDelete": {"min": draw(st.integers(1, 4))}}
    # Dependencies only on earlier names: a load refuses cycles.
    return make.snapshot([draw(agents(name, names[:at], free=free)) for at, name in enumerate(names)], policy)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Anything that may be live and on record, whether or not it makes sense together."""
    things: dict[ResourceKey, Thing] = {}
    bases: dict[ResourceKey, Base] = {}
    for key in draw(st.sets(st.sampled_from(KEYS))):
        recorded, seen, record, look = draw(pairs)
        if record is not None:
            stopped, deletion, retained = record
            known = recorded | ({"stopped": True} if stopped else {})
            bases[key] = make.base(key, known, deletion_policy=deletion, retained=retained)
        if look is not None:
            things[key] = Thing(seen, *look)
    return World(things, bases)


pairs = st.tuples(
    contents,
    contents,
    st.none() | st.tuples(st.booleans(), st.sampled_from(DeletionPolicy), st.booleans()),
    st.none() | st.tuples(st.sampled_from([Owner.OURS, Owner.OURS, Owner.NONE, Owner.OTHER]), st.booleans()),
)
