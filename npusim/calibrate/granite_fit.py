"""Fit to GraNNite's figures: maximum a posteriori of the published figures and the priors.

FreeNumber parameters, priors and tolerances stand in `validate/definitions/granite_fit.yaml`.
`python -m npusim.calibrate.granite_fit` prints the result as tables, `--write` puts the numbers into the data
sheets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from npusim.arch import Soc, load_soc
from npusim.calibrate.least_squares import Floats
from npusim.config import Section, load_model
from npusim.errors import ConfigError
from npusim.locate import resource
from npusim.validation.figures import KeyedFigure, read_keyed
from npusim.validation.granite import Key, parse_key, predict
from npusim.validation.granite_definitions import load_definitions
from npusim.validation.granite_runs import GraniteRunner

Positive = Annotated[float, Field(gt=0.0)]

_STEP = 1e-3
"""Step of the logarithms for slopes: small beside every width, large beside rounding."""
_AFFECTS = 0.02
"""A figure affects a parameter when a doubling of the one moves the other by more than this share."""


class SheetNumber(Section):
    """A number of data sheets that follows a parameter."""

    socs: list[str] = Field(min_length=1)
    """SoCs whose sheets hold it."""
    path: str
    """Where it stands, as in `--set`."""
    unit: str
    """Unit, as in the sheet."""
    share: Positive = 1.0
    """The number over the parameter."""
    beyond: str = ""
    """Parameter that comes on top, a physical bound: the number cannot fall below it."""
    source: str = ""
    """What the sheet says of it; empty: that it was fitted here, and what it was beforehand."""

    def value(self, own: float, values: Mapping[str, float]) -> float:
        """Return it at a value of its parameter and at values of all."""
        return own * self.share + values.get(self.beyond, 0.0)


class Prior(Section):
    """What is known of a parameter from elsewhere: log-normal."""

    value: Positive
    """Median, in the unit of its numbers."""
    width: Positive
    """Standard deviation of the logarithm."""
    source: str
    """Where that comes from."""


class Parameter(Section):
    """A free parameter."""

    title: str
    """What it is, in a line."""
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

    def fits(self, key: Key) -> bool:
        """Whether it is meant for a figure."""
        return (
            self.figure == key.figure and self.layer in ("", key.layer) and self.measure in ("", key.measure)
        )


class Plan(Section):
    """Parameters and tolerances of the fit (schema `npusim.granite-fit/1`)."""

    schema_name: Literal["npusim.granite-fit/1"] = Field(alias="schema")
    """Version of this file format."""
    parameters: dict[str, Parameter] = Field(min_length=1)
    """FreeNumber parameters by name."""
    tolerances: list[Tolerance]
    """The first that fits a figure counts."""

    def tolerance(self, key: Key) -> Tolerance:
        """Return the tolerance of a figure."""
        for tolerance in self.tolerances:
            if tolerance.fits(key):
                return tolerance
        raise ConfigError(f"no tolerance for {key.figure}", key="tolerances", allowed="one for every figure")


@cache
def load_plan() -> Plan:
    """Return the shipped plan."""
    return load_model(resource("validate", "definitions", "granite_fit.yaml"), Plan)


@dataclass(frozen=True)
class Result:
    """Fitted parameters."""

    names: tuple[str, ...]
    logs: Floats
    """Their logarithms. Shape (parameters,)."""
    predicted: Floats
    """Shape (figures,)."""
    slopes: Floats
    """d log(prediction) / d log(parameter). Shape (figures, parameters)."""
    covariance: Floats
    """Of the logarithms, priors included. Shape (parameters, parameters)."""

    @property
    def values(self) -> Floats:
        """The parameters, shape (parameters,)."""
        return np.exp(self.logs)

    @property
    def sigma(self) -> Floats:
        """Standard deviation of the logarithms, shape (parameters,)."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def figures_of(self) -> list[int]:
        """Number of figures that affect each parameter."""
        return [int(n) for n in (np.abs(self.slopes) * np.log(2.0) > _AFFECTS).sum(axis=0)]


