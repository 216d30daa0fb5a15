"""Text for people: aligned columns, wrapped prose, colour. Rich draws what a terminal shows, and is imported then.

Without a terminal nothing is folded, cut or coloured: one line for each row, for ``grep`` and files.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from gitops_agent.support.text import clipped, escape_control

if TYPE_CHECKING:
    from rich.console import Console

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_SGR = re.compile(r"\x1b\[[0-9;]*m")
_FOLDED_COLUMNS = 24  # terminal columns that a column of prose gets at least
_RICH_ROWS = 500  # Rich takes about half a millisecond for each row: more are padded and cut here


def wants_colour(is_terminal: bool, environment: Mapping[str, str]) -> bool:
    """Whether to colour: only a terminal that can show it, and never against the user's NO_COLOR."""
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
    return Style(colour=wants_colour(True, environment), width=shutil.get_terminal_size().columns)


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text and colours."""

    text: str
    colours: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its header, and what it shows of a row. ``drop``: the higher, the sooner it is left out where
    the terminal is too narrow; 0: never. ``folds``: its text may go on in the next line."""

    header: str
    show: Callable[[Any], Cell | str]
    drop: int = 0
    folds: bool = False


Mask = Callable[[str], str]


def page(blocks: Sequence[str], style: Style = PLAIN) -> str:
    """The blocks with an empty line between two, without empty ones; lines too long for the terminal wrapped."""
    text = "\n\n".join(filter(None, blocks))
    return text if style.width is None else "\n".join(_wrapped(line, style) for line in text.split("\n"))


def _wrapped(line: str, style: Style) -> str:
    """One line as several, those that follow two columns further in."""
    width = style.width or 0
    if len(_SGR.sub("", line)) <= width:
        return line
    from rich.text import Text

    indent = len(line) - len(line.lstrip(" "))
    console = _console(style)
    parts = Text.from_ansi(line[indent:]).wrap(console, max(8, width - indent - 2))
    with console.capture() as output:
        for position, part in enumerate(parts):
            part.rstrip()
            console.print(Text(" " * (indent + (2 if position else 0))) + part, soft_wrap=True)
    return _trimmed(output.get())


def table(columns: Sequence[Column], rows: Sequence[Any], style: Style = PLAIN, mask: Mask = str) -> str:
    """A header and a line for each row. A column without any text is left out. On a terminal the table fits its
    width: the least important columns are dropped first, then prose is folded. ``mask``: applied to every cell."""
    raw = [[column.show(row) for column in columns] for row in rows]
    shown = _shown({cell if isinstance(cell, str) else cell.text for cells in raw for cell in cells}, mask)
    grid = [
        [Cell(shown[cell]) if isinstance(cell, str) else Cell(shown[cell.text], cell.colours) for cell in cells]
        for cells in raw
    ]
    natural = [max((cell_width(row[at].text) for row in grid), default=0) for at in range(len(columns))]
    kept = [at for at, width in enumerate(natural) if width]
    if not kept:
        return ""
    widths = {at: max(natural[at], len(columns[at].header)) for at in kept}
    if style.width is not None:
        kept = _fitting(columns, widths, style.width)
    left = [columns[at] for at in kept]
    cells = [[row[at] for at in kept] for row in grid]
    if style.width is None or len(rows) > _RICH_ROWS:
        return _padded(left, cells, [widths[at] for at in kept], style)
    return _drawn(left, cells, style)


def cell_width(text: str) -> int:
    """How many columns of a terminal a text needs."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _fitting(columns: Sequence[Column], widths: Mapping[int, int], width: int) -> list[int]:
    """The positions of the columns that fit the width, the least important left out."""
    kept = list(widths)
    while True:
        needed = [min(widths[at], _FOLDED_COLUMNS) if columns[at].folds else widths[at] for at in kept]
        least = max(kept, key=lambda at: columns[at].drop, default=None)
        if sum(needed) + 2 * (len(kept) - 1) <= width or least is None or not columns[least].drop:
            return kept
        kept.remove(least)


def _drawn(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], style: Style) -> str:
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column.header, no_wrap=not column.folds, overflow="fold" if column.folds else "ellipsis")
    for row in rows:
        # Text, never markup: what comes from a repository must not be able to style, link or hide anything.
        grid.add_row(*(Text(cell.text, style=" ".join(cell.colours)) for cell in row))
    console = _console(style)
    with console.capture() as output:
        console.print(grid)
    return _trimmed(output.get())


def _padded(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], widths: Sequence[int], style: Style) -> str:
    head = [Cell(column.header, ("bold",)) for column in columns]
    last = len(columns) - 1
    room = None if style.width is None else max(8, style.width - sum(widths[:-1]) - 2 * last)
    lines = []
    for row in [head, *rows]:
        parts = []
        for cell, width in zip(row[:last], widths, strict=False):
            text, padding = cell.text, " " * (width - cell_width(cell.text))
            parts.append((style.paint(text, *cell.colours) if style.colour else text) + padding)
        end = row[last]
        parts.append(style.paint(end.text if room is None else clipped(end.text, room), *end.colours))
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def _shown(texts: Collection[str], mask: Mask) -> dict[str, str]:
    """Each text, masked and escaped. Whether there is anything to mask takes one call, a tenth of the time that
    one for each text takes."""
    whole = "\n".join(texts)
    is_clean = mask(whole) == whole
    return {text: escape_control(text if is_clean else mask(text)) for text in texts}


def _console(style: Style) -> Console:
    from rich.console import Console

    return Console(
        width=style.width,
        height=25,  # with both given, no terminal is asked
        force_terminal=style.colour,
        color_system="standard" if style.colour else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.rstrip("\n").split("\n"))
