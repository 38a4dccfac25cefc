"""Results of a calibration: held-out predictions and errors, error bars, the new data sheet."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
import yaml

from npusim.arch import Calibration, Soc
from npusim.arch.soc import OTHER_OPERATORS
from npusim.calibration.data_sheet import Edit, FittedNumber, edited, quoted, with_numbers
from npusim.calibration.device_fit import IDENTIFIED, NORMAL, DeviceFit, FitResult, half_widths
from npusim.calibration.device_report import CalibratedRow, FamilyError, FittedParameter, Status
from npusim.calibration.device_rows import INFLUENCE, LAUNCH_ONLY, DeviceRow
from npusim.calibration.least_squares import Floats
from npusim.measuring.document import Measurement
from npusim.studies.perturbation import number_at

ALL = "all"
_SHRINK = 4.0  # weight of the pooled variance against a type's own, in rows (shrinkage)
_P90 = 1.645  # 90 % of a normal variable lie within so many standard deviations
_WORSE = 0.02  # growth of a median error, beyond the noise of its rows, above which it is called worse
_BEFORE = "; before "
_TOGETHER = 0.5  # least correlation of tied errors
_WORTH_WRITING = 0.05  # least correlation that the data sheet keeps
_MOST_TIES = 3
_ONE = 0.8  # correlation from which only the product or sum of two numbers is known
_DESPITE = 0.5  # share of the prior uncertainty up to which a number with such a partner is identified


def assign_folds(rows: Sequence[DeviceRow], folds: int, seed: int) -> list[int]:
    """Return the fold of each row.

    All rows of a network share a fold; networks of a family are spread over all folds.
    """
    random = np.random.default_rng(seed)
    families: dict[str, set[str]] = {}
    for row in rows:
        families.setdefault(row.family, set()).add(row.instance)
    fold_of: dict[str, int] = {}
    for _, members in sorted(families.items()):
        instances = sorted(members)
        for i in random.permutation(len(instances)):
            fold_of[instances[i]] = len(fold_of) % folds
    return [fold_of[row.instance] for row in rows]


def held_out(
    fit: DeviceFit, best: FitResult, folds: Sequence[int], progress: Callable[[int, int, str], None]
) -> Floats:
    """Return the logarithm of each row's time as predicted by the fit to the other folds, shape (rows,)."""
    fold_of = np.array(folds)
    predicted = best.predicted.copy()
    numbers = sorted(set(folds))
    if len(numbers) < 2:
        return predicted
    for done, number in enumerate(numbers, start=1):
        out = fold_of == number
        logs = fit.solve(best.logs, best.moving, best.model_error, ~out)
        predicted[out] = fit.predicted(logs, np.flatnonzero(out).tolist())
        progress(done, len(numbers), "folds")
    return predicted


def model_errors(rows: Sequence[DeviceRow], held_out: Floats) -> dict[str, float]:
    """Return the relative standard deviation of what the equations leave out, by type of operator.

    Without their noise, 90 % of the held-out rows lie within 1.645 of it, so that 90 % intervals hold. Types
    with few rows are pooled with all rows.
    """
    residuals = held_out - np.log([row.measured_s for row in rows])
    noise = np.array([row.noise for row in rows])
    working = np.array([row.family != LAUNCH_ONLY for row in rows])
    kinds = np.array([row.type for row in rows])
    pooled = _variance(residuals[working], noise[working]) if working.any() else 0.0
    errors = {}
    for kind in sorted(set(kinds[working].tolist())):
        mine = (kinds == kind) & working
        count = int(mine.sum())
        variance = (count * _variance(residuals[mine], noise[mine]) + _SHRINK * pooled) / (count + _SHRINK)
        errors[kind] = round(float(np.sqrt(variance)), 4)
    # Operators that were not measured may be as far off as the worst measured ones.
    errors[OTHER_OPERATORS] = max([round(float(np.sqrt(pooled)), 4), *errors.values()])
    return errors


def _variance(residuals: Floats, noise: Floats) -> float:
    width = float(np.quantile(np.abs(residuals), 0.9)) / _P90
    return max(0.0, width**2 - float(np.mean(noise**2)))


def family_errors(rows: Sequence[CalibratedRow]) -> list[FamilyError]:
    """Return the errors of all fitted rows, of each of their families, and of the checks' families."""
    members: dict[tuple[bool, str], list[CalibratedRow]] = {}
    for row in sorted(rows, key=lambda row: not row.fitted):
        if row.fitted:
            members.setdefault((True, ALL), []).append(row)
        members.setdefault((row.fitted, row.family), []).append(row)
    return [_errors(family, fitted, own) for (fitted, family), own in members.items()]


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
    seconds = np.array([[row.before_s, row.after_s, row.held_out_s] for row in rows])
    errors = np.abs(seconds / np.array([[row.measured_s] for row in rows]) - 1.0)
    before, after, unseen = np.median(errors, axis=0).tolist()
    bounded = [(row.interval_s, row.measured_s) for row in rows if row.interval_s is not None]
    inside = sum(low <= measured_s <= high for (low, high), measured_s in bounded)
    return FamilyError(
        family=family,
        fitted=fitted,
        rows=len(rows),
        before_median=before,
        after_median=after,
        held_out_median=unseen,
        held_out_p90=float(np.quantile(errors[:, 2], 0.9)),
        noise_median=float(np.median([row.noise for row in rows])),
        inside=inside if bounded else None,
    )


