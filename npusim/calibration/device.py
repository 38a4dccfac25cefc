"""Fits a SoC to measurements of one of its devices: files in, a report and a new data sheet out.

>>> from npusim.calibration.device import calibrate
>>> calibrate.__name__
'calibrate'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npusim import __version__
from npusim.arch import Soc, load_soc, sheet_text, with_overrides
from npusim.calibration.data_sheet import FittedNumber, with_numbers
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
    GraphOf,
    Parameter,
    calm_rows,
    candidates,
    chosen,
    map_rows,
    remapped,
)
from npusim.calibration.least_squares import Floats
from npusim.config import validate_data
from npusim.config.reading import compose
from npusim.errors import ConfigError, NpusimError
from npusim.files import write_whole
from npusim.measuring.document import UNSTEADY_SPREAD, Measurement, merge, read_measurement
from npusim.measuring.models import Sources
from npusim.measuring.predicting import chip_text, match_device
from npusim.studies.uncertainty import draw

_MOST_ROUNDS = 3
"""Largest number of times that fusion and residency are decided again."""
_NORMAL = 1.645
"""Half a 90 % interval of a normal variable, in standard deviations."""

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
    """A converged fit."""

    fit: DeviceFit
    best: FitResult
    influence: Floats
    rounds: int

    def for_report(self) -> dict[str, Any]:
        """Return the fields of the report that the fit determines."""
        parameters = fitted_parameters(self.fit, self.best, self.influence)
        return {"rounds": self.rounds, "residual": self.best.model_error, "parameters": parameters}


def calibrate(
    soc: str | Path,
    measurements: Sequence[str | Path | Measurement],
    options: FitOptions | None = None,
    *,
    files: Sources | None = None,
    graph_of: GraphOf | None = None,
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
    measurement, names, warnings = _joined(measurements, machine, options.force_soc)
    machine, facts = _with_facts(machine, measurement)
    networks = options.fit_networks
    calm, disturbed = (measurement, []) if options.keep_unsteady else calm_rows(measurement, networks)
    rows, unusable = map_rows(calm, machine, files, graph_of, _stage(progress, "rows mapped"))
    left_out = [*disturbed, *unusable]
    to_fit = [row for row in rows if networks or not row.end_to_end]
    checks = [row for row in rows if row not in to_fit]
    _refuse_too_few(to_fit, left_out, names)
    text = sheet_text(soc)
    result = _converged(machine, measurement.device.kind, to_fit, text, options, progress)
    fold_of = assign_folds(to_fit, min(options.folds, len({row.instance for row in to_fit})), options.seed)
    unseen = held_out(result.fit, result.best, fold_of, _stage(progress, "folds"))
    errors = model_errors(to_fit, unseen)
    chip = chip_text(measurement.device)
    section = calibration_of(result.fit, result.best, measurement, chip, errors)
    source = f"measured: {len(to_fit)} rows of {chip}, {section.date}, npusim calibrate"
    numbers = fitted_numbers(machine, result.fit, result.best, source)
    new_text = fitted_text(text, numbers + _fact_numbers(facts, chip), section, options.name)
    fitted_soc = validate_data(compose(new_text, "the fitted SoC"), Soc)
    predicted = [*_fitted_rows(result, unseen), *_checks(fitted_soc, checks, progress)]
    said = [*worse_families(predicted), *_of_disturbed(disturbed, measurement), *warnings]
    said += _warnings(result, facts, chip)
    report = CalibrationReport(
        npusim=__version__,
        soc=machine.name,
        soc_title=machine.title,
        output=None,
        device=measurement.device.kind,
        chip=chip,
        environment=measurement.device.model_dump(mode="json"),
        date=section.date,
        files=names,
        rows_fitted=len(to_fit),
        folds=len(set(fold_of)),
        seed=options.seed,
        noise=section.noise,
        model_error=errors,
        families=family_errors(predicted),
        rows=predicted,
        left_out=left_out,
        facts={path: f"{value:g}" for path, value in facts.items()},
        warnings=list(dict.fromkeys(said)),
        **result.for_report(),
    )
    return Calibrated(report, new_text, fitted_soc)


def _joined(
    measurements: Sequence[str | Path | Measurement], machine: Soc, force_soc: bool
) -> tuple[Measurement, list[str], list[str]]:
    """Return the measurements of one device as one, their names, and warnings."""
    sheets = [one if isinstance(one, Measurement) else read_measurement(one) for one in measurements]
    places = [
        f"measurement {i}" if isinstance(one, Measurement) else str(one)
        for i, one in enumerate(measurements, start=1)
    ]
    pairs = zip(sheets, places, strict=True)
    warnings = [said for sheet, place in pairs for said in match_device(sheet, machine, place, force_soc)]
    measurement = merge(sheets, places)
    interrupted = [] if measurement.complete else ["the measurement was interrupted: not all rows are there"]
    names = [Path(place).name for place in places]
    return measurement, names, [*warnings, *measurement.warnings, *interrupted]


def _of_disturbed(disturbed: Sequence[SkippedRow], measurement: Measurement) -> list[str]:
    """Return a warning about unsteady rows that are left out."""
    if not disturbed:
        return []
    return [
        f"the machine was busy: {len(disturbed)} of {len(measurement.rows)} rows spread over more than "
        f"{UNSTEADY_SPREAD:.0%} of their median and are left out; measure again on a quiet machine, or fit "
        "to them with --unsteady"
    ]


def _stage(progress: Progress | None, what: str) -> Callable[[int, int], None] | None:
    if progress is None:
        return None
    report = progress
    return lambda done, total: report(done, total, what)


def _with_facts(soc: Soc, measurement: Measurement) -> tuple[Soc, dict[str, float]]:
    """Return a generic SoC with the threads and caches that the device reports, and these facts."""
    device = measurement.device
    if device.kind in soc.chips or device.kind != "cpu" or device.cores is None:
        return soc, {}
    home = next(name for name, one in soc.devices.items() if one.kind == device.kind)
    facts: dict[str, float] = {}
    if int(soc.cpu.cores) != device.cores:
        facts[f"{home}.cores"] = device.cores
    if len(device.cache_bytes) == len(soc.cpu.caches):
        for (name, cache), size in zip(soc.cpu.caches.items(), device.cache_bytes, strict=True):
            if float(cache.size) != size:
                facts[f"{home}.caches.{name}.size"] = float(size)
    settings: dict[str, Any] = {
        path: f"{value:.0f} {_fact_unit(path)}" if _fact_unit(path) else int(value)
        for path, value in facts.items()
    }
    return (with_overrides(soc, settings) if facts else soc), facts


def _fact_unit(path: str) -> str:
    return "B" if path.endswith(".size") else ""


def _fact_numbers(facts: Mapping[str, float], chip: str) -> list[FittedNumber]:
    source = f"measured: {chip}, as its driver tells"
    return [FittedNumber(path, value, _fact_unit(path), None, source, True) for path, value in facts.items()]


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
    progress: Progress | None,
) -> _Converged:
    """Fit, and repeat with fusion and residency decided on the fitted machine until they no longer change."""
    full, listed = candidates(soc, kind, [row.mapped for row in rows])
    listed, may_move = chosen(soc, listed, options.free, options.hold)
    may_move &= _written(text, listed)
    start: Floats | None = None
    for number in range(1, _MOST_ROUNDS + 1):
        fit = DeviceFit(full, rows, listed, may_move)
        influence = fit.find_influence(fit.start)
        informative = influence.max(axis=0) >= INFLUENCE
        informative |= np.array([p.name in may_move and bool(options.free) for p in listed], bool)
        kept = [p for p, informs in zip(listed, informative, strict=True) if informs]
        if not any(p.name in may_move for p in kept):
            raise NpusimError(
                "no number is left to fit: none that may move bears on a measured row; see --free and --hold"
            )
        fit, influence = fit.restricted(informative), influence[:, informative]
        best = fit.fit(start if start is not None and len(start) == len(kept) else None)
        if progress is not None:
            progress(number, _MOST_ROUNDS, "rounds of the fit")
        again = remapped(rows, fit.machine(best.logs))
        unchanged = all(a.mapped.decisions == b.mapped.decisions for a, b in zip(rows, again, strict=True))
        if number == _MOST_ROUNDS or unchanged:
            break
        rows, start = again, best.logs
    return _Converged(fit, best, influence, number)


def _written(text: str, parameters: Sequence[Parameter]) -> set[str]:
    """Return the numbers that the SoC's file holds with value and source, and that can be replaced."""
    numbers = {
        p.name: FittedNumber(p.name, p.number.value, p.unit, None, "", True) for p in parameters if p.in_file
    }

    def can_be_written(names: Sequence[str]) -> bool:
        try:
            with_numbers(text, [numbers[name] for name in names])
        except ConfigError:
            return False
        return True

    # One reading of the file is enough where all are there, as they are in shipped files.
    if can_be_written(list(numbers)):
        return set(numbers)
    return {name for name in numbers if can_be_written([name])}


