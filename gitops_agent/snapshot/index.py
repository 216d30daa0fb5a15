"""What is known of all files together, kept from one load to the next.

Each load derives a new index from the last good one: what a commit did not touch is carried over as the same
objects, and the cost beyond copying a few dictionaries follows the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from gitops_agent.model.agent import Agent, Origin
from gitops_agent.model.finding import Finding
from gitops_agent.model.key import AgentKey
from gitops_agent.snapshot import references as graph
from gitops_agent.snapshot.codes import Code, FilePosition, warning
from gitops_agent.snapshot.compiled_file import AgentUnit, CompiledFile, Issue, OverlayUnit, PolicyUnit
from gitops_agent.snapshot.overlay import in_path_order, matching

_Key = TypeVar("_Key")
_Item = TypeVar("_Item")
_Ref = AgentKey | str


@dataclass(slots=True)
class Index:
    """Files and agents of one snapshot, with the reverse lookups that make the next one cheap."""

    files: dict[str, CompiledFile] = field(default_factory=dict)
    agents: dict[AgentKey, Agent] = field(default_factory=dict)
    special: dict[str, CompiledFile] = field(default_factory=dict)  # files with more to them than agents
    wanted: dict[_Ref, frozenset[AgentKey]] = field(default_factory=dict)  # agent or pool: who refers to it
    readers: dict[str, frozenset[str]] = field(default_factory=dict)  # inlined file: which documents inline it
    applied: dict[str, int] = field(default_factory=dict)  # overlay: how many agents it was applied to
    overlays: tuple[OverlayUnit, ...] = ()
    added: list[AgentUnit] = field(default_factory=list)  # added or changed by this step
    removed: set[_Ref] = field(default_factory=set)  # agents and names of pools that this step removed
    duplicates: dict[AgentKey, list[Origin]] = field(default_factory=dict)

    def after(self, gone: Iterable[str], units: Mapping[str, CompiledFile]) -> Index:
        """The index once some files have left and others have been read."""
        new = Index(
            dict(self.files),
            dict(self.agents),
            dict(self.special),
            dict(self.wanted),
            dict(self.readers),
            dict(self.applied),
        )
        leaving = [unit for path in gone if (unit := new.files.pop(path, None)) is not None]
        for unit in leaving:
            new._drop(unit)
        for unit in units.values():
            new._add(unit)
        _update(new.wanted, _references(leaving), _references(units.values()))
        _update(new.readers, _inlined(leaving), _inlined(units.values()))
        new.removed = {key for key in new.removed if isinstance(key, str) or key not in new.agents}
        new.overlays = in_path_order(overlay for unit in new.special.values() for overlay in unit.overlays)
        return new

    def _drop(self, unit: CompiledFile) -> None:
        self.special.pop(unit.path, None)
        self.removed.update(pool.name for pool in unit.pools)
        for agent in unit.agents:
            self.agents.pop(agent.agent.key, None)
            self.removed.add(agent.agent.key)
            for name in agent.overlays:
                self.applied[name] -= 1

    def _add(self, unit: CompiledFile) -> None:
        self.files[unit.path] = unit
        if unit.overlays or unit.policies or unit.pools or unit.findings:
            self.special[unit.path] = unit
        for agent in unit.agents:
            key = agent.agent.key
            if key in self.agents:
                self.duplicates.setdefault(key, [self.agents[key].origin]).append(agent.agent.origin)
            self.agents[key] = agent.agent
            self.added.append(agent)
            for name in agent.overlays:
                self.applied[name] = self.applied.get(name, 0) + 1

    def stale(self, before: tuple[OverlayUnit, ...]) -> dict[str, str]:
        """Files (path to blob) with an agent whose overlays are not those it was compiled with."""
        paths: Iterable[str] = self.files
        if [overlay.digest for overlay in self.overlays] == [overlay.digest for overlay in before]:
            paths = {unit.agent.origin.path for unit in self.added}
        units = (self.files[path] for path in paths)
        return {unit.path: unit.blob for unit in units if any(map(self._is_stale, unit.agents))}

    def _is_stale(self, unit: AgentUnit) -> bool:
        if not self.overlays:
            return unit.overlays != ()
        chosen = matching(self.overlays, unit.agent.key, unit.labels)
        return unit.overlays != tuple(overlay.digest for overlay in chosen)

    def policies(self) -> list[PolicyUnit]:
        """Every policy document."""
        return [policy for unit in self.special.values() for policy in unit.policies]

    def notes(self) -> list[Finding]:
        """What there is to say about files without errors."""
        return [finding for unit in self.special.values() for finding in unit.findings]

    def warnings(self) -> list[Finding]:
        """What is valid and probably not what was meant."""
        found: list[Finding] = []
        for overlay in self.overlays:
            if not self.applied.get(overlay.digest):
                place, summary = (
                    FilePosition(overlay.origin.path, overlay.origin.line),
                    "the overlay selects no agent",
                )
                found.append(warning(Code.OVERLAY_UNUSED, place, summary, "Check its selector."))
        if not self.agents:
            summary = "no agent is declared"
            found.append(warning(Code.NO_AGENTS, FilePosition("."), summary, "Add a document of kind: Agent."))
        return found

    def issues(self, suspects: set[str]) -> list[Issue]:
        """What is wrong between documents, as far as this step could have made it so."""
        found = [issue for key, origins in self.duplicates.items() for issue in graph.same_key(key, origins)]
        pools = [pool for unit in self.special.values() for pool in unit.pools]
        found += graph.same_pool(pools)
        found += graph.several_policies(self.policies())
        touched = {unit.agent.key: unit for unit in (*self._dangling(), *self.added)}
        agents = [unit.agent for unit in touched.values()]
        found += graph.missing_dependencies(self.agents, agents, suspects)
        found += graph.missing_pools({(pool.tenant, pool.name) for pool in pools}, touched.values(), suspects)
        found += graph.cycles(self.agents, [agent.key for agent in agents if agent.depends_on])
        return found

    def _dangling(self) -> list[AgentUnit]:
        """The agents that refer to something this step removed."""
        keys = {key for removed in self.removed for key in self.wanted.get(removed, ()) if key in self.agents}
        paths = {self.agents[key].origin.path for key in keys}
        return [unit for path in paths for unit in self.files[path].agents if unit.agent.key in keys]


def _references(units: Iterable[CompiledFile]) -> dict[_Ref, set[AgentKey]]:
    found: dict[_Ref, set[AgentKey]] = {}
    for unit in units:
        for agent in unit.agents:
            for key in agent.agent.depends_on:
                found.setdefault(key, set()).add(agent.agent.key)
            if agent.pool is not None:
                found.setdefault(agent.pool, set()).add(agent.agent.key)
    return found


def _inlined(units: Iterable[CompiledFile]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for unit in units:
        for agent in unit.agents:
            if agent.inlined is not None:
                found.setdefault(agent.inlined[0], set()).add(unit.path)
    return found


def _update(
    table: dict[_Key, frozenset[_Item]], less: Mapping[_Key, set[_Item]], more: Mapping[_Key, set[_Item]]
) -> None:
    """Take items out of a table of sets and put others in; sets are replaced, since older tables share them."""
    for key in less.keys() | more.keys():
        items = (table.get(key, frozenset()) - less.get(key, set())) | more.get(key, set())
        if items:
            table[key] = items
        else:
            table.pop(key, None)
