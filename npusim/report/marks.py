"""What tells the traces of a figure apart without colour: hatching, dashes and symbols."""

from __future__ import annotations

import re
from html import escape
from typing import Any

import plotly.graph_objects as go

HATCHING = ("", "/", "\\", "x", "-", "|", ".", "+")
"""Patterns of bars, one after the other."""
DASHES = {"solid": "solid", "dash": "dashed", "dot": "dotted", "dashdot": "double"}
"""Dashes of lines, with the border of their swatch."""
_SYMBOLS = {
    "circle": "●",
    "diamond": "◆",
    "square": "■",
    "triangle-up": "▲",
    "x": "✖",
    "cross": "✚",
    "star": "★",
}
_MOST_BARS = 400
"""Bars of a figure from which hatching would be too fine to see and slow to draw."""
_GREY = "#bbbbbb"


def told_apart(figure: go.Figure) -> dict[str, str]:
    """Hatch bars, dash lines and vary symbols where nothing is set; return a swatch for each name.

    Parameters
    ----------
    figure : plotly.graph_objects.Figure
        Written to.

    Returns
    -------
    dict of str to str
        HTML of a swatch by the name of its trace, for every trace that a legend names.
    """
    named = [trace for trace in figure.data if trace.name and trace.showlegend is not False]
    few = (
        sum(len(trace.x) for trace in figure.data if trace.type == "bar" and trace.x is not None)
        <= _MOST_BARS
    )
    several = len({trace.name for trace in named}) > 1
    places: dict[str, list[str]] = {}
    swatches: dict[str, str] = {}
    for trace in named:
        kind = _kind(trace)
        known = places.setdefault(kind, [])
        if trace.name not in known:
            known.append(trace.name)
        number = known.index(trace.name) if several else 0
        if kind == "bar":
            swatch = _hatched(trace, number if few else 0)
        elif kind == "line":
            swatch = _dashed(trace, number)
        else:
            swatch = _marked(trace, number)
        swatches.setdefault(trace.name, swatch)
    return swatches


def _kind(trace: Any) -> str:
    """Return whether a trace is seen as bars (or areas), lines or dots."""
    if trace.type == "bar" or getattr(trace, "stackgroup", None) or getattr(trace, "fill", None):
        return "bar"
    mode = getattr(trace, "mode", None) or "lines+markers"
    return "line" if "lines" in mode else "dots"


def _hatched(trace: Any, number: int) -> str:
    number %= len(HATCHING)
    if trace.type == "bar" and not trace.marker.pattern.shape:
        trace.marker.pattern = {"shape": HATCHING[number], "fgcolor": "#ffffff", "size": 6}
        return f'<i class="hatch{number}" style="background-color: {_colour(trace)}"></i>'
    return f'<i style="background-color: {_colour(trace)}"></i>'


def _dashed(trace: Any, number: int) -> str:
    if not trace.line.dash:
        trace.line.dash = list(DASHES)[number % len(DASHES)]
    border = DASHES.get(trace.line.dash, "dashed")
    return f'<i class=line style="border-top: 3px {border} {_colour(trace)}"></i>'


def _marked(trace: Any, number: int) -> str:
    if trace.marker.symbol is None:
        trace.marker.symbol = list(_SYMBOLS)[number % len(_SYMBOLS)]
    symbol = trace.marker.symbol if isinstance(trace.marker.symbol, str) else ""
    glyph = _SYMBOLS.get(symbol.removesuffix("-open"), "●")
    return f'<i class=mark style="color: {_colour(trace)}">{escape(glyph)}</i>'


def _colour(trace: Any) -> str:
    """Return the colour that a trace is drawn in, as text that is safe in a style."""
    for part in ("marker", "line"):
        colour = getattr(getattr(trace, part, None), "color", None)
        if isinstance(colour, str) and re.fullmatch(r"#[0-9a-fA-F]{3,8}", colour):
            return colour
    return _GREY
