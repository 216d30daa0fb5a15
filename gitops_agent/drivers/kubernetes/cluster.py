"""What the parts of the driver share: one cluster as one instance sees it."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from gitops_agent.drivers.api import AgentKey, Clock, Redactor
from gitops_agent.drivers.kubernetes.cache import ObjectCache
from gitops_agent.drivers.kubernetes.client import Client
from gitops_agent.drivers.kubernetes.marks import RESTART_MANAGER
from gitops_agent.drivers.kubernetes.objects import Objects
from gitops_agent.drivers.kubernetes.options import Settings
from gitops_agent.drivers.kubernetes.ownership import Taken
from gitops_agent.drivers.kubernetes.secrets import SecretValues


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster. ``driver``: the name of the driver, with its place."""

    driver: str
    instance: str
    settings: Settings
    client: Client
    cache: ObjectCache
    objects: Objects
    secrets: SecretValues
    redactor: Redactor
    clock: Clock

    def writer(self, namespace: str, agent: AgentKey) -> Client:
        """The client that writes into a namespace for the tenant of an agent."""
        user = self.settings.impersonate
        return self.client.as_user(user.format(namespace=namespace, tenant=agent.tenant)) if user else self.client

    def is_hand(self, change: Taken) -> bool:
        """Whether a change was made by a person with a tool. A server-side apply never is: it is how pipelines and
        controllers write, ``kubectl apply`` among them under the same name as ``kubectl scale``."""
        named = any(fnmatchcase(change.manager, pattern) for pattern in self.settings.hands)
        return named and change.operation == "Update"

    def may_overwrite(self, change: Taken, overwrite: str) -> bool:
        """Whether a change to a field of ours is undone: one by a restart of ours always is."""
        if change.manager == RESTART_MANAGER or overwrite == "All":
            return True
        return overwrite == "Hands" and self.is_hand(change)
