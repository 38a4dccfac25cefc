"""What is found once for all points of a group: mapping candidates, and what no mapping changes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.candidates import CANDIDATE_DTYPE
from npusim.cost.demands import add_operator_demand
from npusim.cost.design_batch import Batch, Design, fill_batch
from npusim.cost.design_point import ARRAY_SIZE, SHARED_SIZE, SRAM_COLUMN
from npusim.cost.jit import compiled, compiled_making_arrays
from npusim.cost.levels import SERVED_DTYPE, fill_all_served, serve
from npusim.cost.plan_costs import on_array
from npusim.cost.rates import (
    RATES,
    clear_rate_bounds,
    start_rate_bounds,
    widen_rate_bounds,
    widen_sram_bounds,
)
from npusim.cost.resources import COUNT
from npusim.cost.search import search_rows
from npusim.cost.tables import DpuOperation, OpRecord, Unit

_DPU, _CONVOLUTION = int(Unit.DPU), int(DpuOperation.CONVOLUTION)

SHARED_SEARCH = 1024
"""Points whose rates are looked at before a search that they share; of more points that pays for convolutions
only."""


class Found(NamedTuple):
    """What is found once for all points of a group."""

    candidates: Any
    """Array of CANDIDATE_DTYPE."""
    bounds: Any
    """Candidates of row `r` are `candidates[bounds[r] : bounds[r + 1]]`."""
    served: Any
    """What memory levels serve of each row, array of SERVED_DTYPE."""
    demands: Any
    """What each array device has to do under any plan, float64, shape (array devices, COUNT)."""
    macs: float
    """Multiply-accumulates of all devices, zeros counted."""


def nothing_found() -> Found:
    """Return what is found before any search."""
    candidates, served = np.empty(0, CANDIDATE_DTYPE), np.empty(0, SERVED_DTYPE)
    return Found(candidates, np.zeros(1, np.int64), served, np.empty((0, COUNT)), 0.0)


@compiled_making_arrays
def search_group(
    design: Design, start: int, stop: int, rows: Any, first_ops: Any, has_hosts: bool, batch: Batch
) -> Found:
    """Fill a batch with the first points, and search for what all points of a group share."""
    arrays, archs = design.arrays, batch.archs
    rate_bounds, bounds = np.empty((arrays, RATES, 2)), np.empty(rows.shape[0] + 1, np.int64)
    next_point = fill_batch(batch, design, start, stop, first_ops, has_hosts)
    for d in range(arrays):
        start_rate_bounds(rate_bounds[d])
        widen_rate_bounds(batch.rates[d], batch.counts[0], rate_bounds[d])
    if next_point < stop and looks_at_rates(stop - start, rows):
        # What is too slow at all points need not be kept.
        while next_point < stop:
            next_point = fill_batch(batch, design, next_point, stop, first_ops, has_hosts)
            for d in range(arrays):
                widen_rate_bounds(batch.rates[d], batch.counts[0], rate_bounds[d])
        fill_batch(batch, design, start, stop, first_ops, has_hosts)
    elif next_point < stop:
        _widen_by_sram_alone(design, next_point, stop, rate_bounds)
    candidates = search_rows(archs, rows, rate_bounds, bounds)
    served, demands, macs = np.zeros(rows.shape[0], SERVED_DTYPE), np.zeros((arrays, COUNT)), 0.0
    fill_all_served(archs.arrays[0], rows, served)
    serve(candidates, bounds, served)
    for o in range(first_ops.shape[0]):
        op = first_ops[o]
        macs += op.repeats * op.macs
        if on_array(op):
            add_operator_demand(archs.arrays[0, op.device], op, demands, op.device)
    return Found(candidates, bounds, served, demands, macs)


@compiled
def looks_at_rates(points: int, rows: Any) -> bool:
    """Whether a search for so many points looks at their rates."""
    return bool(points <= SHARED_SEARCH or _has_convolutions(rows))


@compiled
def fits(op: OpRecord, bounds: Any, row: int) -> bool:
    """Whether an operator has a candidate, or needs none."""
    return not on_array(op) or bounds[row] < bounds[row + 1]


@compiled
def _has_convolutions(rows: Any) -> bool:
    """Whether an operator has pieces of several sizes (`npusim.cost.granularity`)."""
    found = False
    for r in range(rows.shape[0]):
        found |= rows[r].unit == _DPU and rows[r].dpu_operation == _CONVOLUTION
    return found


@compiled
def _widen_by_sram_alone(design: Design, start: int, stop: int, rate_bounds: Any) -> None:
    """Widen the bounds of SRAM by the points `start` to `stop`, and forget those of rates."""
    for d in range(design.arrays):
        clear_rate_bounds(rate_bounds[d])
    for c in range(design.columns.shape[0]):
        device, column = (design.columns[c] - SHARED_SIZE) // ARRAY_SIZE, design.columns[c] - SHARED_SIZE
        if column >= 0 and device < design.arrays and column % ARRAY_SIZE == SRAM_COLUMN:
            for p in range(start, stop):
                widen_sram_bounds(design.values[p, c], rate_bounds[device])
