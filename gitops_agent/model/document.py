"""The documents people write, as strict pydantic models: Agent, Policy, Overlay, CredentialPool.

Types only: no defaults that depend on the environment, no lookups. Field names are camelCase in YAML and
snake_case here. What a single value may look like is in ``model/scalars.py``.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    model_validator,
)

from gitops_agent.model.hook_spec import Hooks
from gitops_agent.model.quantity import seconds
from gitops_agent.model.scalars import (
    HOST_PATTERN,
    URL_PATH_PATTERN,
    AgentRef,
    Argument,
    Cpu,
    Duration,
    EnvName,
    HttpUrl,
    LabelText,
    Memory,
    Moment,
    Name,
    Patch,
    Percent,
    ProbePeriod,
    ProbeTimeout,
    RelativePath,
    Text,
    UpToADay,
    UpToAnHour,
    Word,
    distinct,
)
from gitops_agent.model.strict import ONE_SOURCE, SecretRef, Strict, ValueFrom, instead_of

API_VERSION = "gitops-agent.dev/v1"
API_GROUP = "gitops-agent.dev/"


class Metadata(Strict):
    """The name of a document."""

    name: Name
    tenant: Name | None = None
    labels: dict[LabelText, LabelText] = Field(default_factory=dict)


# -- kind: Agent. A driver may add options and sections of its own.

ONE_PROBE = "give exactly one of http and exec"
ONE_PROMPT = "give at most one of instructions and instructionsFrom"

RESERVED_ENV = "MANAGED_AGENT_"
"""Environment variables that mark what we own: never authored."""


def _unreserved(name: str) -> str:
    if name.startswith(RESERVED_ENV):
        raise ValueError(f"names that begin with {RESERVED_ENV} are set by gitops-agent")
    return name


class EnvVar(Strict):
    """One environment variable of the agent."""

    name: Annotated[EnvName, AfterValidator(_unreserved)]
    value: Argument | None = None
    value_from: Annotated[ValueFrom | None, instead_of("value", ONE_SOURCE)] = None

    @model_validator(mode="after")
    def _one_source(self) -> "EnvVar":
        if self.value is None and self.value_from is None:
            raise ValueError(ONE_SOURCE)
        return self


class Amounts(Strict):
    """CPU and memory amounts."""

    cpu: Cpu | None = None
    memory: Memory | None = None


class Resources(Strict):
    """What the runtime asks for and may use at most."""

    requests: Amounts = Amounts()
    limits: Amounts = Amounts()


class Stop(Strict):
    """How the runtime is asked to end: a signal its driver knows, a grace, then SIGKILL for all that is left."""

    signal: Word = "SIGTERM"
    grace: UpToAnHour = "10s"


class Update(Strict):
    """How copies of an agent follow a change: this many at a time, those before them Ready first."""

    max_unavailable: Annotated[int, Field(ge=1, le=1000)] = 1


class Runtime(Strict):
    """What runs the agent and how. A driver may add a block of its own name (``Plugin.options``)."""

    driver: Name
    command: tuple[Argument, ...] = ()
    image: Word | None = None
    workdir: Argument | None = None
    replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    env: Annotated[tuple[EnvVar, ...], AfterValidator(distinct)] = ()
    resources: Resources = Resources()
    stop: Stop = Stop()
    reload: Literal["Restart", "Hot"] = "Restart"
    min_uptime: UpToAnHour = "1s"
    update: Update = Update()
    on_secret_change: Literal["Report", "Restart"] = "Report"  # noqa: S105 - a word, no secret
    exclusive: bool = False


class Model(Strict):
    """The language model behind the agent."""

    provider: Word
    name: Word
    fallbacks: tuple[Word, ...] = ()
    parameters: dict[str, Any] = Field(default_factory=dict)


class FileRef(Strict):
    """A file of the repository, relative to the document that names it."""

    file: RelativePath


class Tool(Strict):
    """A tool the agent may call."""

    name: Word
    allow: tuple[Word, ...] = ()
    approval: Literal["Never", "Always", "OnWrite"] = "Never"


class McpServer(Strict):
    """An MCP server the agent talks to."""

    name: Word
    url: HttpUrl


class PoolRef(Strict):
    """A reference to a CredentialPool."""

    name: Name


class Channel(Strict):
    """A messaging channel of the agent."""

    name: Name
    type: Word
    credential_ref: SecretRef | None = None


class DnsRecord(Strict):
    """A DNS record that points at the agent."""

    hostname: Annotated[str, StringConstraints(pattern=HOST_PATTERN)]
    type: Literal["A", "AAAA", "CNAME", "TXT"]
    target: Word
    ttl: Annotated[int, Field(ge=1, le=604800)] = 300


class Entitlement(Strict):
    """What the customer has paid for."""

    plan: Word
    provider: Word
    customer: Word


class HttpProbe(Strict):
    """GET on the agent's own address; any 2xx or 3xx is healthy."""

    port: Annotated[int, Field(ge=1, le=65535)]
    path: Annotated[str, StringConstraints(pattern=URL_PATH_PATTERN, max_length=1024)] = "/"


