"""The shape of a manifest laid over a live object: which parts are the same ones, and which values mean the same.

The server adds defaults, drops what is empty and writes quantities its own way (``0.5`` becomes ``500m``). None of
that is a difference, and neither is what others put beside ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Final, NamedTuple

import orjson

from gitops_agent.drivers.api import JSON
from gitops_agent.drivers.kubernetes.reading import maps_at


class _Absent:
    """The value of a field that is not there."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()

Tree = dict[str, "Tree"]
"""Which fields are owned, as the API writes it: ``f:name``, ``k:{key}``, ``v:value``, ``.`` for the whole."""


# -- which items of two lists are the same

_LIST_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "resourceClaims": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "ownerReferences": ("uid",),
}
_PORT_KEYS = (("containerPort", "protocol"), ("port", "protocol"))
_KEY_DEFAULTS = {"protocol": "TCP"}
_SETS = ("finalizers",)

ATOMIC_MAPS = (
    *("selector", "nodeSelector", "labelSelector", "namespaceSelector"),
    *("requiredDuringSchedulingIgnoredDuringExecution", "secretRef", "secretKeyRef", "configMapKeyRef"),
    *("fieldRef", "resourceFieldRef", "fileKeyRef"),
)
"""Maps that are owned as one value. Any other map that is owned without its fields was empty when it was applied:
what is in it now is a default, or belongs to others."""

_DEFAULTS_WITHIN: dict[str, JSON] = {
    "apiVersion": "v1",  # of a fieldRef, or of a volume claim
    "kind": "PersistentVolumeClaim",
    "volumeMode": "Filesystem",
    "status": {"phase": "Pending"},
    "divisor": "0",
    "expirationSeconds": 3600,
}
"""What the server adds inside of lists and maps that are one value; anything else in them came from others."""


def list_keys(name: str, items: Sequence[JSON], tree: Tree) -> tuple[str, ...] | None:
    """The fields that tell the items of a list apart; () for a set of values, None for a list that is one value.
    ``tree``: what is owned in it; it decides for lists that are not in our table."""
    if name in _SETS:
        return ()
    known: tuple[str, ...] | None
    if name == "ports":
        known = next(
            (keys for keys in _PORT_KEYS if any(_is_map(each) and keys[0] in each for each in items)), None
        )
    else:
        known = _LIST_KEYS.get(name)
    keys = known if known is not None else _owned_keys(tree)
    # Items without their key cannot be told apart: such a list is compared as one value.
    return keys if not keys or all(identity(each, keys) is not None for each in items) else None


def _owned_keys(tree: Tree) -> tuple[str, ...] | None:
    for step in tree:
        if step.startswith("k:"):
            return tuple(key_of(step))
        if step.startswith("v:"):
            return ()
    return None


@lru_cache(4096)  # the objects of a fleet have the same few steps
def key_of(step: str) -> Mapping[str, JSON]:
    """The key fields that a ``k:`` step names; none when it is not understood."""
    try:
        found = json.loads(step[2:])
    except (ValueError, RecursionError):
        return {}
    return found if _is_map(found) else {}


def key_step(key: Mapping[str, JSON]) -> str:
    """The one ``k:`` step for some key fields."""
    return "k:" + _text(key)


def value_step(value: JSON) -> str:
    """The one ``v:`` step for a value of a set."""
    return "v:" + _text(value)


def _text(value: JSON) -> str:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:  # numbers of more than 64 bits, and the like
        return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def identity(item: JSON, keys: Sequence[str]) -> str | None:
    """The ``k:`` step of an item of a list; None when it lacks a key field."""
    if not _is_map(item):
        return None
    key = {each: item.get(each, _KEY_DEFAULTS.get(each)) for each in keys}
    return None if None in key.values() else key_step(key)


class Pair(NamedTuple):
    """One item of our list and its counterpart. ``step``: its place in a tree, ``name``: what people call it."""

    step: str
    name: str
    ours: JSON
    live: JSON


