"""Fits to published rates of networks: CPU and GPU (`hosts`), and an NPU's dispatch (`networks`).

Each figure is also predicted by fits without its class of networks, its machine or its NPU generation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from npusim.arch import load_soc
from npusim.calibration.fits import FiguresFit, FiguresFits, FitPlan, linear_times, load_plan, settings_of
from npusim.calibration.least_squares import ByNumbers, Floats, Solution
from npusim.config import load_model
from npusim.cost import arch_row
from npusim.locate import resource
from npusim.mapping import Mapped
from npusim.studies.perturbation import evaluated, moved
from npusim.validation.figures import Row, evidence_of
from npusim.validation.measured_networks import MeasuredNetworks, MeasuredRow, Reader, measured_rows
from npusim.validation.network_figures import FIGURES, HOST_FIGURES, published_rows
from npusim.validation.running import Judged, judge
from npusim.validation.suite import Suite, load_suite


class HostFit(FiguresFit):
    """A device's published rows, and the fit to them; networks are left out in turn."""

    def __init__(self, device: str, rows: Sequence[MeasuredRow] | None = None) -> None:
        published = rows or published_rows(resource("validate", "figures", HOST_FIGURES))[0]
        rows, plan = [row for row in published if row.device == device], load_plan("hosts", FitPlan)
        labels = [f"{row.workload} {row.precision} {row.hint}" for row in rows]
        networks, units = [row.workload for row in rows], ["s" if row.is_time else "" for row in rows]
        super().__init__(plan, device, labels, [row.value for row in rows], networks, units)
        self.rows, self.machine = rows, load_soc(plan.soc)
        self.classes = {"network": [row.kind for row in rows]}

    @cached_property
    def mapped(self) -> list[Mapped]:
        """Each row's network, mapped for its hint."""
        return [MeasuredNetworks().run(row).scenario.mapped for row in self.rows]

    def predicted(self, values: Mapping[str, float]) -> Floats:
        """Return the predictions of all rows, each in its unit."""
        machine = moved(
            self.machine, {("devices", *name.split(".")): value for name, value in values.items()}
        )
        predicted = np.empty(len(self.rows))
        for i, (row, mapped) in enumerate(zip(self.rows, self.mapped, strict=True)):
            run = mapped.run
            arch: Any = arch_row(machine, run.tiles, run.requests, run.hint)
            # No fitted number changes the operator table.
            total = evaluated(mapped, machine, arch, mapped.lowered.ops)
            predicted[i] = total["latency_s" if row.is_time else "throughput_per_s"]
        return predicted


_PUBLISHED_WEIGHT = 3.0  # weight of a row that OpenVINO publishes: others have harnesses of their own in them


class NetworksFit(FiguresFit):
    """An NPU generation's rows of the suites `networks` and `measured-networks`.

    The fit minimises the weighted mean of the errors, in which rows that no model explains have little
    weight. The time that each harness adds is held at its value in `validate/definitions`.
    """

    def __init__(self, unit: str) -> None:
        published = _rows_on(unit, FIGURES, published_rows)
        others = _rows_on(unit, str(load_suite("measured-networks").figures), measured_rows)
        rows = [*published, *others]
        self.is_latency = np.array([row.is_time for row in rows])
        labels = [f"{row.workload} {row.line} {row.precision} {row.hint} {row.machine}" for row in rows]
        self.weights = np.where(np.arange(len(rows)) < len(published), _PUBLISHED_WEIGHT, 1.0)

        def times(values: Mapping[str, float]) -> Floats:
            model = MeasuredNetworks(settings_of(self.free, values))
            return self._inverted(np.array([model.predicted(row) for row in rows]))

        units = ["s" if row.is_time else "" for row in rows]
        self.classes = {"network": [row.kind for row in rows], "machine": [row.machine for row in rows]}
        measured, families = [row.value for row in rows], [row.family for row in rows]
        super().__init__(load_plan("networks", FitPlan), unit, labels, measured, families, units)
        self.times_s = linear_times(self.free, times, 2.0)

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


def _rows_on(unit: str, figures: str, read: Reader) -> list[MeasuredRow]:
    """Return the rows of shipped figures on an NPU generation that are judged."""
    rows, _ = read(resource("validate", "figures", figures))
    return [row for row in rows if row.unit == unit and not row.is_token and not row.reason]


HOSTS = FiguresFits("hosts", HostFit)
NETWORKS = FiguresFits("networks", NetworksFit)


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


def _without_classes(fit: FiguresFit) -> list[Row]:
    """Return the figures of a fit, each as predicted by fits without its class."""
    best, rows = fit.solve(), list[Row]()
    for way, words in fit.classes.items():
        if len(set(words)) > 1:
            fit.groups = np.array(words, object)
            rows += _rows(fit, fit.leave_one_out(best)[0], way, words)
    return rows


def _by_another(fit: FiguresFit, other: FiguresFit) -> list[Row]:
    """Return the figures of one generation as predicted with the numbers that are fitted to another."""
    own, numbers = {number.name: number.start for number in fit.free}, other.solve().values
    values = {name: numbers.get(name, start) for name, start in own.items()}
    return _rows(fit, fit.predicted(values), "generation", [fit.case] * len(fit.labels))


def _rows(fit: FiguresFit, predicted: np.ndarray, way: str, words: list[str]) -> list[Row]:
    numbers = zip(fit.labels, words, fit.measured, predicted, strict=True)
    return [
        Row(f"{way}: {label}", value, number, {"device": fit.case, "way": way, "left_out": word})
        for label, word, value, number in numbers
    ]
