"""Fits to published figures: rates of networks on CPU, GPU and NPU, and GraNNite's figures.

Figures of networks are also predicted by fits without their class of networks, their machine or their NPU
generation. The fit to GraNNite's figures is a maximum a posteriori of figures and priors; free parameters,
priors and tolerances stand in `validate/fits/granite.yaml`. Its report also shows the figures under other
readings (docs/granite.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated

import numpy as np
from pydantic import Field

from npusim.arch import Soc, load_soc
from npusim.calibration import fits
from npusim.calibration.data_sheet import FittedNumber
from npusim.calibration.least_squares import ByNumbers, Floats, FreeNumber, Solution
from npusim.config import Section, load_model
from npusim.errors import ConfigError
from npusim.locate import resource
from npusim.mapping import Mapped
from npusim.studies.perturbation import evaluated, moved
from npusim.validation import measured_networks
from npusim.validation.figures import Key, Row, evidence_of, key_of, shipped_figures
from npusim.validation.granite import GraniteRunner, load_definitions, predict
from npusim.validation.running import Judged, judge
from npusim.validation.suite import Suite, load_suite


class HostFit(fits.FiguresFit):
    """A device's published rows, and the fit to them; networks are left out in turn."""

    def __init__(self, device: str, rows: Sequence[measured_networks.MeasuredRow] | None = None) -> None:
        published = (
            rows
            or measured_networks.published_rows(
                resource("validate", "figures", measured_networks.HOST_FIGURES)
            )[0]
        )
        rows, plan = [row for row in published if row.device == device], fits.load_plan("hosts", fits.FitPlan)
        labels = [f"{row.workload} {row.precision} {row.hint}" for row in rows]
        networks, units = [row.workload for row in rows], ["s" if row.is_time else "" for row in rows]
        super().__init__(plan, device, labels, [row.value for row in rows], networks, units)
        self.rows, self.machine = rows, load_soc(plan.soc)
        self.classes = {"network": [row.kind for row in rows]}

    @cached_property
    def mapped(self) -> list[Mapped]:
        """Each row's network, mapped for its hint."""
        return [measured_networks.scenario_of(row).mapped for row in self.rows]

    def predicted(self, values: Mapping[str, float]) -> Floats:
        """Return the predictions of all rows, each in its unit."""
        machine = moved(
            self.machine, {("devices", *name.split(".")): value for name, value in values.items()}
        )
        totals = zip(self.rows, evaluated(self.mapped, machine), strict=True)
        return np.array([total["latency_s" if row.is_time else "throughput_per_s"] for row, total in totals])


_PUBLISHED_WEIGHT = 3.0  # weight of a row that OpenVINO publishes: others have harnesses of their own in them


class NetworksFit(fits.FiguresFit):
    """An NPU generation's rows of the suites `networks` and `measured-networks`.

    The fit minimises the weighted mean of the errors, in which rows that no model explains have little
    weight. The time that each harness adds is held at its value in `validate/definitions`.
    """

    def __init__(self, unit: str) -> None:
        published = _rows_on(unit, measured_networks.FIGURES, measured_networks.published_rows)
        others = _rows_on(unit, str(load_suite("measured-networks").figures), measured_networks.measured_rows)
        rows = [*published, *others]
        self.is_latency = np.array([row.is_time for row in rows])
        labels = [f"{row.workload} {row.line} {row.precision} {row.hint} {row.machine}" for row in rows]
        self.weights = np.where(np.arange(len(rows)) < len(published), _PUBLISHED_WEIGHT, 1.0)

        def times(values: Mapping[str, float]) -> Floats:
            model = measured_networks.MeasuredNetworks(fits.settings_of(self.free, values))
            return self._inverted(np.array([model.predicted(row) for row in rows]))

        units = ["s" if row.is_time else "" for row in rows]
        self.classes = {"network": [row.kind for row in rows], "machine": [row.machine for row in rows]}
        measured, families = [row.value for row in rows], [row.family for row in rows]
        super().__init__(fits.load_plan("networks", fits.FitPlan), unit, labels, measured, families, units)
        self.times_s = fits.linear_times(self.free, times, 2.0)

    def _inverted(self, figures: Floats) -> Floats:
        """Return latencies, and intervals of throughputs; or figures of times."""
        return np.where(self.is_latency, figures, 1.0 / figures)

    def predicted(self, values: Mapping[str, float]) -> Floats:
        """Return the predictions of all rows, each in its unit."""
        return self._inverted(self.times_s(values))

    def errors(self, values: Mapping[str, float]) -> Floats:
        """Return predicted over measured, less one, by weight."""
        errors: Floats = (self.predicted(values) / self.measured - 1.0) * self.weights
        return errors

    def _solve(self, errors: ByNumbers, start: Mapping[str, float]) -> Solution:
        from scipy.optimize import minimize  # slow to import

        names = [number.name for number in self.free]
        scale = np.array([number.start for number in self.free])

        def named(logs: Floats) -> dict[str, float]:
            return dict(zip(names, (np.exp(logs) * scale).tolist(), strict=True))

        def loss(logs: Floats) -> float:
            # A number that no row affects stays where the prediction began.
            return float(np.abs(errors(named(logs))).mean() + 1e-3 * np.square(logs).mean())

        options = {"xatol": 1e-6, "fatol": 1e-9, "maxiter": 20_000}
        starts = [np.full(len(names), start) for start in (-1.0, 0.0, 1.0)]
        results = [minimize(loss, start, method="Nelder-Mead", options=options) for start in starts]
        best = min(results, key=lambda result: float(result.fun))
        return Solution(named(best.x), {}, np.full((len(names), len(names)), np.nan), ())


