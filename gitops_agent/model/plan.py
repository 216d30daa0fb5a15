"""Plan: the frozen value between deciding and doing. Reconcile takes nothing else."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from gitops_agent.model.agent import DeletionPolicy
from gitops_agent.model.fields import Fields, canonical, digest
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.observation import Evidence


class Verb(StrEnum):
    """What an action does. ADOPT, FORGET and RELEASE only touch our own record."""

    CREATE = "create"
    UPDATE = "update"
    RESTART = "restart"
    STOP = "stop"
    DELETE = "delete"
    ADOPT = "adopt"
    FORGET = "forget"
    RELEASE = "release"  # deletionPolicy Retain: the object stays, our claim on it ends

    @property
    def touches_live(self) -> bool:
        """Whether a driver is called."""
        return self not in (Verb.ADOPT, Verb.FORGET, Verb.RELEASE)


class Class(StrEnum):
    """Why live and desired differ: a commit moved (CHANGE), nothing is wrong yet (LAG), or a class of drift."""

    CHANGE = "Change"
    LAG = "Lag"
    MISSING_INTERNAL = "MissingInternal"
    MISSING_EXTERNAL = "MissingExternal"
    CONFLICTING = "Conflicting"
    STUCK_PROGRESS = "StuckProgress"
    UNSAFE_AMBIGUITY = "UnsafeAmbiguity"

    @property
    def is_drift(self) -> bool:
        """Whether something other than a commit made the difference."""
        return self not in (Class.CHANGE, Class.LAG)


class Confidence(StrEnum):
    """How sure we are that acting is right. High repairs, medium asks, low alerts."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Decision(StrEnum):
    """What becomes of an action. Only REPAIR reaches a driver."""

    REPAIR = "repair"
    IMPORT = "import"
    WAIT = "wait"
    ASK = "ask"
    QUARANTINE = "quarantine"
    ALERT = "alert"


@dataclass(frozen=True, slots=True)
class Action:
    """One step for one resource, with the three legs it was decided on.
    ``message`` is for people and never steers. ``patch`` is the RFC 6902 difference from what is (live, or base
    where live does not show the field) to what is desired. ``instances``: the copies of an agent that are not
    well, where it has several: those that a restart is for, or that a driver may replace first."""

    key: ResourceKey
    driver: str
    verb: Verb
    drift_class: Class
    reason: str
    message: str
    confidence: Confidence
    decision: Decision
    base: Fields | None = None
    desired: Fields | None = None
    live: Fields | None = None
    patch: tuple[Mapping[str, Any], ...] = ()
    handle: Fields | None = None
    deletion_policy: DeletionPolicy = DeletionPolicy.DELETE
    idempotent: bool = True
    evidence: tuple[Evidence, ...] = ()
    instances: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """What an approval is bound to: verb, resource, and the hashes of base, desired and live fields."""
        three_way = (self.base, self.desired, self.live)
        hashes = [None if fields is None else fields.digest for fields in three_way]
        return digest(canonical([self.verb, str(self.key), *hashes]))


def plan_digest(actions: Iterable[Action]) -> str:
    """The digest of a plan, whatever its order: the same work has the same digest whenever it is planned."""
    return digest("\n".join(sorted(action.digest for action in actions)).encode())


class Effect(StrEnum):
    """What a guard did: let the plan pass, hold some actions, or hold everything a commit asked for."""

    PASS = "pass"  # noqa: S105 - a verb, not a password
    TRIM = "trim"
    BLOCK = "block"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of one guard: which resources it holds, and the finding that says why and how to release.
    ``for_people``: what it holds is released by people alone; otherwise by time, or when another agent is Ready.
    ``freeze``: the scope in which acting should stop until people have looked. ``decision``: what becomes of the
    actions it holds. ``due_at``: when time releases what it holds, by resource, where that is known."""

    guard: str
    effect: Effect
    held: frozenset[ResourceKey] = frozenset()
    findings: tuple[Finding, ...] = ()
    for_people: bool = False
    freeze: str = ""
    decision: Decision = Decision.WAIT
    due_at: Mapping[ResourceKey, float] = field(default_factory=dict)


class Where(NamedTuple):
    """Where an object is, in words that people know. ``system``: which live system, such as the address of a
    cluster; ``namespace``: the part of it; "" where it has none."""

    system: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Ordered actions, the verdicts of guards on them, and the digest an approval is bound to.
    The digest covers the canonical actions before any guard: no sha, time, pid, finding or verdict is in it.
    ``where``: where the objects of actions are, for people, as far as their drivers say so."""

    commit: str
    actions: tuple[Action, ...]
    digest: str
    verdicts: tuple[Verdict, ...] = ()
    findings: tuple[Finding, ...] = ()
    held: frozenset[ResourceKey] = field(default=frozenset())
    where: Mapping[ResourceKey, Where] = field(default_factory=dict)

    @property
    def blocked(self) -> bool:
        """Whether a guard stops the commit as a whole."""
        return any(verdict.effect is Effect.BLOCK for verdict in self.verdicts)

    @property
    def allowed(self) -> tuple[Action, ...]:
        """The actions reconcile may execute, in order."""
        return tuple(
            action for action in self.actions if action.decision is Decision.REPAIR and action.key not in self.held
        )
