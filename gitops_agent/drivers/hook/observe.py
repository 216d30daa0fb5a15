"""Our own record is the live system: it says which hooks are armed, and how those ended that were called."""

from gitops_agent.drivers.api import Base, Fields, Observation, Owner, ResourceKey
from gitops_agent.drivers.hook.spec import DRIVER
from gitops_agent.model.key import ON_RETIRED
from gitops_agent.model.one_shot import OneShot
from gitops_agent.model.outcome import Result

REASONS = {Result.FAILED: "HookFailed", Result.UNKNOWN: "HookUnknown", None: "HookDue"}
"""What the plan must look at. A hook that is done, or was never called, has nothing to say."""


def observe_record(base: Base, now: float) -> Observation:
    """The observation of one hook, from its base."""
    shot = OneShot.read(base.handle)
    return Observation(
        key=base.key,
        driver=DRIVER,
        owner=Owner.OURS,
        fields=_fields(base, shot),
        state=_state(base.key, shot),
        observed_at=now,
        reason=REASONS.get(shot.result) if shot else None,
        message=shot.said if shot else "",
        live={"outcome": shot.result.value, "said": shot.said} if shot and shot.result else {},
        handle=base.handle,
    )


def _fields(base: Base, shot: OneShot | None) -> Fields:
    """What is on record. How a call ended is part of it while people have to decide: what they approve is this
    very call, and not the next one that fails."""
    if shot is None or not shot.spent:
        return base.fields
    return Fields.of({**base.fields.value, "generation": shot.generation, "outcome": shot.result})


def _state(key: ResourceKey, shot: OneShot | None) -> str:
    if shot is None:
        return "Armed" if key.id == ON_RETIRED else "NotCalled"
    return shot.result.value if shot.result else "Due"
