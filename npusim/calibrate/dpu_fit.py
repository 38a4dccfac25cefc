"""Fits the parameters of the MAC grid: measured silicon first, Intel's cost model where silicon is silent.

Like tuning a piano by a few tuning forks: the strings that have a fork follow it, the others follow their
neighbours. `docs/dpu_model.md` says what was found and what the figures do not determine. Shown for every
NPU, parameter by parameter and operator by operator, by ``python -m npusim.calibrate.dpu_fit``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npusim.arch import DpuModel
from npusim.validation.batches import dpu_cycles
from npusim.validation.costmodel_figures import (
    CHANNELWISE,
    PRODUCTS,
    SPARSE_PRODUCTS,
    channelwise_table,
    product_table,
)
from npusim.validation.dpu_figures import SPARSE, WORKLOADS, sparse_table, workload_table
from npusim.validation.evidence import TablePredictor
from npusim.validation.figures import Figures
from npusim.validation.machine import Machine
from npusim.validation.running import figures_path, machines_of
from npusim.validation.suite import load_suite

__all__ = ["SOURCES", "DpuFit", "Rows", "Source", "cross_validate", "fit_dpu", "read_rows"]

Floats = NDArray[np.float64]
Rows = Mapping[str, Figures]
"""Figures of one NPU by suite."""


@dataclass(frozen=True)
class Source:
    """Figures that the fit listens to, and how much.

    Attributes
    ----------
    predictor : TablePredictor
    table : callable
        Makes a table of DPU_ROW of figures.
    sigma : float
        Error of a row that the equations cannot be expected to explain, relative.
    counts_as : int or None
        Independent rows that all of them are worth; None: as many as there are. A cost model's grid repeats
        one opinion many times, so it must not outvote the few measurements.
    heard : callable
        Which rows count.
    is_speedup : bool
        Whether the measured value is dense cycles over cycles.
    """

    predictor: TablePredictor
    table: Callable[[Figures], NDArray[Any]]
    sigma: float
    counts_as: int | None = None
    heard: Callable[[Figures], NDArray[np.bool_]] = lambda figures: np.ones(len(figures), bool)
    is_speedup: bool = False


SOURCES = {
    "silicon-dpu": Source(WORKLOADS, workload_table, sigma=0.02),
    "silicon-sparsity": Source(SPARSE, sparse_table, sigma=0.03),
    "costmodel-gemm": Source(PRODUCTS, product_table, sigma=0.15, counts_as=60),
    # Start-up hides what small products gain by zeros.
    "costmodel-sparse": Source(
        SPARSE_PRODUCTS, product_table, sigma=0.06, counts_as=60, is_speedup=True,
        heard=lambda figures: (figures["m"] >= 256) & (figures["k"] >= 256),
    ),
    # Multiplication of two tensors runs on the grid of no SoC of npusim.
    "costmodel-eltwise-pool": Source(
        CHANNELWISE, channelwise_table, sigma=0.15, counts_as=40, heard=lambda figures: figures["op"] !=
        "eltwise_mul"
    ),
}  # fmt: skip
"""What the fit listens to, by suite."""

_NPUS = ("npu3720", "npu4000")
_START: dict[str, tuple[float | None, float | None]] = {
    "startup_cycles": (200, 150),
    "broadcast_cycles": (None, 40),
    "stencil_cycles": (5, 8),
    "slot_walk_cycles": (0.19, 0.05),
    "act_bytes_per_port_cycle": (13.5, 16),
    "weight_bytes_per_port_cycle": (8, 12),
    "drain_bytes_per_port_cycle": (20, 14),
    "broadcast_rate": (0.5, 0.5),
    "lone_row_taps": (None, 1),
    "sparse_window_act": (340, 340),
    "sparse_window_weight": (32, 32),
    "sparse_skip_max": (2.6, 2.7),
    "sparse_restart": (0.3, 0.2),
    "sparse_drain_exposed": (None, 0.4),
    "sparse_act_feed": (1, 1.3),
    "channelwise_start_cycles": (30, 90),
    "depthwise_tap_cost": (1.42, 1.05),
    "depthwise_group_cost": (0.78, 0.1),
    "padding_saving": (0.47, None),
    "stride_conflict": (0.1, None),
    "half_block_cost": (0.92, None),
    "row_reuse_cost": (None, 1.12),
    "row_overlap_cost": (None, 0.95),
    "pool_tap_cost": (1.45, 1),
    "pool_stencil_cost": (None, 0.5),
    "pool_few_slots_cost": (None, 1.4),
    "eltwise_bytes_per_port_cycle": (4.5, 5.5),
    "fp16_output_rate": (0.7, 0.6),
}
"""Where the search starts, for each of `_NPUS`; None, and all others: held at the data sheet's value."""

