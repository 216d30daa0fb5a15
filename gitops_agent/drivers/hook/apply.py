"""Calls a hook, once, and puts into the record how it ended."""

from collections.abc import Sequence

from gitops_agent.drivers.api import Action, Applied, ApplyError, Clock, Observation, ObserveRequest
from gitops_agent.drivers.hook.call import Caller, HookCall
from gitops_agent.drivers.hook.observe import observe_record
from gitops_agent.model.one_shot import OneShot, generation_of
from gitops_agent.model.outcome import Result


class HookDriver:
    """The hook driver of one instance; its live system is our own record.

    Only what calls gets to ``apply``: arming is a matter of the record.
    """

    def __init__(self, caller: Caller, clock: Clock) -> None:
        self._caller = caller
        self._clock = clock

    def observe(self, request: ObserveRequest) -> Sequence[Observation]:
        """One observation for each record in the scope."""
        now = self._clock.now()
        return [observe_record(base, now) for base in request.bases.values()]

    def apply(self, action: Action, key: str) -> Applied:
        """Call it. ApplyError when it did not get through, EffectSpent when it did and did not succeed."""
        fields = action.desired or action.base
        if fields is None:
            raise ApplyError(f"{action.key}: there is nothing on record to call", permanent=True)
        call = HookCall(action.key, fields.value, generation_of(action.handle, key))
        answer = self._caller.call(call)
        return Applied(answer, OneShot(call.generation, Result.DONE, answer).handle)
