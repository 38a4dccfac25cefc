"""Fits the DMA equations: measured transfers first, the cost model where nothing was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from npusim.calibrate.data_sheet import FittedNumber
from npusim.calibrate.least_squares import Floats, FreeNumber, Solution, solve
from npusim.calibrate.unit_fit import Fitted, TrainingRows
from npusim.validation.dma_figures import MEASURED, ROWS
from npusim.validation.evidence import TablePredictor
from npusim.validation.figures import Figures
from npusim.validation.unit_models import Machine

_DRAM = "dram_bytes_per_s"
"""Bandwidth of DRAM in the architecture table."""

# First guesses and generous bounds; the result does not depend on them.
_SILICON = (
    FreeNumber("dma_start_cycles", 120.0, 10.0, 400.0),
    FreeNumber("dma_dram_read_latency_s", 4e-7, 5e-8, 2e-6),
    FreeNumber("dma_dram_write_latency_s", 8e-8, 1e-9, 1e-6),
    FreeNumber("dma_page_walk_s", 1e-7, 1e-9, 1e-6),
    FreeNumber("dma_ddr2cmx_share", 0.9, 0.2, 1.0),
    FreeNumber("dma_cmx2ddr_share", 0.9, 0.2, 1.0),
    FreeNumber("dma_cmx2cmx_share", 0.6, 0.2, 1.0),
    FreeNumber("dma_copy_buffer_bytes", 500.0, 30.0, 4000.0),
    FreeNumber(_DRAM, 5e10, 2e10, 1.3e11),  # low: above the engines' width it would have no slope
)
_ROW_GAPS = tuple(
    FreeNumber(f"dma_{direction}_row_cycles", 2.0, 0.01, 60.0)
    for direction in ("ddr2cmx", "cmx2ddr", "cmx2cmx")
)
_UNITS = {"cycles": "cycle", "bytes": "B", "s": "s", "share": ""}
_SHORT = 0.3
"""Weight of what is not judged: below 1 KiB a time is a few ticks of the profiling clock, below 64 B rows
are rare."""
_SILICON_NOISE, _MODEL_NOISE = 0.03, 0.05
"""Log errors above which a row counts less than its square: repeats differ by so much; the cost model errs
by more."""


def fit(machine: Machine, rows: TrainingRows) -> Fitted:
    """Fit one machine's DMA numbers.

    Returns
    -------
    Fitted
        Eleven numbers of `npu.dma.model`; DRAM's bandwidth is fitted along and not written.
    """
    measured, modelled = rows("silicon-dma"), rows("costmodel-dma-rows")
    silicon = _solve(_SILICON, machine, MEASURED, measured, measured["bytes"] >= 1024, _SILICON_NOISE)
    machine = machine.with_numbers(silicon.values)
    gaps = _solve(_ROW_GAPS, machine, ROWS, modelled, modelled["row_bytes"] >= 64, _MODEL_NOISE)
    numbers = _numbers(silicon, "[SILICON] fitted", True) + _numbers(
        gaps, "[MODEL] fitted, unmeasured", False
    )
    undetermined = tuple(map(_path, (*silicon.undetermined, *gaps.undetermined)))
    return Fitted(machine.with_numbers(gaps.values), numbers, undetermined=undetermined)


def _solve(
    free: Sequence[FreeNumber],
    machine: Machine,
    table: TablePredictor,
    figures: Figures,
    judged: NDArray[np.bool_],
    softness: float,
) -> Solution:
    measured, weight = table.measured(figures), np.where(judged, 1.0, _SHORT)

    def residual(numbers: Mapping[str, float]) -> Floats:
        return weight * np.log(table.predict(figures, machine.with_numbers(numbers)) / measured)

    return solve(free, residual, softness)


def _numbers(solution: Solution, source: str, on_silicon: bool) -> list[FittedNumber]:
    """Return the numbers of `npu.dma.model`.

    DRAM's bandwidth is left out: what the copies say of it is the prior of `npusim.calibrate.granite_fit`,
    which writes it.
    """
    return [
        FittedNumber(_path(name), value, _unit(name), solution.relative_sigma[name], source, on_silicon)
        for name, value in solution.values.items()
        if name != _DRAM
    ]


def _path(column: str) -> str:
    """Return where a column of the architecture table stands in the SoC's file."""
    return "dram.bandwidth" if column == _DRAM else f"npu.dma.model.{column.removeprefix('dma_')}"


def _unit(column: str) -> str:
    return _UNITS[column.rpartition("_")[2]]
