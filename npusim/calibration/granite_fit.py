"""Fit to GraNNite's figures: maximum a posteriori of the published figures and the priors.

Free parameters, priors and tolerances stand in `validate/fits/granite.yaml`. The report also shows
the figures under other readings (docs/granite.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import numpy as np
from pydantic import Field

from npusim.arch import Soc, load_soc
from npusim.calibration.data_sheet import FittedNumber
from npusim.calibration.fits import FiguresFit, FiguresFits, FitPlan, load_plan, tied
from npusim.calibration.least_squares import Floats, FreeNumber, Solution
from npusim.config import Section
from npusim.errors import ConfigError
from npusim.validation.figures import Key, key_of, shipped_figures
from npusim.validation.granite import GraniteRunner, load_definitions, predict
from npusim.validation.suite import load_suite

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


class Plan(FitPlan):
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


class GraniteFit(FiguresFit):
    """Maximum a posteriori: squared deviations from figures and priors in standard deviations."""

    plan: Plan

    def __init__(self, case: str) -> None:
        plan, figures = load_plan("granite", Plan), shipped_figures("granite")
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
            partners = ", ".join(other.partition(" ")[0] for other in tied(best, i))
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


GRANITE = FiguresFits("granite", GraniteFit, declaration=Plan)
