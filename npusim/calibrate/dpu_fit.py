"""Fits the parameters of the MAC grid: measured silicon first, Intel's cost model elsewhere.

`docs/dpu_model.md` says what was found and what the figures do not determine. Parameters and errors of both
NPUs are shown by ``python -m npusim.calibrate.dpu_fit``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npusim.calibrate.cross import cross_validate
from npusim.calibrate.data_sheet import FittedNumber
from npusim.calibrate.least_squares import Floats
from npusim.calibrate.unit_fit import Fitted, TrainingRows, shipped_rows
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
from npusim.validation.running import machines_of, run_suite
from npusim.validation.suite import load_suite
from npusim.validation.unit_models import Machine, dpu_cycles


@dataclass(frozen=True)
class Source:
    """Figures of the fit, with their weight."""

    predictor: TablePredictor
    table: Callable[[Figures], NDArray[Any]]
    """Makes a table of DPU_ROW of figures."""
    sigma: float
    """Error of a row that the equations cannot be expected to explain, relative."""
    counts_as: int | None = None
    """Independent rows that all of them are worth; None: as many as there are. A cost model's grid is many
    correlated rows, which must not outweigh the few measurements."""
    rows_used: Callable[[Figures, Machine], NDArray[np.bool_]] = lambda figures, _: np.ones(
        len(figures), bool
    )
    """Which rows count."""
    is_speedup: bool = False
    """Whether the measured value is dense cycles over cycles."""


SOURCES = {
    "silicon-dpu": Source(WORKLOADS, workload_table, sigma=0.02),
    "silicon-sparsity": Source(SPARSE, sparse_table, sigma=0.03),
    "costmodel-gemm": Source(PRODUCTS, product_table, sigma=0.15, counts_as=60),
    # Start-up hides what small products gain by zeros.
    "costmodel-sparse": Source(
        SPARSE_PRODUCTS, product_table, sigma=0.06, counts_as=60, is_speedup=True,
        rows_used=lambda figures, _: (figures["m"] >= 256) & (figures["k"] >= 256),
    ),
    # Multiplication of two tensors counts where the grid does it.
    "costmodel-eltwise-pool": Source(
        CHANNELWISE, channelwise_table, sigma=0.15, counts_as=40, rows_used=lambda figures, machine:
        (figures["op"] != "eltwise_mul") | ("multiply" in machine.soc.npu.dpu.eltwise_ops),
    ),
}  # fmt: skip
"""Figures of the fit, by suite."""

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

_UNMEASURED = (
    "channelwise_start_cycles", "depthwise_tap_cost", "depthwise_group_cost", "row_reuse_cost",
    "row_overlap_cost", "pool_tap_cost", "pool_stencil_cost", "pool_few_slots_cost",
    "eltwise_bytes_per_port_cycle", "fp16_output_rate",
)  # fmt: skip
"""What is free on an NPU of which the cost model's channelwise operators are all there is; from its sheet."""

_LOW = {"sparse_act_feed": 0.5}  # the pointers do not make reading twice as fast; all others are at least 0
_HIGH = {"broadcast_rate": 1.0}  # writing to several tiles is not faster than to one
_START_WEIGHT = 0.3
"""Weight of the start: a parameter that no row moves stays there; 100 % away costs 0.3 sigma of a row."""
_MOVES = 0.01
"""Sigmas that a parameter's own size must move a measured row by, to count as measured."""
_UNKNOWN = 0.5
"""A parameter whose standard deviation is above this share of it is called undetermined."""
_SCALE = 0.05
"""Added to a start's size where that is the unit of length, because some starts are near 0."""


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