class ExecProbe(Strict):
    """A command run as the agent; exit 0 is healthy."""

    command: Annotated[tuple[Argument, ...], Field(min_length=1)]


class Probe(Strict):
    """One way to ask the agent how it is."""

    http: HttpProbe | None = None
    exec: Annotated[ExecProbe | None, instead_of("http", ONE_PROBE)] = None
    period: ProbePeriod = "10s"
    timeout: ProbeTimeout = "1s"
    failure_threshold: Annotated[int, Field(ge=1, le=1000)] = 3

    @model_validator(mode="after")
    def _one_way(self) -> "Probe":
        if self.http is None and self.exec is None:
            raise ValueError(ONE_PROBE)
        return self


class Probes(Strict):
    """Readiness decides Ready; liveness decides whether a restart is due."""

    readiness: Probe | None = None
    liveness: Probe | None = None


class HeartbeatSpec(Strict):
    """The agent writes a heartbeat; when it is stale and no tool call is in progress, ``on_stale`` happens. A tool
    call that is open, or a turn that lasts, for longer than the other two is reported as stuck."""

    stale_after: UpToADay = "60s"
    on_stale: Literal["Restart", "Report"] = "Restart"
    max_tool_call: Duration = "15m"
    max_turn: Duration = "1h"


class Reconcile(Strict):
    """Whether we act on this agent, and why not."""

    mode: Literal["Observe", "Enforce"] = "Enforce"
    paused: bool = False
    until: Moment | None = None
    reason: Text | None = None


class AgentRollout(Strict):
    """How long the agent may take to become Ready, which agents must be Ready before it, and its part in waves.

    ``canary``: it would rather go first. ``pause``: its wave rests this long after it is Ready, if that is more
    than the policy asks for.
    """

    health_timeout: UpToADay = "2m"
    pause: Duration = "0s"
    canary: bool = False
    depends_on: Annotated[tuple[AgentRef, ...], AfterValidator(distinct)] = ()


class AgentSpec(Strict):
    """What an agent is."""

    description: Text | None = None
    lifecycle: Literal["Running", "Stopped", "Retired"] = "Running"
    deletion_policy: Literal["Delete", "Retain"] = "Delete"
    adopt: bool = False
    reconcile: Reconcile = Reconcile()
    runtime: Runtime
    model: Model | None = None
    instructions: str | None = None
    instructions_from: Annotated[FileRef | None, instead_of("instructions", ONE_PROMPT)] = None
    tools: Annotated[tuple[Tool, ...], AfterValidator(distinct)] = ()
    mcp_servers: Annotated[tuple[McpServer, ...], AfterValidator(distinct)] = ()
    limits: dict[str, Any] = Field(default_factory=dict)
    credential_pool_ref: PoolRef | None = None
    channels: Annotated[tuple[Channel, ...], AfterValidator(distinct)] = ()
    dns: tuple[DnsRecord, ...] = ()
    entitlement: Entitlement | None = None
    probes: Probes = Probes()
    heartbeat: HeartbeatSpec | None = None
    checks: tuple[dict[str, Any], ...] = ()
    hooks: Hooks = Hooks()
    rollout: AgentRollout = AgentRollout()
    authority: dict[str, Literal["git", "live"]] = Field(default_factory=dict)


class AgentDocument(Strict):
    """``kind: Agent``."""

    api_version: Literal["gitops-agent.dev/v1"]
    kind: Literal["Agent"]
    metadata: Metadata
    spec: AgentSpec


# -- kind: Policy, Overlay and CredentialPool

SHORTEST_PAUSE_SECONDS = 0.1
"""Seconds between two tries of the same at least."""


class Threshold(Strict):
    """A limit that trips at both a count and a ratio."""

    min: Annotated[int, Field(ge=1)] = 5
    ratio: Annotated[float, Field(ge=0, le=1)] = 0.3


class DriftThreshold(Threshold):
    """How many agents drifted at once are too many. At once: now, or repaired within ``window``.
    ``absence``: what becomes of so many that are gone: they come back in waves, or acting freezes."""

    window: Duration = "10s"
    absence: Literal["Waves", "Freeze"] = "Waves"


class DeleteThreshold(Threshold):
    """How many agents or replicas that a commit takes away are too many; also in a small fleet."""

    min: Annotated[int, Field(ge=1)] = 3


class Freeze(Strict):
    """Acting stops; detecting and reporting go on."""

    scope: Word = "*"
    reason: Text
    until: Moment | None = None


