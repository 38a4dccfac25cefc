"""Residual errors of a fit: predictions of unseen rows, and model error per operator type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from npusim.arch.calibration import OTHER_OPERATORS
from npusim.calibrate.device.report import CalibratedRow, FamilyError
from npusim.calibrate.device.rows import LAUNCH_ONLY, DeviceRow
from npusim.calibrate.device.times import Floats

__all__ = ["ALL", "family_errors", "model_errors"]

ALL = "all"
_SHRINK = 4.0
"""A type's own rows weigh against so many rows of all types."""
_P90 = 1.645
"""90 % of a normal variable lie within so many standard deviations."""


def model_errors(rows: Sequence[DeviceRow], held_out: Floats) -> dict[str, float]:
    """Return the relative standard deviation of what the equations leave out, by type of operator.

    It is such that 90 % of rows held out of the fit lie within 1.645 of it, their noise taken off: an
    interval of 90 % made with it holds. Types with few rows lean on all rows.

    Parameters
    ----------
    rows : sequence of DeviceRow
    held_out : array, shape (rows,)
        Logarithms of their predicted times, from fits that did not see them.
    """
    residuals = held_out - np.log([row.measured_s for row in rows])
    noise = np.array([row.noise for row in rows])
    kinds = [row.type for row in rows]
    working = np.array([row.family != LAUNCH_ONLY for row in rows])
    pooled = _variance(residuals[working], noise[working]) if working.any() else 0.0
    found = {}
    for kind in sorted({kind for kind, works in zip(kinds, working, strict=True) if works}):
        mine = np.array([one == kind for one in kinds]) & working
        count = int(mine.sum())
        variance = (count * _variance(residuals[mine], noise[mine]) + _SHRINK * pooled) / (count + _SHRINK)
        found[kind] = round(float(np.sqrt(variance)), 4)
    # What was not measured may be as far off as the worst of what was.
    found[OTHER_OPERATORS] = max([round(float(np.sqrt(pooled)), 4), *found.values()])
    return found


def _variance(residuals: Floats, noise: Floats) -> float:
    width = float(np.quantile(np.abs(residuals), 0.9)) / _P90
    return max(0.0, width**2 - float(np.mean(noise**2)))


def family_errors(rows: Sequence[CalibratedRow]) -> list[FamilyError]:
    """Return the errors of each family, rows that were fitted to first, then the checks; the first line is
    all rows fitted to.
    """
    fitted = [row for row in rows if row.fitted]
    checks = [row for row in rows if not row.fitted]
    found = [_errors(ALL, True, fitted)] if fitted else []
    for of, is_fitted in ((fitted, True), (checks, False)):
        for family in dict.fromkeys(row.family for row in of):
            found.append(_errors(family, is_fitted, [row for row in of if row.family == family]))
    return found


def _errors(family: str, fitted: bool, rows: Sequence[CalibratedRow]) -> FamilyError:
    def off(predicted: Iterable[float]) -> Floats:
        return np.abs(np.array([p / row.measured_s for p, row in zip(predicted, rows, strict=True)]) - 1.0)

    unseen = off(row.held_out_s for row in rows)
    bounded = [row for row in rows if row.interval_s is not None]
    inside = sum(
        row.interval_s[0] <= row.measured_s <= row.interval_s[1] for row in bounded if row.interval_s
    )
    return FamilyError(
        family=family,
        fitted=fitted,
        rows=len(rows),
        before_median=float(np.median(off(row.before_s for row in rows))),
        after_median=float(np.median(off(row.after_s for row in rows))),
        held_out_median=float(np.median(unseen)),
        held_out_p90=float(np.quantile(unseen, 0.9)),
        noise_median=float(np.median([row.noise for row in rows])),
        inside=inside if bounded else None,
    )
