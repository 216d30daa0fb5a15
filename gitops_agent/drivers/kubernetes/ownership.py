"""Who owns which field of a live object, as the API server keeps it (``metadata.managedFields``).

What we compare is what the server says we own: after an apply that cut is digested, and live is as applied while
it has the same digest. So defaults, autoscalers, sidecars and fields of others are never drift.

A field that another manager changes is taken from us by the server. So the cut differs even where the value itself
cannot be seen, as in a Secret of which only the metadata is read. An empty map or list of ours that others fill is
taken as well: for the server that is a change of its value. So we send none where they can be left out.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from gitops_agent.drivers.api import JSON, Fields, iso
from gitops_agent.drivers.kubernetes.manifest_shape import (
    ABSENT,
    ATOMIC_MAPS,
    Leaf,
    Tree,
    identity,
    key_of,
    leaves,
    managed,
    merged,
    missing,
    project,
    tree_of,
    value_step,
)
from gitops_agent.drivers.kubernetes.marks import MANAGER
from gitops_agent.drivers.kubernetes.reading import moment_at

__all__ = ["Taken", "missing", "owned", "owned_digest", "owned_tree", "project", "taken"]

_HIDDEN = "(hidden)"
_SHOWN_LENGTH = 80


# -- what we own


def owned_tree(live: Mapping[str, JSON], manager: str = MANAGER) -> Tree | None:
    """The fields that a manager's applies own; None when it never applied the object."""
    ours = [each for each in managed(live) if each.get("manager") == manager and each.get("operation") == "Apply"]
    if not ours:
        return None
    whole: Tree = {}
    for entry in ours:
        whole = merged(whole, tree_of(entry))
    return whole


def owned(live: Mapping[str, JSON], manager: str = MANAGER) -> dict[str, JSON] | None:
    """The live object cut to what a manager's applies own; None when it never applied the object.
    Lists with keys come in the order of their keys, each item with its key fields."""
    tree = owned_tree(live, manager)
    return None if tree is None else _cut_map(live, tree)


def owned_digest(live: Mapping[str, JSON], manager: str = MANAGER, volatile: Collection[str] = ()) -> str:
    """The digest of what a manager owns: of the fields and of their values; "" when it never applied the object.
    ``volatile``: annotations of the object that do not count."""
    tree = owned_tree(live, manager)
    if tree is None:
        return ""
    tree = _without_annotations(tree, volatile)
    return Fields.of({"owns": tree, "values": _cut_map(live, tree)}).digest


def _without_annotations(tree: Tree, names: Collection[str]) -> Tree:
    metadata = tree.get("f:metadata", {})
    steps = {f"f:{name}" for name in names}
    annotations = {step: below for step, below in metadata.get("f:annotations", {}).items() if step not in steps}
    rest = {step: below for step, below in metadata.items() if step != "f:annotations"}
    # Whether the map itself is ours says nothing when all that is in it does not count.
    kept = {"f:annotations": annotations} if annotations.keys() - {"."} else {}
    return {**tree, "f:metadata": {**rest, **kept}}


def _cut(name: str, value: JSON, tree: Tree) -> JSON:
    if isinstance(value, Mapping):
        return _cut_map(value, tree) if tree else value if name in ATOMIC_MAPS else {}
    return list(_cut_list(value, tree)) if isinstance(value, list) and tree else value


def _cut_map(value: Mapping[str, JSON], tree: Tree) -> dict[str, JSON]:
    fields = ((step, step.removeprefix("f:")) for step in tree if step.startswith("f:"))
    return {name: _cut(name, value[name], tree[step]) for step, name in fields if name in value}


def _cut_list(value: list[JSON], tree: Tree) -> Iterator[JSON]:
    for step in sorted(tree):
        if step.startswith("k:"):
            key = key_of(step)
            found = (each for each in value if identity(each, tuple(key)) == step)
            yield from ({**key, **_cut_map(each, tree[step])} for each in found)
        elif step.startswith("v:"):
            yield from (each for each in value if value_step(each) == step)


# -- what others took


@dataclass(frozen=True, slots=True)
class Taken:
    """A field that our manifest sets and that is not ours alone. ``manager``: who set it last, by which
    ``operation`` (Update or Apply) and ``subresource`` (``scale``, or ""). ``at``: seconds since the epoch.
    ``live_value`` may well be ``ours``: it was changed and changed back. In a Secret neither is given."""

    path: str
    manager: str
    operation: str
    at: float | None
    live_value: JSON
    ours: JSON
    subresource: str = ""

    @property
    def differs(self) -> bool:
        """Whether the value is another one than ours; in a Secret it is taken to be."""
        return self.live_value == _HIDDEN or bool(self.live_value != self.ours)

    def sentence(self, now: float | None = None) -> str:
        """``spec.replicas is 5 instead of 2, set by kubectl (scale) at 12:03``, in UTC, with the date when it was
        not on the day of ``now``."""
        who = f"{self.manager} ({self.subresource})" if self.subresource else self.manager
        by = f"set by {who}{_moment(self.at, now)}"
        if self.live_value == _HIDDEN:
            return f"{self.path} was changed, {by}"
        return f"{self.path} is {_shown(self.live_value)} instead of {_shown(self.ours)}, {by}"


def taken(live: Mapping[str, JSON], manifest: Mapping[str, JSON], manager: str = MANAGER) -> tuple[Taken, ...]:
    """The values that our manifest sets, that live has, and that others own there: alone, or beside us, where we
    set another value from now on (a person scaled, Git said the same afterwards, and says something else now)."""
    ours = owned_tree(live, manager) or {}
    others = [
        (each, tree_of(each))
        for each in managed(live)
        if not (each.get("manager") == manager and each.get("operation") == "Apply")
    ]
    others.sort(key=lambda other: moment_at(other[0], "time") or 0.0)
    secret = manifest.get("kind") == "Secret" or live.get("kind") == "Secret"
    found = []
    for leaf in leaves(live, manifest):
        if leaf.live is ABSENT or (leaf.live == leaf.ours and _owns(ours, leaf)):
            continue
        owners = [entry for entry, tree in others if _owns(tree, leaf)]
        if owners:
            found.append(_taken(leaf, owners[-1], hidden=secret and leaf.steps[0] in ("f:data", "f:stringData")))
    return tuple(found)


def _taken(leaf: Leaf, entry: Mapping[str, JSON], *, hidden: bool) -> Taken:
    live, ours = (_HIDDEN, _HIDDEN) if hidden else (leaf.live, leaf.ours)
    texts = (str(entry.get(each) or "") for each in ("manager", "operation", "subresource"))
    manager, operation, subresource = texts
    return Taken(leaf.path, manager, operation, moment_at(entry, "time"), live, ours, subresource)


def _owns(tree: Tree, leaf: Leaf) -> bool:
    """Whether a tree holds a value, by itself or as part of one that is owned as a whole."""
    for position, step in enumerate(leaf.steps):
        if step not in tree:
            return False
        tree = tree[step]
        if not tree:
            # Nothing below it: a whole value, or a map that was empty when it was applied.
            return position == len(leaf.steps) - 1 or step.removeprefix("f:") in ATOMIC_MAPS or step[:2] != "f:"
    return True


def _moment(at: float | None, now: float | None) -> str:
    if at is None:
        return ""
    text = iso(at)
    same_day = now is None or iso(now)[:10] == text[:10]
    return f" at {text[11:16]}" if same_day else f" at {text[:10]} {text[11:16]}"


def _shown(value: JSON) -> str:
    text = value if isinstance(value, str) and value else json.dumps(value, default=str)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 1]}…"
