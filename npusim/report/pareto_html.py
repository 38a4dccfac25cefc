"""A front as one interactive HTML file: points with their knobs, and parallel coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from npusim.metrics import METRICS, unit_of
from npusim.report.exploration import shown_value
from npusim.report.html import COLOURS, page, plot, table, text

if TYPE_CHECKING:
    from npusim.explore.fronts import Front

_MOST_LINES = 2000
"""Points drawn as parallel coordinates at most; more would be a grey block."""
_MOST_ROWS = 500
"""Rows of the table; `npusim query` and `--format json` have all."""


def pareto_html(found: Front, command: str = "") -> str:
    """Return a front as HTML that needs no other file; `command` asked for it."""
    others = [name for name in found.knee if name in METRICS and name not in found.minimise]
    shown = ["point", *found.axes, *found.minimise, *others]
    rows = [[shown_value(name, row[name], found.units) for name in shown] for row in found.rows[:_MOST_ROWS]]
    left = found.front - len(rows)
    return page(
        f"Pareto front: {found.title}",
        text(
            f"{found.front:,} points that no other of {found.compared:,} compared ones beats in "
            f"{', '.join(METRICS[name].title for name in found.minimise)}; the space has {found.points:,}."
        ),
        _scatter(found),
        _parallel(found),
        "<h2>Points</h2>",
        table(shown, rows),
        text(f"and {left:,} more: npusim pareto --format json", "note") if left > 0 else "",
        lead=f"Knee: point {found.knee['point']}: {_described(found, found.knee)}",
        notes=found.notes,
        command=command,
    )


def _described(found: Front, row: dict[str, Any], sep: str = ", ") -> str:
    names = [*found.minimise, *found.axes]
    return sep.join(f"{name} {shown_value(name, row[name], found.units)}" for name in names)


def _scatter(found: Front) -> str:
    """Return the front in two or three dimensions; the colour tells a third metric where two are drawn."""
    rows, names = found.rows, found.minimise
    columns = [[row[name] for row in rows] for name in (names * 2)[:2]]
    hover = [f"point {row['point']}<br>" + _described(found, row, "<br>") for row in rows]
    marker: dict[str, Any] = {"size": 6, "color": COLOURS[0], "opacity": 0.8}
    if len(names) > 2:
        colour = [row[names[2]] for row in rows]
        marker |= {
            "color": colour,
            "colorscale": "Viridis",
            "showscale": True,
            "colorbar": {"title": METRICS[names[2]].title, "tickformat": "~s"},
        }
    common = {"text": hover, "hoverinfo": "text"}
    knee = found.knee
    figure = go.Figure(
        [
            go.Scattergl(x=columns[0], y=columns[1], mode="markers", marker=marker, name="front", **common),
            go.Scattergl(
                x=[knee[names[0]]],
                y=[knee[(names * 2)[1]]],
                mode="markers+text",
                marker={"size": 14, "color": COLOURS[1], "symbol": "star"},
                text=["knee"],
                textposition="top center",
                hovertext=[_described(found, knee, "<br>")],
                hoverinfo="text",
                name="knee",
            ),
        ]
    )
    figure.update_layout(
        xaxis=_scale(names[0], columns[0]), yaxis=_scale((names * 2)[1], columns[1]), showlegend=False
    )
    return plot(figure, 560, "The front")


def _scale(name: str, values: list[float]) -> dict[str, str]:
    """Return settings of an axis over a metric, its ticks with SI prefixes and unit."""
    scale = "log" if min(values) > 0 else "linear"
    return {"title": METRICS[name].title, "type": scale, "tickformat": "~s", "ticksuffix": unit_of(name)}


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
