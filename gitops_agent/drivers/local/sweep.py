"""One sweep of the process table, and what in it looks like an agent without being one of ours."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

from gitops_agent.drivers.local.lookalikes import same_command
from gitops_agent.drivers.local.process_tree import ProcessTree, ancestors
from gitops_agent.drivers.local.procfs import Host, ProcessInfo, ProcessTable
from gitops_agent.drivers.local.spec import Desired


class Sweep:
    """The sorted process table, with where and when it was read."""

    def __init__(self, tree: ProcessTree, host: Host, now: float, table: ProcessTable) -> None:
        self.tree = tree
        self.host = host
        self.now = now
        self._table = table

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
        alike = {proc.pid: proc for proc in same if self._table.working_directory(proc.pid) in here}
        return [proc for proc in alike.values() if self._is_stranger(proc, alike)]

    @cached_property
    def _strangers(self) -> Mapping[tuple[str, ...], list[tuple[ProcessInfo, tuple[str, ...]]]]:
        """Every unmarked process by its arguments. Read once per sweep, and only when something is not there."""
        found: dict[tuple[str, ...], list[tuple[ProcessInfo, tuple[str, ...]]]] = defaultdict(list)
        for proc in self.tree.table.values():
            if proc.marks is None and proc.alive and (line := self._table.command_line(proc.pid)):
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

    def _is_stranger(self, proc: ProcessInfo, alike: Mapping[int, ProcessInfo]) -> bool:
        """Whether it is neither a replica nor below one, nor a worker of another lookalike."""
        if proc.pid in self._ours or proc.pid in self._above_us:
            return False
        family = ancestors(proc, self.tree.table)
        return not any(above.marks or above.pid in self._ours or above.pid in alike for above in family)
