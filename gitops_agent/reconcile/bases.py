"""What our record of a resource says after an action on it."""

from gitops_agent.model.observation import EMPTY, Base
from gitops_agent.model.outcome import Intent, Outcome
from gitops_agent.model.plan import Verb


def base_after(intent: Intent, outcome: Outcome, old: Base | None) -> Base | None:
    """The base after a successful action; None when there is nothing on record any more.
    A repair of drift applies what an earlier commit asked for, so the base keeps that commit. What is found and
    adopted was there before us, so it counts as established; what a commit creates does not until it converged.
    After a one-shot effect that was tried and did not succeed (``spent``), what is on record is not done again."""
    action, commit, at, spent = intent.action, intent.commit, outcome.at, outcome.spent
    if action.verb in (Verb.DELETE, Verb.FORGET) and not spent:
        return None
    fields = action.desired or action.base or EMPTY
    if old is not None and old.fields == fields and not (old.retained or spent):
        commit, at = old.commit, old.applied_at
    retained = action.verb is Verb.RELEASE
    established = old.established if old else action.verb is Verb.ADOPT
    key, policy, again = action.key, action.deletion_policy, action.idempotent and not spent
    return Base(key, action.driver, fields, commit, at, policy, again, retained, outcome.handle, established)
