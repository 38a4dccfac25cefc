"""Energy of an inference: MACs, bytes through SRAM and DRAM, DSP lane operations, leakage.

Each has an energy in the SoC's technology; dynamic energy on the chip goes with the square of the voltage.
Leakage is added for the whole inference, by its length.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.architecture import ArchRecord
from npusim.cost.dpu import mode_shape
from npusim.cost.grid import mac_format
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
    return float(op.elements * op.a_item + op.batch * op.out_w * op.out_h * op.out_c * op.c_item)


@compiled
def stencil_traffic_bytes(op: OpRecord, stencil_pixels: float, stencil_channels: float) -> float:
    """Bytes of the MAC grid in SRAM for a product or convolution in stencils of a size."""
    pixels = op.out_w * op.out_h
    stencils_c = np.ceil(op.out_c / stencil_channels)
    stencils_m = np.ceil(pixels / stencil_pixels)
    taps = op.kernel_w * op.kernel_h
    a_bytes = pixels * op.in_c * taps * op.a_item * stencils_c
    b_bytes = op.out_c * op.in_c * taps * op.b_item * stencils_m
    return float(op.batch * (a_bytes + b_bytes + pixels * op.out_c * op.c_item))


@compiled
def grid_macs(arch: ArchRecord, op: OpRecord) -> float:
    """Work of the MAC grid in the energy of multiply-accumulates of the operands' format.

    Skipped products cost nothing, and other work than products costs its factor for each cycle it would
    ideally take.
    """
    if op.dpu_operation == _MATMUL or op.dpu_operation == _CONVOLUTION:
        return float(op.macs * min(op.a_density, op.b_density) * arch.energy_convolution)
    step_bytes = arch.dpu_mac_bytes_per_cycle[mac_format(op.a_item)]
    ideal_macs = max(op.macs, op.elements) * step_bytes / op.a_item
    factor = arch.energy_eltwise
    if op.dpu_operation == _DEPTHWISE:
        factor = arch.energy_depthwise
    elif op.dpu_operation == _MAXPOOL:
        factor = arch.energy_maxpool
    elif op.dpu_operation == _AVGPOOL:
        factor = arch.energy_avgpool
    return float(ideal_macs * factor)


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


@compiled
def dynamic_j(
    arch: ArchRecord,
    dram_bytes: float,
    sram_traffic_bytes: float,
    macs: FormatMacs,
    lane_cycles: float,
) -> float:
    """Return the dynamic energy (J) of work on the NPU.

    Parameters
    ----------
    arch : record of ARCH_DTYPE
    dram_bytes : float
        Bytes between DRAM and SRAM; each passes through SRAM once as well.
    sram_traffic_bytes : float
        Bytes that the MAC grid and the DSPs read and write in SRAM.
    lane_cycles : float
        Cycles of single DSP lanes (`dsp_lane_cycles`).
    """
    energy = (
        dram_bytes * (arch.dram_j_per_byte + arch.sram_j_per_byte) + sram_traffic_bytes * arch.sram_j_per_byte
    )
    narrow = macs.int4 * arch.mac_j[0] + macs.int8 * arch.mac_j[1]
    energy += narrow + macs.fp16 * arch.mac_j[2] + macs.fp32 * arch.mac_j[3]
    return float(energy + lane_cycles * arch.dsp_j_per_lane_op)


_DPU, _DSP = int(Unit.DPU), int(Unit.DSP)


@compiled
def fixed_work(arch: ArchRecord, ops: Any) -> tuple[FormatMacs, float]:
    """Return what no tiling changes: MACs by format, bytes of DSPs in SRAM."""
    int4 = int8 = fp16 = fp32 = sram_traffic_bytes = 0.0
    for o in range(ops.shape[0]):
        op = ops[o]
        if op.unit == _DPU:
            macs, form = op.repeats * grid_macs(arch, op), mac_format(op.a_item)
            int4 += macs if form == 0 else 0.0
            int8 += macs if form == 1 else 0.0
            fp16 += macs if form == 2 else 0.0
            fp32 += macs if form == 3 else 0.0
        elif op.unit == _DSP:
            sram_traffic_bytes += op.repeats * op.elements * (op.a_item + op.c_item)
    return FormatMacs(int4, int8, fp16, fp32), sram_traffic_bytes
