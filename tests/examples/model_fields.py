"""Every field of a document by its dotted name, as people write it: ``spec.runtime.env[].name``."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel


def field_names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for field in model.model_fields.values():
        name = f"{prefix}{field.alias}"
        yield name
        found = _model_in(field.annotation)
        if found:
            below, brackets = found
            yield from field_names(below, f"{name}{brackets}.")


def _model_in(annotation: Any) -> tuple[type[BaseModel], str] | None:
    """The model inside an optional, a tuple or a mapping, and the brackets that stand for the container."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _model_in(arguments[0])
    if origin in (UnionType, typing.Union):
        return next(filter(None, map(_model_in, arguments)), None)
    if origin is tuple and (found := _model_in(arguments[0])):
        return found[0], "[]" + found[1]
    if origin is dict and (found := _model_in(arguments[1])):
        return found[0], ".<name>" + found[1]
    return None
