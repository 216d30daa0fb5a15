"""The leaves of a document model by their dotted names, as people write them: ``spec.runtime.env[].name``."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from types import UnionType
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

OPEN_BY_NAME = "tenants"
"""The one section whose fields are those of the level above; the page says so instead of repeating them."""


def defaults(model: type[BaseModel], prefix: str = "", given: object = None) -> Iterator[tuple[str, Any]]:
    """Every leaf and its default, taken from ``given`` where a section has one; ``...`` when it must be given."""
    for attribute, field in model.model_fields.items():
        name = f"{prefix}{field.alias}"
        default = getattr(given, attribute, ... if field.is_required() else _default(field))
        found = None if field.alias == OPEN_BY_NAME else _model_in(field.annotation)
        if found:
            yield from defaults(found[0], f"{name}{found[1]}.", default)
        else:
            yield name, default


def _default(field: FieldInfo) -> Any:
    """What a field is when left out, whether it is a value or made anew each time."""
    return field.get_default(call_default_factory=True, validated_data={})


def _model_in(annotation: Any) -> tuple[type[BaseModel], str] | None:
    """The model inside an optional or a list, and the brackets that stand for the list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (UnionType, typing.Union):
        return next(filter(None, map(_model_in, arguments)), None)
    if origin is tuple and (found := _model_in(arguments[0])):
        return found[0], "[]"
    return None
