"""Speed, printed as ratios within one run: machines differ, ratios hardly do.

What belongs here: one file per stage with ``run() -> list[Row]``, and the fleets they share. What does not:
tests (a benchmark never fails a build). ``make bench`` calls them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: what, how much, and the bound it is held against."""

    name: str
    value: float
    limit: float | None = None
    unit: str = "×"
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether the bound is kept."""
        return self.limit is None or self.value <= self.limit

    def __str__(self) -> str:
        bound = (
            ""
            if self.limit is None
            else f"  (at most {self.limit:g} {self.unit}) {'ok' if self.holds else 'OVER'}"
        )
        note = f"  {self.note}" if self.note else ""
        return f"{self.name:<58} {self.value:8.2f} {self.unit}{bound}{note}"
