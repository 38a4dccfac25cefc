"""A front as one interactive HTML file: points with their knobs, and parallel coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from npusim.metrics import METRICS, unit_of
from npusim.report.document_html import titled
from npusim.report.exploration import shown_value
from npusim.report.html import COLOURS, GREY, Amount, Cell, log_axis, page, plot, table, text

if TYPE_CHECKING:
    from npusim.explore.fronts import Front

_MOST_LINES = 2000
"""Points drawn as parallel coordinates at most; more would be a grey block."""
_MOST_ROWS = 500
"""Rows of the table; `npusim query` and `--format json` have all."""


def pareto_html(found: Front, command: str = "") -> str:
    """Return a front as HTML that needs no other file; `command` asked for it."""
    about = {"workload": found.workload, "soc": found.soc}
    return page(
        titled("Pareto front", about),
        text(found.title),
        text(
            f"{found.front:,} points that no other of {found.compared:,} compared ones beats in "
            f"{', '.join(METRICS[name].title for name in found.minimise)}; the space has {found.points:,}."
        ),
        _scatter(found),
        _parallel(found),
        "<h2>Points</h2>",
        _points(found),
        lead=f"Knee: point {found.knee['point']}: {_described(found, found.knee)}",
        notes=found.notes,
        command=command,
    )


def _points(found: Front) -> str:
    """Return the table of the front's points."""
    others = [name for name in found.knee if name in METRICS and name not in found.minimise]
    shown = ["point", *found.minimise, *found.axes, *others]
    rows = [[_cell(found, name, row[name]) for name in shown] for row in found.rows[:_MOST_ROWS]]
    words = [i for i, name in enumerate(shown) if isinstance(found.knee[name], str)]
    heads = [METRICS[name].title if name in METRICS else name for name in shown]
    left = found.front - len(rows)
    more = text(f"and {left:,} more: npusim pareto --format json", "note") if left > 0 else ""
    return table(heads, rows, words, name="rows", keys=shown) + more


def _cell(found: Front, name: str, value: Any) -> Cell:
    shown = shown_value(name, value, found.units)
    unit = found.units.get(name, unit_of(name) if name in METRICS else "")
    return shown if isinstance(value, str) else Amount(value, unit, shown)


def _described(found: Front, row: dict[str, Any], sep: str = ", ") -> str:
    told = [f"{METRICS[name].title} {shown_value(name, row[name], found.units)}" for name in found.minimise]
    told += [f"{name} {shown_value(name, row[name], found.units)}" for name in found.axes if name in row]
    return sep.join(told)


def _scatter(found: Front) -> str:
    """Return the front in two or three dimensions; the colour tells a third metric where two are drawn."""
    rows, names = found.rows, found.minimise
    x, y = names[0], names[-1] if len(names) < 2 else names[1]
    hover = [f"point {row['point']}<br>" + _described(found, row, "<br>") for row in rows]
    marker: dict[str, Any] = {"size": 7, "color": COLOURS[0], "opacity": 0.85}
    if len(names) > 2:
        marker |= {"color": [row[names[2]] for row in rows], "colorscale": "Viridis", "showscale": True}
        marker["colorbar"] = {
            "title": {"text": METRICS[names[2]].title, "side": "top"}, "tickformat": "~s", "nticks": 5,
            "ticksuffix": unit_of(names[2]), "orientation": "h", "y": 1.02, "yanchor": "bottom",
            "thickness": 12,
        }  # fmt: skip
    figure = go.Figure()
    if found.beaten:
        figure.add_scattergl(
            x=[row[x] for row in found.beaten], y=[row[y] for row in found.beaten], mode="markers",
            marker={"size": 4, "color": GREY, "opacity": 0.5}, name="points that others beat",
            hoverinfo="skip",
        )  # fmt: skip
    figure.add_scattergl(
        x=[row[x] for row in rows], y=[row[y] for row in rows], mode="markers", marker=marker,
        name="front", text=hover, hoverinfo="text",
    )  # fmt: skip
    figure.add_scatter(
        x=[found.knee[x]], y=[found.knee[y]], mode="markers", name="knee",
        marker={"size": 16, "color": COLOURS[1], "symbol": "star", "line": {"width": 1, "color": "#000000"}},
        hovertext=[_described(found, found.knee, "<br>")], hoverinfo="text",
    )  # fmt: skip
    drawn = [*rows, *found.beaten, found.knee]
    figure.update_layout(xaxis=_scale(x, drawn), yaxis=_scale(y, drawn))
    return plot(figure, 560, "The front", margin={"t": 80} if len(names) > 2 else None)


def _scale(name: str, rows: list[Any]) -> dict[str, Any]:
    """Return settings of an axis over a metric, its ticks with SI prefixes and unit."""
    values, title = [row[name] for row in rows], METRICS[name].title
    if min(values) > 0 and max(values) < float("inf"):
        return log_axis(title, unit_of(name), min(values), max(values))
    return {"title": title, "tickformat": "~s", "ticksuffix": unit_of(name)}


def _parallel(found: Front) -> str:
    """Return the front's points as lines across knobs and metrics."""
    step = max(1, -(-len(found.rows) // _MOST_LINES))
    rows = found.rows[::step]
    dimensions = [
        _dimension(name, [row[name] for row in rows], found.units) for name in [*found.axes, *found.minimise]
    ]
    first = [row[found.minimise[0]] for row in rows]
    figure = go.Figure(
        go.Parcoords(dimensions=dimensions, line={"color": first, "colorscale": "Viridis"}, labelangle=-20)
    )
    title = "Axes and metrics: drag along a line to choose points"
    return plot(figure, 520, title, least_width=110 * len(dimensions), margin={"t": 120, "l": 130})


def _dimension(name: str, values: list[Any], units: Mapping[str, str]) -> dict[str, Any]:
    """Return one vertical scale; names and short lists of numbers get a tick for each value."""
    unit = units.get(name, unit_of(name) if name in METRICS else "")
    label = f"{METRICS[name].title if name in METRICS else name}{f' ({unit})' if unit else ''}"
    levels = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    if isinstance(levels[0], str) or len(levels) <= 12:
        place = {level: i for i, level in enumerate(levels)}
        return {
            "label": label,
            "values": [place[value] for value in values],
            "tickvals": list(range(len(levels))),
            "ticktext": [shown_value(name, level, units) for level in levels],
        }
    return {"label": label, "values": values, "tickformat": ".3~s"}
