"""The live view of ``once`` and ``run`` on a terminal: the table of ``status``, redrawn. Rich is imported then."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from gitops_agent.model.key import AgentKey
from gitops_agent.model.status import AgentStatus, Phase
from gitops_agent.report.json_shapes import to_json
from gitops_agent.report.render import Style
from gitops_agent.report.status_text import agents_table, fleet_head
from gitops_agent.report.words import Shape, fleet_words
from gitops_agent.support.text import escape_control

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

_SHOWN_ROWS = 20


class ProgressView:
    """A table that redraws in place. Use as a context manager; ``update`` may come from any thread.

    ``transient``: it leaves nothing behind, because the caller prints the end result.
    """

    def __init__(
        self, instance: str, stream: TextIO | None = None, *, colour: bool = True, transient: bool = False
    ) -> None:
        self._instance = instance
        self._stream = sys.stderr if stream is None else stream
        self._colour = colour
        self._transient = transient
        self._live: Live | None = None
        self._spinner: Spinner | None = None
        self._table = ""  # as text: rendered when something changes, not with every frame
        self._note = "looking"
        self._at_rest = False
        self._fetch: tuple[str, int, int | None] | None = None

    def __enter__(self) -> ProgressView:
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        # One for the whole view: a new one with every frame would always show its first picture.
        self._spinner = Spinner("dots")
        console = Console(file=self._stream, no_color=not self._colour, highlight=False, markup=False)
        self._live = Live(
            get_renderable=self._render,
            console=console,
            refresh_per_second=8,
            transient=self._transient,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(
        self,
        statuses: Mapping[AgentKey, AgentStatus],
        phase: Phase | None,
        commits: tuple[str | None, str | None],
        note: str = "",
        *,
        now: float | None = None,
    ) -> None:
        """Show this from now on. ``commits``: the newest and the enforced one; ``note``: what goes on."""
        # Those that are not Ready are what one waits for, so they come first and are cut last.
        ordered = sorted(statuses.values(), key=lambda status: (status.ready, status.agent))
        commit, enforced = commits
        shape: Shape = {
            "instance": self._instance,
            "commit": commit,
            "enforced": enforced,
            "phase": str(phase or Phase.PENDING),
            "agents": list(map(to_json, ordered[:_SHOWN_ROWS])),
            "findings": [],
            "journalAgeSeconds": None,
        }
        style = Style(self._colour, self._live.console.width if self._live else None)
        lines = [fleet_head(shape, style, fleet_words([(each.ready, each.lifecycle) for each in ordered]))]
        lines += [agents_table(shape, style, now)] if ordered else []
        lines += [style.paint(f"… and {len(ordered) - _SHOWN_ROWS} more", "dim")] if ordered[_SHOWN_ROWS:] else []
        self._table, self._note, self._fetch = "\n".join(lines), note, None
        self._at_rest = phase is not None and phase.terminal and all(status.ready for status in ordered)

    def fetching(self, phase: str, done: int, total: int | None) -> None:
        """Show a bar for a fetch, until the next picture."""
        self._fetch = (phase, done, total)

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = [Text.from_ansi(self._table, no_wrap=True)] if self._table else []
        if self._fetch is not None:
            parts.append(_bar(*self._fetch))
        elif self._at_rest or self._live is None or self._spinner is None:
            parts += [_dim(self._note)] if self._note else []
        else:
            self._spinner.update(text=_dim(self._note or "looking"))
            parts.append(self._spinner)
        return Group(*parts)


def _bar(phase: str, done: int, total: int | None) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    grid.add_row(
        _dim(phase), ProgressBar(total, done, width=30, pulse=not total), _dim(f"{done} of {total or '?'}")
    )
    return grid


def _dim(content: str) -> Text:
    # Text, never markup: what comes from a repository must not be able to style, link or hide anything.
    from rich.text import Text

    return Text(escape_control(content), style="dim", no_wrap=True, overflow="ellipsis")
