"""Recovery: what a crash left open is settled by looking at what is there, never by guessing.

An open intent says that an effect may have happened. If the live system shows it, the intent is Done and our
record catches up. If it does not, nothing is concluded: the intent stays open and the next plan tries again, which
is harmless for everything idempotent. What is not must not be tried twice: it ends as Unknown, for people.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gitops_agent.journal.store import SqlJournal
from gitops_agent.model.key import AgentKey, ResourceKey
from gitops_agent.model.observation import EMPTY, Base, Observation, Owner
from gitops_agent.model.one_shot import OneShot, generation_of
from gitops_agent.model.outcome import Intent, Outcome, Result
from gitops_agent.model.passes import Now, Observed
from gitops_agent.model.plan import Action, Plan, Verb
from gitops_agent.model.state import State
from gitops_agent.plan.build import unknown_agents
from gitops_agent.plan.context import PlanContext
from gitops_agent.plan.three_way import differing
from gitops_agent.reconcile.bases import base_after


class Recovery:
    """Settles the intents of an earlier process; until none is open, every pass must observe everything.
    Writes: outcomes of open intents and the bases they imply (``ReconcileState``)."""

    def __init__(self, journal: SqlJournal) -> None:
        self._journal = journal
        self._left: frozenset[str] | None = None  # the intents that an earlier process left open
        self.finished = False

    def settle(self, state: State, observed: Observed, now: Now) -> State:
        """The state with the outcomes that can be seen; the very same when there are none."""
        if self.finished:
            return state
        if self._left is None:
            self._left = frozenset(state.reconcile.open_intents)
        unreachable, hidden = observed.unreachable, observed.unseen_agents
        known = [
            each
            for each in self._open(state)
            if each.action.driver not in unreachable and each.action.key.agent not in hidden
        ]
        outcomes, bases, forgotten = settle_intents(known, observed.seen, now.wall, state.reconcile.bases)
        if not outcomes:
            return state
        return replace(state, reconcile=self._journal.finish(outcomes, bases=bases, forgotten=forgotten).reconcile)

    def close_unwanted(self, state: State, plan: Plan, context: PlanContext, now: Now) -> State:
        """The state without the open intents that no plan asks for any more; not those on agents that no plan was
        made for, and on what is with a driver that could not be asked. What is still wanted is tried again."""
        if self.finished:
            return state
        wanted, unknown = {action.key for action in plan.actions}, unknown_agents(context)
        message = "interrupted before it was done; no longer wanted"
        outcomes = [
            Outcome(intent.id, Result.SKIPPED, message, now.wall, 0.0)
            for intent in self._open(state)
            if intent.action.key not in wanted and not _is_out_of_sight(intent.action, context, unknown)
        ]
        if outcomes:
            state = replace(state, reconcile=self._journal.finish(outcomes).reconcile)
        self.finished = not any(_is_out_of_sight(each.action, context, unknown) for each in self._open(state))
        return state

    def _open(self, state: State) -> list[Intent]:
        """What an earlier process left open and still is; what this one has begun since is its own."""
        return [each for id_, each in state.reconcile.open_intents.items() if id_ in (self._left or ())]


def _is_out_of_sight(action: Action, context: PlanContext, unknown: Collection[AgentKey]) -> bool:
    return action.driver in context.unreachable or action.key.agent in unknown


Settled = tuple[list[Outcome], list[Base], list[ResourceKey]]


def settle_intents(
    intents: Sequence[Intent],
    observations: Mapping[ResourceKey, Observation],
    now: float,
    bases: Mapping[ResourceKey, Base],
) -> Settled:
    """Outcomes to finish open intents with, bases to write and keys to forget.
    ``observations`` must be complete for the intents given: what is not in it does not exist, so leave out the
    intents of a driver that could not answer. ``bases`` lets a settled repair keep the commit it repaired."""
    outcomes: list[Outcome] = []
    after: dict[ResourceKey, Base | None] = {}
    for intent in intents:
        action, seen = intent.action, observations.get(intent.action.key)
        result = _result(intent, seen)
        if result is None:
            continue
        outcome = Outcome(intent.id, result, _MESSAGES[result], now, 0.0, EMPTY if seen is None else seen.handle)
        outcomes.append(outcome)
        if result is Result.UNKNOWN:  # with this on record, no plan does it again
            spent = OneShot(generation_of(action.handle, intent.id), result, outcome.message).handle
            outcome = replace(outcome, handle=spent, spent=True)
        if outcome.spent or result is Result.DONE:
            after[action.key] = base_after(intent, outcome, bases.get(action.key))
    written = [base for base in after.values() if base is not None]
    return outcomes, written, [key for key, base in after.items() if base is None]


def _result(intent: Intent, seen: Observation | None) -> Result | None:
    """How the intent ended, as far as looking can tell; None: not done, to be tried again."""
    if _is_done(intent, seen):
        return Result.DONE
    if not intent.action.verb.touches_live:
        return Result.SKIPPED
    return None if intent.action.idempotent else Result.UNKNOWN


def _is_done(intent: Intent, seen: Observation | None) -> bool:
    action = intent.action
    ours = seen if seen is not None and seen.fields is not None and seen.owner is Owner.OURS else None
    match action.verb:
        case Verb.DELETE | Verb.STOP | Verb.FORGET:
            return ours is None
        case Verb.RELEASE:
            return action.base is not None
        case Verb.RESTART:
            return ours is not None and _shows(action, ours) and _was_restarted(intent, ours)
        case Verb.UPDATE:
            return ours is not None and _shows(action, ours) and _is_visible(action, ours)
        case _:
            return ours is not None and _shows(action, ours)


def _shows(action: Action, seen: Observation) -> bool:
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
    return (owned & live.keys()).isdisjoint(differing(live, wanted))


def _is_visible(action: Action, seen: Observation) -> bool:
    """Whether all that the update moves can be seen: what is out of sight may or may not have been applied."""
    before = action.base or action.live
    if before is None or action.desired is None or seen.fields is None:
        return True
    return differing(before.value, action.desired.value) <= seen.fields.value.keys()


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
