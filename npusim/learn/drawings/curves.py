"""Curves over what a slider sets, with a mark where it stands, and stacked bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from npusim.report.html import COLOURS

_DASHES = ("solid", "dash", "dot", "dashdot")


def curves(
    x: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    at: float,
    x_axis: Mapping[str, Any],
    y_axis: Mapping[str, Any],
) -> go.Figure:
    """Return curves over one axis, told apart by colour and dash, and a line where the slider stands.

    Parameters
    ----------
    x : sequence of float
    lines : mapping of str to sequence of float
        A value for each `x`, by what it is called.
    at : float
        Where the slider stands, on the axis of `x`.
    x_axis, y_axis : mapping
        Settings of the axes, such as those of `npusim.report.html.amount_axis`.
    """
    figure = go.Figure()
    for number, (name, values) in enumerate(lines.items()):
        line = {"color": COLOURS[number % len(COLOURS)], "dash": _DASHES[number % len(_DASHES)], "width": 2}
        figure.add_scatter(x=list(x), y=list(values), mode="lines", name=name, line=line)
    figure.add_vline(x=at, line={"color": "#222222", "width": 1})
    figure.update_layout(xaxis=dict(x_axis), yaxis=dict(y_axis))
    return figure


def stacked(
    rows: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    axis: Mapping[str, Any],
    colours: Mapping[str, str],
) -> go.Figure:
    """Return horizontal bars, each cut into the same parts.

    Parameters
    ----------
    rows : sequence of str
        What each bar is, the first on top.
    parts : mapping of str to sequence of float
        An amount for each row, by what the part is called.
    axis : mapping
        Settings of the axis of amounts.
    colours : mapping of str to str
        Colour of a part; others take the next of the house's.
    """
    figure = go.Figure()
    for number, (name, values) in enumerate(parts.items()):
        colour = colours.get(name, COLOURS[number % len(COLOURS)])
        figure.add_bar(y=list(rows), x=list(values), name=name, orientation="h", marker={"color": colour})
    figure.update_layout(
        barmode="stack", xaxis=dict(axis), yaxis={"autorange": "reversed", "type": "category"}
    )
    return figure
