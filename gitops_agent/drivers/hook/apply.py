"""Calls a hook, once, and puts into the record how it ended."""

from __future__ import annotations

from gitops_agent.drivers.hook.call import Call, Caller
from gitops_agent.errors import ApplyError
from gitops_agent.model.one_shot import OneShot, generation_of
from gitops_agent.model.outcome import Applied, Result
from gitops_agent.model.plan import Action


class HookApplier:
    """The writing part of the hook driver. Only what calls gets here: arming is a matter of the record."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def unchanged(self, action: Action) -> bool:  # noqa: ARG002 - nobody but us writes our record
        """Always."""
        return True

    def apply(self, action: Action, intent: str) -> Applied:
        """Call it. ApplyError when nobody was reached, EffectSpent when somebody was and it did not succeed."""
        fields = action.desired or action.base
        if fields is None:
            raise ApplyError(f"{action.key}: there is nothing on record to call", permanent=True)
        call = Call(action.key, fields.value, generation_of(action.handle, intent))
        said = self._caller.call(call)
        return Applied(said, OneShot(call.generation, Result.DONE, said).handle)
