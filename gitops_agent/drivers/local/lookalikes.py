"""What looks like an agent: processes that carry our marks but that we did not start, and unmarked ones that a
sweep finds in the place of an agent."""

import os
import posixpath
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gitops_agent.drivers.local.process_tree import ProcessTree, ancestors
from gitops_agent.drivers.local.procfs import Host, ProcessInfo, ProcessTable
from gitops_agent.drivers.local.spec import Desired


def runs_command(found: Sequence[str], declared: Sequence[str], *, strict: bool = False) -> bool:
    """Whether a command line is the declared one, perhaps behind an interpreter (``python3 ./bot`` for ``./bot``).
    A command line that is empty (not ours to see) or was replaced by a title proves nothing: it passes, unless we
    are ``strict``."""
    words = [word for word in found if word]
    if not words or (len(words) == 1 and (" " in words[0] or ":" in words[0])):
        return not strict
    before = len(found) - len(declared)
    return before >= 0 and same_command(found[before:], declared)


def same_command(found: Sequence[str], declared: Sequence[str]) -> bool:
    """Whether a command line is the declared one and nothing else; the program may be called by another path."""
    if len(found) != len(declared) or tuple(found[1:]) != tuple(declared[1:]):
        return False
    return posixpath.basename(found[0]) == posixpath.basename(declared[0])


def has_environment(found: Mapping[str, str], declared: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an environment holds every declared literal (references are not compared: they are secrets)."""
    return all(found.get(item["name"]) == item["value"] for item in declared if "value" in item)


@dataclass(frozen=True)
class Sweep:
    """The sorted process table, with where and when it was read. ``booted``: when this machine was."""

    tree: ProcessTree
    host: Host
    now: float
    booted: float
    table: ProcessTable

    def lookalikes(self, wanted: Desired, workdir: str) -> list[ProcessInfo]:
        """Unmarked processes that run exactly the agent's command in its working directory; of a tree the top."""
        same = [
            proc
            for proc, line in self._strangers.get(wanted.command[1:], ())
            if same_command(line, wanted.command)
        ]
        if not same:
            return []  # as almost always: the folder need not be looked up
        here = (workdir, os.path.realpath(workdir))
        alike = {proc.pid: proc for proc in same if self.table.working_directory(proc.pid) in here}
        strange = [proc for proc in alike.values() if proc.pid not in self._ours | self._above_us]
        # Nor is it one that is below a replica, or a worker of another lookalike.
        top = self._ours | alike.keys()
        return [
            proc
            for proc in strange
            if not any(above.marks or above.pid in top for above in ancestors(proc, self.tree.table))
        ]

    @cached_property
    def _strangers(self) -> Mapping[tuple[str, ...], list[tuple[ProcessInfo, tuple[str, ...]]]]:
        """Every unmarked process by its arguments. Read once per sweep, and only when something is not there."""
        found: dict[tuple[str, ...], list[tuple[ProcessInfo, tuple[str, ...]]]] = defaultdict(list)
        for proc in self.tree.table.values():
            if proc.marks is None and proc.alive and (line := self.table.command_line(proc.pid)):
                found[line[1:]].append((proc, line))
        return found

    @cached_property
    def _ours(self) -> set[int]:
        """Our replicas, although some hide their marks."""
        return {replica.proc.pid for replicas in self.tree.ours.values() for replica in replicas}

    @cached_property
    def _above_us(self) -> set[int]:
        """Us, and what we descend from: adopting that would end ourselves."""
        me = self.tree.table.get(os.getpid())
        return {proc.pid for proc in (me, *ancestors(me, self.tree.table))} if me is not None else set()
