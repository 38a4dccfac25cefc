"""Sweeps, searches, fronts and queries as pages for the terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from npusim.metrics import METRICS, unit_of
from npusim.report.engineering import engineering
from npusim.report.terminal import grid, headed, remarks
from npusim.units import format_quantity

if TYPE_CHECKING:
    from npusim.explore import SweepResult
    from npusim.explore.fronts import Front
    from npusim.explore.search import SearchResult
    from npusim.explore.sensitivity import Influence

_MOST_ROWS = 1000
_POINT = "point"
_LONG = 12
"""Characters from which an exact value is rounded."""
_OF_ONE = re.compile(r'(?:any_value|avg|first|last|max|mean|median|min|sum)\("?([^"()]+)"?\)')
"""Column of a query that is some values' sum or one of them: it has their unit."""


def shown_value(name: str, value: Any, units: Mapping[str, str] | None = None) -> str:
    """Return a metric or a knob's value as an engineer writes it.

    Parameters
    ----------
    name : str
        Metric, or path of a knob.
    value : number, str or None
    units : mapping of str to str, optional
        SI units of the knobs by path.

    Examples
    --------
    >>> shown_value("min(latency_s)", 0.00123456), shown_value("count(*)", 1270)
    ('1.23 ms', '1,270')
    >>> shown_value("npu.sram.per_tile", 786432.0, {"npu.sram.per_tile": "B"})
    '768 KiB'
    """
    if value is None:
        return "-"
    if not isinstance(value, int | float) or isinstance(value, bool) or name == _POINT:
        return str(value)
    of_one = _OF_ONE.fullmatch(name)
    name = of_one[1] if of_one else name
    if name.endswith("_mm2"):
        return f"{value:.2f} mm²"
    knob = (units or {}).get(name)
    if knob is not None:
        exact = format_quantity(float(value), knob)
        return exact if len(exact) <= _LONG else engineering(float(value), knob)
    unit = unit_of(name.removesuffix("_low").removesuffix("_high"))
    return f"{value:,}" if isinstance(value, int) and not unit else engineering(float(value), unit)


def rows_page(table: Any, units: Mapping[str, str] | None = None) -> RenderableType:
    """Return the answer of a query, an Arrow table or None, for the terminal, with the units of axes."""
    if table is None or not table.num_columns:
        return Text("done")
    rows = table.slice(0, _MOST_ROWS).to_pylist()
    page = _Rows(table.column_names, [[shown_value(n, row[n], units) for n in row] for row in rows])
    left = table.num_rows - len(rows)
    return Group(page, Text(f"and {left:,} more: --format json", style="dim")) if left else page


@dataclass
class _Rows:
    """Cells by row: a table where the terminal is wide enough, else a block a row."""

    columns: Sequence[str]
    cells: Sequence[Sequence[str]]
    table: Table = field(init=False)

    def __post_init__(self) -> None:
        first, *others = map(Text, self.columns)
        self.table = headed(first, *others, justify="right", no_wrap=True)
        for row in self.cells:
            self.table.add_row(*map(Text, row))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        needed = Measurement.get(console, options.update(max_width=10**6), self.table).maximum
        if needed <= options.max_width:
            yield self.table
            return
        for number, row in enumerate(self.cells):
            if number:
                yield Text()
            block = grid()
            block.add_column(style="bold", overflow="fold")
            block.add_column(overflow="fold")
            for name, cell in zip(self.columns, row, strict=True):
                block.add_row(Text(name), Text(cell))
            yield block


_BOUNDS = ("latency_s_low", "latency_s_high")
"""Columns of intervals, where a sweep wrote them."""


def pareto_page(found: Front) -> RenderableType:
    """Return a front for the terminal: the best point in each metric, and the knee."""
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
    return lambda row: METRICS[name].sign * float(row[name])


def sweep_page(result: SweepResult, space: str) -> RenderableType:
    """Return the end of a sweep for the terminal, with the influence of each axis of the space."""
    from npusim.explore import load_space
    from npusim.explore.sensitivity import influences

    text = Text(f"{result.points:,} points in {result.seconds:.1f} s", style="bold")
    text.append(f" ({result.points / max(result.seconds, 1e-9):,.0f} a second); ", style="dim")
    text.append(f"{result.kept:,} kept in {result.directory}")
    if result.recomputed:
        text.append(f"\n{result.recomputed:,} chunks were damaged or not of this sweep: computed anew")
    found = influences(load_space(space))
    return Group(
        text,
        Text("\nWhich knob matters: share of a metric's variation (alone / with the others)", style="bold"),
        influence_table(found),
        Text(f"\nNext: npusim pareto {result.directory}", style="dim"),
    )


def influence_table(found: Mapping[str, Sequence[Influence]]) -> Table:
    """Return a row per axis, a column per metric."""
    table = headed("knob", *found)
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
    table = headed("evaluations", "evolution", "chance", justify="right")
    for step in result.steps:
        table.add_row(f"{step.evaluations:,}", f"{step.evolution:.1%}", f"{step.chance:.1%}")
    caption = Text("\nHypervolume of the front, relative to that of both together", style="bold")
    return Group(text, caption, table) if result.steps else text
