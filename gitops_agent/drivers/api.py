"""Everything a driver imports from us: the plugin it offers, the calls it answers, and the values in between.

A driver is one folder and one entry point in the group ``gitops_agent.drivers`` that names its ``Plugin``. It
imports this module and nothing else of ours (those for processes of this host also ``drivers.local``).
``docs/drivers.md`` teaches it on an example.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Event
from typing import Protocol, cast

from pydantic import BaseModel

from gitops_agent.errors import ApplyError, EffectSpent, NotYet, ObserveError, UsageError
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
    driver_at,
)
from gitops_agent.model.document import AgentDocument, CredentialPoolSpec
from gitops_agent.model.fields import JSON, Fields
from gitops_agent.model.health import HEALTHY, Evidence, Health, HealthState
from gitops_agent.model.health_spec import health_fields
from gitops_agent.model.heartbeat_text import parse_heartbeat
from gitops_agent.model.key import AgentKey, Kind, ResourceKey, Scope
from gitops_agent.model.observation import (
    EMPTY,
    AgentInstance,
    Base,
    Heartbeat,
    Observation,
    Owner,
    not_looked_at,
)
from gitops_agent.model.outcome import Applied
from gitops_agent.model.plan import Action, Class, Verb, Where
from gitops_agent.model.quantity import iso, memory_bytes, seconds
from gitops_agent.model.strict import Strict
from gitops_agent.ports import Clock
from gitops_agent.support.secrets import Redactor

# What an entry point names
__all__ = ["Catalog", "CheckResult", "Class", "Clock", "Context", "Plugin", "Reason", "Redactor", "Repair"]
__all__ += ["OBSERVE_TIMEOUT_SECONDS", "ResourceKind", "driver_at"]
__all__ += ["BUILT_IN_KINDS", "CHANNEL", "CONFIG", "CREDENTIAL", "DNS", "ENTITLEMENT", "HOOK", "RUNTIME", "Kind"]
# The pure part
__all__ += ["JSON", "AgentDocument", "AgentKey", "Compilation", "Fields", "Refused", "Resource", "ResourceKey"]
__all__ += ["CredentialPoolSpec", "Strict", "health_fields", "iso", "memory_bytes", "seconds"]
# The live part
__all__ += ["EMPTY", "AgentInstance", "Base", "Evidence", "Observation", "ObserveError", "ObserveRequest"]
__all__ += ["HEALTHY", "Action", "Driver", "Health", "HealthState", "Heartbeat", "Owner", "Scope", "Verb"]
__all__ += ["Applied", "ApplyError", "EffectSpent", "NotYet", "UsageError", "not_looked_at", "parse_heartbeat"]
# Capabilities
__all__ += ["AS_IT_RUNS", "Closing", "ExecResult", "Executing", "Hiding", "Leasing", "LogLine", "Logging", "RunAs"]
__all__ += ["Election", "Locating", "Notify", "Prechecking", "Record", "Recording", "Watching", "Where"]
__all__ += ["has", "is_unchanged"]


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
    that the document names as ``runtime.driver``, if it is installed. ``settings``: ``drivers.<name>`` as
    ``Plugin.settings`` validated it; None where documents are checked for an instance whose settings nobody knows.
    They may refuse a document, and change nothing in what is made of it."""

    agent: AgentKey
    document: AgentDocument
    options: BaseModel | None = None
    pools: Mapping[str, CredentialPoolSpec] = field(default_factory=dict)
    runtime: "Plugin | None" = None
    settings: BaseModel | None = None

    @cached_property
    def run_as(self) -> Mapping[str, JSON]:
        """What the runtime needs to run a command as the agent (``Plugin.run_as``), with its driver's name."""
        own = self.runtime.run_as(self.document) if self.runtime is not None and self.runtime.run_as else {}
        # One at another place than the default says so by a ``driver`` of its own.
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
        Complete, or ObserveError: what is not returned does not exist. Where only a part could not be looked at,
        each resource there is ``not_looked_at``: nothing is done to its agent, and the rest goes on."""

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


@dataclass(frozen=True, slots=True)
class Record:
    """One action that ended: what was done or tried, for which commit, and how it ended."""

    action: Action
    commit: str
    ok: bool
    message: str


class Recording(Protocol):
    """A live system that keeps a history of its own, where people look: events of a cluster."""

    def record(self, done: Record) -> None:
        """Hand over what was done; returns at once and never raises, and what cannot be kept is lost."""


class Locating(Protocol):
    """A driver that serves several systems, or one that has parts."""

    def where(self, agent: AgentKey, fields: Fields) -> Where:
        """Where an object of an agent with these fields is or will be, for people; asks nothing of the system."""


class Leasing(Protocol):
    """Leases that live with the live system. Without it lock files of the host are used."""

    def claim(self, agents: Collection[AgentKey]) -> Mapping[AgentKey, str]:
        """Take or keep the leases of some agents; for those held by another reconciler, its name in a sentence."""

    def holds(self, agent: AgentKey) -> bool:
        """Whether our lease is still valid (the fence): asked again right before ``apply``."""


class Election(Protocol):
    """Of several processes of one instance, on several machines, one leads and acts; the others stand by."""

    @property
    def term(self) -> int:
        """Grows with every change of leader; that of this process while it leads."""

    def wait(self, stop: Event, *, patient: bool = True) -> bool:
        """Block until this process leads (True) or ``stop`` is set. ``patient`` off: only until it is certain that
        another one leads and is alive. The lease is then kept by a thread of its own, until it is lost."""

    def leading(self) -> bool:
        """Whether this process leads (the fence): False as soon as another could have taken over. Costs nothing,
        asks nobody, and goes by a clock that counts also while this process or machine is suspended."""

    def holder(self) -> str:
        """Who leads, in words; "" when that is not known."""

    def problem(self) -> str:
        """What keeps this process from knowing who leads, in words; "" when nothing does."""

    def resign(self) -> None:
        """Give up the lease, so that the next one leads at once. Never raises."""


# -- what an entry point names


@dataclass(frozen=True, slots=True)
class Context:
    """What a driver of one instance is connected with.
    ``settings``: ``drivers.<name>`` of the settings file, validated by ``Plugin.settings``; None without one.
    ``state_dir``: a folder of this host that drivers of local things may use. ``hook_hosts``: the hosts that HTTP
    hooks may call. ``executing``: the Executing capability of another driver by its name, connected when asked.
    ``place``: which live system of several is meant, where documents name one (``catalog.driver_at``).
    ``leading``: whether this process may act (the fence of an election), to be asked right before a request that
    changes something leaves; ``term``: of which leadership it does so (``Election.term``), 0 without an election.
    ``redactor``: hides secrets in text. A driver adds each secret that it resolves (``redactor.learn``) and gives
    what agents and live systems say through it; what is in ``Fields`` and handles is kept as it is."""

    instance: str
    state_dir: str
    clock: Clock
    settings: BaseModel | None = None
    hook_hosts: tuple[str, ...] = ()
    executing: Callable[[str], Executing | None] = lambda _name: None
    redactor: Redactor = field(default_factory=Redactor)
    place: str = ""
    leading: Callable[[], bool] = lambda: True
    term: int = 0


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
    ``doctor``, each called for the default place and for every one of ``places``, which settings let documents
    name. ``run_as``: what a command needs to be run as an agent that may be gone, kept with its hooks;
    references only, never a secret. ``local``: connecting and looking is free and needs no peer, so it is observed
    even when nothing asks for it: so orphans are found. ``bundle_file``: its agents run on this host and read
    their bundle from a file. ``observe_timeout``: seconds that one ``observe`` may take; after that the driver is
    unreachable until it answers, and passes go on without it. ``instances``: the
    top-level field of its runtimes that says how many copies of an agent are to run, so that guards count what a
    commit takes away; "": always one. ``elect``: a candidacy under the identity given, kept in this live system,
    for a driver that the setting ``election`` may name; it connects to nothing before it is asked. ``require``:
    raises UsageError when its settings name something that is not there, before ``once`` and ``run`` begin."""

    name: str
    kinds: tuple[ResourceKind, ...]
    compile: Callable[[Compilation], Sequence[Resource]]
    connect: Callable[[Context], Driver]
    options: type[BaseModel] | None = None
    settings: type[BaseModel] | None = None
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    checks: Sequence[Callable[[Context], CheckResult]] = ()
    places: Callable[[Context], Sequence[str]] | None = None
    run_as: Callable[[AgentDocument], Mapping[str, JSON]] | None = None
    local: bool = False
    bundle_file: bool = False
    observe_timeout: float = OBSERVE_TIMEOUT_SECONDS
    instances: str = ""
    elect: "Callable[[Context, str], Election] | None" = None
    require: Callable[[BaseModel], None] | None = None

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
