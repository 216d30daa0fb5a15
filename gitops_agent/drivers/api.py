"""Everything a driver imports from us: the plugin it offers, the calls it answers, and the values in between.

A driver is one folder and one entry point in the group ``gitops_agent.drivers`` that names its ``Plugin``. It
imports this module and nothing else of ours (those for processes of this host also ``drivers.local``).
``docs/drivers.md`` teaches it on an example.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, cast

from pydantic import BaseModel

from gitops_agent.errors import ApplyError, EffectSpent, NotYet, ObserveError
from gitops_agent.model.agent import Resource
from gitops_agent.model.bundle import compile_bundle
from gitops_agent.model.catalog import (
    BUILT_IN_KINDS,
    CHANNEL,
    CONFIG,
    CREDENTIAL,
    DNS,
    ENTITLEMENT,
    HOOK,
    RUNTIME,
    Catalog,
    Reason,
    Repair,
    ResourceKind,
)
from gitops_agent.model.document import AgentDocument, CredentialPoolSpec
from gitops_agent.model.fields import JSON, Fields
from gitops_agent.model.health import HEALTHY, Evidence, Health, HealthState
from gitops_agent.model.health_spec import health_fields
from gitops_agent.model.key import AgentKey, Kind, ResourceKey, Scope
from gitops_agent.model.observation import EMPTY, AgentInstance, Base, Heartbeat, Observation, Owner
from gitops_agent.model.outcome import Applied
from gitops_agent.model.plan import Action, Class, Verb
from gitops_agent.model.quantity import iso, memory_bytes, seconds
from gitops_agent.model.strict import Strict
from gitops_agent.ports import Clock
from gitops_agent.support.secrets import Redactor

# What an entry point names
__all__ = ["Catalog", "CheckResult", "Class", "Clock", "Context", "Plugin", "Reason", "Redactor", "Repair"]
__all__ += ["OBSERVE_TIMEOUT_SECONDS", "ResourceKind"]
__all__ += ["BUILT_IN_KINDS", "CHANNEL", "CONFIG", "CREDENTIAL", "DNS", "ENTITLEMENT", "HOOK", "RUNTIME", "Kind"]
# The pure part
__all__ += ["JSON", "AgentDocument", "AgentKey", "Compilation", "Fields", "Refused", "Resource", "ResourceKey"]
__all__ += ["CredentialPoolSpec", "Strict", "health_fields", "iso", "memory_bytes", "seconds"]
# The live part
__all__ += ["EMPTY", "AgentInstance", "Base", "Evidence", "Observation", "ObserveError", "ObserveRequest"]
__all__ += ["HEALTHY", "Action", "Driver", "Health", "HealthState", "Heartbeat", "Owner", "Scope", "Verb"]
__all__ += ["Applied", "ApplyError", "EffectSpent", "NotYet"]
# Capabilities
__all__ += ["AS_IT_RUNS", "Closing", "ExecResult", "Executing", "Hiding", "Leasing", "LogLine", "Logging", "RunAs"]
__all__ += ["Notify", "Prechecking", "Watching", "has", "is_unchanged"]


# -- the pure part: what a document asks for


class Refused(ValueError):
    """Raised by ``compile``: the document cannot be carried out by this driver, in one sentence.
    ``at``: the path of the field below ``spec`` that is to blame, such as ``("runtime", "image")``. ``more``: what
    else is refused about it, so that people get every reason at once."""

    def __init__(self, message: str, at: tuple[str | int, ...] = (), more: Sequence["Refused"] = ()) -> None:
        super().__init__(message)
        self.at = at
        self.more = tuple(more)


@dataclass(frozen=True)
class Compilation:
    """One document to compile, with what it refers to.
    ``options``: the validated ``spec.runtime.<name>`` or ``spec.<section>`` of this plugin; None when the document
    has none. ``pools``: the credential pools of the repository that the document names. ``runtime``: the plugin
    that the document names as ``runtime.driver``, if it is installed."""

    agent: AgentKey
    document: AgentDocument
    options: BaseModel | None = None
    pools: Mapping[str, CredentialPoolSpec] = field(default_factory=dict)
    runtime: "Plugin | None" = None

    @cached_property
    def run_as(self) -> Mapping[str, JSON]:
        """What the runtime needs to run a command as the agent (``Plugin.run_as``), with its driver's name."""
        own = self.runtime.run_as(self.document) if self.runtime is not None and self.runtime.run_as else {}
        return {"driver": self.document.spec.runtime.driver, **own}

    @cached_property
    def bundle(self) -> Fields:
        """What the brain of the agent needs: model, instructions, tools, MCP servers, limits."""
        return compile_bundle(self.agent, self.document)


