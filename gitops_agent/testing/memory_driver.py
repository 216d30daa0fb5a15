"""The in-memory driver: a live system that is a dictionary, with helpers to drift it and to make it fail."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from threading import Lock
from typing import Any

from gitops_agent.drivers.api import (
    AS_IT_RUNS,
    CONFIG,
    RUNTIME,
    Action,
    AgentInstance,
    AgentKey,
    Applied,
    ApplyError,
    Base,
    Class,
    Clock,
    Compilation,
    Context,
    Driver,
    Evidence,
    ExecResult,
    Fields,
    Kind,
    Notify,
    Observation,
    ObserveError,
    ObserveRequest,
    Owner,
    Plugin,
    Reason,
    Repair,
    Resource,
    ResourceKey,
    RunAs,
    Verb,
    health_fields,
    not_looked_at,
)
from gitops_agent.testing.clock import FrozenClock

LOOPBACK = "127.0.0.1"
REASONS = {
    "Gone": Reason("It vanished.", Class.MISSING_EXTERNAL),
    "HostRestarted": Reason("Its host was restarted.", Class.MISSING_EXTERNAL, explained=True),
    "Suspended": Reason("It was suspended.", Class.STUCK_PROGRESS, cross_check=True),
    "MemoryLimit": Reason("It used more memory than its limit.", Class.STUCK_PROGRESS, Repair.RESTART),
    "CommandDiffers": Reason("It runs another command.", repair=Repair.RESTART),
    "ReplicaMissing": Reason("Fewer replicas run than desired.", Class.MISSING_EXTERNAL, about_fields=True),
    "ExtraReplica": Reason("More replicas run than desired.", Class.MISSING_INTERNAL, about_fields=True),
}
NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Thing:
    """One live object."""

    fields: Fields
    owner: Owner
    handle: Fields
    started_at: float
    reason: str | None = None
    state: str = "Running"


@dataclass(slots=True)
class Failure:
    """A scripted failure of apply, ``left`` more times."""

    message: str
    permanent: bool
    left: float


def config_key(agent: AgentKey) -> ResourceKey:
    """The name of an agent's config."""
    return ResourceKey(agent, Kind.CONFIG.value, "bundle")


def runtime_key(agent: AgentKey) -> ResourceKey:
    """The name of an agent's runtime."""
    return ResourceKey(agent, Kind.RUNTIME.value, "main")


