"""The connected driver: one cluster, one instance. It wires the parts and answers what core asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gitops_agent.drivers.api import (
    AS_IT_RUNS,
    Action,
    AgentKey,
    Applied,
    ApplyError,
    Context,
    ExecResult,
    Fields,
    LogLine,
    Notify,
    Observation,
    ObserveError,
    ObserveRequest,
    Record,
    RunAs,
    Where,
    driver_at,
)
from gitops_agent.drivers.kubernetes.apply import Applying
from gitops_agent.drivers.kubernetes.cache import ObjectCache
from gitops_agent.drivers.kubernetes.client import Client
from gitops_agent.drivers.kubernetes.cluster import Cluster
from gitops_agent.drivers.kubernetes.commands import Commands
from gitops_agent.drivers.kubernetes.config import ClusterConfig, config_of
from gitops_agent.drivers.kubernetes.contexts import may_name, way_out
from gitops_agent.drivers.kubernetes.events import Events
from gitops_agent.drivers.kubernetes.foreign import ForeignObjects
from gitops_agent.drivers.kubernetes.kinds import WATCHED, ObjectKind
from gitops_agent.drivers.kubernetes.logs import Logs
from gitops_agent.drivers.kubernetes.marks import DRIVER, INSTANCE, place_selector
from gitops_agent.drivers.kubernetes.namespaces import Namespaces
from gitops_agent.drivers.kubernetes.objects import Objects
from gitops_agent.drivers.kubernetes.observe import Observing
from gitops_agent.drivers.kubernetes.options import Settings
from gitops_agent.drivers.kubernetes.rival import Rival
from gitops_agent.drivers.kubernetes.secrets import SecretValues
from gitops_agent.drivers.kubernetes.warning_events import WarningEvents

SYNC_SECONDS = 20.0
"""How long the first lists may take."""
AGAIN_SECONDS = 1.0
"""How long a later look waits for them: a cluster that does not answer holds up the pass over others once."""


def connect(context: Context) -> KubernetesDriver:
    """The driver of one cluster: the one of the context that the name of the driver carries, or the default."""
    settings = context.settings if isinstance(context.settings, Settings) else Settings()
    if not may_name(settings, context.place):
        raise ObserveError(f"no document may name the context {context.place}", hint=way_out(context.place))
    return KubernetesDriver(context, settings, config_of(settings, context.place))


class KubernetesDriver:
    """One cluster. Its watches begin at once, and end with ``close``."""

    def __init__(self, context: Context, settings: Settings, config: ClusterConfig) -> None:
        instance, self._settings, self._leading = context.instance, settings, context.leading
        self._notify: Notify | None = None
        self._patience = SYNC_SECONDS
        client = Client(
            config, user_agent=f"gitops-agent/{instance}", timeout=settings.timeout, before_write=self._fence
        )
        # The Lease and the policy that asks for its term are in our own cluster, and so is who we are there.
        if settings.fence_as and context.term and not context.place:
            client = client.in_term(settings.fence_as, context.term)
        self._cache = ObjectCache(
            client,
            WATCHED,
            selector=f"{INSTANCE}={instance}",
            applied=place_selector(context.place),
            namespaces=settings.namespaces,
            on_change=self._changed,
            clock=context.clock,
        )
        self._system = f"context {config.wanted}, {client.host}" if config.wanted else client.host
        self._objects = Objects(instance, settings, context.place)
        cluster = Cluster(
            driver=driver_at(DRIVER, context.place),
            instance=instance,
            settings=settings,
            client=client,
            cache=self._cache,
            objects=self._objects,
            secrets=SecretValues(context.redactor),
            redactor=context.redactor,
            clock=context.clock,
        )
        foreign = ForeignObjects(cluster)
        self._warnings = WarningEvents(cluster, self._warned)
        self._observing = Observing(cluster, foreign, self._warnings)
        self._applying = Applying(cluster, self._observing, Namespaces(cluster), foreign)
        self._events = Events(cluster)
        self._commands = Commands(cluster)
        # Who stands in an election is fenced by it; others look whether somebody else leads.
        self._rival = Rival(settings, instance) if context.term == 0 else None
        self._logs = Logs(cluster)
        self._cache.start()

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        """What is live, from the watches: complete and fresh, but for the namespaces that cannot be looked at;
        ObserveError when that is all of them."""
        patience, self._patience = self._patience, AGAIN_SECONDS
        self._cache.synced(patience)
        return self._observing.observe(request, self._cache.blind(self._settings.stale_after))

    def where(self, agent: AgentKey, fields: Fields) -> Where:
        """The cluster, and the namespace of an object in it."""
        return Where(self._system, self._objects.namespace(agent, fields.value))

    def apply(self, action: Action, key: str) -> Applied:
        """Carry out one action."""
        if self._rival is not None:
            self._rival.require_none()
        return self._applying.apply(action, key)

    def start(self, notify: Notify) -> None:
        """Call ``notify`` when something of an agent changes."""
        self._notify = notify

    def stop(self) -> None:
        """Call it no more."""
        self._notify = None

    def record(self, done: Record) -> None:
        """Tell the cluster what was done, as an event."""
        self._events.record(done)

    def exec(self, agent: AgentKey, command: Sequence[str], timeout: float, how: RunAs = AS_IT_RUNS) -> ExecResult:
        """Run a command in a pod of the agent."""
        env = [f"{name}={value}" for name, value in how.env.items()]
        return self._commands.exec(agent, ["env", *env, *command] if env else command, timeout, how.instance)

    def knows_secrets(self, agent: AgentKey) -> bool:
        """Learn the secrets that an agent was given, so that they are hidden; whether all of them are known."""
        return self._commands.knows_secrets(agent)

    def logs(self, agent: AgentKey, lines: int, *, follow: bool = False) -> Iterator[LogLine]:
        """The last lines of every pod of an agent, and with ``follow`` what they add."""
        self._cache.synced(SYNC_SECONDS)
        blind = self._cache.blind(self._settings.stale_after)
        # Of one without a single object, any namespace that cannot be looked at may be the one.
        places = {each.namespace for each in self._cache.objects_of(agent)} or set(blind)
        if hidden := sorted(places & blind.keys()):
            raise blind[hidden[0]]
        return self._logs.read(agent, lines, follow=follow)

    def close(self) -> None:
        """End the watches; agents live on."""
        if self._rival is not None:
            self._rival.close()
        self._events.close()
        self._warnings.close()
        self._cache.stop()

    def _changed(self, _kind: ObjectKind, agent: AgentKey | None, word: str) -> None:
        if self._notify is not None and agent is not None:
            self._notify(agent, word)

    def _warned(self, agent: AgentKey) -> None:
        if self._notify is not None:
            self._notify(agent, "Event added")

    def _fence(self) -> None:
        if not self._leading():
            raise ApplyError("another gitops-agent leads now; nothing was changed", hint="")
