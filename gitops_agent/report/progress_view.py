"""The live view of ``once`` and ``run`` on a terminal: the table of ``status``, redrawn. Imports Rich, so it is
imported only where there is a terminal."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from gitops_agent.model.state import State
from gitops_agent.report.json_shapes import status_shape, to_json
from gitops_agent.report.render import Style
from gitops_agent.report.status_text import agents_table, fleet_head
from gitops_agent.report.words import fleet_words
from gitops_agent.support.text import escape_control

_SHOWN_ROWS = 20


class ProgressView:
    """A table that redraws in place. Use as a context manager; ``update`` may come from any thread.
    ``transient``: it leaves nothing behind, because the caller prints the end result."""

    def __init__(self, instance: str, stream: TextIO, *, colour: bool = True, transient: bool = False) -> None:
        self._instance = instance
        self._colour = colour
        self._table = ""  # as text: rendered when something changes, not with every frame
        self._note = "looking"
        self._at_rest = False
        self._fetch: tuple[str, int, int | None] | None = None
        # One for the whole view: a new one with every frame would always show its first picture.
        self._spinner = Spinner("dots")
        self._live = Live(
            get_renderable=self._render,
            console=Console(file=stream, no_color=not colour, highlight=False, markup=False),
            refresh_per_second=8,
            transient=transient,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> ProgressView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self, state: State, note: str = "", *, now: float | None = None) -> None:
        """Show this state from now on. ``note``: what goes on."""
        # Those that are not Ready are what one waits for, so they come first and are cut last.
        ordered = sorted(state.status.agents.values(), key=lambda status: (status.ready, status.agent))
        shape = status_shape(self._instance, state, (), ())
        shape["agents"] = list(map(to_json, ordered[:_SHOWN_ROWS]))
        style = Style(self._colour, self._live.console.width)
        more = len(ordered) - _SHOWN_ROWS
        lines = (
            fleet_head(shape, style, _fleet_words(state)),
            agents_table(shape, style, now),
            style.paint(f"… and {more} more", "dim") if more > 0 else "",
        )
        self._table, self._note, self._fetch = "\n".join(filter(None, lines)), note, None
        ended = state.head is not None and state.head.phase.terminal
        self._at_rest = ended and all(status.ready for status in ordered)

    def fetching(self, phase: str, done: int, total: int | None) -> None:
        """Show a bar for a fetch, until the next picture."""
        self._fetch = (phase, done, total)

    def _render(self) -> RenderableType:
        parts: list[RenderableType] = [Text.from_ansi(self._table, no_wrap=True)] if self._table else []
        if self._fetch is not None:
            phase, done, total = self._fetch
            bar = Table.grid(padding=(0, 1))
            progress = ProgressBar(total, done, width=30, pulse=not total)
            bar.add_row(_dim(phase), progress, _dim(f"{done} of {total or '?'}"))
            parts.append(bar)
        elif self._at_rest:
            parts += [_dim(self._note)] if self._note else []
        else:
            self._spinner.update(text=_dim(self._note or "looking"))
            parts.append(self._spinner)
        return Group(*parts)


def _fleet_words(state: State) -> str:
    agents, moving = state.status.agents.values(), state.status.agents.on_their_way
    paused = sum(each.pause is not None for each in agents)
    observed = sum(each.pause is None and each.is_hands_off for each in agents)
    return fleet_words([(each.ready, each.lifecycle) for each in agents], moving, paused, observed)


def _dim(content: str) -> Text:
    # Text, never markup: what comes from a repository must not be able to style, link or hide anything.
    return Text(escape_control(content), style="dim", no_wrap=True, overflow="ellipsis")
