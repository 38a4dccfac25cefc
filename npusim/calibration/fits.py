"""Fits behind the shipped data sheets: `python -m npusim.calibration FIT [--write]`.

A `UnitFit` fits one unit of an NPU to rows of suites; a cross-validation repeats it without some rows. A
`FiguresFit` fits numbers of data sheets to published figures, and predicts each figure by a fit without it.
`validate/fits/NAME.yaml` declares free numbers, bounds, priors and losses. Packages announce fits as entries
of the group `npusim.fits`.
"""

from __future__ import annotations

import argparse
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from npusim.calibration.data_sheet import FittedNumber, as_written, with_numbers
from npusim.calibration.least_squares import (
    ByNumbers,
    Floats,
    FreeNumber,
    Solution,
    slopes_by_logs,
    solve,
)
from npusim.config import Section, load_model
from npusim.errors import ConfigError, NpusimError, UnknownNameError
from npusim.locate import resource
from npusim.plugins import announced, load
from npusim.units import format_quantity
from npusim.validation.figures import Figures, TablePredictor
from npusim.validation.running import Judged, judge, machines_of, predictor_of
from npusim.validation.suite import Suite, figures_path, load_suite, suite_file
from npusim.validation.unit_models import Machine

FOLDS = 5
HELD_OUT = "(held out)"
"""End of a cross-validated suite's name."""
_SEED = 0
_STEP = 1e-3  # step of the logarithms for slopes: far smaller than any width, far larger than rounding
_AFFECTS = 0.02  # A number affects a figure that moves by more than this share when the number doubles
_TIED = 0.6  # correlation of the logarithms above which two numbers are tied


def fit_named(name: str) -> Any:
    """Return a fit, a `UnitFit` or `FiguresFits`; `UnknownNameError` names the nearest one."""
    fits = announced("npusim.fits")
    if name not in fits:
        raise UnknownNameError("fit", name, tuple(fits))
    return load(fits[name], "fit")


class FitPlan(Section):
    """A fit to published figures (schema `npusim.fit/1`)."""

    schema_name: Literal["npusim.fit/1"] = Field("npusim.fit/1", alias="schema")
    """Version of this file format."""
    cases: dict[str, list[FreeNumber]] = Field(default_factory=dict)
    """Free numbers of each part that is fitted by itself."""
    soc: str = ""
    """SoC whose sheet holds the numbers; empty: sheets are written by hand."""
    source: str = ""
    """Source of the numbers in the sheet."""
    softness: float = np.inf
    """Error from which a figure counts less."""
    precision: float = 1.0
    """Standard deviation of a published figure's logarithm."""
    left_out: str = "figures"
    """What the report calls the groups that are left out in turn."""
    step: float | None = None
    """Step of the logarithms for slopes; None: that of rounding."""


PlanT = TypeVar("PlanT", bound=Section)


@cache
def load_plan(name: str, plan: type[PlanT]) -> PlanT:
    """Return what the file of a fit declares."""
    return load_model(suite_file(name, "fits", f"{name}.yaml"), plan)


def settings_of(free: Sequence[FreeNumber], values: Mapping[str, float]) -> tuple[str, ...]:
    """Return values of free numbers as `--set` takes them."""
    units = {number.name: number.unit for number in free}
    return tuple(f"{name}={float(value)!r} {units[name]}".strip() for name, value in values.items())


def _write(
    numbers: Mapping[str, Sequence[FittedNumber]], texts: Mapping[Path, str] | None = None
) -> Iterator[str]:
    """Write fitted numbers, by SoC, and the texts of other files; yield a line per file that changes."""
    paths = {soc: resource("configs", "socs", f"{soc}.yaml") for soc in sorted(numbers)}
    sheets = {path: with_numbers(path.read_text("utf-8"), numbers[soc]) for soc, path in paths.items()}
    for path, text in (sheets | dict(texts or {})).items():
        if text != path.read_text("utf-8"):
            path.write_text(text, "utf-8")
            yield f"wrote {path}"


