"""Fit of an NPU's time per dispatched operator to the published rates of whole networks.

`python -m npusim.calibrate.networks_fit` prints, for each NPU generation, the fitted numbers, their range as
networks are left out in turn, and each row predicted by a fit with and without its network. Times are linear
in the fitted numbers, so two predictions per number tell the times for all of its values. The fit takes the
least mean of the suite's errors, |predicted / measured - 1|: rows that no model explains have little weight.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npusim.calibrate.least_squares import Floats
from npusim.locate import resource
from npusim.validation.evidence import Evidence
from npusim.validation.network_figures import PublishedNetworks
from npusim.validation.suite import load_suite

_NMS = "npu.dsp.kernels.implied.kernels.nonmaxsuppression.per_element"
FREE: dict[str, dict[str, tuple[float, float, str]]] = {
    "npu3720": {"npu.dispatch_overhead": (20e-6, 40e-6, "s"), _NMS: (0.2, 0.4, "cycle/element")},
    "npu4000": {"npu.dispatch_overhead": (6e-6, 12e-6, "s")},
}
"""Free numbers by NPU generation: path, two values to predict with, unit. Published rows on the 288V of
networks with a non-maximum suppression are anomalous, so its rate is free on the older NPU alone."""


@dataclass(frozen=True)
class NetworksFit:
    """Measured times of one NPU generation and their predictions as functions of the free numbers."""

    names: tuple[str, ...]
    """Paths of the free numbers."""
    scale: Floats
    """A usual value of each."""
    workloads: NDArray[np.object_]
    """Network of each row, shape (rows,)."""
    labels: tuple[str, ...]
    """Line, precision and quantity of each row."""
    is_latency: NDArray[np.bool_]
    """Whether each row is a latency; the others are throughputs."""
    measured_s: Floats
    """Time per inference, shape (rows,)."""
    fixed_s: Floats
    """Predicted time where all free numbers are zero."""
    slopes: Floats
    """Time per unit of each free number, shape (rows, numbers)."""

    @classmethod
    def of(cls, unit: str) -> NetworksFit:
        """Predict the rows of an NPU generation often enough to know their dependence."""
        free = FREE[unit]
        at = {path: first for path, (first, _, _) in free.items()}
        rows = _rows(unit, at)
        kept = rows.columns["anomalous"] == "no"
        base = _times(rows, rows.predicted)[kept]
        slopes = np.empty((len(base), len(free)))
        for i, (path, (first, second, _)) in enumerate(free.items()):
            moved = _rows(unit, at | {path: second})
            slopes[:, i] = (_times(moved, moved.predicted)[kept] - base) / (second - first)
        columns = rows.columns
        words = zip(rows.ids, columns["precision"], columns["quantity"], strict=True)
        labels = [" ".join(map(str, word)) for word, is_kept in zip(words, kept, strict=True) if is_kept]
        measured = _times(rows, rows.measured)[kept]
        scale = np.array(list(at.values()))
        fixed = base - slopes @ scale
        is_latency = (columns["quantity"] == "latency")[kept]
        workloads = columns["workload"][kept]
        return cls(tuple(free), scale, workloads, tuple(labels), is_latency, measured, fixed, slopes)

    def predicted_s(self, values: Floats) -> Floats:
        """Return the time of each row at values of the free numbers."""
        return self.fixed_s + self.slopes @ values

    def errors(self, values: Floats) -> Floats:
        """Return predicted over measured, less one, of latencies and of throughputs."""
        ratio = self.predicted_s(values) / self.measured_s
        return np.where(self.is_latency, ratio, 1.0 / ratio) - 1.0

    def best(self, used: NDArray[np.bool_] | None = None) -> Floats:
        """Return the values that fit best to the rows that are `used`; None: to all."""
        from scipy.optimize import minimize

        rows = np.ones(len(self.measured_s), bool) if used is None else used
        scale = self.scale

        def loss(logs: Floats) -> float:
            errors = np.abs(self.errors(np.exp(logs) * scale)[rows])
            # A number that no row bears on stays where the prediction began.
            return float(errors.mean() + 1e-3 * np.square(logs).mean())

        options = {"xatol": 1e-6, "fatol": 1e-9, "maxiter": 20_000}
        starts = [np.full(len(self.names), start) for start in (-1.0, 0.0, 1.0)]
        found = [minimize(loss, start, method="Nelder-Mead", options=options) for start in starts]
        return np.asarray(np.exp(min(found, key=lambda f: float(f.fun)).x) * scale)


def _rows(unit: str, at: dict[str, float]) -> Evidence:
    """Return the rows of a unit, predicted at values of its free numbers."""
    suite = load_suite("networks")
    settings = tuple(f"{path}={value!r} {FREE[unit][path][2]}" for path, value in at.items())
    path = resource("validate", "figures", str(suite.figures))
    return PublishedNetworks(settings, unit).evidence(suite, path, {})


def _times(rows: Evidence, figures: Floats) -> Floats:
    """Return latencies, and intervals of throughputs."""
    return np.where(rows.columns["quantity"] == "latency", figures, 1.0 / figures)


def report(unit: str) -> Iterator[str]:
    """Yield the lines of one generation's report."""
    fit = NetworksFit.of(unit)
    values = fit.best()
    left_out = np.empty_like(fit.measured_s)
    others = []
    for network in sorted(set(fit.workloads)):
        without = fit.workloads == network
        others.append(fit.best(~without))
        left_out[without] = fit.errors(others[-1])[without]
    yield f"## {unit}"
    yield ""
    for i, path in enumerate(fit.names):
        low, high = (f(other[i] for other in others) for f in (min, max))
        value = f"{path} = {values[i]:.4g} {FREE[unit][path][2]}"
        yield f"{value}; {low:.3g} to {high:.3g} as networks are left out"
    yield ""
    yield "| row | network | measured, ms | fitted | left out |"
    yield "| --- | --- | ---: | ---: | ---: |"
    found = fit.errors(values)
    for i, label in enumerate(fit.labels):
        errors = " | ".join(f"{error[i]:+.0%}" for error in (found, left_out))
        yield f"| {label} | {fit.workloads[i]} | {fit.measured_s[i] * 1e3:.2f} | {errors} |"
    means = " | ".join(f"{np.abs(error).mean():.1%}" for error in (found, left_out))
    yield f"| mean | | | {means} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit and print the tables of all NPU generations."""
    program = "python -m npusim.calibrate.networks_fit"
    argparse.ArgumentParser(prog=program, description=main.__doc__).parse_args(arguments)
    for unit in FREE:
        print("\n".join(report(unit)), end="\n\n")


if __name__ == "__main__":
    main()
