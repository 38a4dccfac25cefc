"""A validation as one HTML file: predicted beside measured, and residuals against each dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from npusim.report.document_html import records_table
from npusim.report.html import COLOURS, GREY, bullets, log_axis, page, plot, table, text
from npusim.validation import Judged
from npusim.validation.running import GroupErrors

_MOST_COLOURED = len(COLOURS) - 1
_REST = "all other groups"
_MOST_OPEN = 24
"""More groups without a limit than this are folded away."""
_MARKS = {"kept": "kept", "missed": "missed"}


def validation_html(
    suites: Sequence[Judged], held_out: Mapping[str, Judged] | None = None, command: str = ""
) -> str:
    """Return a validation as HTML; where there is a cross-validation, plots show held-out predictions."""
    held_out = held_out or {}
    links = " ".join(f'<a href="#{judged.name}">{judged.name}</a>' for judged in suites)
    return page(
        f"Validation: {', '.join(judged.name for judged in suites)}",
        text("An error is |predicted - measured| / measured. Dotted lines are 10 % off."),
        f"<nav>{links}</nav>" if len(suites) > 1 else "",
        *(_section(number, judged, held_out.get(judged.name)) for number, judged in enumerate(suites)),
        command=command,
    )


def _section(number: int, judged: Judged, held_out: Judged | None) -> str:
    shown = judged if held_out is None else held_out
    notes = [*judged.evidence.notes, *judged.suite.notes]
    if held_out is not None:
        notes.insert(0, "The plots show held-out predictions.")
    colours = _colours(shown)
    return "".join(
        (
            f'<section><h2 id="{judged.name}">{judged.name}</h2>{text(judged.suite.title)}',
            _table(judged, held_out),
            bullets(notes, "note"),
            _scatter(shown, colours, f"suites.{number}.rows"),
            "<h3>Residuals: predicted / measured against each dimension</h3>",
            _residuals(shown, _traces(shown, colours)),
            "</section>",
        )
    )


def _table(judged: Judged, held_out: Judged | None) -> str:
    heads = ["group", "rows", "mean", "median", "p90"]
    heads += ["held out: mean", "median", "p90"] if held_out else []
    heads += ["limit", "", "Intel's model"]
    others = {} if held_out is None else {group.name: group for group in held_out.groups}
    bound = [_row(group, others, held_out is not None) for group in judged.groups if group.limit is not None]
    free = [_row(group, others, held_out is not None) for group in judged.groups if group.limit is None]
    words = (0, len(heads) - 2, len(heads) - 1)
    if len(free) <= _MOST_OPEN or not bound:
        return table(heads, bound + free, words, _MARKS)
    rest = f"<details><summary>{len(free)} groups without a limit</summary>"
    return f"{table(heads, bound, words, _MARKS)}{rest}{table(heads, free, words)}</details>"


def _row(group: GroupErrors, others: Mapping[str, GroupErrors], beside: bool) -> list[str]:
    cells = [group.name, str(len(group.errors)), *_errors(group)]
    other = others.get(group.name)
    if beside:
        cells += _errors(other) if other is not None else ["", "", ""]
    ok = group.ok and (other is None or other.ok)
    limit, verdict = "-", ""
    if group.rule is not None and group.limit is not None:
        limit = f"{group.rule.statistic.removesuffix('_error')} {100 * group.limit:.3g} {group.unit}"
        verdict = "kept" if ok else "missed"
    return [*cells, limit, verdict, group.rule.yardstick if group.rule else ""]


def _errors(group: GroupErrors) -> list[str]:
    found = (group.mean_error, group.median_error, group.p90_error)
    return [f"{100 * value:.1f} {group.unit}" for value in found]


def _names(judged: Judged) -> list[str]:
    """Return what each row is coloured by: the breakdown where it has few parts, else the groups."""
    return judged.row_parts if len(set(judged.row_parts)) <= len(COLOURS) else judged.row_groups


def _colours(judged: Judged) -> dict[str, str]:
    """Return a colour for each name of rows, or where there are many for those with the largest errors."""
    names = set(_names(judged))
    groups = [group for group in judged.groups if group.name in names]
    if len(groups) > len(COLOURS):
        groups = [group for group in groups if not group.name.startswith("unmodelled")]
        groups = sorted(groups, key=lambda group: (group.limit is None, -group.mean_error))[:_MOST_COLOURED]
    return {group.name: colour for group, colour in zip(groups, COLOURS, strict=False)}


def _traces(judged: Judged, colours: Mapping[str, str]) -> list[tuple[str, str, NDArray[np.int64]]]:
    """Return (name, colour, rows) of each coloured group, all others first so that they lie below."""
    names = [name if name in colours else _REST for name in _names(judged)]
    order = [_REST, *colours]
    rows = {name: np.array([i for i, own in enumerate(names) if own == name], np.int64) for name in order}
    return [(name, colours.get(name, GREY), rows[name]) for name in order if len(rows[name])]


def _scatter(judged: Judged, colours: Mapping[str, str], place: str) -> str:
    """Predicted over measured, both logarithmic, with the line of agreement and 10 % to both sides."""
    evidence, words = judged.evidence, _words(judged)
    figure = go.Figure()
    both = np.concatenate([evidence.measured, evidence.predicted])
    ends = np.array([both[both > 0].min() / 1.3, both.max() * 1.3])
    for share, dash in ((1.0, "solid"), (1.1, "dot"), (1 / 1.1, "dot")):
        line = {"color": "#999", "width": 1, "dash": dash}
        figure.add_scatter(
            x=ends, y=ends * share, mode="lines", line=line, hoverinfo="skip", showlegend=False
        )
    for name, colour, rows in _traces(judged, colours):
        figure.add_scatter(
            x=_short(evidence.measured[rows]), y=_short(evidence.predicted[rows]), mode="markers", name=name,
            marker={"color": colour, "size": 6, "opacity": 0.7}, text=[words[row] for row in rows],
            hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip
    in_ticks = evidence.unit == "s"
    unit, named = ("s", "") if in_ticks else ("", f" ({evidence.unit})" if evidence.unit else "")
    figure.update_layout(
        xaxis=log_axis(f"measured{named}", unit, *ends), yaxis=log_axis(f"predicted{named}", unit, *ends)
    )
    listed = [row.model_dump(mode="json") for row in judged.result().rows]
    return plot(figure, 600, data=records_table(place, listed))


def _words(judged: Judged) -> list[str]:
    """Return what a hover over each row says: where it stands, its numbers, and all that is known of it."""
    evidence = judged.evidence
    columns = {name: values for name, values in evidence.columns.items() if len(set(values)) > 1}
    texts = []
    for row, id_ in enumerate(evidence.ids):
        measured, predicted = evidence.measured[row], evidence.predicted[row]
        known = "<br>".join(f"{name} {_value(values[row])}" for name, values in columns.items())
        head = f"<b>{id_}</b> {escape(judged.row_groups[row])}"
        off = f"{predicted / measured - 1:+.1%}"
        numbers = f"measured {measured:.4g}, predicted {predicted:.4g} {evidence.unit} ({off})"
        texts.append(f"{head}<br>{numbers}<br>{known}")
    return texts


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else escape(str(value))


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


def _residuals(judged: Judged, traces: Sequence[Trace]) -> str:
    """Return predicted / measured against each dimension, groups in the order in which they are drawn."""
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
    figure.update_layout(boxmode="group", boxgap=0.2)
    return plot(figure, _CELL_HEIGHT * lines + 60, least_width=800)


def _boxes(
    figure: go.Figure, judged: Judged, traces: Sequence[Trace], values: NDArray[Any], at: dict[str, int]
) -> None:
    """Draw the spread of each group at each value: quartiles, whiskers and what lies beyond."""
    words = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    order = dict.fromkeys(word for _, word in sorted(zip(values, words, strict=True)))
    for group, colour, rows in traces:
        figure.add_box(
            x=[words[row] for row in rows], y=_short(_ratio(judged)[rows]), name=group, offsetgroup=group,
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
            x=values[rows], y=_short(_ratio(judged)[rows]), mode="markers", name=group, text=ids[rows],
            marker={"color": colour, "size": 4, "opacity": 0.6}, showlegend=False,
            hovertemplate="row %{text}: %{y:.3f} at %{x}",
        )  # fmt: skip
        figure.add_trace(points, **at)
    if values.dtype == object:
        figure.update_xaxes(type="category", categoryorder="category ascending", **at)
    elif values.min() > 0 and values.max() > 30 * values.min():
        figure.update_xaxes(type="log", **_log_ticks(np.array([values.min(), values.max()])), **at)


def _worst_words(values: NDArray[Any], errors: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which rows to draw: of many words, those of the words with the largest errors."""
    words = sorted(set(values)) if values.dtype == object else []
    if len(words) <= _MOST_WORDS:
        return np.ones(len(values), bool)
    worst = sorted(words, key=lambda word: -float(errors[values == word].mean()))[:_MOST_WORDS]
    return np.isin(values, np.array(worst, object))


def _ratio(judged: Judged) -> NDArray[np.float64]:
    return judged.evidence.predicted / judged.evidence.measured


def _short(values: NDArray[np.float64]) -> list[float]:
    """Return values with five digits: a page of plots is mostly numbers."""
    return [float(f"{value:.5g}") for value in values]


def _log_ticks(ends: NDArray[np.float64]) -> dict[str, Any]:
    """Return ticks of a logarithmic axis: whole powers of ten where there are enough, else 1, 2, 5."""
    if np.log10(ends[1] / ends[0]) >= _FULL_DECADES:
        return {"dtick": 1, "exponentformat": "power"}
    powers = np.arange(np.floor(np.log10(ends[0])), np.ceil(np.log10(ends[1])) + 1)
    values = [float(f"{step * 10.0**power:.3g}") for power in powers for step in (1, 2, 5)]
    return {"tickvals": values, "ticktext": [f"{value:g}" for value in values]}