TrainingRows = Callable[[str], Figures]
"""From a suite's name to the rows of one machine that may be fitted to."""


@dataclass(frozen=True)
class Fitted:
    """A machine with fitted numbers of its SoC's file, and the paths of those that the figures leave open."""

    machine: Machine
    numbers: list[FittedNumber] = field(default_factory=list)
    undetermined: tuple[str, ...] = ()


@dataclass(frozen=True)
class UnitFit:
    """Fit of one NPU unit to the machines of some suites.

    `fit` reads no file, so that a cross-validation can hold rows back. `libraries` returns the texts of
    further files to be written.
    """

    unit: str
    fit: Callable[[Machine, TrainingRows], Fitted]
    suites: tuple[str, ...]
    libraries: Callable[[Mapping[str, Fitted]], dict[Path, str]] = lambda fitted: {}
    options: Mapping[str, str] = field(default_factory=dict)

    def fitted(self, soc: str | None = None) -> dict[str, Fitted]:
        """Return the fits of all machines that the figures know, by machine.

        Raises
        ------
        UnknownNameError
            Where no figures belong to the SoC.
        """
        machines: dict[str, Machine] = {}
        for suite in self.suites:
            machines = machines_of(load_suite(suite)) | machines
        names = [machine.soc.name for machine in machines.values()]
        if soc is not None and soc not in names:
            raise UnknownNameError("SoC with figures", soc, names)
        chosen = {name: machine for name, machine in machines.items() if soc in (None, machine.soc.name)}
        return {name: self.fit(machine, shipped_rows(name)) for name, machine in chosen.items()}

    def run(self, options: argparse.Namespace) -> Iterator[str]:
        """Fit each machine; yield its numbers and what is unmeasured."""
        fitted = self.fitted(options.soc)
        for name, result in fitted.items():
            yield from self.report(name, result)
        if options.write:
            numbers = {result.machine.soc.name: result.numbers for result in fitted.values()}
            yield from _write(numbers, self.libraries(fitted))

    def report(self, name: str, fitted: Fitted) -> Iterator[str]:
        """Yield each number with its error bar, and what rests on no measured row."""
        yield f"{self.unit} of {name} ({fitted.machine.soc.name})"
        for number in fitted.numbers:
            value, sigma = as_written(number)
            mark = "undetermined" if number.path in fitted.undetermined else ""
            spread = f"+-{sigma}" if sigma else ""
            yield f"  {number.path:46} {value:>16} {spread:>10}  {number.source:32} {mark}".rstrip()
        unmeasured = [number.path for number in fitted.numbers if not number.on_silicon]
        if unmeasured:
            yield f"  on no measured row: {', '.join(unmeasured)}"
        for generation, data in fitted.machine.generations.items():
            yield f"  {generation}: {len(data.kernels)} kernels, on no measured row"


def table_of(suite: Suite) -> TablePredictor:
    """Return the predictor of a suite whose figures are a table."""
    predictor = predictor_of(suite)
    if not isinstance(predictor, TablePredictor):
        raise TypeError(f"suite {suite.title!r} has no table of figures")
    return predictor


def shipped_rows(machine: str) -> TrainingRows:
    """Return the function that reads all shipped rows of a machine."""

    def rows(name: str) -> Figures:
        figures = _shipped(name)
        return figures.where(figures["npu"] == machine)

    return rows


@cache
def _shipped(name: str) -> Figures:
    suite = load_suite(name)
    path = figures_path(suite)
    return table_of(suite).read(suite, path)


