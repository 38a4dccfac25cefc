"""Fits a SoC to measurements of one of its devices: files in, a report and a new data sheet out.

>>> from npusim.calibration.device import calibrate
>>> calibrate.__name__
'calibrate'
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml

from npusim import __version__
from npusim.arch import Calibration, Soc, load_soc, sheet_text, with_overrides
from npusim.arch.soc import OTHER_OPERATORS
from npusim.calibration import device_report, device_rows
from npusim.calibration.data_sheet import Edit, FittedNumber, edited, paths_held, quoted, with_numbers
from npusim.calibration.device_fit import IDENTIFIED, NORMAL, DeviceFit, FitResult, half_widths
from npusim.calibration.least_squares import Floats
from npusim.config import validate_data
from npusim.config.reading import compose
from npusim.errors import NpusimError, as_list
from npusim.files import write_whole
from npusim.measuring.document import UNSTEADY_SPREAD, Measurement, merge, read_measurement
from npusim.measuring.models import chip_text, match_device
from npusim.scenario import Network, Scenario
from npusim.studies.perturbation import number_at
from npusim.studies.uncertainty import draw

ALL = "all"
_SHRINK = 4.0  # weight of the pooled variance against a type's own, in rows (shrinkage)
_WORSE = 0.02  # growth of a median error, beyond the noise of its rows, above which it is called worse
_BEFORE = "; before "
_TOGETHER = 0.5  # least correlation of tied errors
_WORTH_WRITING = 0.05  # least correlation that the data sheet keeps
_MOST_TIES = 3
_ONE = 0.8  # correlation from which only the product or sum of two numbers is known
_DESPITE = 0.5  # share of the prior uncertainty up to which a number with such a partner is identified


def assign_folds(rows: Sequence[device_rows.DeviceRow], folds: int, seed: int) -> list[int]:
    """Return the fold of each row.

    All rows of a network share a fold; networks of a family are spread over all folds.
    """
    random = np.random.default_rng(seed)
    fold_of: dict[str, int] = {}
    for family in sorted({row.family for row in rows}):
        instances = sorted({row.instance for row in rows if row.family == family})
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


def model_errors(rows: Sequence[device_rows.DeviceRow], held_out: Floats) -> dict[str, float]:
    """Return the relative standard deviation of what the equations leave out, by type of operator.

    Without their noise, 90 % of the held-out rows lie within 1.645 of it, so that 90 % intervals hold. Types
    with few rows are pooled with all rows.
    """
    residuals = held_out - np.log([row.measured_s for row in rows])
    noise = np.array([row.noise for row in rows])
    working = np.array([row.family != device_rows.LAUNCH_ONLY for row in rows])
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
    width = float(np.quantile(np.abs(residuals), 0.9)) / NORMAL
    return max(0.0, width**2 - float(np.mean(noise**2)))


def family_errors(rows: Sequence[device_report.CalibratedRow]) -> list[device_report.FamilyError]:
    """Return the errors of all fitted rows, of each of their families, and of the checks' families."""
    fitted = [row for row in rows if row.fitted]
    groups = {(True, ALL): fitted} if fitted else {}
    for row in sorted(rows, key=lambda row: not row.fitted):
        groups.setdefault((row.fitted, row.family), []).append(row)
    return [_errors(family, fitted, own) for (fitted, family), own in groups.items()]


def worse_families(rows: Sequence[device_report.CalibratedRow]) -> list[str]:
    """Return a warning where operators or networks are predicted worse than by the data sheet."""
    worse = [
        f"{one.family} {one.before_median:.0%} to {one.held_out_median:.0%}"
        for one in family_errors(rows)
        if one.held_out_median > one.before_median + max(_WORSE, one.noise_median)
    ]
    text = "worse than the data sheet (median error on rows that the fit did not see): "
    remedy = "measure again on a quiet machine, or hold what they rest on (--hold)"
    return [f"{text}{', '.join(worse)}; {remedy}"] if worse else []


