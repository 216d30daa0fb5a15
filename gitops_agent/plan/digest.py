"""The digest of a plan: what an approval is bound to.

It covers what would be done to what: verb, resource, and the hashes of base, desired and live fields. No sha,
time, pid, finding or verdict is in it, so the same work has the same digest whenever it is planned.
"""

from __future__ import annotations

from collections.abc import Iterable

from gitops_agent.model.fields import Fields, canonical, digest
from gitops_agent.model.plan import Action


def action_digest(action: Action) -> str:
    """The digest of one action; an approval of a plan covers an action whose digest it contains."""
    legs = (action.base, action.desired, action.live)
    return digest(canonical([action.verb, str(action.key), *map(_hash, legs)]))


def plan_digest(actions: Iterable[Action]) -> str:
    """The digest of some actions, whatever their order."""
    return digest("\n".join(sorted(map(action_digest, actions))).encode())


def _hash(fields: Fields | None) -> str | None:
    return None if fields is None else fields.digest
