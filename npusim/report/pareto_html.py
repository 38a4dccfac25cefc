"""A front as one interactive HTML file: points with their knobs, and parallel coordinates."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from npusim.report.exploration import shown_value

if TYPE_CHECKING:
    from npusim.explore.fronts import Front

__all__ = ["pareto_html"]

_MOST_LINES = 2000
"""Points drawn as parallel coordinates at most; more would be a grey block."""
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem }
.note { color: #555 }
"""
_FONT = {"family": "system-ui, sans-serif", "size": 13}


def pareto_html(found: Front) -> str:
    """Return a front as HTML that needs no other file.

    Parameters
    ----------
    found : Front
        From `npusim.explore.fronts.pareto`.
    """
    parts = [
        f"<h1>{html.escape(found.title)}</h1>",
        f"<p>{found.front:,} points that no other of {found.compared:,} compared ones beats in "
        f"{html.escape(', '.join(found.minimise))}; the space has {found.points:,}.</p>",
        f"<p><b>Knee</b>: point {found.knee['point']}: {html.escape(_described(found, found.knee))}</p>",
        *(f"<p class=note>{html.escape(note)}</p>" for note in found.notes),
        _scatter(found).to_html(full_html=False, include_plotlyjs=False),
        _parallel(found).to_html(full_html=False, include_plotlyjs=False),
    ]
    head = f"<meta charset=utf-8><title>{html.escape(found.title)}</title><style>{_STYLE}</style>"
    script = f"<script>{get_plotlyjs()}</script>"
    body = "".join(parts)
    return f"<!doctype html><html lang=en><head>{head}{script}</head><body>{body}</body></html>"


def _described(found: Front, row: dict[str, Any], sep: str = ", ") -> str:
    names = [*found.minimise, *found.axes]
    return sep.join(f"{name} {shown_value(name, row[name], found.units)}" for name in names)


def _scatter(found: Front) -> go.Figure:
    """Return the front in two or three dimensions; the colour tells a third metric where two are drawn."""
    rows, names = found.rows, found.minimise
    columns = [[row[name] for row in rows] for name in (names * 2)[:2]]
    text = [f"point {row['point']}<br>" + _described(found, row, "<br>") for row in rows]
    marker: dict[str, Any] = {"size": 6, "color": "#4477aa", "opacity": 0.8}
    if len(names) > 2:
        colour = [row[names[2]] for row in rows]
        marker |= {
            "color": colour,
            "colorscale": "Viridis",
            "showscale": True,
            "colorbar": {"title": names[2]},
        }
    common = {"text": text, "hoverinfo": "text"}
    knee = found.knee
    figure = go.Figure(
        [
            go.Scattergl(x=columns[0], y=columns[1], mode="markers", marker=marker, name="front", **common),
            go.Scattergl(
                x=[knee[names[0]]],
                y=[knee[(names * 2)[1]]],
                mode="markers+text",
                marker={"size": 14, "color": "#ee6677", "symbol": "star"},
                text=["knee"],
                textposition="top center",
                hovertext=[_described(found, knee, "<br>")],
                hoverinfo="text",
                name="knee",
            ),
        ]
    )
    figure.update_layout(
        xaxis={"title": names[0], **_scale(columns[0])},
        yaxis={"title": (names * 2)[1], **_scale(columns[1])},
        font=_FONT,
        height=560,
        showlegend=False,
        template="plotly_white",
    )
    return figure


def _scale(values: list[float]) -> dict[str, str]:
    return {"type": "log" if min(values) > 0 else "linear", "tickformat": "~s"}


def _parallel(found: Front) -> go.Figure:
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
    figure.update_layout(font=_FONT, height=520, margin={"t": 120, "l": 130})
    return figure


def _dimension(name: str, values: list[Any], units: Mapping[str, str]) -> dict[str, Any]:
    """Return one vertical scale; names and short lists of numbers get a tick for each value."""
    levels = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    if isinstance(levels[0], str) or len(levels) <= 12:
        place = {level: i for i, level in enumerate(levels)}
        return {
            "label": name,
            "values": [place[value] for value in values],
            "tickvals": list(range(len(levels))),
            "ticktext": [shown_value(name, level, units) for level in levels],
        }
    return {"label": name, "values": values, "tickformat": ".3~s"}
