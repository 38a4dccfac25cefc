"""Fits a SoC to measurements of one of its devices: files in, a report and a new data sheet out.

>>> from npusim.calibration.device import calibrate
>>> calibrate.__name__
'calibrate'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npusim import __version__
from npusim.arch import Soc, load_soc, sheet_text, with_overrides
from npusim.calibration.data_sheet import FittedNumber, paths_held
from npusim.calibration.device_fit import DeviceFit, FitResult
from npusim.calibration.device_outcome import (
    assign_folds,
    calibration_of,
    family_errors,
    fitted_numbers,
    fitted_parameters,
    fitted_text,
    held_out,
    model_errors,
    worse_families,
)
from npusim.calibration.device_report import CalibratedRow, CalibrationReport, SkippedRow
from npusim.calibration.device_rows import (
    INFLUENCE,
    DeviceRow,
    calm_rows,
    candidates,
    chosen,
    map_rows,
    remapped,
)
from npusim.calibration.least_squares import Floats
from npusim.config import validate_data
from npusim.config.reading import compose
from npusim.errors import NpusimError
from npusim.files import write_whole
from npusim.measuring.document import UNSTEADY_SPREAD, Measurement, merge, read_measurement
from npusim.measuring.models import Sources
from npusim.measuring.predicting import chip_text, match_device
from npusim.studies.uncertainty import draw

_MOST_ROUNDS = 3  # largest number of decisions of fusion and residency
_NORMAL = 1.645  # half a 90 % interval of a normal variable, in standard deviations
_FAR_MOVED = 3.0  # move of a number, in standard deviations of its prior, from which a warning names it

Progress = Callable[[int, int, str], None]
"""Progress callback (done, total, stage)."""


@dataclass(frozen=True)
class FitOptions:
    """How a device is fitted."""

    free: Sequence[str] = ()
    """Paths of numbers or sections that alone are fitted; none: all."""
    hold: Sequence[str] = ()
    """Paths of numbers or sections that stay as they are."""
    folds: int = 5
    """Folds of the cross-validation."""
    seed: int = 0
    """Seed of its folds."""
    force_soc: bool = False
    """Accept a measurement of another chip."""
    fit_networks: bool = False
    """Fit to whole networks too, instead of predicting them as a check."""
    keep_unsteady: bool = False
    """Fit also to rows whose readings spread over more than half of their median."""
    name: str | None = None
    """Short name of the fitted SoC; default: the parent's."""


@dataclass(frozen=True, repr=False)
class Calibrated:
    """A fitted SoC; it shows as its report."""

    report: CalibrationReport
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


@dataclass(frozen=True)
class _Converged:
    """A converged fit: its result, the influence of each number on each row, and the rounds that it took."""

    fit: DeviceFit
    best: FitResult
    influence: Floats
    rounds: int


