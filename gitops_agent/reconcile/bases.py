"""What our record of a resource says after an action on it."""

from gitops_agent.model.fields import Fields
from gitops_agent.model.observation import EMPTY, Base
from gitops_agent.model.plan import Action, Verb


def base_after(
    action: Action, old: Base | None, commit: str, at: float, handle: Fields, *, spent: bool = False
) -> Base | None:
    """The base after a successful action; None when there is nothing on record any more.
    A repair of drift applies what an earlier commit asked for, so the base keeps that commit. What is found and
    adopted was there before us, so it counts as established; what a commit creates does not until it converged.
    ``spent``: a one-shot effect was tried and did not succeed; what is on record is not done again."""
    if action.verb in (Verb.DELETE, Verb.FORGET) and not spent:
        return None
    fields = action.desired or action.base or EMPTY
    if old is not None and old.fields == fields and not (old.retained or spent):
        commit, at = old.commit, old.applied_at
    retained = action.verb is Verb.RELEASE
    established = old.established if old else action.verb is Verb.ADOPT
    policy, again = action.deletion_policy, action.idempotent and not spent
    return Base(action.key, action.driver, fields, commit, at, policy, again, retained, handle, established)
