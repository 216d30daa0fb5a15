"""Observation and base: what a driver saw, and what we last applied. The other two legs of the comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gitops_agent.model.agent import DeletionPolicy
from gitops_agent.model.fields import Fields
from gitops_agent.model.key import ResourceKey

EMPTY = Fields(b"{}")


class Owner(StrEnum):
    """Whose mark a live object carries."""

    OURS = "Ours"
    OTHER = "Other"  # marked by another instance
    NONE = "None"  # no mark at all


@dataclass(frozen=True, slots=True)
class Evidence:
    """Which source said what, and when."""

    source: str
    said: str
    at: float


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What an agent last said of itself: when, which turn, which tool calls are still open."""

    at: float
    turn: int | None = None
    pending: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """One live object, or (``fields`` is None) its absence.

    ``fields`` holds only the top-level fields the driver can see, normalised as in the desired resource; the
    comparison is projected on them. ``state`` is one word for people (Running, Missing, Suspended …).
    ``reason`` is the driver's own reason code when live is not as it should be (``ProcessGone``,
    ``MemoryLimit``, ``HostRestarted`` …). ``live`` is JSON for status output; ``facts`` is the driver's private
    handle (pids, start times), stored in the base and handed back on the next observation. Runtimes also say
    when their youngest replica started and what the heartbeats say: the position is the number of the replica,
    None stands for one that never wrote one or does not run.
    """

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
    started_at: float | None = None
    heartbeats: tuple[Heartbeat | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Base:
    """What we last applied to a resource.

    ``retained``: let go by deletionPolicy, no longer ours to touch. ``established``: it was there when some commit
    converged, so taking it away is a loss and not the undoing of a failed creation.
    """

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
