"""The difference of a resource as an RFC 6902 patch: from what is to what is desired."""

from collections.abc import Mapping
from typing import Any

import jsonpatch
import jsonpointer

from gitops_agent.model.plan import Verb
from gitops_agent.plan.compare import before
from gitops_agent.plan.three_way import ThreeWay, differing

Patch = tuple[Mapping[str, Any], ...]


def make_patch(three_way: ThreeWay, verb: Verb) -> Patch:
    """The patch an action makes to the live object; exact, however long (rendering caps what it shows).
    Nothing is masked: fields hold references to secrets, never secrets. Verbs for our record have no patch."""
    if not verb.touches_live:
        return ()
    wanted = three_way.target_fields
    target = wanted.value if wanted is not None and verb is not Verb.DELETE else {}
    if not three_way.present:
        # From nothing there is nothing to search for, and a new fleet brings thousands of these.
        return tuple(
            {"op": "add", "path": f"/{jsonpointer.escape(name)}", "value": target[name]} for name in target
        )
    return tuple(jsonpatch.make_patch(before(three_way), target).patch)


def import_patch(three_way: ThreeWay) -> Patch:
    """The other way round: from what Git says to what live decided, each step with what was there before."""
    assert three_way.desired is not None
    assert three_way.target_fields is not None
    git = three_way.desired.fields.value
    steps = jsonpatch.make_patch(git, three_way.target_fields.value).patch
    return tuple(
        step if step["op"] == "add" else {**step, "before": jsonpointer.resolve_pointer(git, step["path"])}
        for step in steps
    )


def changed_names(three_way: ThreeWay) -> tuple[str, ...]:
    """The top-level fields that differ between what is and what is desired, sorted."""
    wanted = three_way.target_fields
    if wanted is None or not three_way.present:
        return ()
    return tuple(sorted(differing(before(three_way), wanted.value)))