def _rows_on(unit: str, figures: str, read: measured_networks.Reader) -> list[measured_networks.MeasuredRow]:
    """Return the rows of shipped figures on an NPU generation that are judged."""
    rows, _ = read(resource("validate", "figures", figures))
    return [row for row in rows if row.unit == unit and not row.is_token and not row.reason]


HOSTS = fits.FiguresFits("hosts", HostFit)
NETWORKS = fits.FiguresFits("networks", NetworksFit)


def left_out(progress: Callable[[int, int], None] | None = None) -> Judged:
    """Return all figures behind the fits of networks, predicted without their class.

    A figure counts once for each way to leave it out: with the networks of its class, with its machine, and
    with all machines of its NPU generation, whose numbers are then those of the other generation.
    """
    npus = NETWORKS.parts()
    fits, rows = [*npus, *HOSTS.parts()], list[Row]()
    for done, fit in enumerate(fits, start=1):
        rows += _without_classes(fit)
        if progress is not None:
            progress(done, len(fits))
    for fit, other in (npus, npus[::-1]):
        rows += _by_another(fit, other)
    suite = load_model(resource("validate", "definitions", "leave_class_out.yaml"), Suite)
    return judge("leave-class-out", suite, evidence_of(suite, rows))


def _without_classes(fit: fits.FiguresFit) -> list[Row]:
    """Return the figures of a fit, each as predicted by fits without its class."""
    best, rows = fit.solve(), list[Row]()
    for way, words in fit.classes.items():
        if len(set(words)) > 1:
            fit.groups = np.array(words, object)
            rows += _rows(fit, fit.leave_one_out(best)[0], way, words)
    return rows


def _by_another(fit: fits.FiguresFit, other: fits.FiguresFit) -> list[Row]:
    """Return the figures of one generation as predicted with the numbers that are fitted to another."""
    own, numbers = {number.name: number.start for number in fit.free}, other.solve().values
    values = {name: numbers.get(name, start) for name, start in own.items()}
    return _rows(fit, fit.predicted(values), "generation", [fit.case] * len(fit.labels))


def _rows(fit: fits.FiguresFit, predicted: np.ndarray, way: str, words: list[str]) -> list[Row]:
    numbers = zip(fit.labels, words, fit.measured, predicted, strict=True)
    return [
        Row(f"{way}: {label}", value, number, {"device": fit.case, "way": way, "left_out": word})
        for label, word, value, number in numbers
    ]


Positive = Annotated[float, Field(gt=0.0)]
_SOURCE = "[GRANNITE] fitted, docs/granite.md; beforehand"


class SheetNumber(Section):
    """A number of data sheets that follows a parameter."""

    socs: list[str] = Field(min_length=1)
    """SoCs whose sheets hold it."""
    path: str
    """Its path, as in `--set`."""
    unit: str
    """Unit, as in the sheet."""
    share: Positive = 1.0
    """The number over the parameter."""
    beyond: str = ""
    """Parameter that is added, a physical bound: the number cannot fall below it."""
    source: str = ""
    """Source in the sheet; empty: that it was fitted here, and its prior."""

    def value(self, own: float, values: Mapping[str, float]) -> float:
        """Return the number from the value of its parameter and the values of all."""
        return own * self.share + values.get(self.beyond, 0.0)


class Prior(Section):
    """Prior knowledge of a parameter: log-normal."""

    value: Positive
    """Median, in the unit of its numbers."""
    width: Positive
    """Standard deviation of the logarithm."""
    source: str


class Parameter(Section):
    """A free parameter."""

    title: str
    """Its meaning, in a line."""
    numbers: list[SheetNumber] = Field(min_length=1)
    """Numbers that follow it."""
    prior: Prior


class Tolerance(Section):
    """Tolerance of a figure: one standard deviation."""

    figure: str
    layer: str = ""
    measure: str = ""
    ratio: Positive | None = None
    """Of the logarithm of predicted over published."""
    points: Positive | None = None
    """Of the difference, for shares."""