def _errors(
    family: str, fitted: bool, rows: Sequence[device_report.CalibratedRow]
) -> device_report.FamilyError:
    seconds = np.array([[row.before_s, row.after_s, row.held_out_s] for row in rows])
    errors = np.abs(seconds / np.array([[row.measured_s] for row in rows]) - 1.0)
    before, after, unseen = np.median(errors, axis=0).tolist()
    bounded = [(row.interval_s, row.measured_s) for row in rows if row.interval_s is not None]
    inside = sum(low <= measured_s <= high for (low, high), measured_s in bounded)
    return device_report.FamilyError(
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


def fitted_parameters(
    fit: DeviceFit, best: FitResult, influence: Floats
) -> list[device_report.FittedParameter]:
    """Return all parameters for the report, the best determined first."""
    widths, fitted = half_widths(fit, best), []
    (below, above), status = widths, statuses(fit, best, widths)
    for j in np.argsort(np.where(best.moving, best.sigma / fit.widths, 10.0), kind="stable"):
        parameter, strength = fit.parameters[j], np.abs(best.correlation[j])
        order = [int(k) for k in np.argsort(-strength) if k != j and strength[k] >= _TOGETHER]
        value = float(np.exp(best.logs[j])) if best.moving[j] else parameter.number.value
        high = min(value * math.exp(above[j]), parameter.number.upper)
        fitted.append(
            device_report.FittedParameter(
                path=parameter.name,
                unit=parameter.unit,
                before=parameter.number.value,
                before_uncertainty=math.sqrt(math.expm1(parameter.number.sigma**2)),
                after=value,
                interval=(value * math.exp(-below[j]), high),
                status=status[j],
                tied_to=[fit.parameters[k].name for k in order[:_MOST_TIES]] if best.moving[j] else [],
                rows=int((influence[:, j] >= device_rows.INFLUENCE).sum()),
                at_bound=parameter.name in best.at_bound,
            )
        )
    return fitted


def statuses(fit: DeviceFit, best: FitResult, widths: Floats) -> list[device_report.Status]:
    """Return what is known of each parameter."""
    alone = np.abs(best.correlation - np.eye(len(best.logs))).max(axis=1, initial=0.0) < _ONE
    share = widths.mean(axis=0) / (NORMAL * fit.widths)
    # Where a partner was well known before, the knowledge of both together determines the other alone.
    clear = share <= np.where(alone, IDENTIFIED, _DESPITE)
    unclear = np.where(alone, "loose", "tied")
    unmoved = np.where(fit.may_move, "not identified", "held")
    statuses: list[device_report.Status] = np.where(
        best.moving, np.where(clear, "identified", unclear), unmoved
    ).tolist()
    return statuses


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
    correlation = best.correlation
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
    data = {"calibration": calibration.model_dump(mode="json")}
    text: str = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=math.inf)
    return text.replace("\n", "  # written by `npusim calibrate`\n", 1)


_MOST_ROUNDS = 3  # largest number of decisions of fusion and residency
_FAR_MOVED = 3.0  # move of a number, in standard deviations of its prior, from which a warning names it

Progress = Callable[[int, int, str], None]
"""Progress callback (done, total, stage)."""


@dataclass(frozen=True, repr=False)
class Calibrated:
    """A fitted SoC; it shows as its report."""

    report: device_report.CalibrationReport
    """Numbers before and after, errors, warnings."""
    text: str
    """The fitted SoC file."""
    soc: Soc
    """The same, loaded."""

    def __repr__(self) -> str:
        return repr(self.report)

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    def write(self, path: str | Path) -> None:
        """Write the fitted SoC as a YAML file, whole or not at all; FileError where that fails."""
        write_whole(Path(path), self.text.encode())


