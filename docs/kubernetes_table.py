"""Writes the table of the driver's settings into ``kubernetes.md``: ``python docs/kubernetes_table.py``."""

from __future__ import annotations

from pathlib import Path

from gitops_agent.drivers.kubernetes.options import Settings

PAGE = Path(__file__).with_name("kubernetes.md")
BEGIN, END = "<!-- kubernetes-settings:begin -->", "<!-- kubernetes-settings:end -->"


def table() -> str:
    """The whole table, between its markers."""
    head = ("| below `drivers.kubernetes` | default | meaning |", "|---|---|---|")
    rows = (
        f"| `{field.alias}` | {_default(field.default)} | {field.description} |"
        for field in Settings.model_fields.values()
    )
    return "\n".join((BEGIN, *head, *rows, END))


def page(text: str) -> str:
    """The page with its table replaced by a fresh one."""
    before, rest = text.split(BEGIN)
    return before + table() + rest.split(END)[1]


def _default(value: object) -> str:
    if value in ("", None, ()):
        return "none"
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
