"""What is known of all files together, kept from one load to the next, and the checks across documents.

Each load derives a new index from the last good one: what a commit did not touch is carried over as the same
objects, and the cost beyond copying a few dictionaries follows the change. So does that of the checks: one key
each, one policy, dependencies that exist and have no cycle, pools that exist.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from gitops_agent.model.agent import Agent, Origin
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey
from gitops_agent.ports import TreeEntry
from gitops_agent.snapshot.codes import Code, FilePosition, Issue, Loc, warning
from gitops_agent.snapshot.compiled_file import AgentUnit, CompiledFile, PolicyUnit, PoolUnit, Shared
from gitops_agent.snapshot.schema import nearest

_NAMED = 20


MAX_LINKS = 10_000
"""With more reverse lookups than this beyond twice the files, they are made anew."""


@dataclass(slots=True)
class Index:
    """Files and agents of one snapshot, with the reverse lookups that make the next one cheap.

    ``referrers`` and ``inlined_by`` are shared by all indexes that follow each other and only ever grow: an entry
    that no longer holds, or is of a commit that was refused, costs another look and changes nothing.
    """

    files: dict[str, CompiledFile] = field(default_factory=dict)
    agents: dict[AgentKey, Agent] = field(default_factory=dict)
    special: dict[str, CompiledFile] = field(default_factory=dict)  # files with more to them than agents
    applied: Counter[str] = field(default_factory=Counter)  # overlay to how many agents it was applied to
    referrers: dict[AgentKey | str, set[AgentKey]] = field(default_factory=lambda: defaultdict(set))  # str: a pool
    inlined_by: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # file to documents
    shared: Shared = field(default_factory=Shared)
    added: list[AgentUnit] = field(default_factory=list)  # by this step, or changed
    removed: set[AgentKey | str] = field(default_factory=set)  # by this step
    duplicates: dict[AgentKey, list[Origin]] = field(default_factory=dict)

    def after(self, gone: Iterable[str], files: Collection[CompiledFile]) -> Index:
        """The index once some files have left and others have been read."""
        kept = (dict(self.files), dict(self.agents), dict(self.special), self.applied.copy())
        new = Index(*kept, self.referrers, self.inlined_by)
        if len(new.referrers) + len(new.inlined_by) > MAX_LINKS + 2 * len(new.files):
            new.referrers, new.inlined_by = defaultdict(set), defaultdict(set)  # most were of commits long gone
            for file in new.files.values():
                for unit in file.agents:
                    new._link(unit, file.path)
        for path in gone:
            if (leaving := new.files.pop(path, None)) is not None:
                new._drop(leaving)
        for file in files:
            new._add(file)
        new.removed = {key for key in new.removed if isinstance(key, str) or key not in new.agents}
        special = new.special.values()
        new.shared = Shared().plus((overlay for file in special for overlay in file.overlays), new.pools)
        return new

    def _drop(self, file: CompiledFile) -> None:
        self.special.pop(file.path, None)
        self.removed.update(pool.name for pool in file.pools)
        for unit in file.agents:
            self.agents.pop(unit.agent.key, None)
            self.removed.add(unit.agent.key)
            self.applied.subtract(unit.shared)

    def _add(self, file: CompiledFile) -> None:
        self.files[file.path] = file
        if file.is_special:
            self.special[file.path] = file
        for unit in file.agents:
            agent = unit.agent
            if agent.key in self.agents:
                self.duplicates.setdefault(agent.key, [self.agents[agent.key].origin]).append(agent.origin)
            self.agents[agent.key] = agent
            self.added.append(unit)
            if unit.shared:
                self.applied.update(unit.shared)
            self._link(unit, file.path)

    def _link(self, unit: AgentUnit, path: str) -> None:
        if unit.inlined is not None:
            self.inlined_by[unit.inlined[0]].add(path)
        if unit.pool is not None:
            self.referrers[unit.pool].add(unit.agent.key)
        for other in unit.agent.depends_on:
            self.referrers[other].add(unit.agent.key)

    def unchanged(self, wanted: Mapping[str, str]) -> dict[str, CompiledFile]:
        """Those of the files (path to blob) that are here with the same content."""
        here = {path: self.files[path] for path in wanted.keys() & self.files.keys()}
        return {path: file for path, file in here.items() if file.blob == wanted[path]}

    def inlining(self, changed: Collection[str]) -> dict[str, str]:
        """The documents (path to blob) that inline a file which changed, and did not change themselves."""
        paths = {path for file in changed for path in self.inlined_by.get(file, ())}.difference(changed)
        return {path: self.files[path].blob for path in paths if path in self.files}

    def stale(self, before: Shared) -> dict[str, str]:
        """Files (path to blob) with an agent whose overlays or pool are not those it was compiled with."""
        paths: Iterable[str] = self.files
        if self.shared.digests == before.digests:
            paths = {unit.agent.origin.path for unit in self.added}
        is_current = self.shared.is_current
        files = (self.files[path] for path in paths)
        return {file.path: file.blob for file in files if not all(map(is_current, file.agents))}

    @property
    def policies(self) -> list[PolicyUnit]:
        """Every policy document."""
        return [policy for file in self.special.values() for policy in file.policies]

    @property
    def pools(self) -> list[PoolUnit]:
        """Every credential pool."""
        return [pool for file in self.special.values() for pool in file.pools]

    @property
    def findings(self) -> list[Finding]:
        """The findings of files without errors."""
        return [finding for file in self.special.values() for finding in file.findings]

    def warnings(self) -> list[Finding]:
        """What is valid and probably not what was meant."""
        places = [each.origin for each in self.shared.overlays if not self.applied[each.digest]]
        summary, detail = "the overlay selects no agent", "Check its selector."
        found = [warning(Code.OVERLAY_UNUSED, FilePosition(at.path, at.line), summary, detail) for at in places]
        if not self.agents:
            detail = "Add a document of kind: Agent."
            found.append(warning(Code.NO_AGENTS, FilePosition("."), "no agent is declared", detail))
        return found

    def issues(self, suspects: set[str]) -> list[Issue]:
        """What is wrong between documents, as far as this step could have made it so."""
        found = _duplicates(self.duplicates, self.pools, self.policies)
        touched = {unit.agent.key: unit for unit in (*self._dangling(), *self.added)}.values()
        agents = [unit.agent for unit in touched if unit.agent.depends_on]
        found += _missing_dependencies(self.agents, agents, suspects)
        found += _missing_pools(self.shared, (unit for unit in touched if unit.pool), suspects)
        return found + _cycles(self.agents, [agent.key for agent in agents])

    def _dangling(self) -> list[AgentUnit]:
        """The agents that refer to something this step removed."""
        keys = {key for gone in self.removed for key in self.referrers.get(gone, ()) if key in self.agents}
        paths = {self.agents[key].origin.path for key in keys}
        return [unit for path in paths for unit in self.files[path].agents if unit.agent.key in keys]


def is_current(file: CompiledFile, tree: Mapping[str, TreeEntry]) -> bool:
    """Whether the files that a compiled file inlines have the content they had."""
    inlined = [unit.inlined for unit in file.agents if unit.inlined is not None]
    return all(path in tree and tree[path].blob == blob for path, blob in inlined)


def _listed(names: Iterable[str], count: int, between: str = " and ") -> str:
    """Names for a summary: each has a finding of its own, so a thousand need not stand in every one."""
    shown = between.join(islice(names, _NAMED))
    return shown if count <= _NAMED else f"{shown} and {count - _NAMED} more"


def _duplicates(
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


def _repeated(code: Code, origins: Iterable[Origin], loc: Loc, what: str, detail: str = "") -> list[Issue]:
    places = sorted(origins, key=lambda origin: (origin.path, origin.line))
    summary = f"{what.format(len(places))}: {_listed(map(str, places), len(places))}"
    return [Issue(code, loc, summary, detail, origin=origin) for origin in places] if len(places) > 1 else []


def _missing_dependencies(
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


def _missing_pools(shared: Shared, touched: Iterable[AgentUnit], suspects: Collection[str]) -> list[Issue]:
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


def _cycles(agents: Mapping[AgentKey, Agent], touched: Iterable[AgentKey]) -> list[Issue]:
    """Agents that wait for each other in a ring. A new ring leads through a touched agent."""
    issues: list[Issue] = []
    for ring in _rings(agents, touched):
        named = _listed((str(key) for key in (*ring, ring[0])), len(ring) + 1, " -> ")
        summary, loc = f"dependency cycle: {named}", ("spec", "rollout", "dependsOn")
        detail = "None of these agents could ever start; remove one of the dependencies."
        issues += [Issue(Code.DEPENDENCY_CYCLE, loc, summary, detail, origin=agents[key].origin) for key in ring]
    return issues


def _rings(agents: Mapping[AgentKey, Agent], starts: Iterable[AgentKey]) -> Iterator[list[AgentKey]]:
    """The agents, reachable from some, that lead to each other: each group once (Kosaraju's algorithm)."""
    visited: dict[AgentKey, None] = {}
    left: list[AgentKey] = []  # once everything was visited that an agent waits for
    users: dict[AgentKey, list[AgentKey]] = {}
    waiting = [(start, False) for start in sorted(starts, reverse=True)]
    while waiting:
        key, leaving = waiting.pop()
        if leaving:
            left.append(key)
        elif key not in visited:
            visited[key] = None
            waiting.append((key, True))
            for other in agents[key].depends_on:
                if other in agents:
                    users.setdefault(other, []).append(key)
                    waiting.append((other, False))
    for first in reversed(left):
        group, found = [], [first]
        while found:
            key = found.pop()
            if key in visited:
                del visited[key]
                group.append(key)
                found += users.get(key, ())
        if len(group) > 1 or (group and first in agents[first].depends_on):
            yield [first, *reversed(group[1:])]