def calibrate(
    soc: str | Path,
    measurements: Measurement | str | Path | Sequence[Measurement | str | Path],
    *,
    name: str | None = None,
    free: str | Sequence[str] = (),
    hold: str | Sequence[str] = (),
    fit_networks: bool = False,
    keep_unsteady: bool = False,
    networks: Mapping[str, Network | Scenario] | None = None,
    force_soc: bool = False,
    folds: int = 5,
    seed: int = 0,
    progress: Progress | None = None,
) -> Calibrated:
    """Fit a SoC to measurements of its NPU, GPU or CPU, and say how far to trust it.

    Numbers that the measurement does not determine stay as they are and are named. The error is reported on
    rows that the fit did not see.

    Parameters
    ----------
    soc : str or Path
        Machine to fit: a name from `npusim list socs` or a SoC YAML.
    measurements : Measurement, str, Path, or a sequence of them
        Measurements that `npusim measure` wrote; several files of one device are joined.
    name : str, optional
        Short name of the fitted SoC. None: that of SOC
    free : sequence of str
        Fit this number, or all below this path, and no others. Repeatable. None: all uncertain numbers of the
        device and the DRAM that bear on a measured row
    hold : sequence of str
        Leave this number, or all below this path, as it is. Repeatable.
    fit_networks : bool
        Fit to whole networks too. By default they are predicted as a check.
    keep_unsteady : bool
        Fit to rows too whose readings spread over more than half of their median: the machine was busy.
    networks : mapping of str to network or Scenario, optional
        Where a model file lies that the measurement names. Repeatable.
    force_soc : bool
        Take the measurement of a chip that is none of this SoC's.
    folds : int
        Parts of the cross-validation.
    seed : int
        Seed of the cross-validation.
    progress : callable, optional
        Called with the fits done and their number.

    Returns
    -------
    Calibrated
        `report`, the fitted `soc` for `estimate`, and `write(path)` for a file of it.

    Raises
    ------
    NpusimError
        Where a file is wrong, or too few rows can be used.

    Command lines
    -------------
        npusim measure --suite default --device CPU -o run.json
        npusim calibrate generic-cpu --measurements run.json -o fitted.yaml --report report.html
        npusim estimate gcn-cora --soc fitted.yaml --device cpu
        npusim calibrate core-ultra-series2 --measurements day1.json day2.json -o fitted.yaml --hold npu.dma
    """
    machine, free, hold = load_soc(soc), as_list(free), as_list(hold)
    files = [measurements] if isinstance(measurements, str | Path | Measurement) else measurements
    sources: dict[str, Path | Scenario] = {
        model: Path(network)
        if isinstance(network, str | Path)
        else (network if isinstance(network, Scenario) else Scenario(network))
        for model, network in (networks or {}).items()
    }
    progress = progress or (lambda done, total, stage: None)
    measurement, names, warnings = _joined(files, machine, force_soc)
    device, chip = measurement.device, chip_text(measurement.device)
    machine, facts = _with_facts(machine, measurement, chip)
    calm, disturbed = (measurement, []) if keep_unsteady else device_rows.calm_rows(measurement, fit_networks)
    rows, unusable = device_rows.map_rows(calm, machine, sources, progress)
    to_fit = [row for row in rows if fit_networks or not row.end_to_end]
    _refuse_too_few(to_fit, [*disturbed, *unusable], names)
    text = sheet_text(soc)
    fit, best, influence, rounds = _converged(machine, device.kind, to_fit, text, free, hold, progress)
    fold_of = assign_folds(to_fit, min(folds, len({row.instance for row in to_fit})), seed)
    unseen = held_out(fit, best, fold_of, progress)
    errors = model_errors(to_fit, unseen)
    section = calibration_of(fit, best, measurement, chip, errors)
    source = f"measured: {len(to_fit)} rows of {chip}, {section.date}, npusim calibrate"
    numbers = fitted_numbers(machine, fit, best, source)
    new_text = fitted_text(text, numbers + facts, section, name)
    fitted_soc = validate_data(compose(new_text, "the fitted SoC"), Soc)
    before = fit.predicted(fit.start)
    predicted = [
        _row(row, np.exp([before[i], best.predicted[i], unseen[i]])) for i, row in enumerate(fit.rows)
    ]
    checks = [row for row in rows if row.end_to_end and not fit_networks]
    predicted += _checks(fitted_soc, checks, progress)
    messages = worse_families(predicted)
    if disturbed:
        messages.append(
            f"the machine was busy: {len(disturbed)} of {len(measurement.rows)} rows spread over more than "
            f"{UNSTEADY_SPREAD:.0%} of their median and are left out; measure again on a quiet machine, or "
            "fit to them with --unsteady"
        )
    messages += warnings
    messages += [f"{fact.path} was set to {fact.value:g}, as {chip} tells of itself" for fact in facts]
    report = device_report.CalibrationReport(
        npusim=__version__,
        soc=machine.name,
        soc_title=machine.title,
        output=None,
        device=device.kind,
        chip=chip,
        environment=device.model_dump(mode="json"),
        date=section.date,
        files=names,
        rows_fitted=len(to_fit),
        folds=len(set(fold_of)),
        seed=seed,
        rounds=rounds,
        noise=section.noise,
        residual=best.model_error,
        model_error=errors,
        parameters=fitted_parameters(fit, best, influence),
        families=family_errors(predicted),
        rows=predicted,
        left_out=[*disturbed, *unusable],
        facts={fact.path: f"{fact.value:g}" for fact in facts},
        warnings=list(dict.fromkeys([*messages, *_far_numbers(fit, best)])),
    )
    return Calibrated(report, new_text, fitted_soc)