class GraniteFit:
    """Maximum a posteriori: squared deviations from figures and priors in standard deviations."""

    def __init__(self, plan: Plan, figures: Sequence[KeyedFigure]) -> None:
        self.plan, self.figures = plan, list(figures)
        self.keys = [_known(figure) for figure in figures]
        self.names = tuple(plan.parameters)
        self.runner = GraniteRunner(load_definitions())
        self._memory: dict[tuple[float, ...], Floats] = {}

    @cached_property
    def start(self) -> Floats:
        """Logarithms of the priors' medians."""
        return np.log([p.prior.value for p in self.plan.parameters.values()])

    @cached_property
    def widths(self) -> Floats:
        """Widths of the priors."""
        return np.array([p.prior.width for p in self.plan.parameters.values()])

    def socs(self, logs: Floats) -> dict[str, Soc]:
        """Return the SoCs with a set of parameters."""
        settings: dict[str, dict[str, str]] = {}
        values = dict(zip(self.names, np.exp(logs).tolist(), strict=True))
        for name, parameter in self.plan.parameters.items():
            for number in parameter.numbers:
                value = f"{number.value(values[name], values):.10g} {number.unit}".strip()
                for soc in number.socs:
                    settings.setdefault(soc, {})[number.path] = value
        return {soc: load_soc(soc, found) for soc, found in settings.items()}

    def predicted(self, logs: Floats) -> Floats:
        """Return the predictions of all figures, shape (figures,)."""
        key = tuple(logs.tolist())
        if key not in self._memory:
            runner = self.runner.with_socs(self.socs(logs))
            self._memory[key] = np.array([predict(k, runner) for k in self.keys])
        return self._memory[key]

    def residuals(self, logs: Floats, left_out: int | None = None) -> Floats:
        """Return deviations in standard deviations: figures (but one that is left out), then priors."""
        found = []
        for i, (figure, key, value) in enumerate(
            zip(self.figures, self.keys, self.predicted(logs), strict=True)
        ):
            tolerance = self.plan.tolerance(key)
            if i == left_out:
                continue
            if tolerance.points is not None:
                found.append((value - figure.value) / tolerance.points)
            else:
                assert tolerance.ratio is not None, "a tolerance is a ratio or in points"
                found.append(float(np.log(value / figure.value)) / tolerance.ratio)
        return np.concatenate([found, (logs - self.start) / self.widths])

    def solve(self, start: Floats | None = None, left_out: int | None = None) -> Result:
        """Return the most likely parameters.

        Parameters
        ----------
        start : array, shape (parameters,), optional
            Logarithms to start from; None: the priors' medians.
        left_out : int, optional
            A figure that is not fitted to.
        """
        from scipy.optimize import least_squares  # slow to import

        def at(logs: Floats) -> Floats:
            return self.residuals(logs, left_out)

        found = least_squares(
            at, self.start if start is None else start, diff_step=_STEP, xtol=1e-6, ftol=1e-6
        )
        return Result(
            names=self.names,
            logs=found.x,
            predicted=self.predicted(found.x),
            slopes=self._slopes(found.x),
            covariance=np.linalg.inv(found.jac.T @ found.jac),
        )

    def _slopes(self, logs: Floats) -> Floats:
        here = np.log(np.maximum(self.predicted(logs), 1e-12))
        columns = []
        for i in range(len(logs)):
            there = logs.copy()
            there[i] += _STEP
            columns.append((np.log(np.maximum(self.predicted(there), 1e-12)) - here) / _STEP)
        return np.array(columns).T

    def leave_one_out(self, best: Result) -> Floats:
        """Return each figure as the fit without it predicts it, shape (figures,)."""
        return np.array([self.solve(best.logs, left_out=i).predicted[i] for i in range(len(self.figures))])


def given_figures() -> list[KeyedFigure]:
    """Return the shipped figures of GraNNite."""
    path = resource("validate", "figures", "published.yaml")
    return read_keyed(path, lambda name: parse_key(name) is not None)[0]


def _known(figure: KeyedFigure) -> Key:
    key = parse_key(figure.id)
    assert key is not None, f"{figure.id} is no figure of the suite"
    return key


def fit_shipped() -> tuple[GraniteFit, Result]:
    """Fit the shipped plan to the shipped figures."""
    fit = GraniteFit(load_plan(), given_figures())
    return fit, fit.solve()


if __name__ == "__main__":
    from npusim.calibrate.granite_report import main

    main()
