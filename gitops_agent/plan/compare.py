"""Three-way comparison: the table of the design, as one total function from legs to a verdict.

Live is compared on the fields that we own and the driver can see; base and desired are compared whole. Fields
that the live system decides (``authority``) are left out of every comparison.
"""

from __future__ import annotations

from enum import StrEnum

from gitops_agent.model.fields import Fields
from gitops_agent.model.observation import Owner
from gitops_agent.plan.legs import Legs, Value, differing, drop, live_paths, same
from gitops_agent.plan.reasons import is_stuck, speaks_of_fields


class Difference(StrEnum):
    """What the three legs of one resource say together."""

    IN_SYNC = "InSync"
    ADOPT = "Adopt"  # live is right, our record is not
    CHANGE = "Change"
    DRIFT = "Drift"
    CONFLICT = "Conflict"
    CREATE = "Create"
    MISSING_EXTERNAL = "MissingExternal"
    PRUNE = "Prune"
    FORGET = "Forget"
    AMBIGUOUS = "Ambiguous"
    ORPHAN = "Orphan"
    RETAINED = "Retained"
    IMPORT = "Import"  # in sync but for a field that live decides, and Git says something else of it


def compare(legs: Legs) -> Difference:
    """The verdict on one resource."""
    if legs.desired is None:
        return _unwanted(legs)
    if legs.present and not legs.is_ours:
        return Difference.AMBIGUOUS
    if legs.desired.dormant:
        return _dormant(legs)
    return _present(legs) if legs.present else _absent(legs)


def _unwanted(legs: Legs) -> Difference:
    """Git does not ask for it (any more)."""
    owner = legs.live.owner if legs.live is not None and legs.present else None
    if legs.base is None:
        return Difference.ORPHAN if owner is Owner.OURS else Difference.IN_SYNC
    if owner is None or owner is Owner.OTHER:
        # Marked by another instance: what we made is gone, and theirs is none of our business.
        return Difference.FORGET
    if legs.base.retained:
        return Difference.RETAINED
    return Difference.PRUNE if owner is Owner.OURS else Difference.AMBIGUOUS


def _dormant(legs: Legs) -> Difference:
    """Absence is what is wanted."""
    settled = legs.known is not None and not _moved(legs)
    if legs.present:
        return Difference.DRIFT if settled else Difference.CHANGE
    return Difference.IN_SYNC if settled and not _relabelled(legs) else Difference.ADOPT


def _absent(legs: Legs) -> Difference:
    """Wanted, and not there."""
    if legs.known is None:
        return Difference.CREATE
    return Difference.CHANGE if _moved(legs) else Difference.MISSING_EXTERNAL


def _present(legs: Legs) -> Difference:
    """Wanted, there, and ours."""
    assert legs.desired is not None
    moved = _moved(legs)
    if _shows(legs, legs.desired.fields):
        return _matching(legs, moved)
    if legs.known is None or not moved:
        return Difference.DRIFT
    return Difference.CHANGE if _shows(legs, legs.known.fields) else Difference.CONFLICT


def _matching(legs: Legs, moved: frozenset[str]) -> Difference:
    """Live is as desired as far as the driver can show it in fields."""
    assert legs.live is not None
    assert legs.lived is not None
    if moved:
        # What moved out of the driver's sight takes effect only when it is applied. A driver's reason about fields
        # does not count here: it compares live with the base, and the base is what is behind.
        visible = moved <= legs.lived.value.keys() and not is_stuck(legs.live.reason)
        return Difference.ADOPT if visible else Difference.CHANGE
    # All that Git decides is as it should be: what a reason says of fields is then said of one that live decides.
    decided = bool(live_paths(legs.agent, legs.key.kind))
    if legs.live.reason is not None and not (decided and speaks_of_fields(legs.live.reason)):
        return Difference.DRIFT  # suspended, over its memory limit: not a matter of fields
    if legs.known is None or _relabelled(legs):
        return Difference.ADOPT
    return Difference.IMPORT if decided and _overrules(legs) else Difference.IN_SYNC


def _overrules(legs: Legs) -> bool:
    """Whether live shows another value than Git in a field that live decides."""
    assert legs.desired is not None
    assert legs.intended is not None
    return bool(differing(legs.intended.value, legs.desired.fields.value))


def _moved(legs: Legs) -> frozenset[str]:
    """The top-level fields in which desired differs from the base; nothing when there is no base."""
    wanted, known = legs.intended, legs.known
    assert wanted is not None
    if known is None or known.fields.raw == wanted.raw:
        return frozenset()
    paths = live_paths(legs.agent, legs.key.kind)
    return differing(drop(known.fields.value, paths), drop(wanted.value, paths))


def _relabelled(legs: Legs) -> bool:
    """Whether the record needs new terms although nothing else changed."""
    assert legs.agent is not None
    assert legs.known is not None
    return legs.known.deletion is not legs.agent.deletion


def _shows(legs: Legs, wanted: Fields) -> bool:
    """Whether live equals some fields, on what is both ours and visible."""
    assert legs.lived is not None
    if legs.lived.raw == wanted.raw:
        return True
    paths = live_paths(legs.agent, legs.key.kind)
    seen, expected = drop(legs.lived.value, paths), drop(wanted.value, paths)
    strange = seen.keys() - expected.keys()
    if strange and strange & _owned(legs):
        return False
    return all(same(value, expected[name]) for name, value in seen.items() if name in expected)


def _owned(legs: Legs) -> set[str]:
    """The top-level fields that are ours: desired now, or applied before."""
    return {name for leg in (legs.desired, legs.known) if leg is not None for name in leg.fields.value}


def before(legs: Legs) -> Value:
    """What is: live where it shows a field of ours, what we last applied where it does not.

    Without a base, what cannot be seen is taken to be as desired: a lost record is no reason to restart.
    """
    if legs.lived is None:
        return {}
    known = legs.known or legs.desired
    value = known.fields.value if known is not None else {}
    owned = _owned(legs) or legs.lived.value.keys()
    value.update((name, shown) for name, shown in legs.lived.value.items() if name in owned)
    return value