# -- the live part: what is there, and making it so


@dataclass(frozen=True, slots=True)
class ObserveRequest:
    """What to look for. ``scope``: some agents, or (None) everything of ours, orphans too.
    ``bases``: what we last applied, ``claims``: what is desired and was never applied, so that something foreign
    may stand in its place. Both hold resources of this driver and scope only."""

    scope: Scope = None
    bases: Mapping[ResourceKey, Base] = field(default_factory=dict)
    claims: Mapping[ResourceKey, Resource] = field(default_factory=dict)


class Driver(Protocol):
    """One connected live system. These two are the contract; the capabilities below are optional."""

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        """Every object of ours in scope, the absence of those on record, and what stands in the way of a claim.
        Complete, or ObserveError: what is not returned does not exist."""

    def apply(self, action: Action, key: str) -> Applied:
        """Make live equal to ``action.desired``, idempotently under ``key``; ApplyError otherwise, NotYet when
        nothing was done because something else is to happen first: that is no repair, and is tried again."""


class Prechecking(Protocol):
    """A cheap look right before an action."""

    def unchanged(self, action: Action) -> bool:
        """Whether live is still as ``action.live`` says. Without this capability it is taken to be."""


Notify = Callable[[AgentKey, str], None]
"""Called with an agent and a word for people when something happened to it; from any thread."""


class Watching(Protocol):
    """Events between observations. A missed one costs time, never correctness."""

    def start(self, notify: Notify) -> None:
        """Begin to call ``notify`` from a thread of its own; a second start changes nothing."""

    def stop(self) -> None:
        """End, and wait for the thread."""


class Closing(Protocol):
    """Something to end when we end."""

    def close(self) -> None:
        """End the commands of probes and hooks that are under way, and return at once. Agents live on."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command in an agent's surroundings ended.
    ``started``: it ran at all. ``ended``: it ended by itself, rather than by us when its time was up."""

    ok: bool
    message: str
    started: bool = True
    ended: bool = True


@dataclass(frozen=True, slots=True)
class RunAs:
    """How a command is run. ``runtime``: what ``Plugin.run_as`` made of the document, for an agent that may be
    gone; None: as it runs now. ``env``: variables of ours, added last. ``instance``: which running copy
    (``AgentInstance.id``) it is about; "": any."""

    runtime: Fields | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    instance: str = ""


AS_IT_RUNS = RunAs()


class Executing(Protocol):
    """Commands inside an agent: exec probes and hooks."""

    def exec(self, agent: AgentKey, command: Sequence[str], timeout: float, how: RunAs = AS_IT_RUNS) -> ExecResult:
        """Run it as the agent, for at most ``timeout`` seconds; never raises for what the command does."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of output. ``instance``: which copy of the agent wrote it."""

    instance: str
    text: str


class Logging(Protocol):
    """``gitops-agent logs``."""

    def logs(self, agent: AgentKey, lines: int, *, follow: bool = False) -> Iterator[LogLine]:
        """The last lines of every instance, and with ``follow`` what is added, until the iterator is closed."""


class Hiding(Protocol):
    """Agents whose logs may hold secrets that their driver resolves."""

    def knows_secrets(self, agent: AgentKey) -> bool:
        """Teach ``Context.redactor`` the secrets of an agent that was observed; whether all of them are known."""


