"""Three-way comparison: the table of the design, as one total function from legs to a verdict.

Live is compared on the fields that we own and the driver can see; base and desired are compared whole. Fields
that the live system decides (``authority``) are left out of every comparison.
"""

from enum import StrEnum

from gitops_agent.model.agent import live_paths
from gitops_agent.model.fields import Fields
from gitops_agent.model.observation import Owner
from gitops_agent.model.plan import Class
from gitops_agent.plan.three_way import ThreeWay, Value, differing, drop, same


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


def compare(three_way: ThreeWay) -> Difference:
    """The verdict on one resource."""
    if three_way.desired is None:
        return _unwanted(three_way)
    if three_way.present and not three_way.is_ours:
        return Difference.AMBIGUOUS
    if three_way.desired.is_absence:
        return _stopped(three_way)
    return _present(three_way) if three_way.present else _absent(three_way)


def _unwanted(three_way: ThreeWay) -> Difference:
    """Git does not ask for it (any more)."""
    owner = three_way.live.owner if three_way.live is not None and three_way.present else None
    if three_way.base is None:
        return Difference.ORPHAN if owner is Owner.OURS else Difference.IN_SYNC
    if owner is None or owner is Owner.OTHER:
        # Marked by another instance: what we made is gone, and theirs is none of our business.
        return Difference.FORGET
    if three_way.base.retained:
        return Difference.RETAINED
    return Difference.PRUNE if owner is Owner.OURS else Difference.AMBIGUOUS


def _stopped(three_way: ThreeWay) -> Difference:
    """Absence is what is wanted."""
    settled = three_way.effective_base is not None and not _moved(three_way)
    if three_way.present:
        return Difference.DRIFT if settled else Difference.CHANGE
    return Difference.IN_SYNC if settled and not _relabelled(three_way) else Difference.ADOPT


def _absent(three_way: ThreeWay) -> Difference:
    """Wanted, and not there."""
    if three_way.effective_base is None:
        return Difference.CREATE
    return Difference.CHANGE if _moved(three_way) else Difference.MISSING_EXTERNAL


def _present(three_way: ThreeWay) -> Difference:
    """Wanted, there, and ours."""
    assert three_way.desired is not None
    moved = _moved(three_way)
    if _shows(three_way, three_way.desired.fields):
        return _matching(three_way, moved)
    if three_way.effective_base is None or not moved:
        return Difference.DRIFT
    return Difference.CHANGE if _shows(three_way, three_way.effective_base.fields) else Difference.CONFLICT


def _matching(three_way: ThreeWay, moved: frozenset[str]) -> Difference:
    """Live is as desired as far as the driver can show it in fields."""
    assert three_way.live is not None
    assert three_way.live_fields is not None
    if moved:
        # What moved out of the driver's sight takes effect only when it is applied. A driver's reason about fields
        # does not count here: it compares live with the base, and the base is what is behind.
        # No field shows progress.
        stuck = three_way.reason is not None and three_way.reason.drift is Class.STUCK_PROGRESS
        visible = moved <= three_way.live_fields.value.keys() and not stuck
        return Difference.ADOPT if visible else Difference.CHANGE
    # All that Git decides is as it should be: a reason about fields is then about one that live decides.
    decided = bool(live_paths(three_way.agent, three_way.key.kind))
    of_fields = three_way.reason is not None and three_way.reason.about_fields
    if three_way.live.reason is not None and not (decided and of_fields):
        return Difference.DRIFT  # suspended, over its memory limit: not a matter of fields
    if three_way.effective_base is None or _relabelled(three_way):
        return Difference.ADOPT
    wanted, target = three_way.desired, three_way.target_fields if decided else None
    overruled = wanted is not None and target is not None and differing(target.value, wanted.fields.value)
    return Difference.IMPORT if overruled else Difference.IN_SYNC


def _moved(three_way: ThreeWay) -> frozenset[str]:
    """The top-level fields in which desired differs from the base; nothing when there is no base."""
    wanted, known = three_way.target_fields, three_way.effective_base
    assert wanted is not None
    if known is None or known.fields.raw == wanted.raw:
        return frozenset()
    paths = live_paths(three_way.agent, three_way.key.kind)
    return differing(drop(known.fields.value, paths), drop(wanted.value, paths))


def _relabelled(three_way: ThreeWay) -> bool:
    """Whether the record needs new terms although nothing else changed."""
    assert three_way.agent is not None
    assert three_way.effective_base is not None
    return three_way.effective_base.deletion_policy is not three_way.agent.deletion_policy


def _shows(three_way: ThreeWay, wanted: Fields) -> bool:
    """Whether live equals some fields, on what is both ours and visible."""
    assert three_way.live_fields is not None
    if three_way.live_fields.raw == wanted.raw:
        return True
    paths = live_paths(three_way.agent, three_way.key.kind)
    seen, expected = drop(three_way.live_fields.value, paths), drop(wanted.value, paths)
    strange = seen.keys() - expected.keys()
    if strange and strange & _owned(three_way):
        return False
    return all(same(value, expected[name]) for name, value in seen.items() if name in expected)


def _owned(three_way: ThreeWay) -> set[str]:
    """The top-level fields that are ours: desired now, or applied before."""
    return {
        name
        for leg in (three_way.desired, three_way.effective_base)
        if leg is not None
        for name in leg.fields.value
    }


def before(three_way: ThreeWay) -> Value:
    """What is: live where it shows a field of ours, what we last applied where it does not.
    Without a base, what cannot be seen is taken to be as desired: a lost record is no reason to restart."""
    if three_way.live_fields is None:
        return {}
    known = three_way.effective_base or three_way.desired
    value = known.fields.value if known is not None else {}
    owned = _owned(three_way) or three_way.live_fields.value.keys()
    value.update((name, shown) for name, shown in three_way.live_fields.value.items() if name in owned)
    return value


def changed_names(three_way: ThreeWay) -> tuple[str, ...]:
    """The top-level fields that differ between what is and what is desired, sorted."""
    wanted = three_way.target_fields
    if wanted is None or not three_way.present:
        return ()
    return tuple(sorted(differing(before(three_way), wanted.value)))