def pairs(ours: Sequence[JSON], live: Sequence[JSON], keys: Sequence[str]) -> Iterator[Pair]:
    """Every item of our list with the live one that has the same key, ABSENT where there is none."""
    waiting: dict[str | None, list[JSON]] = {}
    for each in live:
        waiting.setdefault(identity(each, keys), []).append(each)
    for each in ours:
        step = identity(each, keys) or "k:{}"
        found = waiting.get(step)
        name = "/".join(str(value) for value in key_of(step).values())
        yield Pair(step, name, each, found.pop(0) if found else ABSENT)


def _is_map(value: JSON) -> bool:
    return isinstance(value, dict) or isinstance(value, Mapping)  # noqa: SIM101 - the first is ten times as quick


# -- which values are the same

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30}))([eE][+-]?[0-9]{1,2}|[numkMGTPE]|[KMGTPE]i)?"
)
_FACTORS = {suffix: Decimal(1000) ** power for power, suffix in enumerate("num", -3)}
_FACTORS |= {"": Decimal(1)} | {suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)}
_FACTORS |= {f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)}
_QUANTITY_MAPS = ("limits", "requests")
_QUANTITY_FIELDS = ("sizeLimit", "divisor")


def quantity(value: JSON) -> Decimal | None:
    """The number that a quantity such as ``500m`` or ``1.5Gi`` stands for; None when it is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        return None
    number, suffix = match[1], match[2] or ""
    if suffix[1:].lstrip("+-").isdigit():
        return Decimal(number + suffix)
    return Decimal(number) * _FACTORS[suffix]


def _same(ours: JSON, live: JSON, path: tuple[str, ...]) -> bool:
    """Whether two values that are no maps mean the same in this place."""
    if ours == live and isinstance(ours, bool) == isinstance(live, bool):
        return True
    above, name = ("", "", *path)[-2:]
    if name in _QUANTITY_FIELDS or above in _QUANTITY_MAPS:
        number = quantity(ours)
        return number is not None and number == quantity(live)
    return False


def is_empty(value: JSON) -> bool:
    """Whether the server may leave a value out, because its absence means the same: "", 0, false, an empty map."""
    if _is_map(value):
        return all(is_empty(each) for each in value.values())
    return not value


def _may_lack(name: tuple[str, ...], value: JSON) -> bool:
    # Items of a list come without the two fields that say what they are.
    return is_empty(value) or name in (("apiVersion",), ("kind",))


# -- the live object in the shape of ours


def project(live: Mapping[str, JSON], manifest: Mapping[str, JSON]) -> dict[str, JSON]:
    """The live object cut to what the manifest sets; equal to the manifest when live is as it says.
    Values that mean the same are given in our form. Nothing that others added is in it, apart from what they
    added to a list or a map that is one value, such as the arguments of a command or a selector."""
    shaped: dict[str, JSON] = _project(manifest, live, _Place((), union(live)))
    return shaped


class _Place(NamedTuple):
    """Where in the objects we are. ``tree``: what is owned there; ``whole``: it is part of one value."""

    path: tuple[str, ...]
    tree: Tree
    whole: bool = False

    def below(self, step: str, name: str) -> _Place:
        return _Place((*self.path, name), self.tree.get(step, {}), self.whole)


def _project(ours: JSON, live: JSON, at: _Place) -> JSON:
    if _is_map(ours) and _is_map(live):
        return _project_map(ours, live, at)
    if isinstance(ours, list) and isinstance(live, list):
        return _project_list(ours, live, at)
    return ours if _same(ours, live, at.path) else live


def _project_map(ours: Mapping[str, JSON], live: Mapping[str, JSON], at: _Place) -> JSON:
    shaped = {}
    for name, value in ours.items():
        below = at.below(f"f:{name}", name)
        if name in live:
            shaped[name] = _project(value, live[name], below._replace(whole=at.whole or name in ATOMIC_MAPS))
        elif _may_lack(below.path, value):
            shaped[name] = value
    if at.whole:
        added = {name: value for name, value in live.items() if name not in ours and not is_empty(value)}
        shaped |= {name: value for name, value in added.items() if _DEFAULTS_WITHIN.get(name) != value}
    return shaped


def _project_list(ours: list[JSON], live: list[JSON], at: _Place) -> JSON:
    keys = list_keys(at.path[-1] if at.path else "", ours, at.tree)
    if keys is None or at.whole:
        if len(ours) != len(live):
            return live
        inside = at._replace(tree={}, whole=True)
        return [_project(mine, other, inside) for mine, other in zip(ours, live, strict=True)]
    if not keys:
        return [each for each in ours if each in live]
    found = [pair for pair in pairs(ours, live, keys) if pair.live is not ABSENT]
    return [_project(each.ours, each.live, at.below(each.step, each.name)) for each in found]


# -- the leaves of ours, with what is live in their place


class Leaf(NamedTuple):
    """One value that our manifest sets. ``steps``: its place in a tree of owned fields; ``path``: for people;
    ``live``: what is there, ABSENT when nothing is."""

    steps: tuple[str, ...]
    path: str
    ours: JSON
    live: JSON


def leaves(live: Mapping[str, JSON], manifest: Mapping[str, JSON]) -> Iterator[Leaf]:
    """Everything that the manifest sets, down to single values; what is absent as a whole is one leaf."""
    return _leaves(Leaf((), "", manifest, live), union(live))


def _leaves(at: Leaf, tree: Tree) -> Iterator[Leaf]:
    ours, live = at.ours, at.live
    if _is_map(ours) and ours and _is_map(live):
        for name, value in ours.items():
            step = f"f:{name}"
            below = Leaf((*at.steps, step), _dotted(at.path, name), value, live.get(name, ABSENT))
            yield from _leaves(below, tree.get(step, {}))
    elif isinstance(ours, list) and isinstance(live, list) and (keys := _keys_at(at, tree)):
        for pair in pairs(ours, live, keys):
            below = Leaf((*at.steps, pair.step), f"{at.path}[{pair.name}]", pair.ours, pair.live)
            yield from _leaves(below, tree.get(pair.step, {}))
    else:
        yield at


def _keys_at(at: Leaf, tree: Tree) -> tuple[str, ...] | None:
    return list_keys(at.steps[-1].removeprefix("f:") if at.steps else "", at.ours, tree)


def _dotted(path: str, name: str) -> str:
    # Names of labels have dots of their own.
    if "." in name or "/" in name:
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name


def missing(live: Mapping[str, JSON], manifest: Mapping[str, JSON]) -> tuple[str, ...]:
    """The paths that our manifest sets and that the live object does not have at all."""
    gone = (each for each in leaves(live, manifest) if each.live is ABSENT)
    return tuple(each.path for each in gone if not _may_lack((each.path,), each.ours))


# -- who owns what


def managed(live: Mapping[str, JSON]) -> list[Mapping[str, JSON]]:
    """The entries of ``metadata.managedFields`` that are about what people set, not about status."""
    return [each for each in maps_at(live, "metadata", "managedFields") if each.get("subresource") != "status"]


def tree_of(entry: Mapping[str, JSON]) -> Tree:
    """What one entry owns, with keys in one form; not to be changed, others may hold it too."""
    owns = entry.get("fieldsV1")
    try:
        return _tree_in(orjson.dumps(owns))
    except TypeError:  # not as a server has it
        return _tree(owns)


@lru_cache(512)  # most agents of a fleet have the same fields
def _tree_in(owns: bytes) -> Tree:
    return _tree(orjson.loads(owns))


def _tree(value: JSON) -> Tree:
    if not _is_map(value):
        return {}
    return {_step(str(step)): _tree(below) for step, below in value.items()}


@lru_cache(4096)  # the objects of a fleet have the same few steps
def _step(step: str) -> str:
    if step.startswith("k:"):
        return key_step(key_of(step))
    if step.startswith("v:"):
        try:
            return value_step(json.loads(step[2:]))
        except (ValueError, RecursionError):
            return step
    return step


def merged(first: Tree, second: Tree) -> Tree:
    """What either of two trees owns."""
    both = dict(first)
    for step, below in second.items():
        both[step] = merged(both[step], below) if step in both else below
    return both


def union(live: Mapping[str, JSON]) -> Tree:
    """What anybody owns in a live object: it shows which lists have keys."""
    whole: Tree = {}
    for entry in managed(live):
        whole = merged(whole, tree_of(entry))
    return whole
