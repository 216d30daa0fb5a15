"""What one file of the repository contributes, once it has been read well. Frozen, small, kept by the cache."""

from dataclasses import dataclass
from typing import NamedTuple

from gitops_agent.model.agent import Agent, Origin
from gitops_agent.model.document import PolicySpec
from gitops_agent.model.finding import Finding
from gitops_agent.snapshot.codes import Code

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class AgentUnit:
    """One compiled agent, and what its compilation depended on besides its own document.

    ``labels`` are the authored ones, which selectors look at; ``overlays`` the digests of those applied;
    ``inlined`` the path and blob of the file that gave the instructions; ``pool`` the credential pool it names.
    """

    agent: Agent
    labels: Labels = ()
    overlays: tuple[str, ...] = ()
    inlined: tuple[str, str] | None = None
    pool: str | None = None


@dataclass(frozen=True, slots=True)
class OverlayUnit:
    """One overlay for this instance: which agents it selects, and its patches as canonical JSON."""

    origin: Origin
    digest: str
    tenant: str | None
    names: frozenset[str]
    labels: Labels
    patches: bytes


@dataclass(frozen=True, slots=True)
class PolicyUnit:
    """The policy document."""

    origin: Origin
    spec: PolicySpec


@dataclass(frozen=True, slots=True)
class PoolUnit:
    """A credential pool: of one tenant, or (tenant "") for all of them."""

    origin: Origin
    tenant: str
    name: str


@dataclass(frozen=True, slots=True)
class CompiledFile:
    """Everything one file contributes; ``findings`` holds no errors."""

    path: str
    blob: str
    agents: tuple[AgentUnit, ...] = ()
    overlays: tuple[OverlayUnit, ...] = ()
    policies: tuple[PolicyUnit, ...] = ()
    pools: tuple[PoolUnit, ...] = ()
    findings: tuple[Finding, ...] = ()


class Issue(NamedTuple):
    """An error at a path inside a document; its line and column are looked up when all issues are known."""

    code: Code
    origin: Origin
    loc: tuple[str | int, ...]
    summary: str
    detail: str = ""
    at_key: bool = False
