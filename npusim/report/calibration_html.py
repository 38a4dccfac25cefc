"""A calibration as one HTML file: predicted over measured, residuals, and every number."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from npusim.report.calibration import FITTED, interval_text, percent_text, value_text
from npusim.report.engineering import engineering

if TYPE_CHECKING:
    from npusim.calibrate.device.report import CalibratedRow, CalibrationReport

__all__ = ["calibration_html"]

_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#885522", "#000000")
"""Colours that stay apart for the colour-blind."""
_SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "star")
_FONT = "system-ui, sans-serif"
_SECONDS = {"type": "log", "tickformat": "~s", "ticksuffix": "s", "dtick": 1}
_STYLE = f"""
body {{ font: 15px/1.5 {_FONT}; color: #222; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #e5e5e5; white-space: nowrap; }}
.wide {{ overflow-x: auto; }} td.text, th.text {{ text-align: left; white-space: normal; }}
th {{ font-weight: 600; color: #555; }} .note {{ color: #555; }} .warning {{ color: #a05000; }}
"""


def calibration_html(found: CalibrationReport) -> str:
    """Return a calibration as HTML that needs no other file.

    Parameters
    ----------
    found : CalibrationReport
    """
    title = f"{found.soc}: {found.device} fitted to {found.chip}"
    lead = (
        f"{found.rows_fitted} rows of {', '.join(found.files)}, {found.date}. The measurement's own noise is "
        f"{percent_text(found.noise)} (median); the fit leaves {percent_text(found.residual)} beyond it."
    )
    parts = [
        f"<h1>{html.escape(title)}</h1><p>{html.escape(lead)}</p>",
        _list("warning", found.warnings),
        _plot(_scatter(found)),
        "<p class=note>A point on the line is predicted as measured; the band is 20 %. Rows that were fitted "
        "to are shown as the fit sees them; the table of errors tells those that it did not see.</p>",
        _plot(_residuals(found)),
        "<h2>Numbers</h2>",
        _numbers(found),
        "<p class=note>tied: fitted, but known only together with the numbers that are named. loose: "
        "fitted, for the data rule out the value before, but hardly better known. not identified: the "
        "measurement says too little, so the number stays as it was. held: not free.</p>",
        "<h2>Errors</h2>",
        _errors(found),
        "<p class=note>|predicted / measured - 1|. Unseen: predicted by fits to the other of "
        f"{found.folds} folds; networks were not fitted to at all. In 90 %: rows inside their predicted "
        "interval.</p>",
        "<h2>What the equations leave out</h2>",
        _table(("operator", "relative"), [(k, percent_text(v)) for k, v in found.model_error.items()]),
        "<p class=note>Standard deviation of an operator's time beyond noise, on rows that the fit did not "
        "see; estimates with the fitted SoC contain it.</p>",
        "<h2>Conditions</h2>",
        _environment(found),
        "<h2>Left out</h2>" if found.left_out else "",
        _list("note", (f"{row.id}: {row.reason}" for row in found.left_out)),
    ]
    head = f'<meta charset="utf-8"><title>npusim: {html.escape(title)}</title><style>{_STYLE}</style>'
    script = f"<script>{get_plotlyjs()}</script>"
    return f'<!doctype html><html lang="en"><head>{head}{script}</head><body>{"".join(parts)}</body></html>\n'


def _plot(figure: go.Figure) -> str:
    text: str = figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
    return text


def _words(row: CalibratedRow) -> str:
    lines = [
        f"<b>{html.escape(row.id)}</b>",
        html.escape(row.what),
        f"hint {row.hint}, {row.requests} in flight; {row.figure}",
        f"measured {engineering(row.measured_s, 's')}, noise {percent_text(row.noise)}",
        f"before {engineering(row.before_s, 's')}, after {engineering(row.after_s, 's')}",
        f"unseen {engineering(row.held_out_s, 's')}" if row.fitted else "not fitted",
    ]
    if row.interval_s is not None:
        low, high = (engineering(bound, "s") for bound in row.interval_s)
        lines.append(f"90 % interval {low} to {high}")
    return "<br>".join(lines)


def _families(found: CalibrationReport) -> list[tuple[str, list[CalibratedRow]]]:
    names = dict.fromkeys(row.family for row in found.rows)
    return [(name, [row for row in found.rows if row.family == name]) for name in names]


def _marker(number: int, **more: Any) -> dict[str, Any]:
    symbol = _SYMBOLS[number // len(_COLOURS) % len(_SYMBOLS)]
    return {"size": 8, "color": _COLOURS[number % len(_COLOURS)], "symbol": symbol, "opacity": 0.8, **more}


def _scatter(found: CalibrationReport) -> go.Figure:
    """Return predicted over measured times: hollow before, full after."""
    figure = go.Figure()
    for number, (name, rows) in enumerate(_families(found)):
        x, text = [row.measured_s for row in rows], [_words(row) for row in rows]
        common = {"x": x, "mode": "markers", "legendgroup": name, "text": text, "hoverinfo": "text"}
        hollow = _marker(number)
        hollow["symbol"] += "-open"
        before, after = [row.before_s for row in rows], [row.after_s for row in rows]
        figure.add_scatter(y=before, name=f"{name}, before", marker=hollow, visible="legendonly", **common)
        figure.add_scatter(y=after, name=name, marker=_marker(number), **common)
    times = [row.measured_s for row in found.rows]
    ends = [min(times) / 1.5, max(times) * 1.5]
    for share, dash in ((1.0, "solid"), (1.2, "dot"), (1.0 / 1.2, "dot")):
        figure.add_scatter(
            x=ends,
            y=[share * end for end in ends],
            mode="lines",
            line={"color": "#999", "dash": dash, "width": 1},
            showlegend=False,
            hoverinfo="skip",
        )
    total = len(figure.data)
    lines = [True] * 3
    pairs = (total - 3) // 2
    shown = {
        "after": [*(["legendonly", True] * pairs), *lines],
        "before": [*([True, "legendonly"] * pairs), *lines],
        "both": [True] * total,
    }
    buttons = [{"label": k, "method": "restyle", "args": [{"visible": v}]} for k, v in shown.items()]
    figure.update_layout(
        **_layout("Predicted over measured", 600),
        updatemenus=[{"type": "buttons", "direction": "right", "buttons": buttons, "x": 1.0, "y": 1.1}],
        xaxis={"title": "measured", **_SECONDS},
        yaxis={"title": "predicted", **_SECONDS},
    )
    return figure


def _residuals(found: CalibrationReport) -> go.Figure:
    """Return what is left of rows, unseen where they were fitted to, by operator and size."""
    figure = go.Figure()
    for number, (name, rows) in enumerate(_families(found)):
        figure.add_scatter(
            x=[row.measured_s for row in rows],
            y=[100.0 * (row.held_out_s / row.measured_s - 1.0) for row in rows],
            error_y={
                "type": "data",
                "array": [164.5 * row.noise for row in rows],
                "thickness": 1,
                "width": 2,
            },
            mode="markers",
            name=name,
            marker=_marker(number),
            text=[_words(row) for row in rows],
            hoverinfo="text",
        )
    for level, dash in ((0.0, "solid"), (20.0, "dot"), (-20.0, "dot")):
        figure.add_hline(y=level, line={"color": "#999", "dash": dash, "width": 1})
    figure.update_layout(
        **_layout("What is left, by operator and size (bars: 90 % of the measurement's noise)", 480),
        xaxis={"title": "measured", **_SECONDS},
        yaxis={"title": "unseen predicted / measured - 1 (%)"},
    )
    return figure


def _layout(title: str, height: int) -> dict[str, Any]:
    return {
        "title": title,
        "height": height,
        "font": {"family": _FONT, "size": 13},
        "template": "plotly_white",
        "margin": {"l": 10, "r": 10, "t": 80, "b": 40},
    }


def _numbers(found: CalibrationReport) -> str:
    rows = [
        (
            p.path,
            value_text(p.before, p.unit),
            percent_text(p.before_uncertainty),
            value_text(p.after, p.unit) if p.status in FITTED else "as before",
            interval_text(p.interval, p.unit),
            p.status + (", at its bound" if p.at_bound else ""),
            ", ".join(p.tied_to),
            str(p.rows),
        )
        for p in found.parameters
    ]
    heads = ("number", "before", "uncertainty", "after", "90 % interval", "status", "goes with", "rows")
    return _table(heads, rows)


def _errors(found: CalibrationReport) -> str:
    rows = [
        (
            f.family if f.fitted else f"{f.family} (not fitted)",
            str(f.rows),
            *map(percent_text, (f.before_median, f.after_median, f.held_out_median, f.held_out_p90)),
            percent_text(f.noise_median),
            "" if f.inside is None else f"{f.inside} of {f.rows}",
        )
        for f in found.families
    ]
    heads = ("rows of", "rows", "before", "after", "unseen", "unseen, 90 % below", "noise", "in 90 %")
    return _table(heads, rows)


def _environment(found: CalibrationReport) -> str:
    facts = {"npusim": found.npusim, "SoC": found.soc_title, "date": found.date, **found.environment}
    settings = facts.pop("settings", {})
    rows = [(key, str(value)) for key, value in [*facts.items(), *settings.items()] if value is not None]
    return _table(("what", "value"), rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        first, *rest = (html.escape(cell) for cell in cells)
        return f"<tr><{tag} class=text>{first}</{tag}>{''.join(f'<{tag}>{c}</{tag}>' for c in rest)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<div class=wide><table>{line(heads, 'th')}{body}</table></div>"


def _list(style: str, lines: Iterable[str]) -> str:
    items = "".join(f"<li>{html.escape(text)}</li>" for text in lines)
    return f"<ul class={style}>{items}</ul>" if items else ""
