"""The settings in force, as people write them."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from gitops_agent.settings import Settings
from gitops_agent.support.secrets import MASK

_SECRET = ("sentry_dsn", "journal_url")
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"), (0.001, "ms"))


def settings_lines(section: BaseModel, prefix: str = "") -> Iterator[str]:
    """``pollInterval: 30s``, one line for every setting, those of a section below its name."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from settings_lines(value, f"{prefix}{field.alias}.")
        else:
            yield f"{prefix}{field.alias}: {MASK if value and name in _SECRET else _in_words(value)}"


def settings_shape(settings: Settings) -> dict[str, Any]:
    """The same for programs: numbers stay numbers, a secret is masked."""
    shape: dict[str, Any] = settings.model_dump(mode="json", by_alias=True)
    hidden = {to_camel(name): MASK for name in _SECRET if getattr(settings, name)}
    return {**shape, **hidden}


def _in_words(value: object) -> str:
    if value in (None, "", ()):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return _duration(value) if isinstance(value, float) else str(value)


def _duration(seconds: float) -> str:
    """A duration as it may be written in the settings: in the largest unit that divides it."""
    for size, unit in _UNITS:
        count = seconds / size
        if count >= 1 and count == round(count):
            return f"{count:.0f}{unit}"
    return "0s" if not seconds else f"{seconds:g}s"
