"""Residuals of a suite against each dimension of its rows: a small plot a dimension.

Like holding a badly fitting coat against the light from every side: where it is tight on one side only, the
pattern is wrong, not the cloth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from npusim.validation import Judged

__all__ = ["log_ticks", "residuals", "short"]

_COLUMNS = 3
_CELL_HEIGHT = 290
_FEW_VALUES = 12
"""A dimension with no more values than this is shown by boxes: points would lie upon each other."""
_MOST_WORDS = 24
"""A dimension with more words than this (names of operators) is shown by those with the largest errors."""
_FULL_DECADES = 2.5
"""An axis over more powers of ten than this marks them alone."""
_MOST_DRAWN = 6000
"""A figure with more points is left to the graphics card, which takes only a few such figures."""

Trace = tuple[str, str, NDArray[np.int64]]
"""Name, colour and rows of a group."""


def residuals(judged: Judged, traces: Sequence[Trace], layout: dict[str, Any]) -> go.Figure:
    """Return predicted / measured against each dimension.

    Parameters
    ----------
    judged : Judged
        The suite.
    traces : sequence of Trace
        Groups in the order in which they are drawn.
    layout : dict
        What all figures of the page share.
    """
    evidence = judged.evidence
    names = [name for name in evidence.dimensions if len(set(evidence.columns[name])) > 1]
    lines = max(1, -(-len(names) // _COLUMNS))
    figure = make_subplots(
        lines, _COLUMNS, subplot_titles=names, horizontal_spacing=0.06, vertical_spacing=0.38 / lines
    )
    many = len(evidence.ids) * len(names) > _MOST_DRAWN
    for place, name in enumerate(names):
        at = {"row": place // _COLUMNS + 1, "col": place % _COLUMNS + 1}
        values = evidence.columns[name]
        if len(set(values)) <= _FEW_VALUES:
            _boxes(figure, judged, traces, values, at)
        else:
            _points(figure, judged, traces, values, at, go.Scattergl if many else go.Scatter)
        figure.add_hline(1.0, line={"color": "#999", "width": 1}, **at)
    ratio = evidence.predicted / evidence.measured
    low, high = np.quantile(ratio, [0.005, 0.995])
    figure.update_yaxes(range=[min(0.85, low - 0.05), max(1.15, min(high + 0.05, 3.0))])
    return figure.update_layout(height=_CELL_HEIGHT * lines + 60, boxmode="group", boxgap=0.2, **layout)


def _boxes(
    figure: go.Figure, judged: Judged, traces: Sequence[Trace], values: NDArray[Any], at: dict[str, int]
) -> None:
    """Draw the spread of each group at each value: quartiles, whiskers and what lies beyond."""
    words = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    order = dict.fromkeys(word for _, word in sorted(zip(values, words, strict=True)))
    for group, colour, rows in traces:
        figure.add_box(
            x=[words[row] for row in rows], y=short(_ratio(judged)[rows]), name=group, offsetgroup=group,
            marker={"color": colour, "size": 3}, line={"width": 1}, showlegend=False, **at,
        )  # fmt: skip
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=list(order), **at)


def _points(
    figure: go.Figure,
    judged: Judged,
    traces: Sequence[Trace],
    values: NDArray[Any],
    at: dict[str, int],
    draw: type[go.Scatter] | type[go.Scattergl],
) -> None:
    """Draw each row."""
    ids = np.array([str(id_) for id_ in judged.evidence.ids], object)
    kept = _worst_words(values, judged.evidence.errors)
    for group, colour, members in traces:
        rows = members[kept[members]]
        points = draw(
            x=values[rows], y=short(_ratio(judged)[rows]), mode="markers", name=group, text=ids[rows],
            marker={"color": colour, "size": 4, "opacity": 0.6}, showlegend=False,
            hovertemplate="row %{text}: %{y:.3f} at %{x}",
        )  # fmt: skip
        figure.add_trace(points, **at)
    if values.dtype == object:
        figure.update_xaxes(type="category", categoryorder="category ascending", **at)
    elif values.min() > 0 and values.max() > 30 * values.min():
        figure.update_xaxes(type="log", **log_ticks(np.array([values.min(), values.max()])), **at)


def _worst_words(values: NDArray[Any], errors: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which rows to draw: of many words, those of the words with the largest errors."""
    words = sorted(set(values)) if values.dtype == object else []
    if len(words) <= _MOST_WORDS:
        return np.ones(len(values), bool)
    worst = sorted(words, key=lambda word: -float(errors[values == word].mean()))[:_MOST_WORDS]
    return np.isin(values, np.array(worst, object))


def _ratio(judged: Judged) -> NDArray[np.float64]:
    ratio: NDArray[np.float64] = judged.evidence.predicted / judged.evidence.measured
    return ratio


def short(values: NDArray[np.float64]) -> list[float]:
    """Return values with five digits: a page of plots is mostly numbers."""
    return [float(f"{value:.5g}") for value in values]


def log_ticks(ends: NDArray[np.float64]) -> dict[str, Any]:
    """Return ticks of a logarithmic axis: whole powers of ten where there are enough, else 1, 2, 5."""
    if np.log10(ends[1] / ends[0]) >= _FULL_DECADES:
        return {"dtick": 1, "exponentformat": "power"}
    powers = np.arange(np.floor(np.log10(ends[0])), np.ceil(np.log10(ends[1])) + 1)
    values = [float(f"{step * 10.0**power:.3g}") for power in powers for step in (1, 2, 5)]
    return {"tickvals": values, "ticktext": [f"{value:g}" for value in values]}
