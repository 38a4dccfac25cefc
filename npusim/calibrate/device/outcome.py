"""Results of a calibration: fitted numbers with error bars and status, and the new data sheet."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from statistics import median
from typing import Any, Literal

import numpy as np
import yaml

from npusim.arch import Calibration, Soc
from npusim.calibrate.data_sheet import FittedNumber, quoted, with_numbers
from npusim.calibrate.device.fit import IDENTIFIED, DeviceFit, FitResult
from npusim.calibrate.device.intervals import NORMAL, half_widths, quantile_of
from npusim.calibrate.device.report import FittedParameter
from npusim.calibrate.least_squares import Floats
from npusim.measure.document import Measurement
from npusim.studies.perturbation import number_at

_BEFORE = "; before "
_TOGETHER = 0.5
"""Correlation from which two errors are called tied."""
_WORTH_WRITING = 0.05
"""Correlation from which it is written down."""
_MOST_TIES = 3
_ONE = 0.8
"""Correlation from which two numbers are known only together: their product, their sum."""

_DESPITE = 0.5
"""Share of the uncertainty beforehand up to which a number is identified although it goes with another."""

Status = Literal["identified", "tied", "loose", "not identified", "held"]


def _correlation(best: FitResult) -> Floats:
    sigma = np.maximum(best.sigma, 1e-300)
    found: Floats = best.covariance / np.outer(sigma, sigma)
    return np.clip(found, -1.0, 1.0)


def fitted_parameters(
    fit: DeviceFit, best: FitResult, influence: Floats, affects: float
) -> list[FittedParameter]:
    """Return all parameters for the report, the best determined first.

    Parameters
    ----------
    affects : float
        Change of the logarithm of a time from which a parameter affects a row.
    """
    correlation, widths = _correlation(best), half_widths(fit, best)
    (below, above), status = widths, statuses(fit, best, widths)
    found = []
    for j in np.argsort(np.where(best.moving, best.sigma / fit.widths, 10.0), kind="stable"):
        parameter = fit.parameters[j]
        value = float(np.exp(best.logs[j])) if best.moving[j] else parameter.number.value
        high = min(value * math.exp(above[j]), parameter.number.upper)
        found.append(
            FittedParameter(
                path=parameter.name,
                unit=parameter.unit,
                before=parameter.number.value,
                before_uncertainty=math.sqrt(math.expm1(parameter.number.sigma**2)),
                after=value,
                interval=(value * math.exp(-below[j]), high),
                status=status[j],
                tied_to=_ties(fit, best, correlation, int(j)),
                rows=int((influence[:, j] >= affects).sum()),
                at_bound=parameter.name in best.at_bound,
            )
        )
    return found


def statuses(fit: DeviceFit, best: FitResult, widths: Floats) -> list[Status]:
    """Return what is known of each parameter."""
    alone = np.abs(_correlation(best) - np.eye(len(best.logs))).max(axis=1, initial=0.0) < _ONE
    share = widths.mean(axis=0) / (NORMAL * fit.widths)
    # Where a partner was well known beforehand, what is known of both together tells of the other alone.
    clear = np.where(alone, share <= IDENTIFIED, share <= _DESPITE)
    found: list[Status] = []
    for moves, free, is_clear, is_alone in zip(best.moving, fit.may_move, clear, alone, strict=True):
        if moves:
            found.append("identified" if is_clear else "loose" if is_alone else "tied")
        else:
            found.append("not identified" if free else "held")
    return found


def _ties(fit: DeviceFit, best: FitResult, correlation: Floats, j: int) -> list[str]:
    """Return the numbers whose errors correlate most with a fitted number's."""
    if not best.moving[j]:
        return []
    strength = np.abs(correlation[j])
    order = [int(k) for k in np.argsort(-strength) if k != j and strength[k] >= _TOGETHER]
    return [fit.parameters[k].name for k in order[:_MOST_TIES]]


