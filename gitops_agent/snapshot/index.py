"""What is known of all files together, kept from one load to the next.

Each load derives a new index from the last good one: what a commit did not touch is carried over as the same
objects, and the cost beyond copying a few dictionaries follows the change.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from gitops_agent.model.agent import Agent, Origin
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey
from gitops_agent.ports import TreeEntry
from gitops_agent.snapshot import references
from gitops_agent.snapshot.codes import Code, FilePosition, Issue, warning
from gitops_agent.snapshot.compiled_file import AgentUnit, CompiledFile, PolicyUnit, PoolUnit, Shared


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
        for path in gone:
            if (leaving := new.files.pop(path, None)) is not None:
                new._drop(leaving)
        for file in files:
            new._add(file)
        new.removed = {key for key in new.removed if isinstance(key, str) or key not in new.agents}
        special = new.special.values()
        new.shared = Shared.of((overlay for file in special for overlay in file.overlays), new.pools)
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
            if unit.inlined is not None:
                self.inlined_by[unit.inlined[0]].add(file.path)
            if unit.pool is not None:
                self.referrers[unit.pool].add(agent.key)
            for other in agent.depends_on:
                self.referrers[other].add(agent.key)

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
        found = references.duplicates(self.duplicates, self.pools, self.policies)
        touched = {unit.agent.key: unit for unit in (*self._dangling(), *self.added)}.values()
        agents = [unit.agent for unit in touched if unit.agent.depends_on]
        found += references.missing_dependencies(self.agents, agents, suspects)
        found += references.missing_pools(self.shared, (unit for unit in touched if unit.pool), suspects)
        return found + references.cycles(self.agents, [agent.key for agent in agents])

    def _dangling(self) -> list[AgentUnit]:
        """The agents that refer to something this step removed."""
        keys = {key for gone in self.removed for key in self.referrers.get(gone, ()) if key in self.agents}
        paths = {self.agents[key].origin.path for key in keys}
        return [unit for path in paths for unit in self.files[path].agents if unit.agent.key in keys]


def is_current(file: CompiledFile, tree: Mapping[str, TreeEntry]) -> bool:
    """Whether the files that a compiled file inlines have the content they had."""
    inlined = [unit.inlined for unit in file.agents if unit.inlined is not None]
    return all(path in tree and tree[path].blob == blob for path, blob in inlined)