class Leasing(Protocol):
    """Leases that live with the live system. Without it lock files of the host are used."""

    def claim(self, agents: Collection[AgentKey]) -> Mapping[AgentKey, str]:
        """Take or keep the leases of some agents; for those held by another reconciler, its name in a sentence."""

    def holds(self, agent: AgentKey) -> bool:
        """Whether our lease is still valid (the fence): asked again right before ``apply``."""


# -- what an entry point names


@dataclass(frozen=True, slots=True)
class Context:
    """What a driver of one instance is connected with.
    ``settings``: ``drivers.<name>`` of the settings file, validated by ``Plugin.settings``; None without one.
    ``state_dir``: a folder of this host that drivers of local things may use. ``hook_hosts``: the hosts that HTTP
    hooks may call. ``executing``: the Executing capability of another driver by its name, connected when asked.
    ``redactor``: hides secrets in text. A driver adds each secret that it resolves (``redactor.learn``) and gives
    what agents and live systems say through it; what is in ``Fields`` and handles is kept as it is."""

    instance: str
    state_dir: str
    clock: Clock
    settings: BaseModel | None = None
    hook_hosts: tuple[str, ...] = ()
    executing: Callable[[str], Executing | None] = lambda _name: None
    redactor: Redactor = field(default_factory=Redactor)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of ``gitops-agent doctor``; ``hint``: what to do when it is not ok."""

    name: str
    ok: bool
    message: str
    hint: str = ""


OBSERVE_TIMEOUT_SECONDS = 10.0
"""How long a driver may take to say what is there, unless its plugin says otherwise."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """What an entry point in ``gitops_agent.drivers`` names. Importing it needs no live system.
    ``kinds``: the kinds of resource it makes; one that core does not have is registered by being named here.
    ``compile``: pure, a document in, resources out; Refused when it cannot be. ``connect``: called only by verbs
    that look or act, and only when a document or a record asks for the driver; ObserveError when the live system
    does not answer. ``validate``, ``schema`` and ``status`` never connect.

    ``options`` validates ``spec.runtime.<name>`` (of a runtime) or the section of a new kind. ``settings``
    validates ``drivers.<name>`` in the settings file. ``reasons``: the driver's own reason codes. ``checks``: for
    ``doctor``. ``run_as``: what a command needs to be run as an agent that may be gone, kept with its hooks;
    references only, never a secret. ``local``: connecting and looking is free and needs no peer, so it is observed
    even when nothing asks for it: so orphans are found. ``bundle_file``: its agents run on this host and read
    their bundle from a file. ``observe_timeout``: seconds that one ``observe`` may take; after that the driver is
    unreachable until it answers, and passes go on without it. ``instances``: the
    top-level field of its runtimes that says how many copies of an agent are to run, so that guards count what a
    commit takes away; "": always one."""

    name: str
    kinds: tuple[ResourceKind, ...]
    compile: Callable[[Compilation], Sequence[Resource]]
    connect: Callable[[Context], Driver]
    options: type[BaseModel] | None = None
    settings: type[BaseModel] | None = None
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    checks: Sequence[Callable[[Context], CheckResult]] = ()
    run_as: Callable[[AgentDocument], Mapping[str, JSON]] | None = None
    local: bool = False
    bundle_file: bool = False
    observe_timeout: float = OBSERVE_TIMEOUT_SECONDS
    instances: str = ""

    @property
    def is_runtime(self) -> bool:
        """Whether documents name it as ``runtime.driver``."""
        return RUNTIME in self.kinds


# -- capabilities, asked for in one place


def has(driver: Driver, method: str) -> bool:
    """Whether a driver has the capability that a method belongs to."""
    # By attribute, not by isinstance, so that wrappers may delegate.
    return callable(getattr(driver, method, None))


def is_unchanged(driver: Driver, action: Action) -> bool:
    """Whether live is still as the action says, as far as the driver can tell."""
    return not has(driver, "unchanged") or cast("Prechecking", driver).unchanged(action)
