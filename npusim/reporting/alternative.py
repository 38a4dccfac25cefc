"""Text alternatives of figures, made from their data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from npusim.reporting.engineering import engineering

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MOST_SAID = 12  # points of a trace, and traces of a figure, that the text names one by one


def figure_text(figure: go.Figure) -> str:
    """Return a text that says what a figure shows: its axes, and for each trace its values or their range."""
    layout = figure.layout
    axes = [layout[key] for key in layout.to_plotly_json() if key.startswith(("xaxis", "yaxis"))]
    titles = [axis.title.text for axis in axes if axis.title.text]
    rows = [note.text for note in layout.annotations if note.text]
    texts = list(filter(None, (_trace(trace, layout, rows) for trace in figure.data)))
    more = f" And {len(texts) - _MOST_SAID} more series." if len(texts) > _MOST_SAID else ""
    return f"Chart. Axes: {', '.join(titles) or 'none'}. {' '.join(texts[:_MOST_SAID])}{more}"


def _trace(trace: Any, layout: Any, rows: Sequence[str]) -> str:
    """Return what one trace shows: a few points each, of many points the range; empty for a legend entry."""
    if trace.type == "heatmap":
        cells = np.asarray(trace.z, float)
        share = np.count_nonzero(cells) / max(cells.size, 1)
        return f"A map of {cells.shape[0]} x {cells.shape[1]} cells, {100 * share:.0f} % of them marked."
    if trace.type == "parcoords":
        return f"Lines across {', '.join(str(each.label) for each in trace.dimensions)}."
    x = [value for value in ([] if trace.x is None else trace.x) if value is not None]
    y = [] if trace.y is None else list(trace.y)
    if not x or trace.type == "histogram":
        return f"{trace.name}: a histogram of {len(x)} values." if x else ""
    name = f"{trace.name}: " if trace.name else ""
    units = [
        layout[f"{axis[0]}axis{axis[1:]}"].ticksuffix or ""
        for axis in (trace.xaxis or "x", trace.yaxis or "y")
    ]
    if trace.type == "bar" and trace.orientation == "h" and rows and len(trace.x) == len(rows):
        bars = ((row, value) for row, value in zip(rows, trace.x, strict=True) if value is not None)
        return f"{name}{', '.join(f'{row} {_amount(value, units[0])}' for row, value in bars)}."
    if len(x) <= _MOST_SAID and len(x) == len(y):
        pairs = ((_amount(a, units[0]), _amount(b, units[1])) for a, b in zip(x, y, strict=True))
        is_named = isinstance(y[0], str)
        return f"{name}{', '.join(f'{b} {a}' if is_named else f'{b} at {a}' for a, b in pairs)}."
    ranges = (_range(values, unit) for values, unit in zip((x, y), units, strict=True))
    return f"{name}{len(x)} points, {' by '.join(filter(None, ranges))}."


def _amount(value: Any, unit: str) -> str:
    """Return a value of an axis with its unit."""
    if isinstance(value, str):
        return value
    return engineering(float(value), unit) if unit not in ("", "x", "%") else f"{value:.4g}{unit}"


def _range(values: Iterable[Any], unit: str) -> str:
    numbers = [value for value in values if value is not None and not isinstance(value, str)]
    return f"{_amount(min(numbers), unit)} to {_amount(max(numbers), unit)}" if numbers else ""