def _joined(
    measurements: Sequence[str | Path | Measurement], machine: Soc, force_soc: bool
) -> tuple[Measurement, list[str], list[str]]:
    """Return the measurements of one device as one, their names, and warnings."""
    places = [
        f"measurement {number}" if isinstance(source, Measurement) else str(source)
        for number, source in enumerate(measurements, start=1)
    ]
    sheets = [s if isinstance(s, Measurement) else read_measurement(s) for s in measurements]
    pairs = zip(sheets, places, strict=True)
    warnings = [text for sheet, place in pairs for text in match_device(sheet, machine, place, force_soc)]
    measurement = merge(sheets, places)
    warnings += measurement.warnings
    if not measurement.complete:
        warnings.append("the measurement was interrupted: not all rows are there")
    return measurement, [Path(place).name for place in places], warnings


def _with_facts(soc: Soc, measurement: Measurement, chip: str) -> tuple[Soc, list[FittedNumber]]:
    """Return a generic SoC with the threads and caches that the device reports, and these numbers."""
    device = measurement.device
    if device.kind in soc.chips or device.kind != "cpu" or device.cores is None:
        return soc, []
    home = next(name for name, other in soc.devices.items() if other.kind == device.kind)
    numbers = [("cores", int(soc.cpu.cores), device.cores, "")]
    if len(device.cache_bytes) == len(soc.cpu.caches):
        for (name, cache), size in zip(soc.cpu.caches.items(), device.cache_bytes, strict=True):
            numbers.append((f"caches.{name}.size", int(cache.size), size, "B"))
    source = f"measured: {chip}, as its driver tells"
    facts = [
        FittedNumber(f"{home}.{path}", float(value), unit, None, source, True)
        for path, before, value, unit in numbers
        if before != value
    ]
    settings: dict[str, str | int] = {
        fact.path: f"{fact.value:.0f} {fact.unit}" if fact.unit else int(fact.value) for fact in facts
    }
    return (with_overrides(soc, settings) if facts else soc), facts


def _refuse_too_few(
    rows: Sequence[device_rows.DeviceRow], left_out: Sequence[device_report.SkippedRow], names: Sequence[str]
) -> None:
    if len({row.instance for row in rows}) >= 2:
        return
    why = f"; {len(left_out)} left out, the first: {left_out[0].id}: {left_out[0].reason}" if left_out else ""
    raise NpusimError(
        f"{', '.join(names)}: found {len(rows)} rows to fit to{why}; allowed: at least 2 different ones; "
        "measure the default suite (npusim measure --suite default), or add --fit-networks"
    )