def _correlation(best: FitResult) -> Floats:
    sigma = np.maximum(best.sigma, 1e-300)
    correlation: Floats = best.covariance / np.outer(sigma, sigma)
    return np.clip(correlation, -1.0, 1.0)


def fitted_parameters(fit: DeviceFit, best: FitResult, influence: Floats) -> list[FittedParameter]:
    """Return all parameters for the report, the best determined first."""
    correlation, widths = _correlation(best), half_widths(fit, best)
    (below, above), status = widths, statuses(fit, best, widths)
    fitted = []
    for j in np.argsort(np.where(best.moving, best.sigma / fit.widths, 10.0), kind="stable"):
        parameter = fit.parameters[j]
        value = float(np.exp(best.logs[j])) if best.moving[j] else parameter.number.value
        high = min(value * math.exp(above[j]), parameter.number.upper)
        fitted.append(
            FittedParameter(
                path=parameter.name,
                unit=parameter.unit,
                before=parameter.number.value,
                before_uncertainty=math.sqrt(math.expm1(parameter.number.sigma**2)),
                after=value,
                interval=(value * math.exp(-below[j]), high),
                status=status[j],
                tied_to=_ties(fit, correlation, int(j)) if best.moving[j] else [],
                rows=int((influence[:, j] >= INFLUENCE).sum()),
                at_bound=parameter.name in best.at_bound,
            )
        )
    return fitted


def statuses(fit: DeviceFit, best: FitResult, widths: Floats) -> list[Status]:
    """Return what is known of each parameter."""
    alone = np.abs(_correlation(best) - np.eye(len(best.logs))).max(axis=1, initial=0.0) < _ONE
    share = widths.mean(axis=0) / (NORMAL * fit.widths)
    # Where a partner was well known before, the knowledge of both together determines the other alone.
    clear = share <= np.where(alone, IDENTIFIED, _DESPITE)
    result: list[Status] = []
    for moves, free, is_clear, is_alone in zip(best.moving, fit.may_move, clear, alone, strict=True):
        if moves:
            result.append("identified" if is_clear else "loose" if is_alone else "tied")
        else:
            result.append("not identified" if free else "held")
    return result


def _ties(fit: DeviceFit, correlation: Floats, j: int) -> list[str]:
    """Return the numbers whose errors correlate most with a fitted number's."""
    strength = np.abs(correlation[j])
    order = [int(k) for k in np.argsort(-strength) if k != j and strength[k] >= _TOGETHER]
    return [fit.parameters[k].name for k in order[:_MOST_TIES]]


def fitted_numbers(soc: Soc, fit: DeviceFit, best: FitResult, source: str) -> list[FittedNumber]:
    """Return the fitted numbers as the data sheet holds them."""
    sigmas = np.minimum(best.sigma * best.quantile / NORMAL, 2.0)
    numbers = []
    for j in np.flatnonzero(best.moving):
        parameter = fit.parameters[j]
        held: Any = number_at(soc, parameter.number.path)
        value, relative = float(np.exp(best.logs[j])), math.sqrt(math.expm1(float(sigmas[j]) ** 2))
        origin = source_after(source, held.text, held.source)
        numbers.append(FittedNumber(parameter.name, value, parameter.unit, relative, origin, True))
    return numbers


def calibration_of(
    fit: DeviceFit, best: FitResult, measurement: Measurement, chip: str, errors: dict[str, float]
) -> Calibration:
    """Return the calibration section of the fitted SoC: measurement, model error, correlations."""
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
    """Return the source of a fitted number: the measurement, and its value and source before.

    A number that was calibrated before keeps its first source.
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
    entries = {key.value: (key, value) for key, value in root.value}
    block = _block(calibration)
    edits: list[Edit] = []
    if "calibration" in entries:
        key, value = entries["calibration"]
        edits.append((key.start_mark.index, value.end_mark.index, block))
    else:
        edits.append((len(text), len(text), ("" if text.endswith("\n") else "\n") + "\n" + block))
    if name is not None:
        value = entries["name"][1]
        edits.append((value.start_mark.index, value.end_mark.index, quoted(_clean(name))))
    return edited(text, edits)


def _block(calibration: Calibration) -> str:
    errors = ", ".join(f"{name}: {share:.4f}" for name, share in calibration.model_error.items())
    lines = [
        "calibration:                                    # written by `npusim calibrate`",
        f"  device: {calibration.device}",
        f"  chip: {quoted(_clean(calibration.chip))}",
        f"  date: {quoted(_clean(calibration.date))}",
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
