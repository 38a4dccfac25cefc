"""Energy of an inference: what the package draws, part by part.

MACs, bytes through SRAM and DRAM, and DSP lane operations have an energy each in the SoC's technology;
dynamic energy on the chip goes with the square of the voltage. The NPU's leakage, fabric and clock tree draw
theirs while it works. CPU and GPU draw their power while they work, the memory traffic that they cause
included. What each device draws idle counts from one inference to the next; all of the above is beyond it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.architecture import ArchRecord
from npusim.cost.grid import mac_format, mode_shape
from npusim.cost.jit import compiled
from npusim.cost.tables import DpuOperation, OpRecord, Unit

_MATMUL, _CONVOLUTION, _DEPTHWISE = (
    int(DpuOperation.MATMUL),
    int(DpuOperation.CONVOLUTION),
    int(DpuOperation.DEPTHWISE),
)
_MAXPOOL, _AVGPOOL = int(DpuOperation.MAXPOOL), int(DpuOperation.AVGPOOL)


@compiled
def grid_traffic_bytes(arch: ArchRecord, op: OpRecord, mode: int) -> float:
    """Bytes of the MAC grid in SRAM: operands once for each stencil that uses them, outputs once."""
    across, down, channel_groups = mode_shape(arch, mode)
    if op.dpu_operation == _MATMUL or op.dpu_operation == _CONVOLUTION:
        pixels = across * down * arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h
        return stencil_traffic_bytes(op, pixels, channel_groups * arch.dpu_channel_lanes)
    return float(op.elements * op.a_item + grid_written_bytes(op))


@compiled
def stencil_traffic_bytes(op: OpRecord, stencil_pixels: float, stencil_channels: float) -> float:
    """Bytes of the MAC grid in SRAM for a product or convolution in stencils of a size."""
    pixels = op.out_w * op.out_h
    stencils_c = np.ceil(op.out_c / stencil_channels)
    stencils_m = np.ceil(pixels / stencil_pixels)
    taps = op.kernel_w * op.kernel_h
    a_bytes = pixels * op.in_c * taps * op.a_item * stencils_c
    b_bytes = op.out_c * op.in_c * taps * op.b_item * stencils_m
    return float(op.batch * (a_bytes + b_bytes) + grid_written_bytes(op))


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


class FormatMacs(NamedTuple):
    """Multiply-accumulates of the MAC grid by format (`grid_macs`), in the order of `MAC_FORMATS`."""

    int4: float
    int8: float
    fp16: float
    fp32: float


class Energies(NamedTuple):
    """Dynamic energy of the NPU by part (J)."""

    mac: float
    sram: float
    dram: float
    dsp: float


@compiled
def dynamic_energies(
    arch: ArchRecord, dram_bytes: float, sram_traffic_bytes: float, macs: FormatMacs, lane_cycles: float
) -> Energies:
    """Return the dynamic energy of work on the NPU, by part.

    Parameters
    ----------
    arch : record of ARCH_DTYPE
    dram_bytes : float
        Bytes between DRAM and SRAM.
    sram_traffic_bytes : float
        Bytes that MAC grid, DSPs and DMA read and write in SRAM.
    macs : FormatMacs
    lane_cycles : float
        Cycles of single DSP lanes (`dsp_lane_cycles`).
    """
    narrow = macs.int4 * arch.mac_j[0] + macs.int8 * arch.mac_j[1]
    return Energies(
        narrow + macs.fp16 * arch.mac_j[2] + macs.fp32 * arch.mac_j[3],
        sram_traffic_bytes * arch.sram_j_per_byte,
        dram_bytes * arch.dram_j_per_byte,
        lane_cycles * arch.dsp_j_per_lane_op,
    )


_DPU, _DSP = int(Unit.DPU), int(Unit.DSP)


class FixedWork(NamedTuple):
    """What no tiling changes."""

    grid_macs: FormatMacs
    dsp_read_bytes: float
    """Read in SRAM by the DSPs."""
    dsp_written_bytes: float
    """Written in SRAM by them."""
    macs: float
    """Multiply-accumulates of all units, zeros counted."""


@compiled
def fixed_work(arch: ArchRecord, ops: Any, device: int) -> FixedWork:
    """Add up what no tiling of some operators changes: of those on one array device, by its place."""
    int4 = int8 = fp16 = fp32 = read = written = all_macs = 0.0
    for o in range(ops.shape[0]):
        op = ops[o]
        all_macs += op.repeats * op.macs
        if op.device != device:
            continue
        if op.unit == _DPU:
            macs, form = op.repeats * grid_macs(arch, op), mac_format(op.a_item)
            int4 += macs if form == 0 else 0.0
            int8 += macs if form == 1 else 0.0
            fp16 += macs if form == 2 else 0.0
            fp32 += macs if form == 3 else 0.0
        elif op.unit == _DSP:
            read += op.repeats * op.elements * op.a_item
            written += op.repeats * op.elements * op.c_item
    return FixedWork(FormatMacs(int4, int8, fp16, fp32), read, written, all_macs)
