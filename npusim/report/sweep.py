"""What a sweep or a search did, as a page for the terminal: the day's takings, and which knob mattered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from npusim.explore import SweepResult
    from npusim.explore.search import SearchResult
    from npusim.explore.sensitivity import Influence

__all__ = ["influence_table", "search_page", "sweep_page"]


def sweep_page(result: SweepResult, space: str) -> RenderableType:
    """Return the end of a sweep for the terminal.

    Parameters
    ----------
    result : SweepResult
    space : str
        The space as it was named, for the influences of its axes.
    """
    from npusim.explore import load_space
    from npusim.explore.sensitivity import influences

    text = Text(f"{result.points:,} points in {result.seconds:.1f} s", style="bold")
    text.append(f" ({result.points / max(result.seconds, 1e-9):,.0f} a second); ", style="dim")
    text.append(f"{result.kept:,} kept in {result.directory}")
    found = influences(load_space(space))
    return Group(
        text,
        Text("\nWhich knob matters: share of a metric's variation (alone / with the others)", style="bold"),
        influence_table(found),
        Text(f"\nNext: npusim pareto {result.directory}", style="dim"),
    )


def influence_table(found: Mapping[str, Sequence[Influence]]) -> Table:
    """Return a row an axis, a column a metric."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("knob")
    for name in found:
        table.add_column(name, justify="right")
    by_axis = {name: {one.axis: one for one in ranked} for name, ranked in found.items()}
    axes = {one.axis: 0.0 for ranked in found.values() for one in ranked}
    for ranked in found.values():
        for one in ranked:
            axes[one.axis] = max(axes[one.axis], one.total)
    for axis in sorted(axes, key=lambda path: -axes[path]):
        cells = [by_axis[name][axis] for name in found]
        table.add_row(axis, *(f"{max(0.0, c.first_order):.2f} / {max(0.0, c.total):.2f}" for c in cells))
    return table


def search_page(result: SearchResult) -> RenderableType:
    """Return the end of a search for the terminal: evolution beside chance."""
    text = Text(
        f"{result.front:,} points on the front after {result.evaluations:,} evaluations", style="bold"
    )
    text.append(
        f" of a space of {result.points:,}, in {result.seconds:.1f} s: {result.directory}", style="dim"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("evaluations", "evolution", "chance"):
        table.add_column(name, justify="right")
    for step in result.steps:
        table.add_row(f"{step.evaluations:,}", f"{step.evolution:.1%}", f"{step.chance:.1%}")
    caption = Text("\nHypervolume of the front, relative to that of both together", style="bold")
    return Group(text, caption, table) if result.steps else text