def fitted_numbers(soc: Soc, fit: DeviceFit, best: FitResult, source: str) -> list[FittedNumber]:
    """Return the numbers that moved, as the data sheet shall hold them."""
    half = best.sigma * quantile_of(best)
    found = []
    for j in np.flatnonzero(best.moving):
        parameter = fit.parameters[j]
        held: Any = number_at(soc, parameter.number.path)
        sigma = float(half[j]) / NORMAL
        found.append(
            FittedNumber(
                path=parameter.name,
                value=float(np.exp(best.logs[j])),
                unit=parameter.unit,
                relative_sigma=math.sqrt(math.expm1(min(sigma, 2.0) ** 2)),
                source=source_after(source, held.text, held.source),
                on_silicon=True,
            )
        )
    return found


def calibration_of(
    fit: DeviceFit, best: FitResult, measurement: Measurement, chip: str, errors: dict[str, float]
) -> Calibration:
    """Return the section that the fitted SoC keeps: what was measured, model error, correlations."""
    correlation = _correlation(best)
    linked = np.abs(correlation) >= _WORTH_WRITING
    np.fill_diagonal(linked, False)
    written = [int(j) for j in np.flatnonzero(best.moving | linked.any(axis=0))]
    return Calibration(
        device=measurement.device.kind,
        chip=chip,
        date=measurement.date or "unknown",
        rows=len(fit.rows),
        noise=round(median(row.noise for row in fit.rows), 4),
        model_error=errors,
        parameters=[fit.parameters[j].name for j in written],
        correlation=[
            [1.0 if k == j else round(float(correlation[j, k]), 3) for k in written[: place + 1]]
            for place, j in enumerate(written)
        ],
    )


def source_after(measured: str, before: str, source: str) -> str:
    """Return the source of a fitted number: what was measured, and where the number stood before.

    Parameters
    ----------
    before : str
        Its value before, with unit.
    source : str
        Its source before; of a number that was calibrated already, the one it had at first is kept.
    """
    if source.startswith("measured: ") and _BEFORE in source:
        return f"{_clean(measured)}{_BEFORE}{source.split(_BEFORE, 1)[1]}"
    return _clean(f"{measured}{_BEFORE}{before}, {source}")


def _clean(text: str) -> str:
    """Return a text that can stand between double quotes on one line."""
    return re.sub(r"\s+", " ", text.replace("\\", "/").replace('"', "'"))


def fitted_text(
    text: str, numbers: Sequence[FittedNumber], calibration: Calibration, name: str | None = None
) -> str:
    """Return a SoC file with fitted numbers and its calibration."""
    text = with_numbers(text, numbers)
    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    found = {key.value: (key, value) for key, value in root.value}
    edits: list[tuple[int, int, str]] = []
    block = _block(calibration)
    if "calibration" in found:
        key, value = found["calibration"]
        edits.append((key.start_mark.index, value.end_mark.index, block))
    else:
        edits.append((len(text), len(text), ("" if text.endswith("\n") else "\n") + "\n" + block))
    if name is not None:
        value = found["name"][1]
        edits.append((value.start_mark.index, value.end_mark.index, _quoted(name)))
    for begin, end, new in sorted(edits, reverse=True):
        text = text[:begin] + new + text[end:]
    return text


def _block(calibration: Calibration) -> str:
    errors = ", ".join(f"{name}: {share:.4f}" for name, share in calibration.model_error.items())
    lines = [
        "calibration:                                    # written by `npusim calibrate`",
        f"  device: {calibration.device}",
        f"  chip: {_quoted(calibration.chip)}",
        f"  date: {_quoted(calibration.date)}",
        f"  rows: {calibration.rows}",
        f"  noise: {calibration.noise:.4f}",
        f"  model_error: {{{errors}}}",
    ]
    if calibration.parameters:
        lines += ["  parameters:", *(f"    - {path}" for path in calibration.parameters), "  correlation:"]
        lines += [f"    - [{_numbers(row)}]" for row in calibration.correlation]
    return "\n".join(lines) + "\n"


def _numbers(row: Sequence[float]) -> str:
    return ", ".join(f"{float(value):.3f}".replace("-0.000", "0.000") for value in row)


def _quoted(text: str) -> str:
    return quoted(_clean(text))
