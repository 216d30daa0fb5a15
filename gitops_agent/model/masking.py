"""Frozen values without secrets, by the types of their fields: what the journal applies to all that it keeps.

Every text in a value is masked unless its name says that it identifies something (a sha, a driver, an address):
names are compared and looked up, so they must stay as they are, and none of them comes from an agent. A field that
is added later is masked without being mentioned here. ``Fields`` stay as well, because they are compared: a driver
has references in them, never secrets.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

V = TypeVar("V")
Mask = Callable[[str], str]
Masker = Callable[[Any, Mask], Any]

NAMES = frozenset(
    {
        *("address", "branch", "code", "commit", "converged", "digest", "driver", "enforced", "failing", "head"),
        *("id", "intent", "observed_commit", "origin", "plan", "refused_at", "released", "rolled_back_by"),
        *("rolls_back_to", "sha", "source", "spec", "target", "tree", "valid", "verified"),
    }
)
"""The fields that identify something."""


def masked(kind: Any, value: V, mask: Mask) -> V:
    """A value of this type with its texts masked; the same object when nothing was to be masked."""
    own = masker(kind)
    found: V = value if own is None or value is None else own(value, mask)
    return found


@cache
def masker(hint: Any) -> Masker | None:
    """What masks values of a type; None where they hold no text. Found out once."""
    if hint is str:
        return lambda value, mask: mask(value)
    if hint in (Any, object):
        return _mask_json
    if isinstance(hint, type) and is_dataclass(hint):
        return _of_dataclass(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        inner = [masker(arg) for arg in args if arg is not NoneType]
        return _optional(next(iter(inner))) if len(inner) == 1 else None
    if origin is tuple:
        return _of_tuple(masker(args[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _of_mapping(masker(args[1]))
    return None


def _optional(inner: Masker | None) -> Masker | None:
    return inner and (lambda value, mask: None if value is None else inner(value, mask))


def _of_tuple(inner: Masker | None) -> Masker | None:
    if inner is None:
        return None

    def mask_items(value: tuple[Any, ...], mask: Mask) -> tuple[Any, ...]:
        made = tuple([inner(item, mask) for item in value])
        return value if all(map(_same, made, value)) else made

    return mask_items


def _of_mapping(inner: Masker | None) -> Masker | None:
    if inner is None:
        return None

    def mask_values(value: Mapping[Any, Any], mask: Mask) -> Mapping[Any, Any]:
        made = {key: inner(item, mask) for key, item in value.items()}
        return value if all(map(_same, made.values(), value.values())) else made

    return mask_values


def _of_dataclass(kind: type[Any]) -> Masker | None:
    hints = get_type_hints(kind)
    found = [
        (each.name, masker(hints[each.name])) for each in fields(kind) if each.init and each.name not in NAMES
    ]
    own = [(name, inner) for name, inner in found if inner is not None]
    if not own:
        return None

    def mask_fields(value: Any, mask: Mask) -> Any:
        changed = {}
        for name, inner in own:
            item = getattr(value, name)
            if item and (made := inner(item, mask)) is not item and made != item:
                changed[name] = made
        return replace(value, **changed) if changed else value

    return mask_fields


def _mask_json(value: Any, mask: Mask) -> Any:
    return value if _is_clean(value, mask) else _made(value, mask)


def _is_clean(value: Any, mask: Mask) -> bool:
    """Whether a JSON value has nothing to be masked, as nearly all have: told without building another one."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            if mask(item) != item:
                return False
        elif isinstance(item, dict):
            left += item
            left += item.values()
        elif isinstance(item, list | tuple):
            left += item
        elif isinstance(item, Mapping):
            left.append(dict(item))
    return True


def _made(value: Any, mask: Mask) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {_made(key, mask): _made(item, mask) for key, item in value.items()}
    return [_made(item, mask) for item in value] if isinstance(value, list | tuple) else value


def _same(one: object, other: object) -> bool:
    return one is other or one == other