_LEAST = {"sparse_act_feed": 0.5}  # the pointers do not make reading twice as fast; all others are at least 0
_MOST = {"broadcast_rate": 1.0}  # writing to several tiles is not faster than to one
_PULL = 0.3
"""Weight of the start: a parameter that no row moves stays there; 100 % away costs 0.3 sigma of a row."""
_SCALE = 0.05
"""Added to a start's size where that is the unit of length, because some starts are near 0."""


@dataclass(frozen=True)
class DpuFit:
    """Fitted parameters of one NPU.

    Attributes
    ----------
    npu : str
    values, sigma : dict
        Value and standard deviation of each free parameter, by its name in `npusim.arch.DpuModel`.
    measured : frozenset of str
        Free parameters that rows of measured silicon move; the others rest on the cost model alone.
    """

    npu: str
    values: dict[str, float]
    sigma: dict[str, float]
    measured: frozenset[str]

    @property
    def numbers(self) -> dict[str, float]:
        """Values by column of ARCH_DTYPE, as `npusim.validation.machine.Machine.with_numbers` takes them."""
        return {f"dpu_{name}": value for name, value in self.values.items()}


@dataclass(frozen=True)
class _Target:
    """Rows of one source, ready to be compared."""

    table: NDArray[Any]
    dense: NDArray[Any] | None
    """The same rows without zeros, where the measured value is a speed-up."""
    measured: Floats
    weight: float
    """1 / sigma of a row, less where many rows count as few."""

    def errors(self, machine: Machine) -> Floats:
        """Return errors in weighted sigmas; shape (rows,)."""
        cycles = dpu_cycles(machine.arch[0], self.table)
        if self.dense is None:
            log_error: Floats = np.log(cycles / self.measured) * self.weight
            return log_error
        speedup = dpu_cycles(machine.arch[0], self.dense) / cycles
        error: Floats = (speedup / self.measured - 1.0) * self.weight
        return error


def read_rows(npu: str, directory: Path | None = None) -> dict[str, Figures]:
    """Return the figures of one NPU by suite.

    Parameters
    ----------
    npu : str
        npu3720 or npu4000.
    directory : Path, optional
        Where the CSV files lie; None: those that npusim ships.

    Raises
    ------
    FileError, ConfigError
        Where a file is missing or broken.
    """
    rows: dict[str, Figures] = {}
    for name, source in SOURCES.items():
        suite = load_suite(name)
        path = figures_path(suite, None if directory is None else directory / str(suite.figures))
        assert path is not None, f"the suite {name} has figures"
        figures = source.predictor.read(suite, path)
        rows[name] = figures.where(figures["npu"] == npu)
    return rows


def fit_dpu(machine: Machine, rows: Rows) -> DpuFit:
    """Fit the free parameters of one NPU: least squares over logarithms of cycles, soft L1, nothing random.

    Parameters
    ----------
    machine : Machine
        npu3720 or npu4000; gives what is held.
    rows : mapping
        Figures of this NPU by suite; suites that are missing are not heard.

    Returns
    -------
    DpuFit
        The standard deviations are those of the linearised problem at the solution, widened where the errors
        are larger than the sources' sigma.
    """
    from scipy.optimize import least_squares  # slow to import

    start = _start(machine.name)
    names, first = list(start), np.array(list(start.values()))
    length = np.abs(first) + _SCALE
    targets = {name: _target(SOURCES[name], figures) for name, figures in rows.items() if len(figures)}

    def residuals(values: Floats) -> Floats:
        numbers = {f"dpu_{name}": value for name, value in zip(names, values, strict=True)}
        tried = machine.with_numbers(numbers)
        errors = [target.errors(tried) for target in targets.values()]
        return np.concatenate([*errors, _PULL * (values - first) / length])

    bounds = ([_LEAST.get(n, 0.0) for n in names], [_MOST.get(n, np.inf) for n in names])
    found = least_squares(residuals, first, loss="soft_l1", bounds=bounds, x_scale=length, max_nfev=60)
    count = sum(len(target.measured) for target in targets.values())
    spread = max(1.0, 2.0 * found.cost / max(1, count - len(names)))
    sigma = np.sqrt(np.diag(np.linalg.pinv(found.jac.T @ found.jac) * spread))
    silicon = np.concatenate([np.full(len(t.measured), n.startswith("silicon")) for n, t in targets.items()])
    moved = np.abs(found.jac[:count][silicon]) * np.maximum(1e-3, np.abs(found.x)) > 0.01
    return DpuFit(
        machine.name,
        dict(zip(names, found.x.tolist(), strict=True)),
        dict(zip(names, sigma.tolist(), strict=True)),
        frozenset(name for name, seen in zip(names, moved.any(axis=0), strict=True) if seen),
    )


