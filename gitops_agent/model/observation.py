"""Observation and base: what a driver saw, and what we last applied. The other two legs of the comparison."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from gitops_agent.model.agent import DeletionPolicy
from gitops_agent.model.fields import Fields
from gitops_agent.model.health import Evidence as Evidence
from gitops_agent.model.health import Health
from gitops_agent.model.key import ResourceKey

EMPTY = Fields(b"{}")


class Owner(StrEnum):
    """Whose mark a live object carries."""

    OURS = "Ours"
    OTHER = "Other"  # marked by another instance
    NONE = "None"  # no mark at all


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What an agent last wrote of itself: when, in which turn, with which tool calls still open."""

    at: float
    turn: int | None = None
    pending: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentInstance:
    """One running copy of an agent: a process, a pane, a container.
    ``id``: its name for people (a pid, a name). ``started_at``: seconds since the epoch. ``ready``: what the live
    system says of it; None: it says nothing. ``heartbeat``: None when it never wrote one. ``address``: the host
    at which it answers HTTP probes; "" when it cannot be reached from here. ``behind``: it is still to be replaced
    by one that is as applied. ``reason``: the driver's reason code against this copy; where no copy has one, that
    of the observation is about all. ``uid``: of a copy that its live system may replace by itself (it scales, or
    moves it to another node), what tells it from one that takes its place: that it is gone is no exit. Without it,
    a copy that is gone has exited."""

    id: str
    started_at: float | None = None
    ready: bool | None = None
    heartbeat: Heartbeat | None = None
    address: str = ""
    behind: bool = False
    reason: str | None = None
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """One live object, or (``fields`` is None) its absence.

    ``fields`` holds only the top-level fields the driver can see, normalised as in the desired resource; the
    comparison is projected on them. ``state`` is one word for people (Running, Missing, Propagating …).
    ``reason`` is a reason code when live is not as it should be: one of the plugin's own, or one of core's.
    ``live`` is JSON for status output, of which core reads no more than ``listed_instances``; ``handle`` is the
    driver's private handle, stored in the base and handed back with the next request. ``authoritative``: the
    driver cannot be wrong about whether the object exists, so one source is enough. ``health``: how it does, where
    the live system says so; None: core finds out by probes and heartbeats, where there are ``instances``.
    ``address``: where HTTP probes go when the instances have no address of their own. ``extra``: copies beyond
    those that were applied, each with its start: core decides when they may be ended. ``unseen``: why the object
    could not be looked at; then nothing else in here counts, and nothing is concluded about it."""

    key: ResourceKey
    driver: str
    owner: Owner
    fields: Fields | None
    state: str
    observed_at: float
    reason: str | None = None
    message: str = ""
    live: Mapping[str, Any] = field(default_factory=dict)
    handle: Fields = EMPTY
    evidence: tuple[Evidence, ...] = ()
    authoritative: bool = False
    health: Health | None = None
    instances: tuple[AgentInstance, ...] = ()
    address: str = ""
    extra: tuple[AgentInstance, ...] = ()
    unseen: str = ""

    @property
    def started_at(self) -> float | None:
        """When its youngest instance started; None when no instance says so."""
        if len(self.instances) == 1:  # nearly all, and asked of all in every pass
            return self.instances[0].started_at
        return max((each.started_at for each in self.instances if each.started_at is not None), default=None)


def not_looked_at(key: ResourceKey, driver: str, why: str, at: float) -> Observation:
    """The observation that an object could not be looked at, and why: it may be there or not."""
    return Observation(key, driver, Owner.NONE, None, "Unknown", at, unseen=why)


class ListedInstance(NamedTuple):
    """One copy of an agent in ``live``: its name in logs, and its identifier with what that is (a PID, a name)."""

    log: str
    label: str
    id: str


def listed_instances(live: Mapping[str, Any]) -> list[ListedInstance]:
    """The copies that ``live`` lists under ``replicas`` (``docs/drivers.md``): ``index`` is what the logs call
    one, else its position is; the first other key names its identifier."""
    listed = live.get("replicas")
    entries = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    labels = [next((key for key in each if key not in ("index", "state")), "") for each in entries]
    return [
        ListedInstance(str(each.get("index", position)), label, str(each.get(label, "")))
        for position, (each, label) in enumerate(zip(entries, labels, strict=True))
    ]


@dataclass(frozen=True, slots=True)
class Base:
    """What we last applied to a resource.
    ``retained``: let go by deletionPolicy, no longer ours to touch. ``established``: it was there when some commit
    converged, so taking it away is a loss and not the undoing of a failed creation."""

    key: ResourceKey
    driver: str
    fields: Fields
    commit: str
    applied_at: float
    deletion_policy: DeletionPolicy = DeletionPolicy.DELETE
    idempotent: bool = True
    retained: bool = False
    handle: Fields = EMPTY
    established: bool = True
