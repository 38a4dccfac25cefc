"""The page of a calibration: numbers that moved, that stayed, errors, predicted over measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from npusim.calibration.device_report import CalibratedRow, CalibrationReport, FittedParameter
from npusim.reporting.charts import Figure, add_guides, add_marks, blank_figure
from npusim.reporting.engineering import Amount, Cell, engineering
from npusim.reporting.html import COLOURS, amount_axis
from npusim.reporting.page import (
    CYAN,
    Column,
    Lines,
    Page,
    Plot,
    Remark,
    Section,
    Table,
    cells_table,
    document_page,
    fields,
    grouped,
)

FITTED = ("identified", "tied", "loose")
"""Status of a number that moved."""
_MOST_LEFT_OUT = 5
_MOST_TIED = 3
_PREFIXED = ("Hz", "B/s", "s", "B")  # units that take a prefix of a thousand
_SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "star")
_STATUS = (
    "tied: fitted, but known only together with the numbers that are named. loose: fitted, for the data rule "
    "out the value before, but hardly better known. not identified: the measurement says too little, so the "
    "number stays as it was. held: not free."
)
_BAND = (
    "A point on the line is predicted as measured; the band is 20 %. Rows that were fitted to are shown as "
    "the fit sees them; the table of errors has unseen rows."
)


def calibration_page(report: CalibrationReport, output: str | None = None) -> Page:
    """Return the page of a calibration; `output` is the name of the fitted SoC file."""
    noise, residual = percent_text(report.noise), percent_text(report.residual)
    left = "What is left, by size (bars: 90 % of the measurement's noise)"
    return document_page(
        report,
        f"{report.soc}, {report.device} fitted to {report.rows_fitted} rows of {report.chip}",
        f"noise {noise}; left beyond the noise {residual}",
        [
            Plot("Predicted over measured", lambda: _scatter(report)),
            Lines([_BAND], style="dim", only="html"),
            Plot(left, lambda: _residuals(report)),
            *_numbers(report.parameters),
            *_errors(report),
        ],
        [
            *_marks(report.parameters),
            Remark("Left out", [f"{row.id}: {row.reason}" for row in report.left_out], most=_MOST_LEFT_OUT),
            Remark("Next", [] if output is None else [f"npusim estimate WORKLOAD --soc {output}"]),
        ],
        notes=_notes(report),
        of=None,
        lead=(
            f"{report.rows_fitted} rows of {', '.join(report.files)}, {report.date}. The measurement's own "
            f"noise is {noise} (median); the fit leaves {residual} beyond it."
        ),
    )


def percent_text(part: float) -> str:
    """Return a part in percent, two digits."""
    return f"{100 * part:.2g} %" if part < 0.995 else f"{100 * part:.0f} %"


def _value(value: float, unit: str) -> Cell:
    """Return a number of a data sheet with three digits."""
    text = engineering(value, unit) if unit in _PREFIXED else f"{value:.3g} {unit}".strip()
    return Amount(value, unit, text)


def _after(p: FittedParameter) -> Cell:
    return _value(p.after, p.unit) if p.status in FITTED else "as before"


def _interval(p: FittedParameter) -> str:
    low, high = (str(_value(bound, p.unit if p.unit in _PREFIXED else "")) for bound in p.interval)
    return f"[{low}, {high}]" + ("" if p.unit in _PREFIXED else f" {p.unit}".rstrip())


def _around(p: FittedParameter) -> str:
    """Return an interval relative to the value, such as `-10 +12 %`."""
    low, high = (100.0 * (bound / p.after - 1.0) for bound in p.interval)
    return f"{low:+.0f} {high:+.0f} %"


def _numbers(parameters: Sequence[FittedParameter]) -> list[Section]:
    """Return the numbers that moved; HTML has all."""
    fitted = [p for p in parameters if p.status in FITTED]
    columns = (
        Column("path", "fitted", layout=CYAN),
        Column("", "before", lambda p: _value(p.before, p.unit)),
        Column("before_uncertainty", "uncertainty", only="html", text=percent_text),
        Column("", "after", _after, words=False),
        Column("", "90 % interval", _interval, "html"),
        Column("", "90 % interval", _around, "terminal", words=False),
        Column("", "status", lambda p: p.status + (", at its bound" if p.at_bound else ""), "html"),
        Column("", "goes with", lambda p: ", ".join(p.tied_to), "html"),
        Column("rows", "rows", only="html"),
    )
    none = "No number moved: the measurement determines none better than the data sheet does."
    return [
        Table(columns, parameters, "Numbers", terminal=fitted),
        Lines([] if fitted else [none], only="terminal"),
        Lines([_STATUS], style="dim", only="html"),
    ]


def _marks(parameters: Sequence[FittedParameter]) -> list[Remark]:
    """Return what limits the fitted numbers, and the numbers that stayed."""
    by_status = grouped(parameters, lambda p: str(p.status))
    tied = [p for p in by_status.get("tied", []) if p.tied_to]
    loose = by_status.get("loose", [])
    stayed = {name: [p.path for p in by_status.get(name, [])] for name in ("not identified", "held")}
    return [
        Remark("tied", [f"{p.path} only with {', '.join(p.tied_to[:_MOST_TIED])}" for p in tied], "yellow"),
        Remark("loose", [f"{p.path}: the value before is ruled out" for p in loose], "yellow"),
        *(Remark(status, [", ".join(paths)] if paths else []) for status, paths in stayed.items()),
    ]


def _errors(report: CalibrationReport) -> list[Section]:
    """Return the errors of each family of operators, and what the equations leave out of each operator."""
    columns = (
        Column("", "errors, median", lambda f: f.family + ("" if f.fitted else " (not fitted)")),
        Column("rows"),
        *fields("before_median: before, after_median: after", text=percent_text),
        *fields("held_out_median: unseen, held_out_p90: p90, noise_median: noise", text=percent_text),
        Column("", "in 90 %", lambda f: "" if f.inside is None else f"{f.inside} of {f.rows}", words=False),
    )
    meaning = (
        f"|predicted / measured - 1|; unseen: predicted by fits to the other of {report.folds} folds; p90: "
        "90 % of those err less; in 90 %: rows inside their predicted interval"
    )
    spread = (
        "Standard deviation of an operator's time beyond noise, on rows that the fit did not see; estimates "
        "with the fitted SoC contain it."
    )
    left_out = [(name, Amount(part, "", percent_text(part))) for name, part in report.model_error.items()]
    title = "What the equations leave out"
    return [
        Table(columns, report.families, "Errors", caption=meaning),
        cells_table(("operator", "relative"), left_out, title, caption=spread, only="html"),
    ]


def _notes(report: CalibrationReport) -> list[str]:
    checks = [row for row in report.rows if not row.fitted]
    if not checks:
        return []
    worst = max(checks, key=lambda row: abs(row.after_s / row.measured_s - 1.0))
    return [
        f"farthest off end to end: {worst.what}, measured {engineering(worst.measured_s, 's')}, "
        f"predicted {engineering(worst.after_s, 's')}"
    ]


def _story(row: CalibratedRow) -> str:
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


def _traces(report: CalibrationReport) -> Iterator[tuple[str, list[CalibratedRow], dict[str, Any]]]:
    """Yield name, rows and marker of each family of operators."""
    for number, (name, rows) in enumerate(grouped(report.rows, lambda row: row.family).items()):
        symbol = _SYMBOLS[number // len(COLOURS) % len(_SYMBOLS)]
        marker = {"size": 8, "color": COLOURS[number % len(COLOURS)], "symbol": symbol, "opacity": 0.8}
        yield name, rows, marker


def _scatter(report: CalibrationReport) -> Figure:
    """Return predicted over measured times: hollow before, full after."""
    figure = blank_figure(
        xaxis=amount_axis("measured", "s", log=True),
        yaxis=amount_axis("predicted", "s", log=True),
        height=640,
    )
    for name, rows, marker in _traces(report):
        hollow = {**marker, "symbol": f"{marker['symbol']}-open"}
        before = {"visible": "legendonly", "showlegend": False, "legendgroup": name}
        add_marks(
            figure, f"{name}, before", rows, lambda r: (r.measured_s, r.before_s), hollow, _story, **before
        )
        add_marks(figure, name, rows, lambda r: (r.measured_s, r.after_s), marker, _story, legendgroup=name)
    pairs = len(figure.data) // 2
    times = [row.measured_s for row in report.rows]
    add_guides(figure, (min(times) / 1.5, max(times) * 1.5), (1.2, 1.0 / 1.2))
    guides = [True] * 3
    shown = {
        "after": ["legendonly", True] * pairs + guides,
        "before": [True, "legendonly"] * pairs + guides,
        "both": [True, True] * pairs + guides,
    }
    buttons = [{"label": k, "method": "restyle", "args": [{"visible": v}]} for k, v in shown.items()]
    menu = {"type": "buttons", "direction": "right", "buttons": buttons, "x": 1.0, "y": 1.1}
    return figure.update_layout(updatemenus=[menu])


def _residuals(report: CalibrationReport) -> Figure:
    """Return the errors of rows by operator and size, unseen where the fit used them."""
    unseen = {"title": "unseen predicted / measured - 1 (%)"}
    figure = blank_figure(xaxis=amount_axis("measured", "s", log=True), yaxis=unseen, height=540)
    for name, rows, marker in _traces(report):
        noise = {"type": "data", "array": [164.5 * row.noise for row in rows], "thickness": 1, "width": 2}
        add_marks(figure, name, rows, _residual, marker, _story, error_y=noise)
    for level, dash in ((0.0, "solid"), (20.0, "dot"), (-20.0, "dot")):
        figure.add_hline(y=level, line={"color": "#999", "dash": dash, "width": 1})
    return figure


def _residual(row: CalibratedRow) -> tuple[float, float]:
    return row.measured_s, 100.0 * (row.held_out_s / row.measured_s - 1.0)