def cross_validate(
    judged: Judged, figures: str | Path | None = None, tick: Callable[[], None] = lambda: None
) -> Judged:
    """Predict each row of a suite with numbers fitted to the other folds.

    Parameters
    ----------
    judged : Judged
        The suite with its errors; rows of each of its groups are spread over all folds.
    figures : str or Path, optional
        The file that the suite was run on; default: the shipped one.

    Returns
    -------
    Judged
        The suite with held-out predictions, named ``SUITE (held out)``. The fit keeps all rows of other
        suites.
    """
    suite = judged.suite
    assert suite.fit is not None, "a suite without a fit has nothing to hold out"
    table, fit = table_of(suite), fit_named(suite.fit).fit

    def training(name: str) -> Figures:
        return kept if name == judged.name else shipped(name)

    path = figures_path(suite, figures)
    rows = table.read(suite, path)
    fold = folds_of(rows["npu"], judged.row_groups, rows.keys(suite.near_duplicates), rows[suite.measured])
    predicted = np.full(len(rows), np.nan)
    for name, machine in machines_of(suite).items():
        own, shipped = rows["npu"] == name, shipped_rows(name)
        for number in range(FOLDS):
            test = own & (fold == number)
            if test.any():
                kept = rows.where(own & ~test)
                predicted[test] = table.predict(rows.where(test), fit(machine, training).machine)
            tick()
    evidence = replace(judged.evidence, predicted=predicted, notes=())
    return judge(f"{judged.name} {HELD_OUT}", suite, evidence)


def folds_of(
    machines: NDArray[np.object_], groups: list[str], duplicates: Sequence[str], measured: Floats
) -> NDArray[np.int64]:
    """Assign rows to folds: near-duplicates together, evenly by machine, group and size.

    Parameters
    ----------
    measured : array, shape (rows,)
        Measured values; each of five that follow each other in size goes to another fold.

    Returns
    -------
    array of int, shape (rows,)
        Fold of each row, 0 to 4; always the same for the same rows.
    """
    random = np.random.default_rng(_SEED)
    members: dict[tuple[str, str], dict[str, float]] = {}
    for machine, group, duplicate, value in zip(machines, groups, duplicates, measured, strict=True):
        members.setdefault((machine, group), {}).setdefault(duplicate, value)
    fold_of: dict[str, int] = {}
    for key in sorted(members):
        fresh = sorted(
            (value, duplicate) for duplicate, value in members[key].items() if duplicate not in fold_of
        )
        for position, (_, duplicate) in enumerate(fresh):
            if position % FOLDS == 0:
                order = random.permutation(FOLDS)
            fold_of[duplicate] = int(order[position % FOLDS])
    return np.array([fold_of[duplicate] for duplicate in duplicates])


