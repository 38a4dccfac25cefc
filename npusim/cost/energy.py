"""Energy of an operator: the meter behind each socket, read once.

Multiply-accumulates, bytes through SRAM, bytes through DRAM and DSP lane operations each have a price (technology of the SoC);
dynamic energy on the chip goes with the square of the voltage. Leakage is added for the whole inference, by its length.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.dpu import mode_shape
from npusim.cost.jit import kernel
from npusim.cost.tables import Form, Unit

__all__ = ["operator_energy_j"]

_DPU, _DSP = int(Unit.DPU), int(Unit.DSP)
_MATMUL, _CONVOLUTION, _DEPTHWISE = int(Form.MATMUL), int(Form.CONVOLUTION), int(Form.DEPTHWISE)
_MAXPOOL, _AVGPOOL = int(Form.MAXPOOL), int(Form.AVGPOOL)


@kernel
def _grid_sram_bytes(arch: Any, op: Any, mode: int) -> float:
    """Bytes that the MAC grid reads and writes in SRAM: operands once a stencil that uses them, outputs once."""
    across, down, channel_groups = mode_shape(arch, mode)
    if op.form == _MATMUL or op.form == _CONVOLUTION:
        pixels = op.out_w * op.out_h
        stencils_c = np.ceil(op.out_c / (channel_groups * arch.dpu_channel_lanes))
        stencils_m = np.ceil(pixels / (across * down * arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h))
        taps = op.kernel_w * op.kernel_h
        a_bytes = pixels * op.in_c * taps * op.a_item * stencils_c
        b_bytes = op.out_c * op.in_c * taps * op.b_item * stencils_m
        return float(op.batch * (a_bytes + b_bytes + pixels * op.out_c * op.c_item))
    return float(op.elements * op.a_item + op.batch * op.out_w * op.out_h * op.out_c * op.c_item)


@kernel
def _grid_j(arch: Any, op: Any) -> float:
    """Energy (J) of the MAC grid itself; skipped products cost nothing, and other work than products costs its factor a cycle."""
    mac_j = arch.mac_j_int8 if op.a_item <= 1.0 else arch.mac_j_fp16
    if op.form == _MATMUL or op.form == _CONVOLUTION:
        return float(op.macs * min(op.a_density, op.b_density) * mac_j)
    ideal_macs = max(op.macs, op.elements) * arch.dpu_mac_bytes_per_cycle / op.a_item
    factor = arch.energy_eltwise
    if op.form == _DEPTHWISE:
        factor = arch.energy_depthwise
    elif op.form == _MAXPOOL:
        factor = arch.energy_maxpool
    elif op.form == _AVGPOOL:
        factor = arch.energy_avgpool
    return float(ideal_macs * mac_j * factor)


@kernel
def operator_energy_j(arch: Any, op: Any, result: Any) -> float:
    """Return the dynamic energy (J) of an operator on the NPU, given the tiling in `result`."""
    energy = result.dram_bytes * (arch.dram_j_per_byte + arch.sram_j_per_byte)
    if op.unit == _DPU:
        energy += _grid_j(arch, op) + _grid_sram_bytes(arch, op, result.mode) * arch.sram_j_per_byte
    elif op.unit == _DSP:
        lanes = arch.dsp_lanes if op.dsp.vector_share > 0.5 else 1.0
        busy_cycles = result.dsp_s * arch.vpu_clock_hz * arch.tiles * arch.dsps_per_tile
        energy += busy_cycles * lanes * arch.dsp_j_per_lane_op
        energy += op.elements * (op.a_item + op.c_item) * arch.sram_j_per_byte
    return float(energy)
