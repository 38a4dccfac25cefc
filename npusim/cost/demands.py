"""Demands: how many units of each resource work on an array device needs.

A vector has a column for each resource (`npusim.cost.resources.RESOURCES`). The mapping that an operator
takes fills the first ones, the others follow from the operator alone; vectors of operators add up. What is
moved where is read out of them here, time and energy where the seconds and joules of units stand.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.architecture import ArchRecord
from npusim.cost.candidates import CANDIDATE_SIZE
from npusim.cost.grid import mac_format, mode_shape
from npusim.cost.jit import compiled
from npusim.cost.resources import (
    BODY,
    COUNT,
    DRAM_OF,
    DSP_READ_BYTES,
    DSP_WRITTEN_BYTES,
    GRID_WRITTEN_BYTES,
    MACS,
    SRAM_READS_OF,
    SRAM_WRITES_OF,
)
from npusim.cost.tables import DpuOperation, OpRecord, Unit

_MATMUL, _CONVOLUTION, _DEPTHWISE = (
    int(DpuOperation.MATMUL),
    int(DpuOperation.CONVOLUTION),
    int(DpuOperation.DEPTHWISE),
)
_MAXPOOL, _AVGPOOL = int(DpuOperation.MAXPOOL), int(DpuOperation.AVGPOOL)
_DPU, _DSP = int(Unit.DPU), int(Unit.DSP)
DRAM_BYTES, SRAM_READ_BYTES, SRAM_WRITTEN_BYTES = range(3)
"""Columns of the table of bytes that are moved (`fill_moved`)."""
MOVED = 3
_DRAM_OF, _READS_OF, _WRITES_OF = DRAM_OF, SRAM_READS_OF, SRAM_WRITES_OF


@compiled
def fed_bytes(arch: ArchRecord, op: OpRecord, mode: int) -> float:
    """Bytes that the MAC grid reads in SRAM: operands once for each stencil that uses them."""
    across, down, channel_groups = mode_shape(arch, mode)
    if op.dpu_operation == _MATMUL or op.dpu_operation == _CONVOLUTION:
        pixels = across * down * arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h
        return stencil_fed_bytes(op, pixels, channel_groups * arch.dpu_channel_lanes)
    return float(op.elements * op.a_item)


@compiled
def stencil_fed_bytes(op: OpRecord, stencil_pixels: float, stencil_channels: float) -> float:
    """Bytes that the MAC grid reads in SRAM for a product or convolution in stencils of a size."""
    pixels = op.out_w * op.out_h
    stencils_c = np.ceil(op.out_c / stencil_channels)
    stencils_m = np.ceil(pixels / stencil_pixels)
    taps = op.kernel_w * op.kernel_h
    a_bytes = pixels * op.in_c * taps * op.a_item * stencils_c
    b_bytes = op.out_c * op.in_c * taps * op.b_item * stencils_m
    return float(op.batch * (a_bytes + b_bytes))


@compiled
def grid_written_bytes(op: OpRecord) -> float:
    """Bytes that the MAC grid writes to SRAM: its outputs, once."""
    return float(op.batch * op.out_w * op.out_h * op.out_c * op.c_item)


@compiled
def grid_macs(arch: ArchRecord, op: OpRecord) -> float:
    """Work of the MAC grid in the energy of multiply-accumulates of the operands' format.

    Skipped products cost nothing. Other work costs its factor for each operation: an ideal cycle is as many
    operations as there are multipliers, of every operator alike (VPUNN, `DPU_Power_IdealCycles`).
    """
    if op.dpu_operation == _MATMUL or op.dpu_operation == _CONVOLUTION:
        return float(op.macs * min(op.a_density, op.b_density) * arch.energy_convolution)
    factor = arch.energy_eltwise
    if op.dpu_operation == _DEPTHWISE:
        factor = arch.energy_depthwise
    elif op.dpu_operation == _MAXPOOL:
        factor = arch.energy_maxpool
    elif op.dpu_operation == _AVGPOOL:
        factor = arch.energy_avgpool
    return float(max(op.macs, op.elements) * factor)


@compiled
def dsp_lane_cycles(arch: ArchRecord, op: OpRecord, dsp_s: float) -> float:
    """Cycles of single lanes in which the DSPs are busy with an operator for `dsp_s` seconds."""
    lanes = arch.dsp_lanes if op.dsp.vector_share > 0.5 else 1.0
    dsps = 1.0 if op.dsp.serial > 0.0 else arch.tiles * arch.dsps_per_tile
    return float(dsp_s * arch.vpu_clock_hz * dsps * lanes)


@compiled
def add_operator_demand(arch: ArchRecord, op: OpRecord, demands: Any, row: int) -> None:
    """Add what an operator needs on an array device whatever its mapping, but for the time of DSPs.

    Parameters
    ----------
    demands : array of float64, shape (rows, COUNT)
        A row is added to.
    """
    if op.unit == _DPU:
        demands[row, MACS + mac_format(op.a_item)] += op.repeats * grid_macs(arch, op)
        demands[row, GRID_WRITTEN_BYTES] += op.repeats * grid_written_bytes(op)
    elif op.unit == _DSP:
        demands[row, DSP_READ_BYTES] += op.repeats * op.elements * op.a_item
        demands[row, DSP_WRITTEN_BYTES] += op.repeats * op.elements * op.c_item


@compiled
def add_candidate_demands(
    numbers: Any, candidates: Any, plans: Any, plan: int, repeats: float, demands: Any
) -> None:
    """Add to rows of demands what a mapping candidate each needs, all times that its operator runs.

    Parameters
    ----------
    numbers : array of float64, shape (candidates * CANDIDATE_SIZE,)
        The table of candidates as numbers.
    candidates : array of float64, shape (rows,)
        The candidate of each row.
    plans : array of int64, shape (rows,)
        Rows that take `plan` are added to.
    demands : array of float64, shape (rows, COUNT)
    """
    for row in range(plans.shape[0]):
        if plans[row] == plan:
            first = int(candidates[row]) * CANDIDATE_SIZE
            for r in range(BODY):
                demands[row, r] += repeats * numbers[first + r]


@compiled
def fill_moved(demands: Any, rows: int, moved: Any) -> None:
    """Read out of demands the bytes that are moved.

    Parameters
    ----------
    demands : array of float64, shape (rows, COUNT)
    moved : array of float64, shape (rows, MOVED)
        Written: between DRAM and the device, read in its SRAM, written there.
    """
    for row in range(rows):
        dram = read = written = 0.0
        for r in range(COUNT):
            # Not a sum of all products: cycles may be infinite, and infinity times 0 is no number.
            dram += _DRAM_OF[r] * demands[row, r] if _DRAM_OF[r] > 0.0 else 0.0
            read += _READS_OF[r] * demands[row, r] if _READS_OF[r] > 0.0 else 0.0
            written += _WRITES_OF[r] * demands[row, r] if _WRITES_OF[r] > 0.0 else 0.0
        moved[row, DRAM_BYTES], moved[row, SRAM_READ_BYTES] = dram, read
        moved[row, SRAM_WRITTEN_BYTES] = written
