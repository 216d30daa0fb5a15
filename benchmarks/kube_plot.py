"""The cost curve as a picture for the README: what a fleet in a cluster costs, by its size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

OURS, RULE = "#1f6feb", "#8b949e"


class Costs(Protocol):
    """What a fleet of one size costs, in seconds and MiB."""

    size: int
    first: float
    quiet: float
    commit: float
    memory: float


def draw(points: Sequence[Costs], path: Path) -> None:
    """Write a PNG with one panel for each cost, both axes from zero: a straight line is a cost for each agent."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    panels = (
        ("first convergence", "s", [each.first for each in points]),
        ("full pass, nothing changed", "ms", [each.quiet * 1000 for each in points]),
        ("one-agent commit, push to patch", "ms", [each.commit * 1000 for each in points]),
        ("resident memory", "MiB", [each.memory for each in points]),
    )
    sizes = [each.size for each in points]
    figure, grid = plt.subplots(1, 4, figsize=(13, 3.4), dpi=130)
    for axes, (title, unit, values) in zip(grid, panels, strict=True):
        axes.plot(sizes, values, "o-", color=OURS, linewidth=2, markersize=6)
        for size, value in zip(sizes, values, strict=True):
            axes.annotate(
                _number(value), (size, value), textcoords="offset points", xytext=(0, 9), ha="center", fontsize=9
            )
        axes.set_title(f"{title} ({unit})", fontsize=10)
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.set_ylim(0, max(values) * 1.25)
        axes.set_xlim(-0.06 * sizes[-1], 1.08 * sizes[-1])
        axes.set_xlabel("agents", fontsize=9)
        axes.grid(axis="y", color=RULE, alpha=0.25)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 10 else f"{value:,.0f}"
