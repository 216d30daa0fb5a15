"""The live view of ``once`` and ``run`` on a terminal. Rich is imported when a view starts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TextIO

from gitops_agent.model.key import AgentKey
from gitops_agent.model.status import AgentStatus, Phase
from gitops_agent.report.json_shapes import agent_shape
from gitops_agent.report.status_text import (
    enforcing,
    instances_cell,
    instances_header,
    instances_of,
    leading_condition,
    ready_word,
    state_of,
)
from gitops_agent.report.words import Shape, fleet_words, phase_colours, short
from gitops_agent.support.text import escape_control

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

_SHOWN_ROWS = 20


@dataclass(frozen=True, slots=True)
class _Picture:
    statuses: tuple[AgentStatus, ...] = ()
    phase: Phase = Phase.PENDING
    commit: str = ""
    enforced: str = ""
    note: str = ""
    fetch: tuple[str, int, int | None] | None = None

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is on its way: then nothing should turn."""
        return self.phase.terminal and all(status.ready for status in self.statuses)


class ProgressView:
    """A table that redraws in place. Use as a context manager; ``update`` may come from any thread.

    ``transient``: it leaves nothing behind, because the caller prints the end result.
    """

    def __init__(
        self, instance: str, stream: TextIO | None = None, *, colour: bool = True, transient: bool = False
    ) -> None:
        self._transient = transient
        self._spinner: Spinner | None = None
        self._instance = instance
        self._stream = sys.stderr if stream is None else stream
        self._colour = colour
        self._picture = _Picture()
        self._live: Live | None = None

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
    ) -> None:
        """Show this from now on. ``commits``: the newest and the enforced one; ``note``: what goes on."""
        commit, enforced = (sha or "" for sha in commits)
        self._picture = _Picture(tuple(statuses.values()), phase or Phase.PENDING, commit, enforced, note)

    def fetching(self, phase: str, done: int, total: int | None) -> None:
        """Show a bar for a fetch, until the next picture."""
        self._picture = replace(self._picture, fetch=(phase, done, total))

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table

        picture = self._picture
        parts: list[RenderableType] = [self._headline(picture)]
        # Those that are not Ready are what one waits for, so they come first and are cut last.
        ordered = sorted(picture.statuses, key=lambda status: (status.ready, status.agent))
        if ordered:
            agents = list(map(agent_shape, ordered[:_SHOWN_ROWS]))
            instances = [instances_of(agent["resources"]) for agent in agents]
            header = instances_header(name for each in instances for name, _ in each)
            grid = Table(box=None, pad_edge=False, header_style="bold")
            for column in ("AGENT", "READY", "STATE", header, "REASON", "MESSAGE"):
                # Only the message gives way on a narrow terminal (its text does not wrap, it is cut).
                grid.add_column(column, no_wrap=column != "MESSAGE", overflow="ellipsis")
            for agent, listed in zip(agents, instances, strict=True):
                grid.add_row(*_cells(agent, instances_cell(listed)))
            parts.append(grid)
        if len(ordered) > _SHOWN_ROWS:
            parts.append(_text(f"… and {len(ordered) - _SHOWN_ROWS} more", "dim"))
        if picture.fetch is not None:
            parts.append(_bar(*picture.fetch))
        elif picture.is_at_rest or self._live is None or self._spinner is None:
            parts.extend([_text(picture.note, "dim")] if picture.note else [])
        else:
            self._spinner.update(text=_text(picture.note or "looking", "dim"))
            parts.append(self._spinner)
        return Group(*parts)

    def _headline(self, picture: _Picture) -> Text:
        line = _text(f"{self._instance}: {short(picture.commit)} ")
        line.append_text(_text(str(picture.phase), *phase_colours(picture.phase)))
        behind = enforcing(picture.commit, picture.enforced) if picture.commit else ""
        return line.append_text(
            _text(f"{behind}; {fleet_words([(each.ready, each.lifecycle) for each in picture.statuses])}")
        )


def _bar(phase: str, done: int, total: int | None) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    grid = Table.grid(padding=(0, 1))
    counted = f"{done} of {total}" if total else str(done)
    grid.add_row(_text(phase), ProgressBar(total, done, width=30, pulse=not total), _text(counted, "dim"))
    return grid


def _cells(agent: Shape, instances: str) -> list[Text]:
    condition = leading_condition(agent) or {"reason": "-", "message": ""}
    word, colours = ready_word(agent)
    message = "" if agent["ready"] else condition["message"]
    rest = [state_of(agent), instances, condition["reason"], message]
    return [_text(agent["agent"]), _text(word, *colours), *map(_text, rest)]


def _text(content: str, *colours: str) -> Text:
    # Text, never markup: what comes from a repository must not be able to style, link or hide anything.
    from rich.text import Text

    return Text(escape_control(content), style=" ".join(colours), no_wrap=True, overflow="ellipsis")
