"""``kind: Agent``: what people write of one agent. A driver may add options and sections of its own."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from gitops_agent.model.document_types import (
    HOST_PATTERN,
    URL_PATH_PATTERN,
    AgentRef,
    Argument,
    Cpu,
    Duration,
    EnvName,
    HttpUrl,
    Memory,
    Metadata,
    Moment,
    Name,
    RelativePath,
    SecretRef,
    Strict,
    Text,
    Word,
    distinct,
)
from gitops_agent.model.quantity import seconds

RESERVED_ENV = "MANAGED_AGENT_"
"""Environment variables that mark what we own: never authored."""

LONGEST_HOOK_SECONDS = 3600.0
"""Seconds that a hook may take at most."""


class ValueFrom(Strict):
    """The source of an environment variable that is not written in Git."""

    secret_ref: SecretRef


class EnvVar(Strict):
    """One environment variable of the agent."""

    name: EnvName
    value: Argument | None = None
    value_from: ValueFrom | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "EnvVar":
        if (self.value is None) == (self.value_from is None):
            raise ValueError("give exactly one of value and valueFrom")
        if self.name.startswith(RESERVED_ENV):
            raise ValueError(f"names that begin with {RESERVED_ENV} are set by gitops-agent")
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
    """How the runtime is asked to end: a signal its driver knows, a grace, then SIGKILL for the whole group."""

    signal: Word = "SIGTERM"
    grace: Duration = "10s"


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
    min_uptime: Duration = "1s"


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
    exec: ExecProbe | None = None
    period: Duration = "10s"
    timeout: Duration = "1s"
    failure_threshold: Annotated[int, Field(ge=1, le=1000)] = 3

    @model_validator(mode="after")
    def _one_way(self) -> "Probe":
        if (self.http is None) == (self.exec is None):
            raise ValueError("give exactly one of http and exec")
        return self


class Probes(Strict):
    """Readiness decides Ready; liveness decides whether a restart is due."""

    readiness: Probe | None = None
    liveness: Probe | None = None


class HeartbeatSpec(Strict):
    """The agent writes a heartbeat; when it is stale and no tool call is in progress, this happens."""

    stale_after: Duration = "60s"
    on_stale: Literal["Restart", "Report"] = "Restart"


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

    health_timeout: Duration = "2m"
    pause: Duration = "0s"
    canary: bool = False
    depends_on: Annotated[tuple[AgentRef, ...], AfterValidator(distinct)] = ()


class HttpHook(Strict):
    """One HTTP call, with the idempotency key as a header. The host must be on the list ``hookHosts``."""

    url: HttpUrl
    method: Literal["POST", "PUT"] = "POST"


class Hook(Strict):
    """One call, made at most once: a command run as the agent, or an HTTP call."""

    command: Annotated[tuple[Argument, ...], Field(min_length=1)] | None = None
    http: HttpHook | None = None
    timeout: Duration = "30s"

    @model_validator(mode="after")
    def _one_way(self) -> "Hook":
        if (self.command is None) == (self.http is None):
            raise ValueError("give exactly one of command and http")
        if not 0 < seconds(self.timeout) <= LONGEST_HOOK_SECONDS:
            raise ValueError("timeout is more than 0s and at most 1h")
        return self


class Hooks(Strict):
    """What is called once in the life of an agent: when it is Ready for the first time, and when it has ended."""

    on_provisioned: Hook | None = None
    on_retired: Hook | None = None


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
    instructions_from: FileRef | None = None
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

    @model_validator(mode="after")
    def _one_prompt(self) -> "AgentSpec":
        if self.instructions_from is not None and self.instructions is not None:
            raise ValueError("give at most one of instructions and instructionsFrom")
        return self


class AgentDocument(Strict):
    """``kind: Agent``."""

    api_version: Literal["gitops-agent.dev/v1"]
    kind: Literal["Agent"]
    metadata: Metadata
    spec: AgentSpec
