"""Which secrets were rotated since a replica was started: what it runs with, against what it would be given now.

Nothing about a secret is stored. The kernel keeps the environment that a process was started with, and what was
read of it is remembered as digests under a key that ends with this process. So a lost state directory makes no
secret look rotated.
"""

import os
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from gitops_agent.drivers.local.environment import Environment
from gitops_agent.drivers.local.marks import OWNER, as_agent, variables
from gitops_agent.drivers.local.process_tree import Replica
from gitops_agent.drivers.local.procfs import Identity, ProcessTable
from gitops_agent.drivers.local.spec import Desired
from gitops_agent.model.key import AgentKey

Digests = Mapping[str, bytes]


class RotatedSecrets:
    """Compares the secrets of replicas with those of now. Remembers those of a process for as long as it lives."""

    def __init__(self, environment: Environment, table: ProcessTable) -> None:
        self._environment = environment
        self._table = table
        self._key = os.urandom(32)
        self._given: dict[Identity, Digests] = {}

    def find(self, agent: AgentKey, replicas: Iterable[Replica], desired: Desired) -> dict[int, tuple[str, ...]]:
        """For each pid the variables whose secret has another value now. What cannot be read, now or then, is not
        taken to be rotated: a start would say what is missing."""
        if not any("secretRef" in variable for variable in desired.env):
            return {}
        now = self._digests(self._environment.secrets(agent, desired))
        found = {replica.proc.pid: self._differing(replica, now) for replica in replicas}
        return {pid: names for pid, names in found.items() if names}

    def forget_gone(self, pids: Mapping[int, object]) -> None:
        """Forget the processes that are not among these."""
        known = list(self._given.items())  # at once: other threads observe too
        self._given = {identity: each for identity, each in known if identity[0] in pids}

    def _differing(self, replica: Replica, now: Digests) -> tuple[str, ...]:
        given = self._given_to(replica, now.keys())
        return tuple(sorted(name for name in now.keys() & given.keys() if now[name] != given[name]))

    def _given_to(self, replica: Replica, names: Iterable[str]) -> Digests:
        identity = replica.proc.identity
        known = self._given.get(identity)
        if known is None or not known.keys() >= set(names):
            # Of its runner, which is given the same and never writes over it.
            running = as_agent(variables(self._table.environ(replica.top.pid) or b""))
            # Without our marks it is no longer the environment it was started with: the program wrote over it.
            known = self._digests({name: running[name] for name in names if name in running and OWNER in running})
            self._given[identity] = known
        return known

    def _digests(self, values: Mapping[str, str]) -> Digests:
        return {
            name: blake2b(value.encode("utf-8", "surrogateescape"), key=self._key).digest()
            for name, value in values.items()
        }
