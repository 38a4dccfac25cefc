"""Fits of the DMA engines and of the MAC grid: measured silicon first, Intel's cost model elsewhere.

`docs/dpu_model.md` says what the figures determine of the MAC grid, and what they leave open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field

from npusim.calibration.data_sheet import FittedNumber
from npusim.calibration.fits import Fitted, TrainingRows, UnitFit, load_plan, table_of
from npusim.calibration.least_squares import Floats, FreeNumber, Solution, solve
from npusim.config import Section
from npusim.validation.figures import Figures
from npusim.validation.suite import load_suite
from npusim.validation.unit_models import Machine

# Bandwidth of DRAM in the architecture table. It is fitted too, but not written: its value is the prior of
# `npusim.calibration.granite_fit`, which writes it.
_DRAM = "dram_bytes_per_s"
_UNITS = {"cycles": "cycle", "bytes": "B", "s": "s", "share": ""}
_SHORT = 0.3  # weight of rows that the suite does not judge


class Stage(Section):
    """One stage of the DMA fit."""

    suite: str
    judged: dict[str, float]
    """Least value of a column in rows of full weight."""
    softness: float
    """Log error above which a row counts less than its square."""
    source: str
    on_silicon: bool
    free: dict[str, tuple[float, float, float]]
    """Start, least and largest value of columns of the architecture table."""


class DmaPlan(Section):
    """Fit of the DMA engines: `validate/fits/dma.yaml`."""

    schema_name: Literal["npusim.dma-fit/1"] = Field(alias="schema")
    """Version of this file format."""
    stages: list[Stage]


def _fit_stage(machine: Machine, stage: Stage, figures: Figures) -> Solution:
    """Fit the columns of a stage to the rows of its suite."""
    ((column, least),) = stage.judged.items()
    weight, suite = np.where(figures[column] >= least, 1.0, _SHORT), load_suite(stage.suite)
    measured, predict = figures[suite.measured], table_of(suite).predict

    def errors(values: Mapping[str, float]) -> Floats:
        predicted = predict(figures, machine.with_numbers(values))
        return np.asarray(weight * np.log(predicted / measured))

    free = [FreeNumber(name, *bounds) for name, bounds in stage.free.items()]
    return solve(free, errors, stage.softness)


def fit_dma(machine: Machine, rows: TrainingRows) -> Fitted:
    """Fit the DMA engine, stage by stage."""
    numbers: list[FittedNumber] = []
    undetermined: list[str] = []
    for stage in load_plan("dma", DmaPlan).stages:
        solution = _fit_stage(machine, stage, rows(stage.suite))
        machine = machine.with_numbers(solution.values)
        undetermined += map(_dma_path, solution.undetermined)
        for name, value in solution.values.items():
            if name != _DRAM:
                unit, sigma = _UNITS[name.rpartition("_")[2]], solution.relative_sigma[name]
                path = _dma_path(name)
                numbers.append(FittedNumber(path, value, unit, sigma, stage.source, stage.on_silicon))
    return Fitted(machine, numbers, tuple(undetermined))


def _dma_path(column: str) -> str:
    """Return the path of a column of the architecture table in the SoC's file."""
    return "dram.bandwidth" if column == _DRAM else f"npu.dma.model.{column.removeprefix('dma_')}"


DMA = UnitFit("dma", fit_dma, ("silicon-dma",))


class Source(Section):
    """A suite's weight in the fit of the MAC grid."""

    sigma: float
    """Relative error of a row that the equations cannot be expected to explain."""
    counts_as: int | None = None
    """Independent rows that all of them are worth; None: their number."""
    least: dict[str, float] = Field(default_factory=dict)
    """Least value of columns of the rows that count."""


class DpuPlan(Section):
    """Fit of the MAC grid: `validate/fits/dpu.yaml`."""

    schema_name: Literal["npusim.dpu-fit/1"] = Field(alias="schema")
    """Version of this file format."""
    sources: dict[str, Source]
    """Weight of the figures by suite."""
    start: dict[str, dict[str, float]]
    """Start of each parameter, by NPU."""
    unmeasured: list[str]
    """Parameters that are free on other NPUs, from their sheets' values."""
    low: dict[str, float]
    high: dict[str, float]
    """Bounds of parameters; the others are at least 0."""