class FiguresFit(ABC):
    """Fit of numbers of data sheets to published figures.

    Parameters
    ----------
    plan : FitPlan
        Free numbers and loss.
    case : str
        Part of the plan that is fitted, which the report names.
    labels, groups, units : sequence of str
        Name of each figure; figures of one group are left out together (default: each alone); unit of each
        (default: none).
    measured : sequence of float, of length figures
    """

    classes: Mapping[str, list[str]] = {}
    """Class of each figure, by what may be left out as a whole."""

    def __init__(
        self,
        plan: FitPlan,
        case: str,
        labels: Sequence[str],
        measured: Sequence[float] | Floats,
        groups: Sequence[str] | None = None,
        units: Sequence[str] | None = None,
    ) -> None:
        self.plan, self.case, self.free = plan, case, plan.cases[case]
        self.labels, self.measured = labels, np.array(measured)
        self.groups = np.array(labels if groups is None else groups, object)
        self.units = [""] * len(labels) if units is None else list(units)

    @abstractmethod
    def predicted(self, values: Mapping[str, float]) -> Floats:
        """Return the predictions of all figures, shape (figures,)."""

    def errors(self, values: Mapping[str, float]) -> Floats:
        """Return the errors of all figures in standard deviations, shape (figures,)."""
        errors: Floats = np.log(self.predicted(values) / self.measured) / self.plan.precision
        return errors

    def solve(self, without: str | None = None, start: Mapping[str, float] | None = None) -> Solution:
        """Return the most likely numbers; `without` names a group of figures that is left out."""
        if not self.free:
            return Solution({}, {}, np.zeros((0, 0)), ())
        kept = self.groups != without
        return self._solve(lambda values: self.errors(values)[kept], start or {})

    def _solve(self, errors: ByNumbers, start: Mapping[str, float]) -> Solution:
        free = [replace(number, start=start.get(number.name, number.start)) for number in self.free]
        return solve(free, errors, self.plan.softness, step=self.plan.step)

    def leave_one_out(self, best: Solution) -> tuple[Floats, list[Solution]]:
        """Return each figure as predicted by a fit without its group, and these fits."""
        predicted, fits = np.empty(len(self.labels)), []
        for group in dict.fromkeys(self.groups):
            fits.append(self.solve(group, best.values))
            own = self.groups == group
            predicted[own] = self.predicted(fits[-1].values)[own]
        return predicted, fits

    def slopes(self, values: Mapping[str, float]) -> Floats:
        """Return d log(prediction) / d log(number), shape (figures, numbers)."""
        return slopes_by_logs(self._logs, values, _STEP)

    def _logs(self, values: Mapping[str, float]) -> Floats:
        logs: Floats = np.log(np.maximum(self.predicted(values), 1e-12))
        return logs

    def sheet_numbers(self, best: Solution) -> dict[str, list[FittedNumber]]:
        """Return the numbers to be written, by SoC."""
        source, sigma = self.plan.source, best.relative_sigma
        numbers = [
            FittedNumber(n.name, best.values[n.name], n.unit, sigma[n.name], source, True) for n in self.free
        ]
        return {self.plan.soc: numbers} if self.plan.soc else {}

    def report(self, quick: bool, best: Solution) -> Iterator[str]:
        """Yield the tables of numbers and figures; `quick` leaves out the fits without each figure."""
        predicted = self.predicted(best.values)
        held_out, fits = (None, []) if quick else self.leave_one_out(best)
        yield f"## {self.case}" + (f" of {self.plan.soc}" if self.plan.soc else "")
        yield ""
        yield from self._number_table(best, fits)
        yield ""
        yield from self._figure_table(predicted, held_out)

    def _number_table(self, best: Solution, fits: Sequence[Solution]) -> Iterator[str]:
        if not self.free:
            yield "nothing is fitted"
            return
        without = f"as {self.plan.left_out} are left out | figures affected"
        yield f"| number | value | one sigma | prior, its width, pull | {without} | correlated with |"
        yield "| --- | --- | --- | --- | --- | --- | --- |"
        affected = (np.abs(self.slopes(best.values)) * np.log(2.0) > _AFFECTS).sum(axis=0)
        for i, number in enumerate(self.free):
            value, sigma = best.values[number.name], best.relative_sigma.get(number.name)
            prior, others = "-", [fit.values[number.name] for fit in fits]
            if number.prior is not None:
                median, width = number.prior
                prior = f"{median:g}, {width:.0%}, {np.log(value / median) / width:+.1f}"
            cells = (
                number.name,
                f"{value:.4g} {number.unit}",
                "-" if sigma is None else f"{sigma:.0%}",
                prior,
                f"{min(others):.3g} to {max(others):.3g}" if others else "-",
                str(affected[i]),
                ", ".join(tied(best, i)) or "-",
            )
            yield f"| {' | '.join(cells)} |"

    def _figure_table(self, predicted: Floats, held_out: Floats | None) -> Iterator[str]:
        yield "| figure | measured | fitted | error | left out | error |"
        yield "| --- | ---: | ---: | ---: | ---: | ---: |"
        for i, label in enumerate(self.labels):
            cells = [label]
            for values in (self.measured, predicted, held_out):
                cells.append(
                    "" if values is None else format_quantity(float(f"{values[i]:.4g}"), self.units[i])
                )
                cells.append("" if values is None else f"{values[i] / self.measured[i] - 1.0:+.1%}")
            del cells[2]  # the error of what was measured
            yield f"| {' | '.join(cells)} |"
        for what, values in (("fitted", predicted), ("left out", held_out)):
            if values is not None:
                errors = values / self.measured - 1.0
                worst, (low, high) = int(np.argmax(np.abs(errors))), np.quantile(errors, (0.25, 0.75))
                yield ""
                yield (
                    f"{what}: mean size of the errors {np.abs(errors).mean():.1%}, root mean square "
                    f"{np.sqrt(np.mean(errors**2)):.1%}, largest {errors[worst]:+.1%} "
                    f"({self.labels[worst]}), half between {low:+.1%} and {high:+.1%}"
                )