class MemoryDriver:
    """A whole live system in a dictionary. ``plugin`` gives it as core knows it; connecting gives this very
    object. It outlives a simulated crash of gitops-agent the way a live system does. ``calls`` counts calls,
    ``starts`` how often each thing was made anew, ``ran`` holds the commands that were run."""

    def __init__(self, name: str = "memory", clock: Clock | None = None) -> None:
        self.name = name
        self.clock: Clock = clock or FrozenClock()
        self.live: dict[ResourceKey, Thing] = {}
        self.calls: Counter[str] = Counter()
        self.starts: Counter[ResourceKey] = Counter()
        self.applied: list[tuple[str, Verb, ResourceKey]] = []
        self.ran: list[tuple[AgentKey, tuple[str, ...], Mapping[str, str]]] = []
        self._lock = Lock()
        self._handles = 0
        self._failures: dict[ResourceKey | None, Failure] = {}
        self._unreachable: list[str] = []
        self._hidden: dict[AgentKey, str] = {}
        self._notify: Notify | None = None

    @property
    def plugin(self) -> Plugin:
        """This live system as an entry point would name it."""
        return Plugin(
            self.name,
            (CONFIG, RUNTIME),
            self.compile,
            self.connect,
            reasons=REASONS,
            run_as=lambda document: {"workdir": document.spec.runtime.workdir},
            local=True,
            instances="replicas",
        )

    def connect(self, context: Context) -> Driver:
        """This live system, on the clock of the instance."""
        self.clock = context.clock
        return self

    # -- the pure part

    def compile(self, asked: Compilation) -> tuple[Resource, ...]:
        """A config and a runtime for every document, whatever runtime it names; none once it is retired."""
        spec = asked.document.spec
        if spec.lifecycle == "Retired":
            return ()
        runtime = spec.runtime
        body: dict[str, Any] = {
            "command": list(runtime.command),
            "replicas": runtime.replicas,
            "env": {item.name: item.value for item in runtime.env},
            # Always there: what this live system shows of its objects is all of them.
            "health": health_fields(asked.document).get("health"),
        }
        if runtime.reload == "Restart":
            body["config"] = asked.bundle.digest
        return (
            Resource(config_key(asked.agent), self.name, asked.bundle),
            Resource(
                runtime_key(asked.agent),
                self.name,
                Fields.of(body),
                restart_on=("command", "env", "config"),
                stopped=spec.lifecycle == "Stopped",
            ),
        )

    # -- the reading part

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        """Everything there is in the scope, and the absence of what our record says should be there."""
        self.calls["observe"] += 1
        if self._unreachable:
            raise ObserveError(self._unreachable.pop(0), hint="scripted by the test")
        now, live, scope = self.clock.now(), self.live, request.scope
        present = (Evidence("memory", "present", now),)
        seen = [
            self._seen(key, thing, now, present)
            for key, thing in live.items()
            if scope is None or key.agent in scope
        ]
        seen += [self._absent(base, now) for key, base in request.bases.items() if key not in live]
        if not self._hidden:
            return seen
        asked = {*request.bases, *request.claims, *(each.key for each in seen)}
        hidden = [not_looked_at(k, self.name, why, now) for k in asked if (why := self._hidden.get(k.agent))]
        return [*(each for each in seen if each.key.agent not in self._hidden), *hidden]

    def _seen(self, key: ResourceKey, thing: Thing, now: float, evidence: tuple[Evidence, ...]) -> Observation:
        runs = key.kind == Kind.RUNTIME
        return Observation(
            key=key,
            driver=self.name,
            owner=thing.owner,
            fields=thing.fields,
            state=thing.state,
            observed_at=now,
            reason=thing.reason,
            live=NOTHING,
            handle=thing.handle,
            evidence=evidence,
            instances=(AgentInstance("main", thing.started_at, address=LOOPBACK),) if runs else (),
        )

    def _absent(self, base: Base, now: float) -> Observation:
        # A base that asks for absence is what a stopped agent leaves behind; then nothing is wrong.
        stopped = base.fields.value.get("stopped") is True
        state, reason = ("Stopped", None) if stopped else ("Missing", "Gone")
        evidence = (Evidence("memory", "absent", now),)
        return Observation(base.key, self.name, Owner.NONE, None, state, now, reason, evidence=evidence)

    # -- the writing part

    def unchanged(self, action: Action) -> bool:
        """Whether live is still as the action's ``live`` says."""
        with self._lock:
            self.calls["unchanged"] += 1
        thing = self.live.get(action.key)
        return (thing.fields if thing else None) == action.live

    def apply(self, action: Action, key: str) -> Applied:
        """Make live equal to desired, unless a failure is scripted."""
        with self._lock:
            self.calls["apply"] += 1
            self._fail_if_scripted(action.key)
            self.applied.append((key, action.verb, action.key))
            if action.verb in (Verb.STOP, Verb.DELETE):
                self.live.pop(action.key, None)
                return Applied("gone")
            if action.desired is None:
                raise ApplyError(f"{action.key}: {action.verb} without desired fields", permanent=True)
            known = self.live.get(action.key)
            if known and action.verb is Verb.UPDATE:
                thing = replace(known, fields=action.desired, owner=Owner.OURS, reason=None, state="Running")
            else:
                thing = self._new(action.desired, Owner.OURS)
                self.starts[action.key] += 1
            self.live[action.key] = thing
            return Applied(f"{action.verb} done", thing.handle)

    def _new(self, fields: Fields, owner: Owner) -> Thing:
        self._handles += 1
        return Thing(fields, owner, Fields(b'{"handle":%d}' % self._handles), self.clock.now())

    def _fail_if_scripted(self, key: ResourceKey) -> None:
        place = key if key in self._failures else None
        failure = self._failures.get(place)
        if failure is not None:
            failure.left -= 1
            if failure.left == 0:
                del self._failures[place]
            raise ApplyError(f"{key}: {failure.message}", permanent=failure.permanent)

    # -- watching and running

    def start(self, notify: Notify) -> None:
        """Notify about drift from now on, on the thread that makes it."""
        self._notify = notify

    def stop(self) -> None:
        """Notify no more."""
        self._notify = None

    def exec(
        self,
        agent: AgentKey,
        command: Sequence[str],
        timeout: float,  # noqa: ARG002 - nothing here takes time
        how: RunAs = AS_IT_RUNS,
    ) -> ExecResult:
        """Every command but ``false`` succeeds where there is a runtime to run it in, or a description of one."""
        self.calls["run"] += 1
        self.ran.append((agent, tuple(command), dict(how.env)))
        there = how.runtime is not None or runtime_key(agent) in self.live
        if list(command[:1]) == ["false"]:
            return ExecResult(False, "false: exit code 1")
        return ExecResult(there, "ok" if there else f"{agent} is not running")

    def _tell(self, key: ResourceKey, reason: str) -> None:
        if self._notify is not None:
            self._notify(key.agent, reason)

    # -- drift

    def edit(self, key: ResourceKey, **changes: Any) -> None:
        """Edit fields of a live object; None removes one."""
        thing = self.live[key]
        value = {**thing.fields.value, **changes}
        kept = Fields.of({name: item for name, item in value.items() if item is not None})
        self.live[key] = replace(thing, fields=kept)
        self._tell(key, "Edited")

    def remove(self, key: ResourceKey) -> None:
        """A live object vanishes (a process dies)."""
        del self.live[key]
        self._tell(key, "Gone")

    def ail(self, key: ResourceKey, reason: str | None, state: str = "Running") -> None:
        """The driver has something to say against a live object; None: no longer."""
        self.live[key] = replace(self.live[key], reason=reason, state=state)
        self._tell(key, reason or "Recovered")

    def plant(self, key: ResourceKey, fields: Mapping[str, Any], owner: Owner = Owner.NONE) -> None:
        """Something appears: foreign (no mark), an orphan (``Owner.OURS``) or another instance's."""
        self.live[key] = self._new(Fields.of(fields), owner)
        self._tell(key, "Appeared")

    def mark(self, key: ResourceKey, owner: Owner) -> None:
        """The mark of a live object becomes another one."""
        self.live[key] = replace(self.live[key], owner=owner)
        self._tell(key, "Marked")

    def lose(self, keys: Iterable[ResourceKey]) -> None:
        """Many objects vanish at once (a host goes down)."""
        for key in list(keys):
            self.remove(key)

    # -- failures

    def fail_next(
        self, times: int = 1, message: str = "scripted failure", *, key: ResourceKey | None = None
    ) -> None:
        """The next applies fail, of one resource or of any."""
        self._failures[key] = Failure(message, permanent=False, left=times)

    def fail_always(
        self, message: str = "scripted failure", *, key: ResourceKey | None = None, permanent: bool = False
    ) -> None:
        """Every apply fails until ``heal``."""
        self._failures[key] = Failure(message, permanent, left=inf)

    def heal(self) -> None:
        """Forget every scripted failure."""
        self._failures.clear()
        self._unreachable.clear()
        self._hidden.clear()

    def unreachable_next(self, times: int = 1, message: str = "the live system does not answer") -> None:
        """The next observations end in ObserveError."""
        self._unreachable += [message] * times

    def hide(self, *agents: AgentKey, message: str = "no right to look at it") -> None:
        """These agents cannot be looked at until ``heal``; the others can."""
        self._hidden |= dict.fromkeys(agents, message)