# Weight of the start, where a parameter that no row moves stays: 100 % away costs 0.3 sigma of a row.
_START_WEIGHT = 0.3
_MOVES = 0.01  # sigmas by which a measured parameter's own size must move a measured row
_UNKNOWN = 0.5  # standard deviation, as a share of a parameter, above which it is called undetermined
_SCALE = 0.05  # added to a start's size in the unit of length, because some starts are near 0


class _Target:
    """Rows of a suite to fit to, and their errors in standard deviations, less where many count as few."""

    def __init__(self, name: str, source: Source, figures: Figures, machine: Machine) -> None:
        used = np.ones(len(figures), bool)
        for column, least in source.least.items():
            used &= figures[column] >= least
        if "op" in figures.columns and "multiply" not in machine.soc.npu.dpu.eltwise_ops:
            used &= figures["op"] != "eltwise_mul"
        suite = load_suite(name)
        self.figures, self.predict = figures.where(used), table_of(suite).predict
        self.measured, self.is_speedup = self.figures[suite.measured], not suite.unit
        count = max(1, len(self.measured))
        self.weight = float(np.sqrt(min(1.0, (source.counts_as or count) / count))) / source.sigma

    def errors(self, machine: Machine) -> Floats:
        """Return the error of each row, of the logarithm of cycles or of the speed-up."""
        ratio = self.predict(self.figures, machine) / self.measured
        return np.asarray((ratio - 1.0 if self.is_speedup else np.log(ratio)) * self.weight)


def fit_dpu(machine: Machine, rows: TrainingRows) -> Fitted:
    """Fit one NPU's parameters: least squares over logarithms of cycles, soft L1, deterministic.

    Returns
    -------
    Fitted
        Numbers of `npu.dpu.model`. Their standard deviations are those of the linearised problem at the
        solution, widened where errors are larger than the sources' sigma.
    """
    from scipy.optimize import least_squares  # slow to import

    sheet, plan = machine.soc.npu.dpu.model, load_plan("dpu", DpuPlan)
    start = plan.start.get(machine.name, {name: float(getattr(sheet, name)) for name in plan.unmeasured})
    names, first = list(start), np.array(list(start.values()))
    length = np.abs(first) + _SCALE
    targets = {name: _Target(name, source, rows(name), machine) for name, source in plan.sources.items()}
    targets = {suite: target for suite, target in targets.items() if len(target.measured)}

    def machine_with(values: Floats) -> Machine:
        columns = {f"dpu_{name}": float(value) for name, value in zip(names, values, strict=True)}
        return machine.with_numbers(columns)

    def residuals(values: Floats) -> Floats:
        trial = machine_with(values)
        errors = [target.errors(trial) for target in targets.values()]
        return np.concatenate([*errors, _START_WEIGHT * (values - first) / length])

    low = np.array([plan.low.get(name, 0.0) for name in names])
    high = np.array([plan.high.get(name, np.inf) for name in names])
    best = least_squares(residuals, first, loss="soft_l1", bounds=(low, high), x_scale=length, max_nfev=60)
    count = sum(len(target.measured) for target in targets.values())
    spread = max(1.0, 2.0 * best.cost / max(1, count - len(names)))
    sigma = np.sqrt(np.diag(np.linalg.pinv(best.jac.T @ best.jac) * spread))
    measured = np.concatenate([np.full(len(t.measured), n.startswith("silicon")) for n, t in targets.items()])
    moves = np.abs(best.jac[:count][measured]) * np.maximum(1e-3, np.abs(best.x)) > _MOVES
    open_ = (best.x <= low + 1e-4) | (best.x >= high - 1e-4) | ~(sigma < _UNKNOWN * best.x)
    numbers = []
    for name, value, error, seen in zip(names, best.x.tolist(), sigma, moves.any(axis=0), strict=True):
        source = "[FIT] measured cycles" if seen else "[FIT] cost model only, unmeasured"
        relative = float(error / value) if value > 0.0 else None
        path, unit = f"npu.dpu.model.{name}", getattr(sheet, name).unit
        numbers.append(FittedNumber(path, value, unit, relative, source, bool(seen)))
    undetermined = tuple(number.path for number, is_open in zip(numbers, open_, strict=True) if is_open)
    return Fitted(machine_with(best.x), numbers, undetermined)


DPU = UnitFit("dpu", fit_dpu, ("silicon-dpu", "costmodel-eltwise-pool"))
