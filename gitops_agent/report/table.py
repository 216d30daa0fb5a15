"""Aligned columns and colour for text output. Alignment always, colour only where somebody looks."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from gitops_agent.support.text import escape_control

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def wants_colour(is_terminal: bool, environment: Mapping[str, str]) -> bool:
    """Colour only on a terminal that can show it, and never against the user's NO_COLOR."""
    return is_terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


@dataclass(frozen=True, slots=True)
class Style:
    """How text is shown: in colour or not, and how wide (None: as wide as it is, for pipes and files)."""

    colour: bool = False
    width: int | None = None

    def paint(self, text: str, *names: str) -> str:
        """The text in some colours (bold, dim, red, green, yellow, cyan)."""
        if not self.colour or not names or not text:
            return text
        return f"\x1b[{';'.join(_CODES[name] for name in names)}m{text}\x1b[0m"


PLAIN = Style()


def style_for(stream: TextIO, environment: Mapping[str, str]) -> Style:
    """The style that suits a stream: colour and width of a terminal, neither for a pipe or a file."""
    if not stream.isatty():
        return PLAIN
    width = shutil.get_terminal_size().columns
    return Style(colour=wants_colour(True, environment), width=width)


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text (made inert) and colours."""

    text: str
    colours: tuple[str, ...] = ()


Row = Sequence[Cell | str]


def display_width(text: str) -> int:
    """How many columns a terminal needs for a text."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def shortened(text: str, width: int) -> str:
    """The text cut to so many columns, the cut marked."""
    if display_width(text) <= width:
        return text
    kept, used = "", 0
    for char in text:
        used += display_width(char)
        if used > width - 1:
            break
        kept += char
    return kept + "…"


def table(headers: Sequence[str], rows: Sequence[Row], style: Style = PLAIN) -> str:
    """Columns wide enough for their content; the last one is cut where the terminal ends."""
    head = [Cell(header, ("bold",)) for header in headers]
    grid = [head, *([_cell(cell) for cell in row] for row in rows)]
    widths = [max(display_width(row[column].text) for row in grid) for column in range(len(headers))]
    if style.width is not None:
        widths[-1] = min(widths[-1], max(8, style.width - sum(widths[:-1]) - 2 * (len(widths) - 1)))
    return "\n".join(_line(row, widths, style) for row in grid)


def _cell(cell: Cell | str) -> Cell:
    return Cell(escape_control(cell.text), cell.colours) if isinstance(cell, Cell) else Cell(escape_control(cell))


def _line(row: Sequence[Cell], widths: Sequence[int], style: Style) -> str:
    parts = []
    for position, (cell, width) in enumerate(zip(row, widths, strict=True)):
        last = position == len(row) - 1
        text = shortened(cell.text, width) if last else cell.text
        padding = "" if last else " " * (width - display_width(text))
        parts.append(style.paint(text, *cell.colours) + padding)
    return "  ".join(parts).rstrip()
