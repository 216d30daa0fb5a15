"""Which of two policies is stricter, field by field. The stricter one wins, so that no commit can loosen the guard
that should have stopped it."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from gitops_agent.model.document import PolicySpec, TenantPolicy
from gitops_agent.model.quantity import seconds
from gitops_agent.model.strict import Strict

ON_FAILURE = ("Hold", "ProposeRevert", "Revert")
"""What Git sees when a gate fails, the strictest first."""


def percent(text: str) -> int:
    """The number in ``10%``."""
    return int(text.removesuffix("%"))


# How each field is measured, and whether less is stricter. What takes something away by itself is the looser word.
_MEASURES: dict[str, tuple[Callable[[Any], float], bool]] = {
    **dict.fromkeys(
        ("min", "ratio", "actions_per_minute", "canary", "repairs", "failures", "at_once"), (float, True)
    ),
    **dict.fromkeys(("health_timeout", "fail_after", "freeze_reminder"), (seconds, True)),
    **dict.fromkeys(
        ("bake", "recovery", "pause", "window", "deadline", "first", "longest", "min_age"), (seconds, False)
    ),
    "second": (percent, True),
    "absence": (("Freeze", "Waves").index, True),
    "on_failure": (ON_FAILURE.index, True),
    "on_timeout": (("Keep", "Compensate").index, True),
    "force_push": (("refuse", "follow").index, True),
}


def is_looser(name: str, one: Any, other: Any) -> bool:
    """Whether one value of a field gives more room than another."""
    measure, less_is_stricter = _MEASURES[name]
    return measure(one) > measure(other) if less_is_stricter else measure(one) < measure(other)


def stricter(new: PolicySpec, old: PolicySpec | None) -> PolicySpec:
    """The stricter of two policies in every number and mode, tenant by tenant.
    A freeze is no limit: it comes from the new policy alone, or Git could never lift what Git froze."""
    if old is None or old is new or old == new:
        return new
    return _merged(*(policy.model_dump_json(by_alias=True, exclude_unset=True) for policy in (new, old)))


def limits_of(policy: PolicySpec, tenant: str | None) -> TenantPolicy:
    """The limits for the fleet (None) or for a tenant, whose own may only be stricter."""
    own = policy.tenants.get(tenant) if tenant is not None else None
    if own is None:
        return policy
    given = own.model_fields_set - {"freeze"}
    return policy.model_copy(
        update={name: _value(name, getattr(own, name), getattr(policy, name)) for name in given}
    )


@lru_cache(4)  # the same two policies are compared in every pass of a rollout
def _merged(new_text: str, old_text: str) -> PolicySpec:
    new, old = PolicySpec.model_validate_json(new_text), PolicySpec.model_validate_json(old_text)
    names = new.tenants.keys() | old.tenants.keys()
    tenants = {name: _tenant(name, new, old) for name in sorted(names)}
    merged: PolicySpec = _section(new, old)
    return merged.model_copy(update={"tenants": tenants})


def _tenant(name: str, new: PolicySpec, old: PolicySpec) -> TenantPolicy:
    """The limits in force for a tenant by either policy, the stricter of each. Not what the two sections say:
    where a tenant says nothing the fleet's number holds, and not the default."""
    limits = _section(limits_of(new, name), limits_of(old, name))
    own = new.tenants.get(name)
    given = {field: getattr(limits, field) for field in TenantPolicy.model_fields if field != "freeze"}
    return TenantPolicy.model_construct(**given, freeze=own.freeze if own is not None else None)


def _section(one: Any, other: Any) -> Any:
    """The stricter of two sections, field by field; a section that only one side has is that side's."""
    if one is None or other is None:
        return one if other is None else other
    names = [name for name in type(other).model_fields if name not in ("freeze", "tenants")]
    return one.model_copy(update={name: _value(name, getattr(one, name), getattr(other, name)) for name in names})


def _value(name: str, one: Any, other: Any) -> Any:
    if one is None or other is None or isinstance(one, Strict):
        return _section(one, other)
    return other if is_looser(name, one, other) else one
