"""The digest of a plan: what an approval is bound to.

It covers what would be done to what: verb, resource, and the hashes of base, desired and live fields. No sha,
time, pid, finding or verdict is in it, so the same work has the same digest whenever it is planned.
"""

from collections.abc import Iterable

from gitops_agent.model.fields import digest
from gitops_agent.model.plan import Action


def plan_digest(actions: Iterable[Action]) -> str:
    """The digest of some actions, whatever their order."""
    return digest("\n".join(sorted(action.digest for action in actions)).encode())
