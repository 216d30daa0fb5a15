"""Writes the table of settings into ``configuration.md``, from the settings: ``python docs/settings_table.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gitops_agent.settings import PREFIX, Settings

PAGE = Path(__file__).with_name("configuration.md")
BEGIN, END = "<!-- settings:begin -->", "<!-- settings:end -->"
OPTIONS = ("repo", "branch", "path", "instance", "state_dir", "journal_url", "lease_dir")
EMPTY = {
    "state_dir": "`~/.local/state/gitops-agent/<instance>`",
    "lease_dir": "`$XDG_RUNTIME_DIR/gitops-agent`, or `/tmp/gitops-agent-<uid>`",
    "repo": "none: it must be given",
}
UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def rows() -> Iterator[str]:
    """One line per setting, sections below their own name."""
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, BaseModel):
            for inner, below in type(field.default).model_fields.items():
                yield _row(f"{name}.{inner}", below)
        else:
            yield _row(name, field)


def table() -> str:
    """The whole table, between its markers."""
    head = ("| in the file | in the environment | default | meaning |", "|---|---|---|---|")
    return "\n".join((BEGIN, *head, *rows(), END))


def page(text: str) -> str:
    """The page with its table replaced by a fresh one."""
    before, rest = text.split(BEGIN)
    return before + table() + rest.split(END)[1]


def _row(name: str, field: FieldInfo) -> str:
    *section, last = name.split(".")
    key = ".".join((*section, field.alias or last))
    variable = PREFIX + "__".join(name.upper().split("."))
    option = f" (also `--{name.replace('_', '-')}`)" if name in OPTIONS else ""
    return f"| `{key}` | `{variable}` | {_default(name, field)} | {field.description}{option} |"


def _default(name: str, field: FieldInfo) -> str:
    value = field.default
    if value in ("", None, (), {}):
        return EMPTY.get(name, "none")
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{_duration(value)}`" if isinstance(value, float) else f"`{value}`"


def _duration(value: float) -> str:
    size, unit = next((size, unit) for size, unit in UNITS if value >= size and value % size == 0)
    return f"{int(value // size)}{unit}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
