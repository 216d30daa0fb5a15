"""Writes the table of metrics into ``metrics.md``, from the code: ``python docs/metrics_table.py``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gitops_agent.report.sinks.metrics import metrics

PAGE = Path(__file__).with_name("metrics.md")
BEGIN, END = "<!-- metrics:begin -->", "<!-- metrics:end -->"


def table() -> str:
    """The list of all metrics."""
    rows = (
        f"| `{name}` | {metric['kind']} | {'; '.join(_label(*item) for item in metric['labels'].items()) or '-'} "
        f"| {metric['meaning']} |"
        for name, metric in metrics().items()
    )
    return "\n".join(("| name | kind | labels | meaning |", "|---|---|---|---|", *rows))


def _label(name: str, values: Sequence[str] | str) -> str:
    return f"`{name}`: {values}" if isinstance(values, str) else f"`{name}`: {', '.join(values)}"


def page(text: str) -> str:
    """The page with its table replaced by a fresh one."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
