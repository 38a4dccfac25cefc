"""Fits of the DMA engines and of the MAC grid: measured silicon first, Intel's cost model elsewhere.

The laws of SRAM arrays are fitted to rows of CACTI by non-negative least squares.

`docs/dpu_model.md` says what the figures determine of the MAC grid, and what they leave open.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Literal

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import Field

from npusim.arch.silicon import SramLaws
from npusim.calibration.data_sheet import FittedNumber
from npusim.calibration.fits import FOLDS, Fitted, TrainingRows, UnitFit, load_plan, table_of
from npusim.calibration.least_squares import Floats, FreeNumber, Solution, solve
from npusim.config import Section
from npusim.locate import resource
from npusim.validation.figures import Figures
from npusim.validation.silicon import QUANTITIES, predicted_memories, read_memories
from npusim.validation.suite import figures_path, load_suite
from npusim.validation.unit_models import Machine

# Bandwidth of DRAM in the architecture table. It is fitted too, but not written: its value is the prior of
# `npusim.calibration.published_fits`, which writes it.
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


_CAPACITY, _WORD = (0.0, 0.25, 0.5, 0.75, 1.0), (0.0, 0.5, 1.0, 1.5, 2.0)
# Exponents that a law may have. More banks may save energy of an access, but no area, leakage or time.
_BANKS = {"read_energy": (-1.0, -0.5, 0.0, 0.5, 1.0), "write_energy": (-1.0, -0.5, 0.0, 0.5, 1.0)}
_TURNS, _WEIGHTINGS, _LEAST_ERROR, _DIGITS = 6, 8, 0.1, 5
_PORTS = {"single_port": "1rw", "dual_port": "1r1w"}
_CACTI = "CACTI 7 (validate/figures/cacti.csv), fitted by `python -m npusim.calibration memories`"


def _factors(basis: Floats, values: Floats) -> Floats:
    """Return the factors, at least 0, with the least absolute errors of logarithms, shape (terms,)."""
    from scipy.optimize import nnls  # slow to import

    weights, factors = 1.0 / values, np.zeros(basis.shape[1])
    for _ in range(_WEIGHTINGS):
        sizes = np.abs(basis * weights[:, None]).max(axis=0)
        factors = nnls(basis * weights[:, None] / sizes, values * weights)[0] / sizes
        fitted = np.maximum(basis @ factors, 0.01 * values)
        error = np.abs(np.log(fitted / values))
        weights = 1.0 / np.sqrt(values * fitted * np.maximum(error, _LEAST_ERROR))
    return factors


def fitted_laws(figures: Figures) -> SramLaws:
    """Return the laws that fit SRAM arrays: terms by ports, and a scale for each node and cell."""
    laws = {name: _law(figures, figures[name], _BANKS.get(name, (0.0, 0.5, 1.0))) for name in QUANTITIES}
    return SramLaws.model_validate({"schema": "npusim.sram/1", "source": _CACTI} | laws)


def _law(figures: Figures, values: Floats, bank_exponents: Sequence[float]) -> dict[str, object]:
    exponents = np.array([*product(_CAPACITY, _WORD, bank_exponents)])
    names = ("capacity_bytes", "word_bytes", "banks")
    sizes = np.stack([figures[name] for name in names], axis=1)
    basis = np.exp(np.log(sizes) @ exponents.T)
    scale, fitted, law = np.ones(len(values)), np.ones(len(values)), {}
    for _ in range(_TURNS):
        for key, ports in _PORTS.items():
            own = figures["ports"] == ports
            factors = _factors(basis[own], values[own] / scale[own])
            fitted[own], used = basis[own] @ factors, np.flatnonzero(factors > 0.0)
            law[key] = [[_short(factors[t]), *map(float, exponents[t])] for t in used]
        for cell in np.unique(figures["cells"]):
            own = figures["cells"] == cell
            scale[own] = np.exp(np.median(np.log(values[own] / fitted[own])))
    cells = zip(figures["cells"], scale, strict=True)
    return law | {"scale": {str(cell): _short(number) for cell, number in cells}}


def _short(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")


def is_consistent(figures: Figures) -> NDArray[np.bool_]:
    """Return which rows to fit: those of 4 KiB and 8-byte words hold values of other capacities."""
    return (figures["capacity_kib"] > 4.0) | (figures["word_bytes"] > 8.0)


def held_out(figures: Figures) -> Mapping[str, Floats]:
    """Return the relative errors of each quantity in rows that a fit to the other folds predicts."""
    fold = np.random.default_rng(0).permutation(len(figures)) % FOLDS
    errors = {name: np.empty(len(figures)) for name in QUANTITIES}
    for number in range(FOLDS):
        laws, test = fitted_laws(figures.where(fold != number)), fold == number
        for name in QUANTITIES:
            rows = figures.where(test)
            errors[name][test] = np.abs(predicted_memories(rows, laws, name) / rows[name] - 1.0)
    return errors


class MemoryFit:
    """Fit of `configs/technology/sram.yaml`."""

    options: Mapping[str, str] = {}

    def run(self, options: argparse.Namespace) -> Iterator[str]:
        """Fit the laws; yield the errors of rows left out in five folds, by quantity, node and cell."""
        suite = load_suite("memories")
        figures = read_memories(suite, figures_path(suite))
        figures = figures.where(is_consistent(figures))
        laws, worst = fitted_laws(figures), []
        yield "| quantity | node and cell | rows | median error left out | 90th percentile |"
        yield "| --- | --- | ---: | ---: | ---: |"
        for name, errors in held_out(figures).items():
            groups = [errors[figures["cells"] == cell] for cell in laws.area.scale]
            for cell, own in zip(laws.area.scale, groups, strict=True):
                yield f"| {name} | {cell} | {len(own)} | {np.median(own):.1%} | {np.quantile(own, 0.9):.1%} |"
            median, tail = max(map(np.median, groups)), max(np.quantile(own, 0.9) for own in groups)
            worst.append(f"{name} {median:.0%} and {tail:.0%}")
        if options.write:
            source = f"{_CACTI}; errors left out in five folds, median and 90th percentile, worst cell: "
            data = laws.model_dump(mode="json", by_alias=True) | {"source": source + ", ".join(worst)}
            target = resource("configs", "technology") / "sram.yaml"
            text = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=110)
            target.write_text(text, "utf-8")
            yield f"wrote {target}"


MEMORY = MemoryFit()
"""Laws of SRAM arrays."""
