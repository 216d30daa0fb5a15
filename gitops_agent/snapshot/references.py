"""Checks across documents: one key each, one policy, dependencies that exist and have no cycle, pools that exist.

Each check looks at what a commit touched and what hangs on it, so its cost follows the change, not the fleet.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from gitops_agent.model.agent import Agent, Origin
from gitops_agent.model.key import AgentKey
from gitops_agent.snapshot.codes import Code
from gitops_agent.snapshot.compiled_file import AgentUnit, Issue, PolicyUnit, PoolUnit
from gitops_agent.snapshot.schema_errors import nearest

_NAMED = 20


def _listed(names: Iterable[str], count: int, between: str = " and ") -> str:
    """Names for a summary: each has a finding of its own, so a thousand need not stand in every one."""
    shown = between.join(islice(names, _NAMED))
    return shown if count <= _NAMED else f"{shown} and {count - _NAMED} more"


def same_key(key: AgentKey, origins: Iterable[Origin]) -> list[Issue]:
    """Two documents that declare one agent: each is addressed, both are named."""
    places = sorted(origins, key=lambda origin: (origin.path, origin.line))
    named = _listed(map(str, places), len(places))
    summary = f"agent {key} is declared {len(places)} times: {named}"
    detail = "Rename one of them, or remove it."
    return [Issue(Code.DUPLICATE_AGENT, origin, ("metadata", "name"), summary, detail) for origin in places]


def same_pool(pools: Iterable[PoolUnit]) -> list[Issue]:
    """Two documents that declare one credential pool."""
    by_name: dict[tuple[str, str], list[Origin]] = {}
    for pool in pools:
        by_name.setdefault((pool.tenant, pool.name), []).append(pool.origin)
    issues: list[Issue] = []
    for (_, name), origins in by_name.items():
        if len(origins) > 1:
            named = _listed(sorted(map(str, origins)), len(origins))
            summary = f"credential pool {name} is declared {len(origins)} times: {named}"
            issues += [Issue(Code.DUPLICATE_POOL, origin, ("metadata", "name"), summary) for origin in origins]
    return issues


def several_policies(policies: Collection[PolicyUnit]) -> list[Issue]:
    """More than one policy: which of them holds would be a guess."""
    if len(policies) < 2:
        return []
    named = _listed(sorted(str(policy.origin) for policy in policies), len(policies))
    summary = f"{len(policies)} Policy documents: {named}"
    detail = "Keep one; limits for one tenant go into its spec.tenants."
    return [Issue(Code.SEVERAL_POLICIES, policy.origin, ("kind",), summary, detail) for policy in policies]


def missing_dependencies(
    agents: Mapping[AgentKey, Agent], touched: Iterable[Agent], suspects: Collection[str]
) -> list[Issue]:
    """Dependencies on agents that no document declares (``suspects``: names in files that could not be read)."""
    issues: list[Issue] = []
    tenants: dict[str, list[str]] = {}
    for agent in touched:
        for position, key in enumerate(agent.depends_on):
            if key not in agents and key.tenant == agent.key.tenant and key.name not in suspects:
                if key.tenant not in tenants:
                    tenants[key.tenant] = [other.name for other in agents if other.tenant == key.tenant]
                hint = nearest(key.name, tenants[key.tenant])
                summary = f"agent {agent.key} depends on {key}, which no document declares{hint}"
                loc = ("spec", "rollout", "dependsOn", position)
                issues.append(
                    Issue(Code.UNKNOWN_DEPENDENCY, agent.origin, loc, summary, "Declare it, or drop it.")
                )
    return issues


def missing_pools(
    pools: Collection[tuple[str, str]], touched: Iterable[AgentUnit], suspects: Collection[str]
) -> list[Issue]:
    """References to credential pools that are not declared for the tenant or for all."""
    issues: list[Issue] = []
    for unit in touched:
        tenant, pool = unit.agent.key.tenant, unit.pool
        if pool is None or pool in suspects:
            continue
        if (tenant, pool) not in pools and ("", pool) not in pools:
            hint = nearest(pool, [name for owner, name in pools if owner in ("", tenant)])
            summary = f"agent {unit.agent.key} uses credential pool {pool}, which no document declares{hint}"
            loc = ("spec", "credentialPoolRef", "name")
            detail = "Declare a CredentialPool of this tenant or of all tenants."
            issues.append(Issue(Code.UNKNOWN_POOL, unit.agent.origin, loc, summary, detail))
    return issues


def cycles(agents: Mapping[AgentKey, Agent], touched: Iterable[AgentKey]) -> list[Issue]:
    """Agents that wait for each other in a ring. A new ring leads through a touched agent."""
    issues: list[Issue] = []
    for ring in _rings(agents, sorted(touched)):
        members = (str(key) for key in (*ring, ring[0]))
        named = _listed(members, len(ring) + 1, " -> ")
        for key in ring:
            summary = f"dependency cycle: {named}"
            loc = ("spec", "rollout", "dependsOn")
            detail = "None of these agents could ever start; remove one of the dependencies."
            issues.append(Issue(Code.DEPENDENCY_CYCLE, agents[key].origin, loc, summary, detail))
    return issues


def _rings(agents: Mapping[AgentKey, Agent], starts: Iterable[AgentKey]) -> list[list[AgentKey]]:
    search = _RingSearch(agents)
    for start in starts:
        if start in agents and agents[start].depends_on:
            search.explore(start)
    return search.rings


class _RingSearch:
    """The strongly connected groups reachable from some agents (Tarjan's algorithm, without recursion)."""

    def __init__(self, agents: Mapping[AgentKey, Agent]) -> None:
        self.rings: list[list[AgentKey]] = []
        self._agents = agents
        self._index: dict[AgentKey, int] = {}
        self._low: dict[AgentKey, int] = {}
        self._open: dict[AgentKey, None] = {}

    def explore(self, start: AgentKey) -> None:
        """Visit everything reachable from an agent that has not been visited."""
        path = [] if start in self._index else [self._enter(start)]
        while path:
            key, others = path[-1]
            other = next(others, None)
            if other is None:
                path.pop()
                self._leave(key, path[-1][0] if path else None)
            elif other not in self._index:
                path.append(self._enter(other))
            elif other in self._open:
                self._low[key] = min(self._low[key], self._index[other])

    def _enter(self, key: AgentKey) -> tuple[AgentKey, Iterator[AgentKey]]:
        self._index[key] = self._low[key] = len(self._index)
        self._open[key] = None
        return key, iter([other for other in self._agents[key].depends_on if other in self._agents])

    def _leave(self, key: AgentKey, parent: AgentKey | None) -> None:
        if parent is not None:
            self._low[parent] = min(self._low[parent], self._low[key])
        if self._low[key] != self._index[key]:
            return
        group: list[AgentKey] = []
        while not group or group[-1] != key:
            group.append(self._open.popitem()[0])
        if len(group) > 1 or key in self._agents[key].depends_on:
            self.rings.append(group[::-1])
