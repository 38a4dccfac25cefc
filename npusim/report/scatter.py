"""A validation as one HTML file: predicted beside measured, and the residuals against everything known of a row.

Like an X-ray beside the doctor's letter: the letter says how well the patient is, the picture shows where it hurts.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from npusim.validation import Judged
from npusim.validation.grouping import GroupErrors

__all__ = ["scatter_page"]

_COLOURS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#885522", "#000000", "#ee7733", "#44bb99",
)  # fmt: skip
"""Colours that stay apart for the colour-blind."""
_MOST_COLOURED = len(_COLOURS) - 1
_REST = "all other groups"
_REST_COLOUR = "#bbbbbb"
_COLUMNS = 3
_CELL_HEIGHT = 260
_MOST_WORDS = 24
"""A column with more words than this (names of operators) is shown by its worst ones."""
_FONT = "system-ui, sans-serif"

_STYLE = f"""
body {{ font: 15px/1.5 {_FONT}; color: #222; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.25rem; margin-top: 3rem; }} h3 {{ font-size: 1rem; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #e5e5e5; }}
th:first-child, td:first-child {{ text-align: left; }} th {{ font-weight: 600; color: #555; }}
.missed {{ color: #b00020; font-weight: 600; }} .kept {{ color: #1b7837; }} .note {{ color: #555; }}
nav a {{ margin-right: 1rem; }} details {{ margin: .5rem 0; }}
"""


def scatter_page(suites: Sequence[Judged], held_out: Mapping[str, Judged] | None = None) -> str:
    """Return a validation as HTML that needs no other file.

    Parameters
    ----------
    suites : sequence of Judged
        Suites that have been run.
    held_out : mapping of str to Judged, optional
        Their cross-validations, by name; plots then show held-out predictions.

    Returns
    -------
    str
        The page.
    """
    held_out = held_out or {}
    links = " ".join(f'<a href="#{judged.name}">{judged.name}</a>' for judged in suites)
    parts = [_section(judged, held_out.get(judged.name)) for judged in suites]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>npusim: validation</title>'
        f"<style>{_STYLE}</style><script>{get_plotlyjs()}</script></head><body>"
        "<h1>npusim: predictions beside figures</h1>"
        "<p>An error is |predicted - measured| / measured. Dotted lines are 10 % off.</p>"
        f"<nav>{links}</nav>{''.join(parts)}</body></html>\n"
    )


def _section(judged: Judged, held_out: Judged | None) -> str:
    shown = judged if held_out is None else held_out
    notes = [*judged.evidence.notes, *judged.suite.notes]
    if held_out is not None:
        notes.insert(0, "The plots show held-out predictions.")
    listed = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    colours = _colours(shown)
    plots = [_plot(_scatter(shown, colours)), _plot(_residuals(shown, colours))]
    return (
        f'<section><h2 id="{judged.name}">{judged.name}</h2><p>{html.escape(judged.suite.title)}</p>'
        f"{_table(judged, held_out)}<ul class='note'>{listed}</ul>{plots[0]}"
        f"<h3>Residuals: predicted / measured against each dimension</h3>{plots[1]}</section>"
    )


def _table(judged: Judged, held_out: Judged | None) -> str:
    heads = ["group", "rows", "mean", "median", "p90"]
    heads += ["held out: mean", "median", "p90"] if held_out else []
    heads += ["limit", "", "Intel's model"]
    others = {} if held_out is None else {group.name: group for group in held_out.groups}
    bound = [_row(group, others, held_out is not None) for group in judged.groups if group.limit is not None]
    free = [_row(group, others, held_out is not None) for group in judged.groups if group.limit is None]
    head = f"<tr>{''.join(f'<th>{html.escape(name)}</th>' for name in heads)}</tr>"
    if len(free) <= _MOST_WORDS or not bound:
        return f"<table>{head}{''.join(bound + free)}</table>"
    rest = f"<details><summary>{len(free)} groups without a limit</summary>"
    return f"<table>{head}{''.join(bound)}</table>{rest}<table>{head}{''.join(free)}</table></details>"


def _row(group: GroupErrors, others: Mapping[str, GroupErrors], beside: bool) -> str:
    cells = [html.escape(group.name), str(len(group.errors)), *_errors(group)]
    other = others.get(group.name)
    if beside:
        cells += _errors(other) if other is not None else ["", "", ""]
    ok = group.ok and (other is None or other.ok)
    limit, verdict, mark = "-", "", ""
    if group.rule is not None and group.limit is not None:
        limit = f"{group.rule.statistic.removesuffix('_error')} {100 * group.limit:.3g} %"
        verdict = mark = "kept" if ok else "missed"
    yardstick = html.escape(group.rule.yardstick) if group.rule else ""
    body = "".join(f"<td>{cell}</td>" for cell in (*cells, limit))
    return f'<tr>{body}<td class="{mark}">{verdict}</td><td>{yardstick}</td></tr>'


def _errors(group: GroupErrors) -> list[str]:
    return [f"{100 * value:.1f} %" for value in (group.mean_error, group.median_error, group.p90_error)]


def _colours(judged: Judged) -> dict[str, str]:
    """Return a colour for each group: one each where there are few, else for the worst with and without limit."""
    groups = [group for group in judged.groups if not group.name.startswith("unmodelled")]
    if len(judged.groups) > len(_COLOURS):
        groups = sorted(groups, key=lambda group: (group.limit is None, -group.mean_error))[:_MOST_COLOURED]
    else:
        groups = list(judged.groups)
    return {group.name: colour for group, colour in zip(groups, _COLOURS, strict=False)}


def _traces(judged: Judged, colours: Mapping[str, str]) -> list[tuple[str, str, NDArray[np.int64]]]:
    """Return (name, colour, rows) of each coloured group, all others first so that they lie below."""
    names = [name if name in colours else _REST for name in judged.row_groups]
    order = [_REST, *colours]
    rows = {name: np.array([i for i, own in enumerate(names) if own == name], np.int64) for name in order}
    return [(name, colours.get(name, _REST_COLOUR), rows[name]) for name in order if len(rows[name])]


def _scatter(judged: Judged, colours: Mapping[str, str]) -> go.Figure:
    """Predicted over measured, both logarithmic, with the line of perfect agreement and 10 % to both sides."""
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
        figure.add_scattergl(
            x=evidence.measured[rows], y=evidence.predicted[rows], mode="markers", name=name,
            marker={"color": colour, "size": 6, "opacity": 0.7}, text=[words[row] for row in rows],
            hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip
    unit = f" ({evidence.unit})" if evidence.unit else ""
    figure.update_xaxes(type="log", title=f"measured{unit}", **_log_ticks(ends))
    figure.update_yaxes(type="log", title=f"predicted{unit}", **_log_ticks(ends))
    return figure.update_layout(height=560, **_layout())


def _residuals(judged: Judged, colours: Mapping[str, str]) -> go.Figure:
    """Predicted / measured against each dimension, a small plot each."""
    evidence = judged.evidence
    names = [name for name in evidence.dimensions if len(set(evidence.columns[name])) > 1]
    lines = max(1, -(-len(names) // _COLUMNS))
    figure = make_subplots(
        lines, _COLUMNS, subplot_titles=names, horizontal_spacing=0.06, vertical_spacing=0.3 / lines
    )
    ratio, words = evidence.predicted / evidence.measured, _words(judged)
    for place, name in enumerate(names):
        at = {"row": place // _COLUMNS + 1, "col": place % _COLUMNS + 1}
        x, rows_shown = _axis(evidence.columns[name], evidence.errors)
        for group, colour, rows in _traces(judged, colours):
            rows = rows[rows_shown[rows]]
            figure.add_scattergl(
                x=x[rows], y=ratio[rows], mode="markers", name=group, legendgroup=group, showlegend=False,
                marker={"color": colour, "size": 4, "opacity": 0.6}, text=[words[row] for row in rows],
                hovertemplate="%{text}<extra></extra>", **at,
            )  # fmt: skip
        numeric = x.dtype != object
        if numeric and x.min() > 0 and x.max() > 30 * x.min():
            figure.update_xaxes(type="log", **_log_ticks(np.array([x.min(), x.max()])), **at)
        elif not numeric:
            figure.update_xaxes(type="category", categoryorder="category ascending", **at)
        figure.add_hline(1.0, line={"color": "#999", "width": 1}, **at)
    low, high = np.quantile(ratio, [0.005, 0.995])
    figure.update_yaxes(range=[min(0.85, low - 0.05), max(1.15, min(high + 0.05, 3.0))])
    return figure.update_layout(height=_CELL_HEIGHT * lines + 60, **_layout())


def _axis(values: NDArray[Any], errors: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return what to plot on an axis, and which rows: of many words, only those with the largest errors."""
    everything = np.ones(len(values), bool)
    if values.dtype != object:
        return values, everything
    words = sorted(set(values))
    if len(words) <= _MOST_WORDS:
        return values, everything
    worst = sorted(words, key=lambda word: -float(errors[values == word].mean()))[:_MOST_WORDS]
    return values, np.isin(values, np.array(worst, object))


def _words(judged: Judged) -> list[str]:
    """Return what a hover over each row says: where it stands, its numbers, and all that is known of it."""
    evidence = judged.evidence
    columns = {name: values for name, values in evidence.columns.items() if len(set(values)) > 1}
    texts = []
    for row, id_ in enumerate(evidence.ids):
        measured, predicted = evidence.measured[row], evidence.predicted[row]
        known = "<br>".join(f"{name} {_value(values[row])}" for name, values in columns.items())
        head = f"<b>{id_}</b> {html.escape(judged.row_groups[row])}"
        numbers = f"measured {measured:.4g}, predicted {predicted:.4g} {evidence.unit} ({predicted / measured - 1:+.1%})"
        texts.append(f"{head}<br>{numbers}<br>{known}")
    return texts


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else html.escape(str(value))


def _log_ticks(ends: NDArray[np.float64]) -> dict[str, Any]:
    """Return ticks of a logarithmic axis: whole powers of ten where there are enough, else plotly's own."""
    decades = float(np.log10(ends[1] / ends[0]))
    return (
        {"dtick": 1, "exponentformat": "power"} if decades >= 2 else {"exponentformat": "power", "nticks": 5}
    )


def _layout() -> dict[str, Any]:
    return {
        "template": "simple_white",
        "font": {"family": _FONT, "size": 12},
        "margin": {"l": 70, "r": 20, "t": 40, "b": 50},
        "legend": {"itemsizing": "constant"},
        "hoverlabel": {"align": "left"},
    }


def _plot(figure: go.Figure) -> str:
    text: str = figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
    return text