class Plan(fits.FitPlan):
    """Parameters and tolerances of the fit."""

    parameters: dict[str, Parameter] = Field(min_length=1)
    """Free parameters by name."""
    tolerances: list[Tolerance]
    """The first that fits a figure counts."""

    def error(self, key: Key, predicted: float, published: float) -> float:
        """Return the error of a figure in tolerances; a `ConfigError` says that none fits it."""
        for one in self.tolerances:
            if all(getattr(one, name) in ("", key[name]) for name in ("figure", "layer", "measure")):
                if one.points is not None:
                    return (predicted - published) / one.points
                assert one.ratio is not None, "a tolerance is a ratio or in points"
                return float(np.log(predicted / published)) / one.ratio
        found = f"no tolerance for {key['figure']}"
        raise ConfigError(found, key="tolerances", allowed="one for every figure")


class GraniteFit(fits.FiguresFit):
    """Maximum a posteriori: squared deviations from figures and priors in standard deviations."""

    plan: Plan

    def __init__(self, case: str) -> None:
        plan, figures = fits.load_plan("granite", Plan), shipped_figures("granite")
        self.keys = [key for _, key in figures]
        self.runner = GraniteRunner(load_definitions())
        self._memory: dict[tuple[float, ...], Floats] = {}
        free = [
            FreeNumber(
                name, one.prior.value, prior=(one.prior.value, one.prior.width), unit=one.numbers[0].unit
            )
            for name, one in plan.parameters.items()
        ]
        labels = [figure.id.removeprefix("granite.") for figure, _ in figures]
        plan = plan.model_copy(update={"cases": {case: free}})
        super().__init__(plan, case, labels, [figure.value for figure, _ in figures])

    def socs(self, values: Mapping[str, float]) -> dict[str, Soc]:
        """Return the SoCs with a set of parameters."""
        settings: dict[str, dict[str, str]] = {}
        for name, parameter in self.plan.parameters.items():
            for number in parameter.numbers:
                text = f"{number.value(values[name], values):.10g} {number.unit}".strip()
                for soc in number.socs:
                    settings.setdefault(soc, {})[number.path] = text
        return {soc: load_soc(soc, changes) for soc, changes in settings.items()}

    def predicted(self, values: Mapping[str, float]) -> Floats:
        """Return the predictions of all figures."""
        key = tuple(values[number.name] for number in self.free)
        if key not in self._memory:
            runner = self.runner.with_socs(self.socs(values))
            self._memory[key] = np.array([predict(k, runner) for k in self.keys])
        return self._memory[key]

    def errors(self, values: Mapping[str, float]) -> Floats:
        """Return the errors of all figures in standard deviations."""
        rows = zip(self.keys, self.predicted(values).tolist(), self.measured.tolist(), strict=True)
        return np.array([self.plan.error(key, ours, theirs) for key, ours, theirs in rows])

    def sheet_numbers(self, best: Solution) -> dict[str, list[FittedNumber]]:
        """Return the fitted numbers of each SoC's data sheet."""
        sheets: dict[str, list[FittedNumber]] = {}
        values, sigmas = best.values, best.relative_sigma
        priors = {name: parameter.prior.value for name, parameter in self.plan.parameters.items()}
        for i, (name, parameter) in enumerate(self.plan.parameters.items()):
            partners = ", ".join(other.partition(" ")[0] for other in fits.tied(best, i))
            note = f"; correlated with {partners}, their sum is known better" if partners else ""
            for number in parameter.numbers:
                value, sigma = number.value(values[name], values), sigmas[name]
                if number.beyond:  # the sum of two parameters, each with an error of its own
                    other = sigmas[number.beyond] * values[number.beyond]
                    sigma = float(np.hypot(sigma * values[name] * number.share, other)) / value
                before = f"{_SOURCE} {number.value(priors[name], priors):.3g} {number.unit}".rstrip()
                source = (number.source or before) + note
                fitted = FittedNumber(number.path, value, number.unit, sigma, source, False)
                for soc in number.socs:
                    sheets.setdefault(soc, []).append(fitted)
        return sheets

    def report(self, quick: bool, best: Solution) -> Iterator[str]:
        """Yield the tables of numbers and figures, and of other readings."""
        yield from super().report(quick, best)
        yield ""
        yield from alternatives(self.runner.with_socs(self.socs(best.values)))


def alternatives(runner: GraniteRunner) -> Iterator[str]:
    """Yield the lines of the table of other readings, each beside the one that holds."""
    published = {figure.id: f"{figure.value:g}" for figure, _ in shipped_figures("granite")}
    yield "| other reading | figure | published | as defined | read so |"
    yield "| --- | --- | --- | --- | --- |"
    for other in runner.definitions.alternatives:
        changed, title = runner.with_alternative(other), other.title
        for name in other.figures:
            key = key_of(load_suite("granite"), f"granite.{name}")
            assert key is not None, f"{name} is no figure of the suite"
            values = [f"{predict(key, each):.3g}" for each in (runner, changed)]
            yield f"| {title} | {name} | {published.get(f'granite.{name}', '-')} | {' | '.join(values)} |"
            title = ""


GRANITE = fits.FiguresFits("granite", GraniteFit, declaration=Plan)
