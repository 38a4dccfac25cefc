"""A front, or any rows, as a page for the terminal: the short list one takes into the meeting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.report.engineering import engineering
from npusim.report.layout import remarks

if TYPE_CHECKING:
    from npusim.explore.fronts import Front

__all__ = ["pareto_page", "rows_page", "shown_value"]

_MOST_ROWS = 1000
_BOUNDS = ("latency_s_low", "latency_s_high")
"""Columns of intervals, where a sweep wrote them."""
_UNITS = {"_s_low": "s", "_s_high": "s", "_per_s": "/s", "_s": "s", "_j": "J", "_bytes": "B", "_mm2": "mm2"}


def shown_value(name: str, value: Any) -> str:
    """Return a metric or a knob's value as an engineer writes it."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    if name.endswith("_mm2"):
        return f"{value:.2f} mm2"
    unit = next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), "")
    return engineering(float(value), unit)


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
        cells = (
            str(row[name]) if name == "point" else shown_value(name, row[name]) for row in chosen.values()
        )
        table.add_row(Text(name, style="bold" if name in found.minimise else ""), *cells)
    notes = [*found.notes, "all points of the front: -o front.html, or --format json"]
    return Group(head, Text(), table, Text(), remarks(("note", "dim", notes)))


def _worth(name: str) -> Callable[[Mapping[str, Any]], float]:
    """Return what orders points by a metric, the best first."""
    sign = -1.0 if name.endswith("_per_s") else 1.0
    return lambda row: sign * float(row[name])


def rows_page(table: Any) -> RenderableType:
    """Return the answer of a query, an Arrow table or None, for the terminal."""
    if table is None or not table.num_columns:
        return Text("done")
    rows = table.slice(0, _MOST_ROWS).to_pylist()
    page = _table(table.column_names, rows)
    left = table.num_rows - len(rows)
    return Group(page, Text(f"and {left:,} more: --format json", style="dim")) if left else page


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right", overflow="fold")
    for row in rows:
        table.add_row(*(str(row[n]) if n == "point" else shown_value(n, row[n]) for n in columns))
    return table
