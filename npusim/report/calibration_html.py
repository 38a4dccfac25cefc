"""A calibration as one HTML file: predicted over measured, residuals, and every number."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go

from npusim.report.calibration import FITTED, interval_text, percent_text, value_text
from npusim.report.engineering import engineering
from npusim.report.html import COLOURS, bullets, page, plot, seconds_axis, table, text

if TYPE_CHECKING:
    from npusim.calibrate.device_report import CalibratedRow, CalibrationReport

_SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "star")


def calibration_html(found: CalibrationReport, command: str = "") -> str:
    """Return a calibration as HTML that needs no other file; `command` asked for it."""
    lead = (
        f"{found.rows_fitted} rows of {', '.join(found.files)}, {found.date}. The measurement's own noise is "
        f"{percent_text(found.noise)} (median); the fit leaves {percent_text(found.residual)} beyond it."
    )
    left_out = bullets((f"{row.id}: {row.reason}" for row in found.left_out), "note")
    return page(
        f"{found.soc}: {found.device} fitted to {found.chip}",
        bullets(found.warnings, "warning"),
        _scatter(found),
        text(
            "A point on the line is predicted as measured; the band is 20 %. Rows that were fitted to are "
            "shown as the fit sees them; the table of errors tells those that it did not see.",
            "note",
        ),
        _residuals(found),
        "<h2>Numbers</h2>",
        _numbers(found),
        text(
            "tied: fitted, but known only together with the numbers that are named. loose: fitted, for the "
            "data rule out the value before, but hardly better known. not identified: the measurement says "
            "too little, so the number stays as it was. held: not free.",
            "note",
        ),
        "<h2>Errors</h2>",
        _errors(found),
        text(
            f"|predicted / measured - 1|. Unseen: predicted by fits to the other of {found.folds} folds; "
            "networks were not fitted to at all. In 90 %: rows inside their predicted interval.",
            "note",
        ),
        "<h2>What the equations leave out</h2>",
        table(("operator", "relative"), [(k, percent_text(v)) for k, v in found.model_error.items()]),
        text(
            "Standard deviation of an operator's time beyond noise, on rows that the fit did not see; "
            "estimates with the fitted SoC contain it.",
            "note",
        ),
        "<h2>Conditions</h2>",
        _environment(found),
        f"<h2>Left out</h2>{left_out}" if left_out else "",
        lead=lead,
        command=command,
    )


def _words(row: CalibratedRow) -> str:
    lines = [
        f"<b>{escape(row.id)}</b>",
        escape(row.what),
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
    symbol = _SYMBOLS[number // len(COLOURS) % len(_SYMBOLS)]
    return {"size": 8, "color": COLOURS[number % len(COLOURS)], "symbol": symbol, "opacity": 0.8, **more}


def _scatter(found: CalibrationReport) -> str:
    """Return predicted over measured times: hollow before, full after."""
    figure = go.Figure()
    for number, (name, rows) in enumerate(_families(found)):
        x, text = [row.measured_s for row in rows], [_words(row) for row in rows]
        common = {"x": x, "mode": "markers", "legendgroup": name, "text": text, "hoverinfo": "text"}
        hollow = _marker(number)
        hollow["symbol"] += "-open"
        before, after = [row.before_s for row in rows], [row.after_s for row in rows]
        figure.add_scatter(
            y=before, name=f"{name}, before", marker=hollow, visible="legendonly", showlegend=False, **common
        )
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
        updatemenus=[{"type": "buttons", "direction": "right", "buttons": buttons, "x": 1.0, "y": 1.1}],
        xaxis=seconds_axis("measured"),
        yaxis=seconds_axis("predicted"),
    )
    return plot(figure, 640, "Predicted over measured")


def _residuals(found: CalibrationReport) -> str:
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
        xaxis=seconds_axis("measured"), yaxis={"title": "unseen predicted / measured - 1 (%)"}
    )
    return plot(figure, 540, "What is left, by operator and size (bars: 90 % of the measurement's noise)")


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
    return table(heads, rows)


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
    return table(heads, rows)


def _environment(found: CalibrationReport) -> str:
    facts = {"npusim": found.npusim, "SoC": found.soc_title, "date": found.date, **found.environment}
    settings = facts.pop("settings", {})
    rows = [(key, str(value)) for key, value in [*facts.items(), *settings.items()] if value is not None]
    return table(("what", "value"), rows, words=(0, 1))
