"""ThreeWay: base, desired and live of one resource side by side, and the views of them that are compared."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gitops_agent.model.agent import Agent, FieldPath, Resource, live_paths, with_live_values
from gitops_agent.model.catalog import BUILT_IN, Catalog, Reason
from gitops_agent.model.fields import Fields, canonical
from gitops_agent.model.health_spec import STOPPED
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.observation import Base, Observation, Owner
from gitops_agent.plan.reasons import meaning_of

Value = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ThreeWay:
    """The three legs of one resource; ``agent`` is None once its document has left Git.
    ``catalog`` says what the reasons of drivers mean. ``is_kept``: Git wants it elsewhere, and what is desired is
    what was last applied (``plan/handover.py``)."""

    key: ResourceKey
    agent: Agent | None
    desired: Resource | None
    base: Base | None
    live: Observation | None
    catalog: Catalog = BUILT_IN
    is_kept: bool = False

    @property
    def present(self) -> bool:
        """Whether something is there in the live system."""
        return self.live is not None and self.live.fields is not None

    @property
    def is_ours(self) -> bool:
        """Whether we may treat the live object as our own: it is marked so, or Git says to adopt it."""
        assert self.live is not None
        if self.live.owner is Owner.NONE:
            return self.agent is not None and self.agent.adopt
        return self.live.owner is Owner.OURS

    @property
    def effective_base(self) -> Base | None:
        """The base as the comparison may use it: a claim we gave up says nothing about a new one."""
        return None if self.base is None or (self.base.retained and self.desired is not None) else self.base

    @property
    def live_fields(self) -> Fields | None:
        """The live fields, None when nothing is there."""
        return self.live.fields if self.live is not None else None

    @property
    def target_fields(self) -> Fields | None:
        """What we want on record and in the live system, with what live decides taken from live."""
        if self.desired is None:
            return None
        paths = live_paths(self.agent, self.key.kind)
        if not paths and not self.desired.stopped:
            return self.desired.fields
        value = self.desired.fields.value
        # What is started again begins as Git says: of a stopped one live shows no more than that it is.
        was_stopped = self.base is not None and self.base.fields.value.get(STOPPED) is True
        if self.live_fields is not None and not was_stopped:
            value = with_live_values(value, self.live_fields.value, paths)
        if self.desired.stopped:
            value[STOPPED] = True
        return Fields.of(value)

    @property
    def reason(self) -> Reason | None:
        """What the driver's reason means; None when it gives none, or one that no plugin explains."""
        return self.reason_of(self.live.reason) if self.live is not None else None

    def reason_of(self, code: str | None) -> Reason | None:
        """What a reason code means for this resource, in the terms of its driver or of core."""
        leg = self.live or self.desired or self.base
        return meaning_of(self.catalog, leg.driver if leg is not None else "", code)


def drop(value: Value, paths: Iterable[FieldPath]) -> Value:
    """Remove the fields at some paths, in place; missing ones are fine."""
    for *parents, name in paths:
        parent: Any = value
        for step in parents:
            parent = parent.get(step) if isinstance(parent, dict) else None
        if isinstance(parent, dict):
            parent.pop(name, None)
    return value


def same(left: object, right: object) -> bool:
    """Equality of JSON values: unlike in Python, 1, 1.0 and true differ."""
    return left == right and (type(left) is type(right) is str or canonical(left) == canonical(right))


def differing(left: Mapping[str, Any], right: Mapping[str, Any]) -> frozenset[str]:
    """The top-level fields in which two objects differ, missing ones included."""
    changed = (name for name in left.keys() & right.keys() if not same(left[name], right[name]))
    return frozenset(left.keys() ^ right.keys()).union(changed)