class PolicyRollout(Strict):
    """The waves of a rollout: so many agents first, then a share of the others, then the rest.

    ``bake`` is how long everything released so far must have been Ready, and none of it have exited, before the
    next wave goes. ``pause`` is a longer rest between the two, if one is wanted. ``healthTimeout`` is how long a
    wave may take to become Ready; an agent with a shorter one of its own is held to that, and one of which the
    live system says that waiting does not help to ``failAfter``. ``recovery`` is how long everything released must
    be Ready again before a gate that failed opens after all.
    """

    canary: Annotated[int, Field(ge=1)] = 1
    second: Percent = "10%"
    bake: UpToADay = "10s"
    pause: Duration = "0s"
    health_timeout: UpToADay | None = None
    fail_after: UpToADay = "30s"
    recovery: UpToADay = "1m"
    on_failure: Literal["Hold", "ProposeRevert", "Revert"] = "Hold"


class Oscillation(Strict):
    """How many repairs of one resource in a window are too many."""

    repairs: Annotated[int, Field(ge=1)] = 5
    window: Duration = "10m"


class Breaker(Strict):
    """After so many failures of a driver in a row nothing is tried through it for a while."""

    failures: Annotated[int, Field(ge=1)] = 5
    pause: UpToADay = "30s"


class Backoff(Strict):
    """The pause after the first failure of something, doubled with each one in a row up to the longest."""

    first: UpToADay = "1s"
    longest: UpToADay = "5m"

    @model_validator(mode="after")
    def _in_order(self) -> "Backoff":
        if not SHORTEST_PAUSE_SECONDS <= seconds(self.first) <= seconds(self.longest):
            raise ValueError(
                f"give a first pause of {SHORTEST_PAUSE_SECONDS:g} s or more, and none above the longest"
            )
        return self


class HostRestart(Strict):
    """How many agents come back at once after the host was restarted, or after many were gone."""

    at_once: Annotated[int, Field(ge=1)] = 10


class Provisioning(Strict):
    """How long a new agent may take to become Ready, and whether what was built of it is then taken down again."""

    deadline: UpToADay = "10m"
    on_timeout: Literal["Keep", "Compensate"] = "Keep"


class Orphans(Strict):
    """What runs and is not in Git is never ended while it is younger than this."""

    min_age: Duration = "10m"


class TenantPolicy(Strict):
    """The limits of a policy; for a tenant they may only be stricter."""

    freeze: Freeze | None = None
    freeze_reminder: Duration = "24h"
    rollout: PolicyRollout = PolicyRollout()
    mass_drift: DriftThreshold = DriftThreshold()
    mass_delete: DeleteThreshold = DeleteThreshold()
    mass_change: Threshold | None = None
    actions_per_minute: Annotated[int, Field(ge=1, le=100000)] = 500
    oscillation: Oscillation = Oscillation()
    backoff: Backoff = Backoff()
    breaker: Breaker = Breaker()
    host_restart: HostRestart = HostRestart()
    orphans: Orphans = Orphans()
    provisioning: Provisioning = Provisioning()
    force_push: Literal["refuse", "follow"] = "refuse"


class PolicySpec(TenantPolicy):
    """The limits within which we act. Without a document these defaults hold."""

    tenants: dict[Name, TenantPolicy] = Field(default_factory=dict)


class PolicyMetadata(Strict):
    """The name of a policy; there is one policy, so it needs none."""

    name: Name = "policy"


class PolicyDocument(Strict):
    """``kind: Policy``."""

    api_version: Literal["gitops-agent.dev/v1"]
    kind: Literal["Policy"]
    metadata: PolicyMetadata = PolicyMetadata()
    spec: PolicySpec = PolicySpec()


class Selector(Strict):
    """Which agents an overlay applies to: all conditions given must hold; none given is all agents."""

    tenant: Name | None = None
    names: tuple[Name, ...] = ()
    labels: dict[LabelText, LabelText] = Field(default_factory=dict)


class OverlaySpec(Strict):
    """RFC 6902 patches for one instance."""

    instance: Word
    selector: Selector = Selector()
    patches: Annotated[tuple[Patch, ...], Field(min_length=1)]


class OverlayDocument(Strict):
    """``kind: Overlay``."""

    api_version: Literal["gitops-agent.dev/v1"]
    kind: Literal["Overlay"]
    metadata: PolicyMetadata = PolicyMetadata(name="overlay")
    spec: OverlaySpec


class PoolKey(Strict):
    """One credential of a pool."""

    name: Name
    secret_ref: SecretRef


class CredentialPoolSpec(Strict):
    """Credentials for one model provider."""

    provider: Word
    keys: Annotated[tuple[PoolKey, ...], Field(min_length=1), AfterValidator(distinct)]
    strategy: Literal["RoundRobin", "LeastUsed", "Failover"] = "RoundRobin"


class CredentialPoolDocument(Strict):
    """``kind: CredentialPool``."""

    api_version: Literal["gitops-agent.dev/v1"]
    kind: Literal["CredentialPool"]
    metadata: Metadata
    spec: CredentialPoolSpec


DOCUMENTS: dict[str, type[Strict]] = {
    "Agent": AgentDocument,
    "Policy": PolicyDocument,
    "Overlay": OverlayDocument,
    "CredentialPool": CredentialPoolDocument,
}
