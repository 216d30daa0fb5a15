"""Every duration that a document may hold has an upper bound, and the page says which."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
from pydantic import AfterValidator, BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from gitops_agent.model.document import DOCUMENTS
from gitops_agent.model.quantity import DURATION_PATTERN
from gitops_agent.model.scalars import Bounds

pytestmark = pytest.mark.unit

PAGE = Path(__file__).parents[2] / "docs" / "documents.md"


def parts(field: FieldInfo) -> Iterator[Any]:
    waiting = [field.annotation, *field.metadata]
    while waiting:
        part = waiting.pop()
        waiting += get_args(part)
        yield part


def fields(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for field in model.model_fields.values():
        name = f"{prefix}.{field.alias}"
        yield name, field
        for part in parts(field):
            if isinstance(part, type) and issubclass(part, BaseModel) and field.alias != "tenants":
                yield from fields(part, name)


DURATIONS = {
    name: field
    for kind, model in DOCUMENTS.items()
    for name, field in fields(model, kind)
    if any(getattr(part, "pattern", None) == DURATION_PATTERN for part in parts(field))
}


def bounds(field: FieldInfo) -> list[Bounds]:
    validators = [part.func for part in parts(field) if isinstance(part, AfterValidator)]
    return [each for each in validators if isinstance(each, Bounds)]


def test_the_walk_finds_them() -> None:
    assert {"Agent.spec.runtime.stop.grace", "Agent.spec.hooks.onRetired.timeout"} <= DURATIONS.keys()
    assert {"Policy.spec.rollout.healthTimeout", "Policy.spec.backoff.longest"} <= DURATIONS.keys()


@pytest.mark.parametrize("name", DURATIONS)
def test_none_may_be_longer_than_the_page_says(name: str) -> None:
    field = DURATIONS[name]
    (bound,) = bounds(field)
    longest = bound.expected.partition("at most ")[2].split()[0]
    type_: Any = field.annotation
    for metadata in field.metadata:
        type_ = type_ if metadata is None else Annotated[type_, metadata]
    adapter = TypeAdapter(type_)
    assert adapter.validate_python(longest) == longest
    with pytest.raises(ValidationError, match="at most"):
        adapter.validate_python(f"{longest}1ms")
    if longest != "30d":
        assert f"at most `{longest}`" in row(name), name


def row(name: str) -> str:
    """What the page says of a field."""
    kind, _, path = name.partition(".")
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \|(.*)$", section, re.MULTILINE)
    patterns = [(re.escape(field).replace(r"\*", "[^.]+"), text) for field, text in rows]
    return next((text for pattern, text in patterns if re.fullmatch(pattern, path)), "")
