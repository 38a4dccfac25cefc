"""A front, or any rows, as a page for the terminal: the short list one takes into the meeting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.report.layout import remarks
from npusim.report.rows import shown_value

if TYPE_CHECKING:
    from npusim.explore.fronts import Front

__all__ = ["pareto_page"]

_BOUNDS = ("latency_s_low", "latency_s_high")
"""Columns of intervals, where a sweep wrote them."""


def pareto_page(found: Front) -> RenderableType:
    """Return a front for the terminal: the best point in each metric, and the knee.

    Parameters
    ----------
    found : Front
        From `npusim.explore.fronts.front_of`.
    """
    head = Text(found.title, style="bold")
    head.append(f"\n{found.front:,} points on the front of {found.points:,}", style="dim")
    chosen = {f"best {name}": min(found.rows, key=_worth(name)) for name in found.minimise}
    chosen["knee"] = found.knee
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column()
    for name in chosen:
        table.add_column(name, justify="right", overflow="fold")
    bounds = [name for name in _BOUNDS if name in found.knee]
    for name in ("point", *found.minimise, *bounds, *found.axes):
        cells = (shown_value(name, row[name], found.units) for row in chosen.values())
        table.add_row(Text(name, style="bold" if name in found.minimise else ""), *cells)
    notes = [*found.notes, "all points of the front: -o front.html, or --format json"]
    return Group(head, Text(), table, Text(), remarks(("note", "dim", notes)))


def _worth(name: str) -> Callable[[Mapping[str, Any]], float]:
    """Return what orders points by a metric, the best first."""
    sign = -1.0 if name.endswith("_per_s") else 1.0
    return lambda row: sign * float(row[name])
