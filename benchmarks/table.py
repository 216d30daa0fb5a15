"""Rows as a table: for the terminal, and for the README."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks import Row

HEAD = ("measure", "value", "ratio", "limit", "")


def columns(row: Row) -> tuple[str, str, str, str, str]:
    """Measure, value, ratio (when it is one), limit, and whether it holds."""
    is_ratio = row.unit == "×"
    amount = f"{row.value:.2f}" if row.value < 10 else f"{row.value:.0f}"
    limit = "" if row.limit is None else f"≤ {row.limit:g} {'×' if is_ratio else row.unit}"
    note = f" ({row.note})" if row.note else ""
    return (
        row.name,
        row.note if is_ratio else f"{amount} {row.unit}{note}",
        f"{amount} ×" if is_ratio else "",
        limit,
        "" if row.limit is None else "ok" if row.holds else "over",
    )


def text_table(rows: Sequence[Row]) -> str:
    """Aligned columns."""
    cells = [HEAD, *map(columns, rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    return "\n".join(line.rstrip() for line in lines)


def markdown_table(rows: Sequence[Row]) -> str:
    """The same in Markdown."""
    lines = [HEAD, ("---",) * len(HEAD), *map(columns, rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |" for line in lines)


def write_into(page: Path, rows: Sequence[Row], caption: str, *, name: str = "bench", below: str = "") -> None:
    """Replace what stands between the markers of a page that have this name; ValueError when they are not there.
    ``below``: what follows the table."""
    first, last = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"{page}: expected {first} and, after it, {last}")
    table = "\n\n".join(part for part in (caption, markdown_table(rows), below) if part)
    page.write_text(f"{before}{first}\n{table}\n{last}{after}", encoding="utf-8")
