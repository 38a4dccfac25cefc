"""Curves over what a slider sets, with a mark where it stands, and stacked bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from npusim.reporting.html import COLOURS, DASHES, HATCHING

UNIT_NAMES = {"npu.dpu": "MAC grid", "npu.dsp": "DSPs", "npu.dma": "DMA", "cpu": "CPU", "gpu": "GPU"}
"""What units are called beside a picture."""
_BAR = 0.5
"""Height of a bar in rows; its name stands in the rest."""


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
        Settings of the axes, such as those of `npusim.reporting.html.amount_axis`.
    """
    figure = go.Figure()
    for number, (name, values) in enumerate(lines.items()):
        line = {
            "color": COLOURS[number % len(COLOURS)],
            "dash": list(DASHES)[number % len(DASHES)],
            "width": 2,
        }
        figure.add_scatter(x=list(x), y=list(values), mode="lines", name=name, line=line)
    figure.add_vline(x=at, line={"color": "#222222", "width": 1})
    figure.update_layout(xaxis=dict(x_axis), yaxis=dict(y_axis))
    return figure


def stacked(
    rows: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    axis: Mapping[str, Any],
    colours: Mapping[str, str],
    base: Sequence[float] | None = None,
) -> go.Figure:
    """Return horizontal bars below their names, each cut into the same parts.

    Parameters
    ----------
    rows : sequence of str
        What each bar is, the first on top.
    parts : mapping of str to sequence of float
        An amount for each row, by what the part is called.
    axis : mapping
        Settings of the axis of amounts.
    colours : mapping of str to str
        Colour of a part; others take the next of the house's. Hatching tells parts apart, too.
    base : sequence of float, optional
        Where each bar begins, as in a waterfall; None: at 0, the parts of a bar one after the other.
    """
    figure = go.Figure()
    places = list(range(len(rows)))
    for number, (name, values) in enumerate(parts.items()):
        marker = {
            "color": colours.get(name, COLOURS[number % len(COLOURS)]),
            "pattern": {"shape": HATCHING[number % len(HATCHING)], "fgcolor": "#ffffff", "size": 6},
        }
        figure.add_bar(
            y=places,
            x=list(values),
            base=None if base is None else list(base),
            name=UNIT_NAMES.get(name, name),
            orientation="h",
            marker=marker,
            width=_BAR,
        )
    for place, row in enumerate(rows):
        figure.add_annotation(
            x=0,
            xref="x",
            xanchor="left",
            y=place - _BAR / 2,
            yanchor="bottom",
            text=escape(row),
            showarrow=False,
        )
    figure.update_layout(
        barmode="stack" if base is None else "overlay",
        xaxis=dict(axis),
        yaxis={"range": [len(rows) - 0.5, -0.9], "visible": False},
        legend={"traceorder": "normal"},
    )
    return figure
