"""What our record of a resource says after an action on it."""

from __future__ import annotations

from gitops_agent.model.fields import Fields
from gitops_agent.model.observation import EMPTY, Base
from gitops_agent.model.plan import Action, Verb


def base_after(action: Action, old: Base | None, commit: str, at: float, handle: Fields) -> Base | None:
    """The base after a successful action; None when there is nothing on record any more.

    A repair of drift applies what an earlier commit asked for, so the base keeps that commit. What is found and
    adopted was there before us, so it counts as established; what a commit creates does not until it converged.
    """
    if action.verb in (Verb.DELETE, Verb.FORGET):
        return None
    fields = action.desired or action.base or EMPTY
    if old is not None and old.fields == fields and not old.retained:
        commit, at = old.commit, old.applied_at
    return Base(
        key=action.key,
        driver=action.driver,
        fields=fields,
        commit=commit,
        applied_at=at,
        deletion_policy=action.deletion_policy,
        idempotent=action.idempotent,
        retained=action.verb is Verb.RELEASE,
        handle=handle,
        established=old.established if old else action.verb is Verb.ADOPT,
    )


def base_spent(action: Action, old: Base | None, commit: str, at: float, handle: Fields) -> Base:
    """The base after a one-shot effect that was tried and did not succeed: what is on record is not done again."""
    return Base(
        key=action.key,
        driver=action.driver,
        fields=action.desired or action.base or EMPTY,
        commit=commit,
        applied_at=at,
        deletion_policy=action.deletion_policy,
        idempotent=False,
        handle=handle,
        established=old.established if old else False,
    )
