"""What else is wrong with a document that has errors.

A wrong field hides what comes after it: rules over several fields, what drivers refuse, references. So what is
wrong is replaced by something valid, or left out where nothing can stand for it, and the rest is looked at again.
What is then found at such a place was made by us, and is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import orjson
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gitops_agent.model import quantity, scalars
from gitops_agent.snapshot.codes import Issue, Loc

UNNAMED = "unnamed"

_EXAMPLES = {
    quantity.DURATION_PATTERN: "1s",
    quantity.MEMORY_PATTERN: "1Gi",
    quantity.CPU_PATTERN: "1",
    quantity.PERCENT_PATTERN: "10%",
    quantity.MOMENT_PATTERN: "2030-01-31T18:00:00Z",
    scalars.URL_PATTERN: "https://unnamed.example",
    scalars.URL_PATH_PATTERN: "/",
}
_SAID = ("pattern", "min_length", "ge")
_NOTHING: Any = object()
_Kept = dict[Loc, list[int]]


class Remainder:
    """A document as it was written, but for what was replaced or left out. Paths in and out are those of the
    document as written, but for ``written`` and ``genuine``, which take those of the text that ``render`` made."""

    def __init__(self, raw: bytes) -> None:
        self._written = orjson.loads(raw)
        self._replaced: dict[Loc, Any] = {}
        self._removed: set[Loc] = set()
        self._kept: _Kept = {}  # lists that lost items: the positions, as written, of those that are left

    @property
    def is_whole(self) -> bool:
        """Whether nothing was replaced or left out."""
        return not self._replaced and not self._removed

    def render(self) -> bytes:
        """The document as it is now."""
        self._kept = {}
        return orjson.dumps(self._value(self._written, (), ()))

    def set_aside(self, loc: Loc, model: type[BaseModel]) -> bool:
        """Replace what is wrong; leave it out when that did not help, then what is around it. False: no way."""
        while loc and loc in self._removed:
            loc = loc[:-1]
        if not loc:
            return False
        stand_in = _NOTHING if loc in self._replaced else _stand_in(model, loc)
        if stand_in is _NOTHING or not stand_in:  # nothing of a list or section is what its absence is
            self._replaced.pop(loc, None)
            self._removed.add(loc)
        else:
            self._replaced[loc] = stand_in
        return True

    def doubt(self, loc: Loc) -> None:
        """Take nothing at this path for what was written: it should have been changed, and was not."""
        self._removed.add(loc)

    def written(self, loc: Loc) -> Loc:
        """A path of what was rendered, in the document as written."""
        found: Loc = ()
        for depth, step in enumerate(loc):
            positions = self._kept.get(loc[:depth])
            is_kept = positions is not None and isinstance(step, int) and step < len(positions)
            found += (positions[int(step)] if positions is not None and is_kept else step,)
        return found

    def is_genuine(self, loc: Loc) -> bool:
        """Whether something at this path is wrong by what was written, not by what was replaced or left out."""
        if any(loc[: len(place)] == place for place in (*self._replaced, *self._removed)):
            return False
        return all(place[: len(loc)] != loc for place in self._removed)

    def genuine(self, issues: Iterable[Issue]) -> list[Issue]:
        """The issues that were not made by us, at the paths as written."""
        moved = (issue._replace(loc=self.written(issue.loc)) for issue in issues)
        return [issue for issue in moved if self.is_genuine(issue.loc)]

    def _value(self, value: Any, loc: Loc, rendered: Loc) -> Any:
        if isinstance(value, dict):
            kept = {key: item for key, item in value.items() if (*loc, key) not in self._removed}
            made = {key: self._value(item, (*loc, key), (*rendered, key)) for key, item in kept.items()}
            return made | {str(place[-1]): item for place, item in self._replaced.items() if place[:-1] == loc}
        if isinstance(value, list):
            positions = [at for at in range(len(value)) if (*loc, at) not in self._removed]
            if len(positions) < len(value):
                self._kept[rendered] = positions
            return [self._value(value[at], (*loc, at), (*rendered, now)) for now, at in enumerate(positions)]
        return value


def _stand_in(model: type[BaseModel], loc: Loc) -> Any:
    """Something valid in place of a field of a model; nothing for items of lists and for what has no field."""
    annotation: Any = model
    field: FieldInfo | None = None
    for step in loc:
        kind, _ = _unwrapped(annotation)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            field = next((each for each in kind.model_fields.values() if each.alias == step), None)
            if field is None:
                return _NOTHING
            annotation = field.annotation
        else:  # an item of a list, a value of a mapping
            arguments = get_args(kind)
            field, annotation = None, arguments[get_origin(kind) is dict] if len(arguments) > 1 else None
    return _NOTHING if field is None else _example(field.annotation, field.metadata)


def _unwrapped(annotation: Any) -> tuple[Any, list[Any]]:
    """The type itself, out of an optional and of its annotations; and these."""
    notes: list[Any] = []
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            notes += [
                part for each in more for part in (each.metadata if isinstance(each, FieldInfo) else (each,))
            ]
        elif get_origin(annotation) in (Union, UnionType):
            annotation = next(each for each in get_args(annotation) if each is not NoneType)
        else:
            return annotation, notes


def _example(annotation: Any, metadata: Iterable[Any] = ()) -> Any:
    """A valid value of a type."""
    kind, notes = _unwrapped(annotation)
    said = {name: value for note in (*metadata, *notes) for name in _SAID if (value := getattr(note, name, None))}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        required = (field for field in kind.model_fields.values() if field.is_required())
        return {str(field.alias): _example(field.annotation, field.metadata) for field in required}
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    if get_origin(kind) is tuple:
        return [_example(get_args(kind)[0])] * said.get("min_length", 0)
    if get_origin(kind) is dict:
        return {}
    if kind is str:
        return _EXAMPLES.get(said.get("pattern", ""), UNNAMED)
    return {bool: False, int: said.get("ge", 0), float: said.get("ge", 0.0)}.get(kind, _NOTHING)
