"""Agent and resource: desired state, compiled from one document.

The authored document (``model/document.py``) is what people write; these are what the later stages need. A
resource carries everything the plan must know about its driver's habits, so that no driver is asked twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gitops_agent.model.fields import Fields
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.quantity import iso


class Lifecycle(StrEnum):
    """What the author wants of the agent as a whole."""

    RUNNING = "Running"
    STOPPED = "Stopped"
    RETIRED = "Retired"


class DeletionPolicy(StrEnum):
    """What happens to live objects when their document leaves Git."""

    DELETE = "Delete"
    RETAIN = "Retain"


class Mode(StrEnum):
    """Observe reports drift, Enforce repairs it."""

    OBSERVE = "Observe"
    ENFORCE = "Enforce"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a document stands in the repository."""

    path: str
    line: int
    blob: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause on one agent: until a moment (None: until the document says otherwise), with its reason."""

    reason: str | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """The desired state of one object in one live system. ``restart_on`` names the top-level fields whose change
    needs a restart rather than an update in place. ``stopped`` says that the agent is not to run: its object is
    absent then, or (``kept``) there as its fields say, such as scaled to zero. ``idempotent`` says that creating
    it again after it vanished is harmless."""

    key: ResourceKey
    driver: str
    fields: Fields
    restart_on: tuple[str, ...] = ()
    stopped: bool = False
    idempotent: bool = True
    kept: bool = False

    @property
    def is_absence(self) -> bool:
        """Whether its absence from the live system is what is desired."""
        return self.stopped and not self.kept


@dataclass(frozen=True, slots=True)
class Agent:
    """One managed agent at one revision, with its resources in bring-up order (none when Retired).
    ``canary``: it would rather be in the first wave of a rollout. ``pause_after_ready``: seconds its wave rests.
    ``abandoned``: why its provisioning was given up; then nothing is desired of it. ``earlier_health``: what was
    asked of its health before, while the wave that asks less of it is on trial. ``exclusive``: when it moves to
    another driver, it never runs in both places."""

    key: AgentKey
    origin: Origin
    resources: tuple[Resource, ...]
    lifecycle: Lifecycle = Lifecycle.RUNNING
    deletion_policy: DeletionPolicy = DeletionPolicy.DELETE
    mode: Mode = Mode.ENFORCE
    pause: Pause | None = None
    adopt: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    depends_on: tuple[AgentKey, ...] = ()
    health_timeout: float = 120.0
    authority: tuple[tuple[str, str], ...] = ()
    description: str = ""
    canary: bool = False
    pause_after_ready: float = 0.0
    abandoned: str = ""
    earlier_health: Fields | None = None
    exclusive: bool = False


def pause_words(pause: Pause) -> str:
    """A pause for people: ``paused until 2030-01-31T18:00:00Z: audit``."""
    until = "until the document says otherwise" if pause.until is None else f"until {iso(pause.until)}"
    return f"paused {until}: {pause.reason or 'no reason given'}"


def hands_off_words(agent: Agent) -> str:
    """Why an agent is not acted on, for people."""
    return "only observed (mode: Observe)" if agent.pause is None else pause_words(agent.pause)


# -- fields that the live system decides (``spec.authority``)

FieldPath = tuple[str, ...]


def live_paths(agent: Agent | None, kind: str) -> tuple[FieldPath, ...]:
    """The fields of a kind of resource that the live system decides (``authority: {runtime.replicas: live}``).
    None while it is stopped: stopped is Git's word."""
    if agent is None or not agent.authority or agent.lifecycle is Lifecycle.STOPPED:
        return ()
    prefix = kind + "."
    return tuple(
        tuple(path.removeprefix(prefix).split("."))
        for path, authority in agent.authority
        if authority == "live" and path.startswith(prefix)
    )


def with_live_values(value: dict[str, Any], live: Mapping[str, Any], paths: Iterable[FieldPath]) -> dict[str, Any]:
    """The value, changed in place: at some paths it has what live shows there."""
    for *parents, name in paths:
        source: Any = live
        for step in parents:
            source = source.get(step) if isinstance(source, dict) else None
        if not isinstance(source, dict) or name not in source:
            continue
        target: Any = value
        for step in parents:
            target = target.setdefault(step, {}) if isinstance(target, dict) else None
        if isinstance(target, dict):
            target[name] = source[name]
    return value