def calibrate(
    soc: str | Path,
    measurements: Sequence[str | Path | Measurement],
    options: FitOptions | None = None,
    *,
    files: Sources | None = None,
    progress: Progress | None = None,
) -> Calibrated:
    """Fit a SoC to measurements of one of its devices.

    Parameters
    ----------
    measurements : sequence of str, Path or Measurement
        Results or files of `npusim measure`, all of one device.
    files : Sources, optional
        Model files and networks of Python, by their name in the measurement.

    Raises
    ------
    NpusimError
        Where a file is wrong, the SoC has no such device, no row can be used, or a path is unknown.
    """
    options, machine = options or FitOptions(), load_soc(soc)
    progress = progress or (lambda done, total, stage: None)
    measurement, names, warnings = _joined(measurements, machine, options.force_soc)
    device, chip = measurement.device, chip_text(measurement.device)
    machine, facts = _with_facts(machine, measurement, chip)
    networks = options.fit_networks
    calm, disturbed = (measurement, []) if options.keep_unsteady else calm_rows(measurement, networks)
    rows, unusable = map_rows(calm, machine, files, progress)
    to_fit = [row for row in rows if networks or not row.end_to_end]
    _refuse_too_few(to_fit, [*disturbed, *unusable], names)
    text = sheet_text(soc)
    result = _converged(machine, device.kind, to_fit, text, options, progress)
    fit, best = result.fit, result.best
    folds = assign_folds(to_fit, min(options.folds, len({row.instance for row in to_fit})), options.seed)
    unseen = held_out(fit, best, folds, progress)
    errors = model_errors(to_fit, unseen)
    section = calibration_of(fit, best, measurement, chip, errors)
    source = f"measured: {len(to_fit)} rows of {chip}, {section.date}, npusim calibrate"
    numbers = fitted_numbers(machine, fit, best, source)
    new_text = fitted_text(text, numbers + facts, section, options.name)
    fitted_soc = validate_data(compose(new_text, "the fitted SoC"), Soc)
    before = fit.predicted(fit.start)
    predicted = [
        _row(row, np.exp([before[i], best.predicted[i], unseen[i]])) for i, row in enumerate(fit.rows)
    ]
    checks = [row for row in rows if row.end_to_end and not networks]
    predicted += _checks(fitted_soc, checks, progress)
    messages = [*worse_families(predicted), *_of_disturbed(disturbed, measurement), *warnings]
    messages += [f"{fact.path} was set to {fact.value:g}, as {chip} tells of itself" for fact in facts]
    report = CalibrationReport(
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
        folds=len(set(folds)),
        seed=options.seed,
        rounds=result.rounds,
        noise=section.noise,
        residual=best.model_error,
        model_error=errors,
        parameters=fitted_parameters(fit, best, result.influence),
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
    sheets: list[Measurement] = []
    places: list[str] = []
    warnings: list[str] = []
    for number, source in enumerate(measurements, start=1):
        is_read = isinstance(source, Measurement)
        sheets.append(source if isinstance(source, Measurement) else read_measurement(source))
        places.append(f"measurement {number}" if is_read else str(source))
    for sheet, place in zip(sheets, places, strict=True):
        warnings += match_device(sheet, machine, place, force_soc)
    measurement = merge(sheets, places)
    warnings += measurement.warnings
    if not measurement.complete:
        warnings.append("the measurement was interrupted: not all rows are there")
    return measurement, [Path(place).name for place in places], warnings


def _of_disturbed(disturbed: Sequence[SkippedRow], measurement: Measurement) -> list[str]:
    """Return a warning about disturbed rows that are left out."""
    if not disturbed:
        return []
    return [
        f"the machine was busy: {len(disturbed)} of {len(measurement.rows)} rows spread over more than "
        f"{UNSTEADY_SPREAD:.0%} of their median and are left out; measure again on a quiet machine, or fit "
        "to them with --unsteady"
    ]


def _with_facts(soc: Soc, measurement: Measurement, chip: str) -> tuple[Soc, list[FittedNumber]]:
    """Return a generic SoC with the threads and caches that the device reports, and these numbers."""
    device = measurement.device
    if device.kind in soc.chips or device.kind != "cpu" or device.cores is None:
        return soc, []
    home = next(name for name, other in soc.devices.items() if other.kind == device.kind)
    source = f"measured: {chip}, as its driver tells"
    facts: list[FittedNumber] = []
    settings: dict[str, str | int] = {}
    if int(soc.cpu.cores) != device.cores:
        facts.append(FittedNumber(f"{home}.cores", device.cores, "", None, source, True))
        settings[facts[-1].path] = device.cores
    if len(device.cache_bytes) == len(soc.cpu.caches):
        for (name, cache), size in zip(soc.cpu.caches.items(), device.cache_bytes, strict=True):
            if float(cache.size) != size:
                facts.append(FittedNumber(f"{home}.caches.{name}.size", float(size), "B", None, source, True))
                settings[facts[-1].path] = f"{size:.0f} B"
    return (with_overrides(soc, settings) if facts else soc), facts


def _refuse_too_few(rows: Sequence[DeviceRow], left_out: Sequence[SkippedRow], names: Sequence[str]) -> None:
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
    rows: list[DeviceRow],
    text: str,
    options: FitOptions,
    progress: Progress,
) -> _Converged:
    """Fit, and repeat with fusion and residency decided on the fitted machine until they no longer change."""
    full, listed = candidates(soc, kind, [row.mapped for row in rows])
    listed, may_move = chosen(soc, listed, options.free, options.hold)
    may_move &= paths_held(text, [p.name for p in listed if p.in_file])
    start: Floats | None = None
    for number in range(1, _MOST_ROUNDS + 1):
        fit = DeviceFit(full, rows, listed, may_move)
        influence = fit.find_influence(fit.start)
        informative = influence.max(axis=0) >= INFLUENCE
        informative |= np.array([p.name in may_move and bool(options.free) for p in listed], bool)
        fit, influence = fit.restricted(informative), influence[:, informative]
        if not fit.may_move.any():
            raise NpusimError(
                "no number is left to fit: none that may move bears on a measured row; see --free and --hold"
            )
        best = fit.fit(start if start is not None and len(start) == len(fit.parameters) else None)
        progress(number, _MOST_ROUNDS, "rounds of the fit")
        again = remapped(rows, fit.machine(best.logs))
        unchanged = all(a.mapped.decisions == b.mapped.decisions for a, b in zip(rows, again, strict=True))
        if number == _MOST_ROUNDS or unchanged:
            break
        rows, start = again, best.logs
    return _Converged(fit, best, influence, number)


def _row(row: DeviceRow, seconds: Floats, interval: tuple[float, float] | None = None) -> CalibratedRow:
    """Return a row of the report; seconds before the fit, after it, and held out. Checks have an interval."""
    before, after, unseen = seconds.tolist()
    return CalibratedRow(
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


def _checks(sheet: Soc, rows: Sequence[DeviceRow], progress: Progress) -> list[CalibratedRow]:
    """Return rows that were not fitted to, as the fitted SoC predicts them."""
    checks = []
    for number, (row, again) in enumerate(zip(rows, remapped(rows, sheet), strict=True), start=1):
        seconds = again.seconds(again.mapped.total)
        draws = draw([again.mapped])
        spread = (draws.interval_s if row.row.is_interval else draws.latency_s)[0]
        low, high = np.log(np.percentile(spread, [5.0, 95.0])) - np.log(seconds)
        # The noise of the measurement widens the interval of the machine.
        low, high = -np.hypot(low, _NORMAL * row.noise), np.hypot(high, _NORMAL * row.noise)
        bounds = (float(seconds * np.exp(low)), float(seconds * np.exp(high)))
        checks.append(_row(row, np.array([row.seconds(row.mapped.total), seconds, seconds]), bounds))
        progress(number, len(rows), "networks predicted")
    return checks


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
