"""Pages of sweeps, searches, fronts and queries."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.text import Text

from npusim.explore.fronts import BOUND_COLUMNS, ON_FRONT
from npusim.explore.sweep import SweepResult
from npusim.metrics import METRICS, unit_of
from npusim.reporting.charts import Figure, add_marks, blank_figure, line_figure
from npusim.reporting.engineering import Amount, Cell, engineering, last_digit, percent, quantity
from npusim.reporting.html import COLOURS, amount_axis, log_axis
from npusim.reporting.page import Lines, Page, Plot, document_page
from npusim.reporting.tables import FOLD, Column, Table, cells_table, fields
from npusim.reporting.terminal import drawn_table, grid
from npusim.rounding import rounded_to
from npusim.units import format_quantity

if TYPE_CHECKING:
    from npusim.explore.fronts import Front
    from npusim.explore.search import SearchResult

_MOST_ROWS = 1000
_MOST_LINES = 2000  # points drawn as parallel coordinates at most; more would be a grey block
_POINT = "point"
_LONG = 12  # characters from which an exact value is rounded
# Column of a query that is a sum or a choice of values: it has their unit.
_OF_ONE = re.compile(r'(?:any_value|avg|first|last|max|mean|median|min|sum)\("?([^"()]+)"?\)')
_BOUND = re.compile(r"_(low|high)$")  # end of the columns of intervals


def shown_value(
    name: str, value: Any, units: Mapping[str, str] | None = None, last: int | None = None
) -> str:
    """Return a metric or a knob's value as an engineer writes it.

    Parameters
    ----------
    name : str
        Metric, or path of a knob.
    value : number, str or None
    units : mapping of str to str, optional
        SI units of the knobs by path.
    last : int, optional
        The last digit that a metric bears; see `npusim.rounding.last_digit`.

    Examples
    --------
    >>> shown_value("min(latency_s)", 0.00123456), shown_value("count(*)", 1270)
    ('1.23 ms', '1,270')
    >>> shown_value("area_mm2", 10.685), shown_value("area_mm2", 10.685, last=0)
    ('10.69 mm²', '11 mm²')
    >>> shown_value("npu.sram.per_tile", 786432.0, {"npu.sram.per_tile": "B"})
    '768 KiB'
    """
    if value is None:
        return "-"
    if not isinstance(value, int | float) or isinstance(value, bool) or name == _POINT:
        return str(value)
    of_one = _OF_ONE.fullmatch(name)
    name = of_one[1] if of_one else name
    if name == ON_FRONT:
        return percent(value)
    if name.endswith("_mm2"):
        rounded, place = (value, -2) if last is None else rounded_to(float(value), last)
        return f"{rounded:.{max(0, -place)}f} mm²"
    knob = (units or {}).get(name)
    if knob is not None:
        exact = format_quantity(float(value), knob)
        return exact if len(exact) <= _LONG else engineering(float(value), knob)
    if value and _BOUND.search(name):
        last = math.floor(math.log10(abs(value))) - 1
    return quantity(_BOUND.sub("", name), value, last)


def rows_page(table: Any, units: Mapping[str, str] | None = None) -> RenderableType:
    """Return the answer of a query, an Arrow table or None, for the terminal, with the units of axes."""
    if table is None or not table.num_columns:
        return Text("done")
    rows = table.slice(0, _MOST_ROWS).to_pylist()
    page = _Rows(table.column_names, [[shown_value(n, row[n], units) for n in row] for row in rows])
    left = table.num_rows - len(rows)
    return Group(page, Text(f"and {left:,} more: --format json", style="dim")) if left else page


class _Rows:
    """Cells by row: a table where the terminal is wide enough, else a block for each row."""

    def __init__(self, names: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
        self.names, self.cells = names, cells

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = drawn_table(cells_table(self.names, self.cells))
        needed = Measurement.get(console, options.update(max_width=10**6), table).maximum
        if needed <= options.max_width:
            yield table
            return
        for number, row in enumerate(self.cells):
            if number:
                yield Text()
            block = grid()
            block.add_column(style="bold", overflow="fold")
            block.add_column(overflow="fold")
            for name, cell in zip(self.names, row, strict=True):
                block.add_row(Text(name), Text(cell))
            yield block


def pareto_page(front: Front) -> Page:
    """Return the page of a front: the best point in each metric, the knee, all points in HTML."""
    metrics = ", ".join(METRICS[name].title for name in front.minimise)
    distinct, varied = len(_distinct(front)), _varied(front)
    merged = f", {distinct:,} of them over {percent(front.tolerance)} apart" if distinct < front.front else ""
    comparison = (
        f"{front.front:,} points on the front of {front.points:,}{merged}; no other of {front.compared:,} "
        f"compared points dominates them in {metrics}"
    )
    fixed = [name for name in front.axes if name in front.knee and name not in varied]
    shown = ", ".join(f"{name} {shown_value(name, front.knee[name], front.units)}" for name in fixed)
    title = "What differs along the front, and what it gives: drag along a line to choose points"
    return document_page(
        front,
        "Pareto front",
        front.title,
        [
            Lines([comparison], style="dim"),
            Plot("The front", lambda: _scatter(front)),
            Plot(
                title,
                lambda: _parallel(front, varied) if len(varied) > 1 else None,
                note=f"All have {shown}." if fixed else "",
                least_width=130 * len(varied),
            ),
            _best_points(front),
            _points(front),
        ],
        notes=["all points of the front: -o front.html, or --format json"],
        lead=f"The knee of the front is point {front.knee[_POINT]}: {_described(front, front.knee)}.",
    )


def _best_points(front: Front) -> Table:
    """Return the best point in each metric and the knee, a column each."""
    chosen = {
        f"best {_titled(name)}": min(front.rows, key=lambda row: METRICS[name].sign * float(row[name]))
        for name in front.minimise
    }
    chosen["knee"] = front.knee
    columns = [
        Column("", "", _titled),
        *(
            Column("", heading, lambda name, row=row: _shown(front, row, name), words=False, layout=FOLD)
            for heading, row in chosen.items()
        ),
    ]
    return Table(columns, [_POINT, *front.minimise, *_uncertain(front), *front.axes], "Best points")


def _uncertain(front: Front) -> list[str]:
    """Return the columns that the data sheet's uncertainties give, where the sweep wrote them."""
    return [name for name in front.knee if _BOUND.search(name) or name == ON_FRONT]


