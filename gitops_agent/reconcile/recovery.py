"""Recovery: what a crash left open is settled by looking at what is there, never by guessing.

An open intent says that an effect may have happened. If the live system shows it, the intent is Done and our
record catches up. If it does not, nothing is concluded: the intent stays open and the next plan tries again, which
is harmless for everything idempotent. What is not must not be tried twice: it ends as Unknown, for people.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gitops_agent.journal.store import SqlJournal
from gitops_agent.model.fields import Fields, canonical
from gitops_agent.model.key import ResourceKey
from gitops_agent.model.observation import EMPTY, Base, Observation, Owner
from gitops_agent.model.one_shot import OneShot, generation_of
from gitops_agent.model.outcome import Intent, Outcome, Result
from gitops_agent.model.passes import Now, Observed
from gitops_agent.model.plan import Action, Plan, Verb
from gitops_agent.model.state import State
from gitops_agent.reconcile.bases import base_after, base_spent


class Recovery:
    """Settles the intents of an earlier process; until none is open, every pass must observe everything.

    Writes: outcomes of open intents and the bases they imply (``ReconcileState``)."""

    def __init__(self, journal: SqlJournal) -> None:
        self._journal = journal
        self.finished = False

    def settle(self, state: State, observed: Observed, now: Now) -> State:
        """The state with the outcomes that can be seen; the very same when there are none."""
        if self.finished:
            return state
        reconcile = state.reconcile
        known = [
            each for each in reconcile.open_intents.values() if each.action.driver not in observed.unreachable
        ]
        outcomes, bases, forgotten = settle_intents(known, observed.seen, now.wall, reconcile.bases)
        if not outcomes:
            return state
        return replace(state, reconcile=self._journal.finish(outcomes, bases=bases, forgotten=forgotten).reconcile)

    def close_unwanted(self, state: State, plan: Plan, observed: Observed, now: Now) -> State:
        """The state without the open intents that no plan asks for any more; never while a driver is unreachable.
        What is still wanted is tried again."""
        if self.finished or observed.unreachable:
            return state
        wanted = {action.key for action in plan.actions}
        outcomes = unwanted_outcomes(tuple(state.reconcile.open_intents.values()), wanted, now.wall)
        if outcomes:
            state = replace(state, reconcile=self._journal.finish(outcomes).reconcile)
        self.finished = True
        return state


_GONE = (Verb.DELETE, Verb.FORGET)
Settled = tuple[list[Outcome], list[Base], list[ResourceKey]]


def settle_intents(
    intents: Sequence[Intent],
    observations: Mapping[ResourceKey, Observation],
    now: float,
    bases: Mapping[ResourceKey, Base] | None = None,
) -> Settled:
    """Outcomes to finish open intents with, bases to write and keys to forget.
    ``observations`` must be complete for the intents given: what is not in it does not exist, so leave out the
    intents of a driver that could not answer. ``bases`` lets a settled repair keep the commit it repaired."""
    outcomes: list[Outcome] = []
    written: dict[ResourceKey, Base] = {}
    forgotten: dict[ResourceKey, None] = {}
    for intent in intents:
        key, seen = intent.action.key, observations.get(intent.action.key)
        result = intent_result(intent, seen)
        if result is None:
            continue
        outcomes.append(Outcome(intent.id, result, _MESSAGES[result], now, 0.0, _handle(seen)))
        if result is Result.UNKNOWN:
            written[key] = _spent(intent, (bases or {}).get(key), now)
            forgotten.pop(key, None)
        if result is Result.DONE:
            written.pop(key, None)
            forgotten.pop(key, None)
            base = base_after(intent.action, (bases or {}).get(key), intent.commit, now, _handle(seen))
            if base is not None:
                written[key] = base
            elif intent.action.verb in _GONE:
                forgotten[key] = None
    return outcomes, list(written.values()), list(forgotten)


def unwanted_outcomes(intents: Sequence[Intent], wanted: Collection[ResourceKey], now: float) -> list[Outcome]:
    """Outcomes for intents that did not happen and that no plan asks for any more."""
    message = "interrupted before it was done; no longer wanted"
    return [
        Outcome(intent.id, Result.SKIPPED, message, now, 0.0)
        for intent in intents
        if intent.action.key not in wanted
    ]


def intent_result(intent: Intent, seen: Observation | None) -> Result | None:
    """How the intent ended, as far as looking can tell; None: not done, to be tried again."""
    action = intent.action
    if _is_done(intent, seen):
        return Result.DONE
    if not action.verb.touches_live:
        return Result.SKIPPED
    return None if action.idempotent else Result.UNKNOWN


def _is_done(intent: Intent, seen: Observation | None) -> bool:
    action = intent.action
    ours = seen if seen is not None and seen.fields is not None and seen.owner is Owner.OURS else None
    match action.verb:
        case Verb.DELETE | Verb.STOP | Verb.FORGET:
            return ours is None
        case Verb.RELEASE:
            return action.base is not None
        case Verb.RESTART:
            return ours is not None and shows(action, ours) and _was_restarted(intent, ours)
        case Verb.UPDATE:
            return ours is not None and shows(action, ours) and _is_visible(action, ours)
        case _:
            return ours is not None and shows(action, ours)


def shows(action: Action, seen: Observation) -> bool:
    """Whether live is as desired on every field that is ours and that the driver can see.
    What a driver has against a live object it has against our record. After an interrupted change that record is
    what is behind, so only the fields speak; after an interrupted repair it counts."""
    changed = action.base is not None and action.base != action.desired
    if action.desired is None or seen.fields is None or (seen.reason is not None and not changed):
        return False
    if seen.fields == action.desired:
        return True
    wanted, live = action.desired.value, seen.fields.value
    owned = wanted.keys() | (action.base.value.keys() if action.base else set())
    visible = {name: value for name, value in live.items() if name in owned}
    return canonical(visible) == canonical({name: wanted[name] for name in visible if name in wanted})


def _is_visible(action: Action, seen: Observation) -> bool:
    """Whether all that the update moves can be seen: what is out of sight may or may not have been applied."""
    before = action.base or action.live
    if before is None or action.desired is None or seen.fields is None:
        return True
    was, wanted, live = before.value, action.desired.value, seen.fields.value
    hidden = (was.keys() | wanted.keys()) - live.keys()
    return all(_same(was, wanted, name) for name in hidden)


def _spent(intent: Intent, known: Base | None, now: float) -> Base:
    """The record of a one-shot effect whose end is not known: with it, no plan does it again."""
    generation = generation_of(intent.action.handle, intent.id)
    handle = OneShot(generation, Result.UNKNOWN, _MESSAGES[Result.UNKNOWN]).handle
    return base_spent(intent.action, known, intent.commit, now, handle)


def _same(left: Mapping[str, object], right: Mapping[str, object], name: str) -> bool:
    return name in left and name in right and canonical(left[name]) == canonical(right[name])


def _was_restarted(intent: Intent, seen: Observation) -> bool:
    """Equal fields do not show a restart: the handle must be another one, or younger than the intent."""
    if intent.action.handle is not None and seen.handle != intent.action.handle:
        return True
    return seen.started_at is not None and seen.started_at >= intent.at


_MESSAGES = {
    Result.DONE: "interrupted; found done when looked at again",
    Result.SKIPPED: "interrupted before it was recorded; planned again",
    Result.UNKNOWN: "interrupted; whether it happened cannot be seen, and it must not happen twice",
}


def _handle(seen: Observation | None) -> Fields:
    return EMPTY if seen is None else seen.handle
