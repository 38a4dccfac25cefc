"""Cross-validation of a device fit: folds, held-out predictions, model error per operator type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from npusim.arch.soc import OTHER_OPERATORS
from npusim.calibrate.device.fit import DeviceFit, FitResult
from npusim.calibrate.device.report import CalibratedRow, FamilyError
from npusim.calibrate.device.rows import LAUNCH_ONLY, DeviceRow
from npusim.calibrate.least_squares import Floats

ALL = "all"
_SHRINK = 4.0
"""Weight of all types' pooled variance against a type's own, in rows (shrinkage)."""
_P90 = 1.645
"""90 % of a normal variable lie within so many standard deviations."""


def assign_folds(rows: Sequence[DeviceRow], folds: int, seed: int) -> list[int]:
    """Return the fold of each row.

    Rows of the same network go into one fold, however they were run; networks of a family are spread over all
    folds.
    """
    random = np.random.default_rng(seed)
    families: dict[str, dict[str, None]] = {}
    for row in rows:
        families.setdefault(row.family, {})[row.instance] = None
    fold_of: dict[str, int] = {}
    for family in sorted(families):
        instances = sorted(families[family])
        for i in random.permutation(len(instances)):
            fold_of[instances[i]] = len(fold_of) % folds
    return [fold_of[row.instance] for row in rows]


def held_out(
    fit: DeviceFit,
    best: FitResult,
    folds: Sequence[int],
    progress: Callable[[int, int], None] | None = None,
) -> Floats:
    """Return the logarithm of each row's time as predicted by the fit to the other folds, shape (rows,)."""
    fold_of = np.array(folds)
    found = best.predicted.copy()
    numbers = sorted(set(folds))
    if len(numbers) < 2:
        return found
    for done, number in enumerate(numbers, start=1):
        out = fold_of == number
        logs = fit.refit(best, ~out)
        found[out] = fit.predicted(logs, np.flatnonzero(out).tolist())
        if progress is not None:
            progress(done, len(numbers))
    return found


def model_errors(rows: Sequence[DeviceRow], held_out: Floats) -> dict[str, float]:
    """Return the relative standard deviation of what the equations leave out, by type of operator.

    It is such that 90 % of rows held out of the fit lie within 1.645 of it, without their noise: an
    interval of 90 % made with it holds. Types with few rows are pooled with all rows.
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
    """Return the errors of each family: all rows fitted to, these by family, then the checks."""
    fitted = [row for row in rows if row.fitted]
    checks = [row for row in rows if not row.fitted]
    found = [_errors(ALL, True, fitted)] if fitted else []
    for of, is_fitted in ((fitted, True), (checks, False)):
        for family in dict.fromkeys(row.family for row in of):
            found.append(_errors(family, is_fitted, [row for row in of if row.family == family]))
    return found


_WORSE = 0.02
"""By how much a median error has to grow, beyond the noise of its rows, to be called worse."""


def worse_families(rows: Sequence[CalibratedRow]) -> list[str]:
    """Return a warning where operators or networks are predicted worse than by the data sheet."""
    worse = [
        f"{one.family} {one.before_median:.0%} to {one.held_out_median:.0%}"
        for one in family_errors(rows)
        if one.held_out_median > one.before_median + max(_WORSE, one.noise_median)
    ]
    if not worse:
        return []
    return [
        f"worse than the data sheet (median error on rows that the fit did not see): {', '.join(worse)}; "
        "measure again on a quiet machine, or hold what they rest on (--hold)"
    ]


def _errors(family: str, fitted: bool, rows: Sequence[CalibratedRow]) -> FamilyError:
    def relative_errors(predicted: Iterable[float]) -> Floats:
        return np.abs(np.array([p / row.measured_s for p, row in zip(predicted, rows, strict=True)]) - 1.0)

    unseen = relative_errors(row.held_out_s for row in rows)
    bounded = [row for row in rows if row.interval_s is not None]
    inside = sum(
        row.interval_s[0] <= row.measured_s <= row.interval_s[1] for row in bounded if row.interval_s
    )
    return FamilyError(
        family=family,
        fitted=fitted,
        rows=len(rows),
        before_median=float(np.median(relative_errors(row.before_s for row in rows))),
        after_median=float(np.median(relative_errors(row.after_s for row in rows))),
        held_out_median=float(np.median(unseen)),
        held_out_p90=float(np.quantile(unseen, 0.9)),
        noise_median=float(np.median([row.noise for row in rows])),
        inside=inside if bounded else None,
    )