def _distinct(front: Front) -> list[dict[str, Any]]:
    """Return the points of a front that stand for themselves, and for others within the tolerance."""
    stands_in = front.stands_in or range(len(front.rows))
    return [row for i, row in enumerate(front.rows) if stands_in[i] == i]


def _points(front: Front) -> Table:
    """Return the front's points, each with the one that stands for it."""
    stands = dict(zip((row[_POINT] for row in front.rows), front.stands_in, strict=False))

    def stand(row: Mapping[str, Any]) -> str:
        other = str(front.rows[stands.get(row[_POINT], 0)][_POINT])
        return "" if not stands or other == str(row[_POINT]) else other

    others = [name for name in front.knee if name in METRICS and name not in front.minimise]
    names = (_POINT, *front.minimise, *_uncertain(front), *front.axes, *others)
    point, *columns = (Column(n, _titled(n), lambda row, n=n: _cell(front, row, n)) for n in names)
    within = Column("", f"within {percent(front.tolerance)} of point", stand)
    return Table((point, within, *columns), front.rows, "Points", "rows", only="html")


def _titled(name: str) -> str:
    return METRICS[name].title if name in METRICS else name


def _shown(front: Front, row: Mapping[str, Any], name: str) -> str:
    """Return a value of a point, to the digits of its interval where it has one."""
    low, high = (row.get(column.format(name)) for column in BOUND_COLUMNS)
    last = None if low is None or high is None else last_digit((low, high))
    return shown_value(name, row[name], front.units, last)


def _cell(front: Front, row: Mapping[str, Any], name: str) -> Cell:
    value, shown = row[name], _shown(front, row, name)
    unit = front.units.get(name, unit_of(name) if name in METRICS else "")
    return shown if isinstance(value, str) else Amount(value, unit, shown)


def _described(front: Front, row: Mapping[str, Any], separator: str = ", ") -> str:
    names = [*front.minimise, *(name for name in front.axes if name in row)]
    return separator.join(f"{_titled(name)} {_shown(front, row, name)}" for name in names)


def _scatter(front: Front) -> Figure:
    """Return the front over its first two metrics; the colour is the third one."""
    rows, names = _distinct(front), front.minimise
    x, y, colour = names[0], names[-1] if len(names) < 2 else names[1], names[2] if len(names) > 2 else None
    drawn = [*rows, *front.beaten, front.knee]
    figure = blank_figure(xaxis=_scale(x, drawn), yaxis=_scale(y, drawn), height=560)
    marker: dict[str, Any] = {"size": 13, "color": COLOURS[0], "line": {"width": 1, "color": "#000"}}
    if colour is not None:
        scale = {"title": METRICS[colour].title, "tickformat": "~s", "ticksuffix": unit_of(colour)}
        values = [row[colour] for row in rows]
        marker |= {"color": values, "colorscale": "Viridis", "showscale": True, "colorbar": scale}

    def place(row: Mapping[str, Any]) -> tuple[Any, Any]:
        return row[x], row[y]

    def story(row: Mapping[str, Any]) -> str:
        return f"point {row[_POINT]}<br>" + _described(front, row, "<br>")

    if front.beaten:
        add_marks(figure, "dominated points", front.beaten, place, {"size": 7, "color": "#777777"})
    add_marks(figure, "front", rows, place, marker, story)
    star = {"size": 24, "color": COLOURS[1], "symbol": "star-open", "line": {"width": 2}}
    add_marks(figure, "knee", [front.knee], place, star, story)
    return figure


