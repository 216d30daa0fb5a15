"""Checks across documents: one key each, one policy, dependencies that exist and have no cycle, pools that exist.

Each check looks at what a commit touched and what hangs on it, so its cost follows the change, not the fleet.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from gitops_agent.model.agent import Agent, Origin
from gitops_agent.model.key import AgentKey
from gitops_agent.snapshot.codes import Code, Issue
from gitops_agent.snapshot.compiled_file import AgentUnit, PolicyUnit, PoolUnit, Shared
from gitops_agent.snapshot.schema import nearest

_NAMED = 20


def _listed(names: Iterable[str], count: int, between: str = " and ") -> str:
    """Names for a summary: each has a finding of its own, so a thousand need not stand in every one."""
    shown = between.join(islice(names, _NAMED))
    return shown if count <= _NAMED else f"{shown} and {count - _NAMED} more"


def duplicates(
    agents: Mapping[AgentKey, Iterable[Origin]], pools: Iterable[PoolUnit], policies: Iterable[PolicyUnit]
) -> list[Issue]:
    """Documents that declare one thing: each is addressed, all are named."""
    same: dict[tuple[str, str], list[Origin]] = {}
    for pool in pools:
        same.setdefault((pool.tenant, pool.name), []).append(pool.origin)
    name = ("metadata", "name")
    found: list[Issue] = []
    for key, origins in agents.items():
        what = f"agent {key} is declared {{}} times"
        found += _repeated(Code.DUPLICATE_AGENT, origins, name, what, "Rename one of them, or remove it.")
    for (_, pool_name), origins in same.items():
        what = f"credential pool {pool_name} is declared {{}} times"
        found += _repeated(Code.DUPLICATE_POOL, origins, name, what)
    detail = "Keep one; limits for one tenant go into its spec.tenants."
    origins = [policy.origin for policy in policies]
    return found + _repeated(Code.SEVERAL_POLICIES, origins, ("kind",), "{} Policy documents", detail)


def _repeated(
    code: Code, origins: Iterable[Origin], loc: tuple[str, ...], what: str, detail: str = ""
) -> list[Issue]:
    places = sorted(origins, key=lambda origin: (origin.path, origin.line))
    summary = f"{what.format(len(places))}: {_listed(map(str, places), len(places))}"
    return [Issue(code, loc, summary, detail, origin=origin) for origin in places] if len(places) > 1 else []


def missing_dependencies(
    agents: Mapping[AgentKey, Agent], touched: Iterable[Agent], suspects: Collection[str]
) -> list[Issue]:
    """Dependencies on agents that no document declares (``suspects``: names in files that could not be read)."""
    issues: list[Issue] = []
    tenants: dict[str, list[str]] = {}
    for agent in touched:
        for position, key in enumerate(agent.depends_on):
            if key in agents or key.tenant != agent.key.tenant or key.name in suspects:
                continue
            if key.tenant not in tenants:
                tenants[key.tenant] = [other.name for other in agents if other.tenant == key.tenant]
            hint = nearest(key.name, tenants[key.tenant])
            summary = f"agent {agent.key} depends on {key}, which no document declares{hint}"
            loc, detail = ("spec", "rollout", "dependsOn", position), "Declare it, or drop it."
            issues.append(Issue(Code.UNKNOWN_DEPENDENCY, loc, summary, detail, origin=agent.origin))
    return issues


def missing_pools(shared: Shared, touched: Iterable[AgentUnit], suspects: Collection[str]) -> list[Issue]:
    """References to credential pools that are not declared for the tenant or for all."""
    issues: list[Issue] = []
    for unit in touched:
        tenant, pool = unit.agent.key.tenant, unit.pool
        if pool is None or pool in suspects or shared.pool(tenant, pool) is not None:
            continue
        hint = nearest(pool, [name for owner, name in shared.pools if owner in ("", tenant)])
        summary = f"agent {unit.agent.key} uses credential pool {pool}, which no document declares{hint}"
        detail = "Declare a CredentialPool of this tenant or of all tenants."
        loc = ("spec", "credentialPoolRef", "name")
        issues.append(Issue(Code.UNKNOWN_POOL, loc, summary, detail, origin=unit.agent.origin))
    return issues


def cycles(agents: Mapping[AgentKey, Agent], touched: Iterable[AgentKey]) -> list[Issue]:
    """Agents that wait for each other in a ring. A new ring leads through a touched agent."""
    search = _RingSearch(agents)
    for start in sorted(touched):
        search.explore(start)
    issues: list[Issue] = []
    for ring in search.rings:
        named = _listed((str(key) for key in (*ring, ring[0])), len(ring) + 1, " -> ")
        summary, loc = f"dependency cycle: {named}", ("spec", "rollout", "dependsOn")
        detail = "None of these agents could ever start; remove one of the dependencies."
        issues += [Issue(Code.DEPENDENCY_CYCLE, loc, summary, detail, origin=agents[key].origin) for key in ring]
    return issues


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