def _converged(
    soc: Soc,
    kind: str,
    rows: list[device_rows.DeviceRow],
    text: str,
    free: Sequence[str],
    hold: Sequence[str],
    progress: Progress,
) -> tuple[DeviceFit, FitResult, Floats, int]:
    """Fit, and repeat with fusion and residency decided on the fitted machine until they no longer change."""
    full, listed = device_rows.candidates(soc, kind, [row.mapped for row in rows])
    listed, may_move = device_rows.chosen(soc, listed, free, hold)
    may_move &= paths_held(text, [p.name for p in listed if p.in_file])
    start: Floats | None = None
    for number in range(1, _MOST_ROUNDS + 1):
        fit = DeviceFit(full, rows, listed, may_move)
        influence = fit.find_influence(fit.start)
        informative = influence.max(axis=0) >= device_rows.INFLUENCE
        informative |= np.array([p.name in may_move and bool(free) for p in listed], bool)
        fit, influence = fit.restricted(informative), influence[:, informative]
        if not fit.may_move.any():
            raise NpusimError(
                "no number is left to fit: none that may move bears on a measured row; see --free and --hold"
            )
        best = fit.fit(start if start is not None and len(start) == len(fit.parameters) else None)
        progress(number, _MOST_ROUNDS, "rounds of the fit")
        again = device_rows.remapped(rows, fit.machine(best.logs))
        unchanged = all(a.mapped.decisions == b.mapped.decisions for a, b in zip(rows, again, strict=True))
        if number == _MOST_ROUNDS or unchanged:
            break
        rows, start = again, best.logs
    return fit, best, influence, number


def _row(
    row: device_rows.DeviceRow, seconds: Floats, interval: tuple[float, float] | None = None
) -> device_report.CalibratedRow:
    """Return a row of the report; seconds before the fit, after it, and held out. Checks have an interval."""
    before, after, unseen = seconds.tolist()
    return device_report.CalibratedRow(
        id=row.row.id,
        family=row.family,
        what=row.text,
        hint=row.row.hint,
        requests=row.row.requests,
        figure="interval" if row.row.is_interval else "latency",
        fitted=interval is None,
        measured_s=row.measured_s,
        noise=row.noise,
        before_s=before,
        after_s=after,
        held_out_s=unseen,
        interval_s=interval,
    )


def _checks(
    sheet: Soc, rows: Sequence[device_rows.DeviceRow], progress: Progress
) -> Iterator[device_report.CalibratedRow]:
    """Yield rows that were not fitted to, as the fitted SoC predicts them."""
    for number, (row, again) in enumerate(zip(rows, device_rows.remapped(rows, sheet), strict=True), start=1):
        before, after = (one.seconds(one.mapped.total) for one in (row, again))
        draws = draw([again.mapped])
        spread = (draws.interval_s if row.row.is_interval else draws.latency_s)[0]
        # The noise of the measurement widens the interval of the machine.
        low, high = np.log(np.percentile(spread, [5.0, 95.0]) / after)
        low, high = after * np.exp([-np.hypot(low, NORMAL * row.noise), np.hypot(high, NORMAL * row.noise)])
        yield _row(row, np.array([before, after, after]), (float(low), float(high)))
        progress(number, len(rows), "networks predicted")


def _far_numbers(fit: DeviceFit, best: FitResult) -> list[str]:
    """Return warnings about numbers at their bounds, and numbers far from their priors."""
    warnings = [
        f"{name} ran into the bound of what its kind allows: another number is off, or the equations"
        for name in best.at_bound
    ]
    moves = np.abs(best.logs - fit.start) / fit.widths
    return warnings + [
        f"{parameter.name} moved by {move:.1f} times the uncertainty that the data sheet states"
        for parameter, move in zip(fit.parameters, moves, strict=True)
        if move > _FAR_MOVED
    ]