def _scale(name: str, rows: list[Any]) -> dict[str, Any]:
    """Return settings of an axis over a metric, its ticks with SI prefixes and unit."""
    values, title = [row[name] for row in rows], METRICS[name].title
    if min(values) > 0 and max(values) < float("inf"):
        return log_axis(title, unit_of(name), min(values), max(values))
    return amount_axis(title, unit_of(name))


def _varied(front: Front) -> list[str]:
    """Return the axes and metrics in which points of the front differ."""
    names = [*front.axes, *front.minimise]
    return [name for name in names if len({row.get(name) for row in _distinct(front)}) > 1]


def _parallel(front: Front, names: Sequence[str]) -> Figure:
    """Return the front's points as lines across knobs and metrics."""
    distinct = _distinct(front)
    rows = distinct[:: max(1, -(-len(distinct) // _MOST_LINES))]
    figure = blank_figure(height=480, margin={"t": 60, "l": 100, "r": 70})
    figure.add_parcoords(
        dimensions=[_dimension(front, name, [row[name] for row in rows]) for name in names],
        line={"color": [row[front.minimise[0]] for row in rows], "colorscale": "Viridis"},
    )
    return figure


def _dimension(front: Front, name: str, values: list[Any]) -> dict[str, Any]:
    """Return one vertical scale: names at equal distances, or numbers with SI prefixes."""
    unit = front.units.get(name, unit_of(name) if name in METRICS else "")
    label = _titled(name).removeprefix("npu.") + (f" ({unit})" if unit else "")
    if not any(isinstance(value, str) for value in values):
        return {"label": label, "values": values, "tickformat": "~s"}
    words = sorted(set(map(str, values)))
    at = [words.index(str(value)) for value in values]
    return {"label": label, "values": at, "tickvals": list(range(len(words))), "ticktext": words}


def sweep_page(result: SweepResult, space: str) -> Page:
    """Return the page of a finished sweep, with the influence of each axis of the space."""
    from npusim.explore.sensitivity import influences
    from npusim.explore.spaces import load_space

    ranked = {
        name: {one.axis: one for one in of_metric}
        for name, of_metric in influences(load_space(space)).items()
    }
    axes = dict.fromkeys(axis for of_metric in ranked.values() for axis in of_metric)
    rows = [
        (
            axis,
            *(
                f"{max(0.0, r[axis].first_order):.2f} / {max(0.0, r[axis].total):.2f}"
                for r in ranked.values()
            ),
        )
        for axis in sorted(axes, key=lambda axis: -max(r[axis].total for r in ranked.values()))
    ]
    title = "Which knob matters: share of a metric's variation (alone / with the others)"
    rate = result.points / max(result.seconds, 1e-9)
    damaged = f"{result.recomputed:,} chunks were damaged or not of this sweep: computed again"
    return document_page(
        result,
        f"{result.points:,} points in {result.seconds:.1f} s",
        f"{rate:,.0f} a second; {result.kept:,} kept in {result.directory}",
        [
            Lines([damaged] if result.recomputed else []),
            cells_table(("knob", *ranked), rows, title, titled=True),
            Lines([f"Next: npusim pareto {result.directory}"], style="dim"),
        ],
        of=None,
    )


def search_page(result: SearchResult) -> Page:
    """Return the page of a finished search: evolution and random search, step by step."""
    steps = [step.evaluations for step in result.steps]
    series = {
        "evolution": (steps, [step.evolution for step in result.steps]),
        "random search": (steps, [step.chance for step in result.steps]),
    }
    share = {"title": "dominated hypervolume (share)"}
    lead = ""
    if result.steps:
        last = result.steps[-1]
        shares = f"{last.evolution:.1%} of the joint hypervolume, random search {last.chance:.1%}"
        lead = f"Evolution reaches {shares}."
    columns = (Column("evaluations", words=False), *fields("evolution, chance: random search", text="{:.1%}"))
    title = "Hypervolume of the front, relative to that of both together"
    table = Table(columns, result.steps, title, "steps", titled=True)
    return document_page(
        result,
        f"{result.front:,} points on the front after {result.evaluations:,} evaluations",
        f"of a space of {result.points:,}, in {result.seconds:.1f} s: {result.directory}",
        [
            Plot("Hypervolume by evaluation", lambda: line_figure(series, {"title": "evaluations"}, share)),
            table,
        ],
        of=None,
        lead=lead,
    )
