"""A tiny pure world: live objects and our record, a driver that sees part of them, and a perfect apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gitops_agent.model.fields import Fields
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.observation import Base, Observation, Owner
from gitops_agent.model.plan import Action, Plan, Verb
from gitops_agent.model.snapshot import Snapshot
from gitops_agent.plan.build import build
from gitops_agent.plan.context import PlanContext
from tests.plan import make

HIDDEN = "hidden"
"""The field no driver of this world can see."""


@dataclass(frozen=True)
class Thing:
    """One live object. ``suspended`` is a trouble that no field shows."""

    content: Mapping[str, Any]
    owner: Owner = Owner.OURS
    suspended: bool = False


@dataclass(frozen=True)
class World:
    """What is live and what is on record."""

    things: Mapping[ResourceKey, Thing] = field(default_factory=dict)
    bases: Mapping[ResourceKey, Base] = field(default_factory=dict)

    def observe(self) -> list[Observation]:
        """As drivers do: visible fields only, and a reason when they differ from the base or something is off."""
        return [self._look(key, thing) for key, thing in self.things.items()]

    def _look(self, key: ResourceKey, thing: Thing) -> Observation:
        seen = {name: value for name, value in thing.content.items() if name != HIDDEN}
        known = self.bases[key].fields.value if key in self.bases else {}
        edited = any(known[name] != value for name, value in seen.items() if name in known)
        reason = "Suspended" if thing.suspended else "ConfigEdited" if edited else None
        return make.live(key, seen, thing.owner, reason=reason)

    def plan(self, desired: Snapshot, **options: Any) -> Plan:
        """The plan towards a snapshot."""
        options.setdefault("ready", frozenset(desired.agents))
        options.setdefault("now", make.NOW)
        options.setdefault("catalog", make.CATALOG)
        repairs = options.pop("repairs", {})
        options["repairs"] = lambda key: repairs.get(key, ())
        context = PlanContext(snapshot=desired, bases=self.bases, **options)
        return build(desired, self.observe(), context, {})

    def apply(self, plan: Plan) -> World:
        """The world after everything the plan allows was done."""
        things, bases = dict(self.things), dict(self.bases)
        for action in plan.allowed:
            _live_after(action, things)
            _record_after(action, bases, plan.commit)
        return World(things, bases)


def _live_after(action: Action, things: dict[ResourceKey, Thing]) -> None:
    if action.verb in (Verb.STOP, Verb.DELETE):
        things.pop(action.key)
    elif action.verb.touches_live:
        assert action.desired is not None
        things[action.key] = Thing(action.desired.value)


def _record_after(action: Action, bases: dict[ResourceKey, Base], commit: str) -> None:
    if action.verb in (Verb.DELETE, Verb.FORGET):
        bases.pop(action.key)
    elif action.verb is Verb.RELEASE:
        bases[action.key] = replace(bases[action.key], retained=True)
    else:
        assert action.desired is not None
        content = action.desired.value
        bases[action.key] = make.base(action.key, content, commit=commit, deletion_policy=action.deletion_policy)


def settled(desired: Snapshot) -> World:
    """The world in which a snapshot is fully applied."""
    things, bases = {}, {}
    for agent in desired.agents.values():
        for resource in agent.resources:
            content = resource.fields.value | ({"stopped": True} if resource.stopped else {})
            bases[resource.key] = make.base(resource.key, content, deletion_policy=agent.deletion_policy)
            if not resource.stopped:
                things[resource.key] = Thing(Fields.of(content).value)
    return World(things, bases)
