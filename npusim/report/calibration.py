"""A calibration as a page for the terminal: numbers that moved, that stayed, and the errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from npusim.report.engineering import engineering
from npusim.report.terminal import headed, remarks

if TYPE_CHECKING:
    from npusim.calibrate.device_report import CalibrationReport, FamilyError, FittedParameter

FITTED = ("identified", "tied", "loose")
"""What a number that moved is called."""
_MOST_LEFT_OUT = 5
_MOST_TIED = 3
_PREFIXED = ("Hz", "B/s", "s", "B")
"""Units that take a prefix of a thousand."""


def calibration_page(found: CalibrationReport, output: str | None = None) -> RenderableType:
    """Return a calibration for the terminal; `output` is the fitted SoC file as it was named."""
    head = Text(f"{found.soc}, {found.device}", style="bold")
    head.append(f" fitted to {found.rows_fitted} rows of ", style="dim")
    head.append(found.chip, style="bold")
    head.append(
        f"\nnoise {percent_text(found.noise)}; left beyond the noise {percent_text(found.residual)}",
        style="dim",
    )
    parts: list[RenderableType] = [head, Text()]
    if found.warnings:
        parts += [remarks(("Warning", "bold yellow", found.warnings)), Text()]
    parts.append(_numbers(found.parameters))
    stayed = [p for p in found.parameters if p.status not in FITTED]
    if stayed:
        parts += [Text(), _stayed(stayed)]
    parts += [Text(), _errors(found.families)]
    foot = remarks(
        ("Note", "dim", _notes(found)),
        ("Next", "dim", [] if output is None else [f"npusim estimate WORKLOAD --soc {output}"]),
    )
    if foot.row_count:
        parts += [Text(), foot]
    return Group(*parts)


def value_text(value: float, unit: str) -> str:
    """Return a number of a data sheet with three digits."""
    return engineering(value, unit) if unit in _PREFIXED else f"{value:.3g} {unit}".strip()


def interval_text(interval: tuple[float, float], unit: str) -> str:
    """Return an interval of a number of a data sheet."""
    if unit in _PREFIXED:
        low, high = (engineering(value, unit) for value in interval)
        return f"[{low}, {high}]"
    return f"[{interval[0]:.3g}, {interval[1]:.3g}] {unit}".strip()


def _around(p: FittedParameter) -> str:
    """Return an interval as what may be missing and what may be too much, relative to the value."""
    low, high = (100.0 * (bound / p.after - 1.0) for bound in p.interval)
    return f"{low:+.0f} {high:+.0f} %"


def percent_text(part: float) -> str:
    """Return a part in percent, two digits."""
    return f"{100 * part:.2g} %" if part < 0.995 else f"{100 * part:.0f} %"


def _numbers(parameters: Sequence[FittedParameter]) -> RenderableType:
    fitted = [p for p in parameters if p.status in FITTED]
    if not fitted:
        return Text("No number moved: the measurement determines none better than the data sheet does.")
    table = headed("fitted", "before", "after", "90 % interval", overflow="fold")
    for p in fitted:
        table.add_row(
            Text(p.path, style="cyan"),
            value_text(p.before, p.unit if p.unit in _PREFIXED else ""),
            value_text(p.after, p.unit),
            _around(p),
        )
    tied = [
        f"{p.path} only with {', '.join(p.tied_to[:_MOST_TIED])}"
        for p in fitted
        if p.status == "tied" and p.tied_to
    ]
    loose = [f"{p.path}: the value before is ruled out" for p in fitted if p.status == "loose"]
    marks = remarks(("tied", "yellow", tied), ("loose", "yellow", loose))
    return Group(table, marks) if marks.row_count else table


def _stayed(parameters: Sequence[FittedParameter]) -> RenderableType:
    open_ = [p.path for p in parameters if p.status == "not identified"]
    held = [p.path for p in parameters if p.status == "held"]
    return remarks(
        ("not identified, as before", "dim", [", ".join(open_)] if open_ else []),
        ("held", "dim", [", ".join(held)] if held else []),
    )


def _errors(families: Sequence[FamilyError]) -> RenderableType:
    table = headed(
        "errors, median", "rows", "before", "after", "unseen", "p90", "noise", "in 90 %", overflow="fold"
    )
    checks = False
    for family in families:
        if not family.fitted and not checks:
            checks = True
            table.add_row(Text("end to end, not fitted", style="dim"))
        table.add_row(
            Text(family.family, style="cyan"),
            str(family.rows),
            *(
                percent_text(value)
                for value in (
                    family.before_median,
                    family.after_median,
                    family.held_out_median,
                    family.held_out_p90,
                    family.noise_median,
                )
            ),
            "" if family.inside is None else f"{family.inside} of {family.rows}",
        )
    return table


def _notes(found: CalibrationReport) -> list[str]:
    lines = [
        f"unseen: predicted by fits to the other of {found.folds} folds; p90: 90 % of those err less",
    ]
    checks = [row for row in found.rows if not row.fitted]
    if checks:
        worst = max(checks, key=lambda row: abs(row.after_s / row.measured_s - 1.0))
        lines.append(
            f"farthest off end to end: {worst.what}, measured {engineering(worst.measured_s, 's')}, "
            f"predicted {engineering(worst.after_s, 's')}"
        )
    for row in found.left_out[:_MOST_LEFT_OUT]:
        lines.append(f"left out: {row.id}: {row.reason}")
    if len(found.left_out) > _MOST_LEFT_OUT:
        lines.append(f"left out: {len(found.left_out) - _MOST_LEFT_OUT} more rows")
    return lines
