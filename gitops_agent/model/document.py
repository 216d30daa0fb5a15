"""The documents people write, as strict pydantic models: Agent, Policy, Overlay, CredentialPool.

Types only: no defaults that depend on the environment, no lookups. Field names are camelCase in YAML and
snake_case here.
"""

from gitops_agent.model.document_agent import (
    RESERVED_ENV,
    AgentDocument,
    AgentSpec,
    EnvVar,
    Hook,
    Hooks,
    Model,
    Probes,
    Reconcile,
    Runtime,
)
from gitops_agent.model.document_policy import (
    Backoff,
    Breaker,
    CredentialPoolDocument,
    CredentialPoolSpec,
    Freeze,
    Oscillation,
    OverlayDocument,
    PolicyDocument,
    PolicySpec,
    Provisioning,
    TenantPolicy,
    Threshold,
)
from gitops_agent.model.document_types import (
    API_GROUP,
    API_VERSION,
    NAME_PATTERN,
    REF_PATTERN,
    Metadata,
    SecretRef,
    Strict,
)

__all__ = [
    "API_GROUP",
    "API_VERSION",
    "DOCUMENTS",
    "NAME_PATTERN",
    "REF_PATTERN",
    "RESERVED_ENV",
    "AgentDocument",
    "AgentSpec",
    "Backoff",
    "Breaker",
    "CredentialPoolDocument",
    "CredentialPoolSpec",
    "EnvVar",
    "Freeze",
    "Hook",
    "Hooks",
    "Metadata",
    "Model",
    "Oscillation",
    "OverlayDocument",
    "PolicyDocument",
    "PolicySpec",
    "Probes",
    "Provisioning",
    "Reconcile",
    "Runtime",
    "SecretRef",
    "Strict",
    "TenantPolicy",
    "Threshold",
]

DOCUMENTS: dict[str, type[Strict]] = {
    "Agent": AgentDocument,
    "Policy": PolicyDocument,
    "Overlay": OverlayDocument,
    "CredentialPool": CredentialPoolDocument,
}
