"""Memory limits: a control group where the machine gave us one, else the resident size of the tree is watched."""

from collections.abc import Iterable

from gitops_agent.drivers.local.cgroup import DelegatedGroup, MemoryGroups
from gitops_agent.drivers.local.handle import ReplicaHandle
from gitops_agent.drivers.local.process_tree import ProcessTree, Replica, tree_of
from gitops_agent.drivers.local.registry import ReplicaRegistry
from gitops_agent.model.key import AgentKey


class MemoryLimits(MemoryGroups):
    """Enforces or watches the limits of replicas."""

    def __init__(self, instance: str, parent: DelegatedGroup | None, registry: ReplicaRegistry) -> None:
        super().__init__(instance, parent)
        self._registry = registry

    def limit(self, agent: AgentKey, replica: ReplicaHandle, limit: int | None) -> None:
        """Set the limit of a running replica."""
        if limit is not None:
            self.confine(agent, replica.number, replica.pid, limit)

    def over(self, replicas: Iterable[Replica], limit: int | None, tree: ProcessTree) -> list[Replica]:
        """The replicas that are, or once were, above the limit. Once is enough: they are due for a restart."""
        if limit is None:
            return []
        replicas = tuple(replicas)
        return [replica for replica in replicas if self._is_over(replica, replicas, limit, tree)]

    def _is_over(self, replica: Replica, peers: Iterable[Replica], limit: int, tree: ProcessTree) -> bool:
        identity = (replica.proc.pid, replica.proc.start)
        if self._registry.flagged(identity):
            return True
        if sum(proc.rss for proc in tree_of(replica, peers, tree)) <= limit:
            return False
        if self.confines(replica.agent, replica.number, replica.proc.pid):
            return False  # the kernel counts better than we do: shared pages once, not once per process
        self._registry.flag(identity)
        return True
