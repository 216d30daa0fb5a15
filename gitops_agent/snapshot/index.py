"""What is known of all files together, kept from one load to the next.

Each load derives a new index from the last good one: what a commit did not touch is carried over as the same
objects, and the cost beyond copying a few dictionaries follows the change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from gitops_agent.model.agent import Agent, Origin
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey
from gitops_agent.snapshot import references
from gitops_agent.snapshot.codes import Code, FilePosition, warning
from gitops_agent.snapshot.compiled_file import AgentUnit, CompiledFile, Issue, OverlayUnit, PolicyUnit, PoolUnit
from gitops_agent.snapshot.overlay import in_path_order, matching
from gitops_agent.snapshot.tree_rules import TreeFile

_Key = TypeVar("_Key")
_Item = TypeVar("_Item")
_Ref = AgentKey | str  # an agent, or the name of a pool


@dataclass(slots=True)
class Index:
    """Files and agents of one snapshot, with the reverse lookups that make the next one cheap."""

    files: dict[str, CompiledFile] = field(default_factory=dict)
    agents: dict[AgentKey, Agent] = field(default_factory=dict)
    special: dict[str, CompiledFile] = field(default_factory=dict)  # files with more to them than agents
    referrers: dict[_Ref, frozenset[AgentKey]] = field(default_factory=dict)
    inlined_by: dict[str, frozenset[str]] = field(default_factory=dict)  # file to the documents that inline it
    applied: Counter[str] = field(default_factory=Counter)  # overlay to how many agents it was applied to
    overlays: tuple[OverlayUnit, ...] = ()
    added: list[AgentUnit] = field(default_factory=list)  # by this step, or changed
    removed: set[_Ref] = field(default_factory=set)  # by this step
    duplicates: dict[AgentKey, list[Origin]] = field(default_factory=dict)

    def after(self, gone: Iterable[str], files: Collection[CompiledFile]) -> Index:
        """The index once some files have left and others have been read."""
        new = Index(
            dict(self.files),
            dict(self.agents),
            dict(self.special),
            dict(self.referrers),
            dict(self.inlined_by),
            self.applied.copy(),
        )
        leaving = [file for path in gone if (file := new.files.pop(path, None)) is not None]
        for file in leaving:
            new._drop(file)
        for file in files:
            new._add(file)
        _update(new.referrers, _references(leaving), _references(files))
        _update(new.inlined_by, _inlined(leaving), _inlined(files))
        new.removed = {key for key in new.removed if isinstance(key, str) or key not in new.agents}
        new.overlays = in_path_order(overlay for file in new.special.values() for overlay in file.overlays)
        return new

    def _drop(self, file: CompiledFile) -> None:
        self.special.pop(file.path, None)
        self.removed.update(pool.name for pool in file.pools)
        for unit in file.agents:
            self.agents.pop(unit.agent.key, None)
            self.removed.add(unit.agent.key)
            self.applied.subtract(unit.overlays)

    def _add(self, file: CompiledFile) -> None:
        self.files[file.path] = file
        if file.overlays or file.policies or file.pools or file.findings:
            self.special[file.path] = file
        for unit in file.agents:
            key = unit.agent.key
            if key in self.agents:
                self.duplicates.setdefault(key, [self.agents[key].origin]).append(unit.agent.origin)
            self.agents[key] = unit.agent
            self.added.append(unit)
            self.applied.update(unit.overlays)

    def unchanged(self, wanted: Mapping[str, str]) -> dict[str, CompiledFile]:
        """Those of the files (path to blob) that are here with the same content."""
        here = {path: self.files[path] for path in wanted.keys() & self.files.keys()}
        return {path: file for path, file in here.items() if file.blob == wanted[path]}

    def inlining(self, changed: set[str]) -> dict[str, str]:
        """The documents (path to blob) that inline a file which changed, and did not change themselves."""
        paths = {path for file in changed for path in self.inlined_by.get(file, ())} - changed
        return {path: self.files[path].blob for path in paths}

    def stale(self, before: tuple[OverlayUnit, ...]) -> dict[str, str]:
        """Files (path to blob) with an agent whose overlays are not those it was compiled with."""
        paths: Iterable[str] = self.files
        if [overlay.digest for overlay in self.overlays] == [overlay.digest for overlay in before]:
            paths = {unit.agent.origin.path for unit in self.added}
        files = (self.files[path] for path in paths)
        return {file.path: file.blob for file in files if any(map(self._is_stale, file.agents))}

    def _is_stale(self, unit: AgentUnit) -> bool:
        if not self.overlays:
            return unit.overlays != ()
        chosen = matching(self.overlays, unit.agent.key, unit.labels)
        return unit.overlays != tuple(overlay.digest for overlay in chosen)

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
        found = [
            warning(
                Code.OVERLAY_UNUSED,
                FilePosition(overlay.origin.path, overlay.origin.line),
                "the overlay selects no agent",
                "Check its selector.",
            )
            for overlay in self.overlays
            if not self.applied[overlay.digest]
        ]
        if not self.agents:
            detail = "Add a document of kind: Agent."
            found.append(warning(Code.NO_AGENTS, FilePosition("."), "no agent is declared", detail))
        return found

    def issues(self, suspects: set[str]) -> list[Issue]:
        """What is wrong between documents, as far as this step could have made it so."""
        found = [issue for key, origins in self.duplicates.items() for issue in references.same_key(key, origins)]
        found += references.same_pool(self.pools)
        found += references.several_policies(self.policies)
        touched = {unit.agent.key: unit for unit in (*self._dangling(), *self.added)}
        agents = [unit.agent for unit in touched.values()]
        found += references.missing_dependencies(self.agents, agents, suspects)
        pools = {(pool.tenant, pool.name) for pool in self.pools}
        found += references.missing_pools(pools, touched.values(), suspects)
        found += references.cycles(self.agents, [agent.key for agent in agents if agent.depends_on])
        return found

    def _dangling(self) -> list[AgentUnit]:
        """The agents that refer to something this step removed."""
        keys = {key for gone in self.removed for key in self.referrers.get(gone, ()) if key in self.agents}
        paths = {self.agents[key].origin.path for key in keys}
        return [unit for path in paths for unit in self.files[path].agents if unit.agent.key in keys]


def is_current(file: CompiledFile, tree: Mapping[str, TreeFile]) -> bool:
    """Whether the files that a compiled file inlines have the content they had."""
    inlined = [unit.inlined for unit in file.agents if unit.inlined is not None]
    return all(path in tree and tree[path].blob == blob for path, blob in inlined)


def _references(files: Iterable[CompiledFile]) -> Iterator[tuple[_Ref, AgentKey]]:
    for file in files:
        for unit in file.agents:
            for key in unit.agent.depends_on:
                yield key, unit.agent.key
            if unit.pool is not None:
                yield unit.pool, unit.agent.key


def _inlined(files: Iterable[CompiledFile]) -> Iterator[tuple[str, str]]:
    return ((unit.inlined[0], file.path) for file in files for unit in file.agents if unit.inlined is not None)


def _update(
    table: dict[_Key, frozenset[_Item]], less: Iterable[tuple[_Key, _Item]], more: Iterable[tuple[_Key, _Item]]
) -> None:
    """Remove pairs from a table of sets and add others; sets are replaced, since older tables share them."""
    changed: dict[_Key, set[_Item]] = {}
    for key, item in less:
        changed.setdefault(key, set(table.get(key, ()))).discard(item)
    for key, item in more:
        changed.setdefault(key, set(table.get(key, ()))).add(item)
    for key, items in changed.items():
        if items:
            table[key] = frozenset(items)
        else:
            table.pop(key, None)
