"""Leases: of all gitops-agents of one name on this host, one at a time acts on an agent.

Two of them with two state directories know nothing of each other's journal, but what they act on is here, so here
is where they meet. A lease is kept as long as its holder lives, whether it has anything to do or not; there is no
time in it, so no clock that jumps and no long stop takes it away.
"""

import os
import uuid
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from gitops_agent.errors import UsageError
from gitops_agent.model.key import AgentKey
from gitops_agent.reconcile.leases.lease_files import Holder, Lease, LeaseFiles


class HostLeases:
    """The leases of this process, held while it is entered. ``claim`` is for one thread, ``holds`` for many."""

    def __init__(self, folder: Path, holder: Holder, files: LeaseFiles | None = None) -> None:
        self._folder = folder
        self._holder = holder
        self._files = files or LeaseFiles(folder, holder.instance)
        self._id = ""
        self._handle: int | None = None
        self._held: dict[AgentKey, Lease] = {}

    def __enter__(self) -> "HostLeases":
        try:
            self._register()
        except OSError as problem:
            raise UsageError(self._complaint(problem), hint=_WAY_OUT) from problem
        return self

    def __exit__(self, *_: object) -> None:
        try:
            # What cannot be cleaned up here is swept by the next one: the kernel knows which are dead.
            with suppress(OSError), self._files.locked():
                for agent in [agent for agent in self._held if self.holds(agent)]:
                    self._files.remove(agent)
                self._files.unregister(self._id)
        finally:
            self._held.clear()
            if self._handle is not None:
                os.close(self._handle)
                self._handle = None

    def claim(self, agents: Collection[AgentKey]) -> dict[AgentKey, str]:
        """Take or keep the leases of some agents; for each that is not ours now, why not.
        Never raises for what the folder does: a lease that cannot be taken is not held."""
        try:
            if not self._is_registered():
                self._register()
            wanted = sorted(agent for agent in agents if not self.holds(agent))
            return dict(self._take(wanted)) if wanted else {}
        except OSError as problem:
            refusal = f"its lease cannot be taken: {self._complaint(problem)}"
        except UsageError as problem:
            refusal = f"its lease cannot be taken: {problem.message}; {problem.hint}"
        return {agent: refusal for agent in agents if not self.holds(agent)}

    def holds(self, agent: AgentKey) -> bool:
        """Whether the lease on file is the very one we took: the fence before every effect."""
        mine = self._held.get(agent)
        try:
            return mine is not None and self._files.read(agent) == mine
        except OSError:
            return False

    def senior_holder(self) -> str:
        """A sentence that names the process that followed the same source before us; "" without one."""
        try:
            with self._files.locked():
                return self._senior_holder({})
        except OSError:
            return ""

    def _take(self, agents: Collection[AgentKey]) -> Iterator[tuple[AgentKey, str]]:
        others: dict[str, str] = {}  # a sentence for each live holder, "" for a dead one
        with self._files.locked() as lock:
            senior_holder = self._senior_holder(others)
            tokens = self._files.reserve(lock, len(agents))
            for token, agent in enumerate(agents, tokens):
                found = self._files.read(agent)
                taken = self._refusal(found.holder, others) if found and found.holder != self._id else ""
                if refusal := taken or senior_holder:
                    self._held.pop(agent, None)
                    yield agent, refusal
                    continue
                lease = Lease(self._id, token if found is None else max(token, found.token + 1))
                self._files.write(agent, lease)
                self._held[agent] = lease

    def _refusal(self, holder: str, known: dict[str, str]) -> str:
        """Why a lease of this holder is not ours to take; nothing when the holder is dead."""
        if holder not in known:
            alive = self._files.is_alive(holder)
            known[holder] = _sentence(self._files.introduction(holder)) if alive else ""
        return known[holder]

    def _senior_holder(self, known: dict[str, str]) -> str:
        """Why nothing new is ours to take: one that follows the same source was here before us, and lives.
        Without this rule each of the two would win some of the agents that a commit adds, and neither would ever
        see its commit converge."""
        for name in self._files.seniors(self._id):
            other = self._files.introduction(name)
            if other and other.source == self._holder.source and (refusal := self._refusal(name, known)):
                return refusal
        return ""

    def _is_registered(self) -> bool:
        return self._handle is not None and self._files.is_registered(self._id, self._handle)

    def _register(self) -> None:
        """Register with the others, under a new name; what we held under another is lost."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._held.clear()
        self._files.prepare()
        with self._files.locked() as lock:
            self._files.sweep()
            name = f"{self._files.reserve(lock, 1):020d}-{uuid.uuid4().hex}"
            self._handle = self._files.register(name, self._holder)
            self._id = name

    def _complaint(self, problem: OSError) -> str:
        return f"{self._folder}: {problem.strerror or problem}"


_WAY_OUT = (
    "make room there, let the user that runs gitops-agent write there, or choose another --lease-dir; if another "
    "gitops-agent was stopped by a signal, continue or end it"
)


def _sentence(holder: Holder | None) -> str:
    if holder is None:
        return "acted on by another gitops-agent that cannot be identified; this one waits"
    since = datetime.fromtimestamp(holder.since, UTC)
    return (
        f"acted on by another gitops-agent (instance {holder.instance}, state directory {holder.state_dir}, "
        f"pid {holder.pid}, since {since:%Y-%m-%d %H:%M:%S} UTC); this one waits"
    )
