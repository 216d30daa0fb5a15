"""``kind: Policy``, ``Overlay`` and ``CredentialPool``: what people write besides agents."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from gitops_agent.model.document_types import (
    Duration,
    LabelText,
    Metadata,
    Moment,
    Name,
    Patch,
    Percent,
    SecretRef,
    Strict,
    Text,
    Word,
    distinct,
)
from gitops_agent.model.quantity import seconds

SHORTEST_PAUSE_SECONDS = 0.1
"""Seconds between two tries of the same at least."""


class Threshold(Strict):
    """A limit that trips at both a count and a ratio."""

    min: Annotated[int, Field(ge=1)] = 5
    ratio: Annotated[float, Field(ge=0, le=1)] = 0.3


class DriftThreshold(Threshold):
    """How many agents drifted at once are too many. At once: now, or repaired within ``window``."""

    window: Duration = "10s"


class Freeze(Strict):
    """Acting stops; detecting and reporting go on."""

    scope: Word = "*"
    reason: Text
    until: Moment | None = None


class PolicyRollout(Strict):
    """The waves of a rollout: so many agents first, then a share of the others, then the rest.

    ``pause`` is between a wave that is Ready and the next one. ``healthTimeout`` is how long a wave may take to
    become Ready; an agent with a shorter one of its own is held to that.
    """

    canary: Annotated[int, Field(ge=1)] = 1
    second: Percent = "10%"
    pause: Duration = "0s"
    health_timeout: Duration | None = None
    on_failure: Literal["Hold", "ProposeRevert", "Revert"] = "Hold"


class Oscillation(Strict):
    """How many repairs of one resource in a window are too many."""

    repairs: Annotated[int, Field(ge=1)] = 5
    window: Duration = "10m"


class Breaker(Strict):
    """After so many failures of a driver in a row nothing is tried through it for a while."""

    failures: Annotated[int, Field(ge=1)] = 5
    pause: Duration = "30s"


class Backoff(Strict):
    """The pause after the first failure of something, doubled with each one in a row up to the longest."""

    first: Duration = "1s"
    longest: Duration = "5m"

    @model_validator(mode="after")
    def _in_order(self) -> "Backoff":
        if not SHORTEST_PAUSE_SECONDS <= seconds(self.first) <= seconds(self.longest):
            raise ValueError(
                f"give a first pause of {SHORTEST_PAUSE_SECONDS:g} s or more, and none above the longest"
            )
        return self


class HostRestart(Strict):
    """How many agents come back at once after the host was restarted."""

    at_once: Annotated[int, Field(ge=1)] = 10


class Provisioning(Strict):
    """How long a new agent may take to become Ready, and whether what was built of it is then taken down again."""

    deadline: Duration = "10m"
    on_timeout: Literal["Keep", "Compensate"] = "Keep"


class TenantPolicy(Strict):
    """The limits of a policy; for a tenant they may only be stricter."""

    freeze: Freeze | None = None
    freeze_reminder: Duration = "24h"
    rollout: PolicyRollout = PolicyRollout()
    mass_drift: DriftThreshold = DriftThreshold()
    mass_delete: Threshold = Threshold()
    mass_change: Threshold | None = None
    actions_per_pass: Annotated[int, Field(ge=1, le=100000)] = 500
    oscillation: Oscillation = Oscillation()
    backoff: Backoff = Backoff()
    breaker: Breaker = Breaker()
    host_restart: HostRestart = HostRestart()
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