def fit(machine: Machine, rows: TrainingRows) -> Fitted:
    """Fit one NPU's parameters: least squares over logarithms of cycles, soft L1, nothing random.

    Returns
    -------
    Fitted
        Numbers of `npu.dpu.model`. Their standard deviations are those of the linearised problem at the
        solution, widened where errors are larger than the sources' sigma.
    """
    from scipy.optimize import least_squares  # slow to import

    start = _start(machine)
    names, first = list(start), np.array(list(start.values()))
    length = np.abs(first) + _SCALE
    targets = {name: _target(source, rows(name), machine) for name, source in SOURCES.items()}
    targets = {name: target for name, target in targets.items() if len(target.measured)}

    def residuals(values: Floats) -> Floats:
        tried = machine.with_numbers(_columns(names, values))
        errors = [target.errors(tried) for target in targets.values()]
        return np.concatenate([*errors, _START_WEIGHT * (values - first) / length])

    low = np.array([_LOW.get(name, 0.0) for name in names])
    high = np.array([_HIGH.get(name, np.inf) for name in names])
    found = least_squares(residuals, first, loss="soft_l1", bounds=(low, high), x_scale=length, max_nfev=60)
    count = sum(len(target.measured) for target in targets.values())
    spread = max(1.0, 2.0 * found.cost / max(1, count - len(names)))
    sigma = np.sqrt(np.diag(np.linalg.pinv(found.jac.T @ found.jac) * spread))
    measured = np.concatenate([np.full(len(t.measured), n.startswith("silicon")) for n, t in targets.items()])
    moves = np.abs(found.jac[:count][measured]) * np.maximum(1e-3, np.abs(found.x)) > _MOVES
    open_ = (found.x <= low + 1e-4) | (found.x >= high - 1e-4) | ~(sigma < _UNKNOWN * found.x)
    numbers = [
        _number(machine, name, value, error, bool(seen))
        for name, value, error, seen in zip(names, found.x, sigma, moves.any(axis=0), strict=True)
    ]
    undetermined = tuple(number.path for number, left in zip(numbers, open_, strict=True) if left)
    return Fitted(machine.with_numbers(_columns(names, found.x)), numbers, undetermined=undetermined)


def _columns(names: list[str], values: Floats) -> dict[str, float]:
    """Return values by column of the architecture table."""
    return {f"dpu_{name}": float(value) for name, value in zip(names, values, strict=True)}


def _number(machine: Machine, name: str, value: float, sigma: float, on_silicon: bool) -> FittedNumber:
    unit = getattr(machine.soc.npu.dpu.model, name).unit
    source = "[FIT] measured cycles" if on_silicon else "[FIT] cost model only, unmeasured"
    relative = float(sigma / value) if value > 0.0 else None
    return FittedNumber(f"npu.dpu.model.{name}", float(value), unit, relative, source, on_silicon)


def _start(machine: Machine) -> dict[str, float]:
    if machine.name not in _NPUS:
        return {name: float(getattr(machine.soc.npu.dpu.model, name)) for name in _UNMEASURED}
    column = _NPUS.index(machine.name)
    return {name: float(s) for name, both in _START.items() if (s := both[column]) is not None}


def _target(source: Source, figures: Figures, machine: Machine) -> _Target:
    figures = figures.where(source.rows_used(figures, machine))
    table = source.table(figures)
    dense = table.copy() if source.is_speedup else None
    if dense is not None:
        dense["act_density"] = dense["weight_density"] = 1.0
    share = 1.0 if source.counts_as is None else min(1.0, source.counts_as / max(1, len(figures)))
    return _Target(table, dense, source.predictor.measured(figures), float(np.sqrt(share)) / source.sigma)


def main() -> None:
    """Print the parameters of both NPUs, and the errors of the suite of measured workloads."""
    for npu, machine in machines_of(load_suite("silicon-dpu")).items():
        fitted = fit(machine, shipped_rows(npu))
        print(f"{npu}: fitted parameters and one standard deviation")
        for number in fitted.numbers:
            name = number.path.rpartition(".")[2]
            spread = "" if number.relative_sigma is None else f"+- {100 * number.relative_sigma:.2g} %"
            left = "  (not determined)" if number.path in fitted.undetermined else ""
            print(f"  {name:30} {number.value:8.4g} {number.unit:8} {spread:14} {number.source}{left}")
    for judged in (as_shipped := run_suite("silicon-dpu"), cross_validate(as_shipped)):
        print(f"{judged.name}: errors in %, mean, median and 90th percentile")
        for group in judged.groups:
            errors = (group.mean_error, group.median_error, group.p90_error)
            numbers = " ".join(f"{100 * error:6.2f}" for error in errors)
            print(f"  {group.name:24} {len(group.errors):4} rows {numbers}")


if __name__ == "__main__":
    main()