def _start(npu: str) -> dict[str, float]:
    column = _NPUS.index(npu)
    return {name: float(s) for name, both in _START.items() if (s := both[column]) is not None}


def _target(source: Source, figures: Figures) -> _Target:
    figures = figures.where(source.heard(figures))
    table = source.table(figures)
    dense = table.copy() if source.is_speedup else None
    if dense is not None:
        dense["act_density"] = dense["weight_density"] = 1.0
    share = 1.0 if source.counts_as is None else min(1.0, source.counts_as / max(1, len(figures)))
    return _Target(table, dense, source.predictor.measured(figures), float(np.sqrt(share)) / source.sigma)


def cross_validate(machine: Machine, rows: Rows, folds: int = 5, seed: int = 0) -> Floats:
    """Predict every measured workload by parameters that were fitted without it and its near-twins.

    Parameters
    ----------
    machine, rows
        As for `fit_dpu`.
    folds : int
        Parts that are left out in turn; each operator's near-twins are dealt to them like cards.
    seed : int
        Of the shuffling.

    Returns
    -------
    array, shape (rows of silicon-dpu,)
        Cycles.
    """
    silicon = rows["silicon-dpu"]
    twins = np.array(WORKLOADS.twins(silicon), object)
    generator = np.random.default_rng(seed)
    fold_of: dict[str, int] = {}
    for op in sorted(set(silicon["op"])):
        cards = np.array(list(dict.fromkeys(twins[silicon["op"] == op])), object)
        fold_of |= {card: i % folds for i, card in enumerate(generator.permutation(cards))}
    fold = np.array([fold_of[twin] for twin in twins])
    cycles = np.full(len(silicon), np.nan)
    for left_out in sorted(set(fold_of.values())):
        fit = fit_dpu(machine, {**rows, "silicon-dpu": silicon.where(fold != left_out)})
        rest = silicon.where(fold == left_out)
        cycles[fold == left_out] = WORKLOADS.predict(rest, machine.with_numbers(fit.numbers))
    return cycles


def _parameter_lines(fit: DpuFit, machine: Machine) -> list[str]:
    """Return the fitted parameters as lines of a data sheet."""
    lines = []
    for name in DpuModel.model_fields:
        if name in fit.values:
            value, sigma = fit.values[name], fit.sigma[name]
            unit = getattr(machine.soc.npu.dpu.model, name).unit
            source = "measured cycles" if name in fit.measured else "cost model only, unmeasured"
            text = f"{value:.4g} {unit},".replace(" ,", ",")
            told = f", uncertainty: {float(f'{100 * sigma / value:.2g}'):g} %" if value else ""
            lines.append(f'        {name + ":":34} {{value: {text:14} source: "[FIT] {source}"{told}}}')
    return lines


def _error_lines(rows: Rows, machine: Machine, held_out: Floats | None) -> list[str]:
    """Return mean, median and 90th percentile of the errors by suite and operator, in per cent."""

    def summed(errors: Floats) -> str:
        numbers = (errors.mean(), np.median(errors), np.quantile(errors, 0.9))
        return " ".join(f"{100 * number:6.2f}" for number in numbers)

    lines = []
    for name, source in SOURCES.items():
        figures = rows[name]
        measured = source.predictor.measured(figures)
        errors = np.abs(source.predictor.predict(figures, machine) / measured - 1.0)
        kinds = figures.columns.get("op", np.array([""] * len(figures), object))
        for kind in sorted(set(kinds)):
            mine = kinds == kind
            line = f"  {name:22} {kind:15} {mine.sum():4} rows: {summed(errors[mine])}"
            if held_out is not None and name == "silicon-dpu":
                line += f"   held out: {summed(np.abs(held_out / measured - 1.0)[mine])}"
            lines.append(line)
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Fit both NPUs and print parameters and errors."""
    parser = argparse.ArgumentParser(description="Fit the parameters of the MAC grid and print them.")
    parser.add_argument(
        "figures", nargs="?", type=Path, help="folder of the CSV files; default: the shipped ones"
    )
    parser.add_argument("--no-folds", action="store_true", help="leave out the cross-validation")
    given = parser.parse_args(arguments)
    for npu, machine in machines_of(load_suite("silicon-dpu")).items():
        rows = read_rows(npu, given.figures)
        fit = fit_dpu(machine, rows)
        held_out = None if given.no_folds else cross_validate(machine, rows)
        print(f"{npu}: parameters with one sigma", *_parameter_lines(fit, machine), sep="\n")
        print(f"{npu}: errors in %, mean, median and 90th percentile")
        print(*_error_lines(rows, machine.with_numbers(fit.numbers), held_out), sep="\n")


if __name__ == "__main__":
    main()