def _fitted_rows(result: _Converged, unseen: Floats) -> list[CalibratedRow]:
    before = result.fit.predicted(result.fit.start)
    return [
        _row(row, True, np.exp([before[i], result.best.predicted[i], unseen[i]]), None)
        for i, row in enumerate(result.fit.rows)
    ]


def _row(
    row: DeviceRow, fitted: bool, seconds: Floats, interval: tuple[float, float] | None
) -> CalibratedRow:
    before, after, unseen = seconds.tolist()
    return CalibratedRow(
        id=row.id,
        family=row.family,
        what=row.text,
        hint=row.row.hint,
        requests=row.row.requests,
        figure="interval" if row.row.is_interval else "latency",
        fitted=fitted,
        measured_s=row.measured_s,
        noise=row.noise,
        before_s=before,
        after_s=after,
        held_out_s=unseen,
        interval_s=interval,
    )


def _checks(sheet: Soc, rows: Sequence[DeviceRow], progress: Progress | None) -> list[CalibratedRow]:
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
        checks.append(_row(row, False, np.array([row.seconds(row.mapped.total), seconds, seconds]), bounds))
        if progress is not None:
            progress(number, len(rows), "networks predicted")
    return checks


def _warnings(result: _Converged, facts: Mapping[str, float], chip: str) -> list[str]:
    """Return warnings: facts of the device, numbers at their bounds, numbers far from their priors."""
    said = [f"{path} was set to {value:g}, as {chip} tells of itself" for path, value in facts.items()]
    for name in result.best.at_bound:
        said.append(
            f"{name} ran into the bound of what its kind allows: another number is off, or the equations"
        )
    moved = np.abs(result.best.logs - result.fit.start) / result.fit.widths
    for parameter, deviations in zip(result.fit.parameters, moved, strict=True):
        if deviations > 3.0:
            said.append(
                f"{parameter.name} moved by {deviations:.1f} times the uncertainty that the data sheet states"
            )
    return said
