"""Frozen values to JSON and back, by the types of their fields: the one codec of everything that is kept.

A dataclass becomes an object of the fields that differ from their defaults, so a field can be added, or leave,
without a migration. Keys (``AgentKey``, ``ResourceKey``) become their text, ``Fields`` the object they hold. A
list in place of an object holds the first fields in order: so journals before version 5 kept small values.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from math import isfinite
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import orjson
from pydantic import ValidationError

from gitops_agent.model.fields import JSON, Fields
from gitops_agent.model.key import AgentKey, ResourceKey


def to_json(hint: Any, value: Any) -> JSON:
    """The JSON form of a value of this type."""
    return coder(hint).encode(value)


def from_json(hint: Any, value: JSON) -> Any:
    """The value of this type in its JSON form; ValueError when it is none."""
    try:
        return coder(hint).decode(value)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a {getattr(hint, '__name__', hint)}: {error}") from error


class Coder(NamedTuple):
    """How values of a type get into their JSON form and back."""

    encode: Callable[[Any], JSON]
    decode: Callable[[JSON], Any]


def _same(value: Any) -> Any:
    return value


_SAME = Coder(_same, _same)
_PLAIN = (str, int, bool, object, Any, NoneType)


@cache
def coder(hint: Any) -> Coder:
    """How values of a type are encoded and decoded; found out once."""
    if hint in _PLAIN or get_origin(hint) is Literal:
        return _SAME
    if hint in _SCALARS:
        return _SCALARS[hint]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _of_enum(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        return _of_dataclass(hint)
    if hasattr(hint, "model_validate_json"):
        return _of_model(hint)
    return _of_generic(hint)


def _of_generic(hint: Any) -> Coder:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _optional(args)
    if origin in (tuple, frozenset):
        return _of_collection(origin, coder(args[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _of_mapping(coder(args[0]), coder(args[1]))
    raise TypeError(f"{hint} has no JSON form")


def _agent_key(value: JSON) -> AgentKey:
    return AgentKey.parse(value) if isinstance(value, str) else AgentKey(*value)


def _number(value: float) -> JSON:
    return value if isfinite(value) else str(value)  # JSON knows no infinity


_SCALARS: Mapping[Any, Coder] = {
    float: Coder(_number, float),
    AgentKey: Coder(str, _agent_key),
    ResourceKey: Coder(str, ResourceKey.parse),
    Fields: Coder(lambda value: value.value, Fields.of),
}


def _of_enum(hint: type[Enum]) -> Coder:
    known = {member.value: member for member in hint}
    return Coder(attrgetter("_value_"), lambda value: known.get(value) or hint(value))


def _of_model(hint: Any) -> Coder:
    """A pydantic model: only what was set, so that later defaults count."""
    return Coder(
        lambda value: value.model_dump(mode="json", by_alias=True, exclude_unset=True),
        partial(_model, hint),
    )


_OUTDATED = frozenset({"extra_forbidden", "value_error", "literal_error", "less_than_equal", "greater_than_equal"})
"""What a document of an earlier version may be refused for; everything else is damage."""


def _model(hint: Any, found: Any) -> Any:
    """The model of what was kept. What this version no longer accepts (a field that left, a limit that became
    narrower) falls back to its default: a journal of an earlier version stays readable."""
    while True:
        try:
            return hint.model_validate_json(orjson.dumps(found))
        except ValidationError as refused:
            wrong = refused.errors(include_url=False)
            if not all(error["type"] in _OUTDATED and _dropped(found, error["loc"]) for error in wrong):
                raise


def _dropped(found: Any, place: tuple[str | int, ...]) -> bool:
    """Remove what stands at a place, or the nearest thing around it; whether there was anything."""
    for depth in range(len(place), 0, -1):
        box = found
        for step in place[: depth - 1]:
            box = box.get(step) if isinstance(box, dict) else None
        if isinstance(box, dict) and place[depth - 1] in box:
            del box[place[depth - 1]]
            return True
    return False


def _optional(args: tuple[Any, ...]) -> Coder:
    (inner,) = (arg for arg in args if arg is not NoneType)
    encode, decode = coder(inner)
    if encode is _same:
        return _SAME
    return Coder(
        lambda value: None if value is None else encode(value),
        lambda found: None if found is None else decode(found),
    )


def _of_collection(kind: type[Collection[Any]], inner: Coder) -> Coder:
    encode, decode = inner
    if kind is frozenset:
        return Coder(lambda value: sorted(map(encode, value)), lambda found: frozenset(map(decode, found)))
    return Coder(lambda value: list(map(encode, value)), lambda found: tuple(map(decode, found)))


def _of_mapping(key: Coder, inner: Coder) -> Coder:
    if inner is _SAME and key is _SAME:
        return Coder(dict, dict)
    return Coder(
        lambda value: {key.encode(name): inner.encode(item) for name, item in value.items()},
        lambda found: {key.decode(name): inner.decode(item) for name, item in found.items()},
    )


def _of_dataclass(hint: type[Any]) -> Coder:
    hints = get_type_hints(hint)
    parts = [(each.name, coder(hints[each.name]), default_of(each)) for each in fields(hint) if each.init]
    writers = [(name, found.encode, default) for name, found, default in parts]
    names = frozenset(name for name, _, _ in parts)
    readers = [(name, found.decode) for name, found, _ in parts if found.decode is not _same]

    def encode(value: Any) -> JSON:
        made = {}
        for name, write, default in writers:
            item = getattr(value, name)
            if item is not default and item != default:
                made[name] = item if write is _same else write(item)
        return made

    def decode(found: JSON) -> Any:
        if not isinstance(found, dict):
            found = dict(zip((name for name, _, _ in parts), found, strict=False))
        made = found.copy() if names.issuperset(found) else {name: found[name] for name in names & found.keys()}
        for name, read in readers:
            if name in made:
                made[name] = read(made[name])
        return hint(**made)

    return Coder(encode, decode)


def default_of(each: Field[Any]) -> Any:
    """The value of a field that is not given; MISSING when it has none."""
    return each.default_factory() if each.default_factory is not MISSING else each.default
