"""Catalog: what the installed drivers add to our vocabulary, as data: kinds of resources, and reason codes.

The plan reads it and knows no driver. Codes of core itself are in ``plan/reasons.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from gitops_agent.model.fields import Fields
from gitops_agent.model.key import Kind
from gitops_agent.model.plan import Class, Decision


class Repair(StrEnum):
    """How an object with some reason is brought back: in place, or by a restart."""

    UPDATE = "update"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Reason:
    """What a reason code means to the plan. ``drift``: its class. ``explained``: a host or a node went away, so it
    is not counted as mass drift, and comes back at a bounded rate. ``about_fields``: it says no more than that
    some field differs from what was applied. ``cross_check``: a live agent may be stuck by it, so probes and
    heartbeats are asked as well before it is repaired. ``decision``: what follows with high confidence.
    ``way_out``: what people can do where it is not repaired by itself; "" for what holds for that decision."""

    text: str
    drift: Class = Class.CONFLICTING
    repair: Repair = Repair.UPDATE
    explained: bool = False
    about_fields: bool = False
    cross_check: bool = False
    decision: Decision = Decision.REPAIR
    way_out: str = ""

    @property
    def restarts(self) -> bool:
        """Whether an object with this reason has to be restarted."""
        return self.repair is Repair.RESTART


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A kind of resource. ``position``: its place in bring-up; teardown runs backwards. ``section``: where its
    fields are written in a document, as a path; None when no one place holds them."""

    name: str
    position: float
    section: tuple[str, ...] | None = None


ENTITLEMENT = ResourceKind(Kind.ENTITLEMENT, 10, ("spec", "entitlement"))
CREDENTIAL = ResourceKind(Kind.CREDENTIAL, 20)
CONFIG = ResourceKind(Kind.CONFIG, 30, ("spec",))
RUNTIME = ResourceKind(Kind.RUNTIME, 40, ("spec", "runtime"))
DNS = ResourceKind(Kind.DNS, 50)
CHANNEL = ResourceKind(Kind.CHANNEL, 60)
HOOK = ResourceKind(Kind.HOOK, 70)
BUILT_IN_KINDS = (ENTITLEMENT, CREDENTIAL, CONFIG, RUNTIME, DNS, CHANNEL, HOOK)
_UNKNOWN = ResourceKind("", 100)
"""A kind that no installed driver knows comes up last: what an uninstalled one left on record."""


PLACE = "@"


def plugin_name(driver: str) -> str:
    """The name of the plugin behind a driver. A driver that serves several live systems of one sort carries the
    place of each in its name (``remote@south``): what is unreachable, slow or failing is one place alone."""
    return driver.partition(PLACE)[0]


def place_of(driver: str) -> str:
    """Which of its live systems a driver's name means; "" for the only one, or the default."""
    return driver.partition(PLACE)[2]


def driver_at(plugin: str, place: str) -> str:
    """The name of the driver of a plugin at some place; "" is the default."""
    return f"{plugin}{PLACE}{place}" if place else plugin


@dataclass(frozen=True)
class Catalog:
    """The reasons by plugin and code, the kinds by name, and by plugin the field of a runtime that says how many
    copies of an agent are to run."""

    reasons: Mapping[tuple[str, str], Reason] = field(default_factory=dict)
    kinds: Mapping[str, ResourceKind] = field(default_factory=lambda: {k.name: k for k in BUILT_IN_KINDS})
    instance_fields: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def explained(self) -> frozenset[str]:
        """The codes that explain an absence: a host or a node went away."""
        return frozenset(code for (_, code), reason in self.reasons.items() if reason.explained)

    @cached_property
    def absent(self) -> frozenset[str]:
        """The codes that say that an object is gone."""
        return frozenset(code for (_, code), each in self.reasons.items() if each.drift is Class.MISSING_EXTERNAL)

    def reason(self, driver: str, code: str) -> Reason | None:
        """What a code means in the terms of a driver; None when it has no such code."""
        return self.reasons.get((plugin_name(driver), code))

    def instance_field(self, driver: str) -> str:
        """The field of a driver's runtimes that says how many copies are to run; "" when none does."""
        return self.instance_fields.get(plugin_name(driver), "")

    def instances(self, driver: str, fields: Fields) -> int:
        """How many copies of an agent the fields of a runtime ask for; one where its driver does not say."""
        count = fields.value.get(self.instance_field(driver), 1)
        return count if type(count) is int and count >= 0 else 1

    def position(self, kind: str) -> float:
        """The place of a kind in bring-up."""
        return self.kinds.get(kind, _UNKNOWN).position

    def section(self, kind: str) -> tuple[str, ...] | None:
        """The path in a document below which the fields of a kind are written; None when there is none."""
        return self.kinds.get(kind, _UNKNOWN).section


BUILT_IN = Catalog()
