"""The page of a calibration: numbers that moved, that stayed, errors, predicted over measured."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from npusim.calibration.device_report import CalibratedRow, CalibrationReport, FittedParameter
from npusim.reporting.charts import Figure, add_groups, add_guides, blank_figure
from npusim.reporting.engineering import Amount, Cell, engineering, span
from npusim.reporting.html import amount_axis
from npusim.reporting.page import Lines, Page, Plot, Remark, Section, document_page
from npusim.reporting.tables import CYAN, Column, Table, cells_table, fields, grouped

FITTED = ("identified", "tied", "loose")
"""Status of a number that moved."""
_MOST_LEFT_OUT = 5
_MOST_TIED = 3
_PREFIXED = ("Hz", "B/s", "s", "B")  # units that take a prefix of a thousand
_STATUS = (
    "tied: fitted, but known only together with the numbers that are named. loose: fitted, for the data rule "
    "out the value before, but hardly better known. not identified: the measurement says too little, so the "
    "number stays as it was. held: not free."
)
_BAND = (
    "A point on the line is predicted as measured; the band is 20 %. Rows that were fitted to are shown as "
    "the fit sees them; the table of errors has unseen rows."
)
_ERRORS = (
    "|predicted / measured - 1|; unseen: predicted by fits to the other of {} folds; p90: 90 % of those err "
    "less; in 90 %: rows inside their predicted interval"
)
_SPREAD = (
    "Standard deviation of an operator's time beyond noise, on rows that the fit did not see; estimates "
    "with the fitted SoC contain it."
)


def calibration_page(report: CalibrationReport, output: str | None = None) -> Page:
    """Return the page of a calibration; `output` is the name of the fitted SoC file."""
    noise, residual = _percent(report.noise), _percent(report.residual)
    left_out = [(name, Amount(part, "", _percent(part))) for name, part in report.model_error.items()]
    title = "What the equations leave out"
    return document_page(
        report,
        f"{report.soc}, {report.device} fitted to {report.rows_fitted} rows of {report.chip}",
        f"noise {noise}; left beyond the noise {residual}",
        [
            Plot("Predicted over measured", lambda: _scatter(report)),
            Lines([_BAND], style="dim", only="html"),
            Plot("What is left, by size (bars: 90 % of the measurement's noise)", lambda: _residuals(report)),
            *_numbers(report.parameters),
            _errors(report),
            cells_table(("operator", "relative"), left_out, title, caption=_SPREAD, only="html"),
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


def _percent(part: float) -> str:
    return f"{100 * part:.2g} %" if part < 0.995 else f"{100 * part:.0f} %"


def _value(value: float, unit: str) -> Cell:
    """Return a number of a data sheet with three digits."""
    text = engineering(value, unit) if unit in _PREFIXED else f"{value:.3g} {unit}".strip()
    return Amount(value, unit, text)


def _around(p: FittedParameter) -> str:
    low, high = (100.0 * (bound / p.after - 1.0) for bound in p.interval)
    return f"{low:+.0f} {high:+.0f} %"


def _numbers(parameters: Sequence[FittedParameter]) -> list[Section]:
    """Return the numbers that moved; HTML has all."""
    fitted = [p for p in parameters if p.status in FITTED]

    columns = (
        Column("path", "fitted", layout=CYAN),
        Column("before", "before", lambda p: _value(p.before, p.unit)),
        Column("after", "after", lambda p: _value(p.after, p.unit)),
        Column("", "90 % interval", _around, "terminal", words=False),
        Column("", "goes with", lambda p: ", ".join(p.tied_to), "html"),
    )
    none = "No number moved: the measurement determines none better than the data sheet does."
    return [
        Table(columns, parameters, "Numbers", "parameters", terminal=fitted, whole=True),
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


def _errors(report: CalibrationReport) -> Table:
    """Return the errors of each family of operators."""
    columns = (
        Column("", "errors, median", lambda f: f.family + ("" if f.fitted else " (not fitted)")),
        Column("rows"),
        *fields("before_median: before, after_median: after", text=_percent),
        *fields("held_out_median: unseen, held_out_p90: p90, noise_median: noise", text=_percent),
        Column("", "in 90 %", lambda f: "" if f.inside is None else f"{f.inside} of {f.rows}", words=False),
    )
    return Table(columns, report.families, "Errors", caption=_ERRORS.format(report.folds))


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
    times = {"measured": row.measured_s, "before": row.before_s, "after": row.after_s}
    times |= {"unseen": row.held_out_s} if row.fitted else {}
    lines = [
        f"<b>{escape(row.id)}</b> {escape(row.what)}",
        f"hint {row.hint}, {row.requests} in flight; {row.figure}; noise {_percent(row.noise)}",
        *(f"{name} {engineering(seconds, 's')}" for name, seconds in times.items()),
        f"90 % interval {span(row.interval_s)}" if row.interval_s else "",
    ]
    return "<br>".join(filter(None, lines))


def _scatter(report: CalibrationReport) -> Figure:
    """Return predicted over measured times after the fit, and those before it on demand."""
    axes = [amount_axis(name, "s", log=True) for name in ("measured", "predicted")]
    figure = blank_figure(xaxis=axes[0], yaxis=axes[1], height=640)
    after = grouped(report.rows, lambda row: row.family)
    before = {f"{name}, before": rows for name, rows in after.items()}
    add_groups(figure, after, lambda row: (row.measured_s, row.after_s), _story)
    add_groups(figure, before, lambda row: (row.measured_s, row.before_s), _story, visible="legendonly")
    times = [row.measured_s for row in report.rows]
    add_guides(figure, (min(times) / 1.5, max(times) * 1.5), (1.2, 1.0 / 1.2))
    return figure


def _residuals(report: CalibrationReport) -> Figure:
    """Return the errors of rows by operator and size, unseen where the fit used them."""
    unseen = {"title": "unseen predicted / measured - 1 (%)"}
    figure = blank_figure(xaxis=amount_axis("measured", "s", log=True), yaxis=unseen, height=540)

    def place(row: CalibratedRow) -> tuple[float, float]:
        return row.measured_s, 100.0 * (row.held_out_s / row.measured_s - 1.0)

    add_groups(figure, grouped(report.rows, lambda row: row.family), place, _story)
    return figure.add_hrect(-20.0, 20.0, fillcolor="#dddddd", opacity=0.3, line_width=0)