def tied(best: Solution, index: int) -> list[str]:
    """Return the numbers correlated with one, for which only a sum or ratio is determined."""
    sigma = np.sqrt(np.diag(best.covariance))
    with np.errstate(invalid="ignore"):
        correlation = best.covariance[index] / (sigma[index] * sigma)
    return [
        f"{name} ({correlation[i]:+.1f})"
        for i, name in enumerate(best.values)
        if i != index and abs(correlation[i]) > _TIED
    ]


def linear_times(free: Sequence[FreeNumber], times: ByNumbers, probe: float) -> ByNumbers:
    """Return times (s) that are linear in the free numbers, bandwidths inverted.

    Slopes come from one call of `times` for each number, at `probe` times its start.
    """

    def sizes(values: Mapping[str, float]) -> Floats:
        return np.array([1.0 / v if name.endswith("bandwidth") else v for name, v in values.items()], float)

    start = {number.name: number.start for number in free}
    base_s, first = times(start), sizes(start)
    slopes_s = np.empty((len(base_s), len(free)))
    for i, number in enumerate(free):
        moved = {**start, number.name: probe * number.start}
        slopes_s[:, i] = (times(moved) - base_s) / (sizes(moved) - first)[i]
    fixed_s = base_s - slopes_s @ first
    return lambda values: fixed_s + slopes_s @ sizes(values)


@dataclass(frozen=True)
class FiguresFits:
    """Fits to published figures that one command runs: one for each case of a plan."""

    plan: str
    fit: Callable[..., FiguresFit]
    options: Mapping[str, str] = field(default_factory=dict)
    declaration: type[FitPlan] = FitPlan

    def parts(self, **options: str | None) -> list[FiguresFit]:
        """Return the fit of each case."""
        return [self.fit(case, **options) for case in load_plan(self.plan, self.declaration).cases]

    def run(self, options: argparse.Namespace) -> Iterator[str]:
        """Fit each part; yield its tables."""
        for part in self.parts(**{name: getattr(options, name) for name in self.options}):
            best = part.solve()
            yield from part.report(options.quick, best)
            yield ""
            if options.write:
                numbers = part.sheet_numbers(best)
                if not numbers:
                    allowed = "numbers by hand: their sources say more than the fit knows"
                    raise ConfigError("a fit that writes no data sheet", file="--write", allowed=allowed)
                yield from _write(numbers)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a fit from the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        "python -m npusim.calibration", description="Fit numbers of the shipped data sheets.", add_help=False
    )
    parser.add_argument("fit", choices=sorted(announced("npusim.fits")), help="what is fitted")
    parser.add_argument("--soc", metavar="NAME", help="units: only this SoC; default: every SoC with figures")
    parser.add_argument("--quick", action="store_true", help="figures: no fits without each figure")
    parser.add_argument("--write", action="store_true", help="write the numbers into configs/")
    parser.add_argument("-h", "--help", action="help")
    words = sys.argv[1:] if arguments is None else list(arguments)
    name = next((word for word in words if word in announced("npusim.fits")), None)
    fit = None if name is None else fit_named(name)
    for option, text in (fit.options if fit else {}).items():
        parser.add_argument(f"--{option}", help=f"{name}: {text}")
    options = parser.parse_args(words)
    assert fit is not None, "the parser takes known fits alone"
    try:
        for line in fit.run(options):
            print(line, flush=True)
    except NpusimError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return 0
