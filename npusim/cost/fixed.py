"""What an operator asks of the machine whatever its tiling: the part of a bill that is not negotiable."""

from __future__ import annotations

from typing import Any

from npusim.cost.dsp import dsp_operator_s
from npusim.cost.energy import grid_macs
from npusim.cost.jit import kernel
from npusim.cost.tables import Unit

__all__ = ["dsp_time_s", "fixed_work", "reads"]

_DPU, _DSP = int(Unit.DPU), int(Unit.DSP)


@kernel
def dsp_time_s(arch: Any, op: Any) -> float:
    """Time of an operator on all DSPs of the tiles in use (s)."""
    crew = arch.tiles * arch.dsps_per_tile
    return float(dsp_operator_s(op.dsp, op.elements, op.rows, crew, arch.dsp_lanes, arch.vpu_clock_hz, True))


@kernel
def fixed_work(arch: Any, ops: Any) -> tuple[float, float, float]:
    """Return what no tiling changes: multiply-accumulates in int8 and in fp16, bytes that DSPs read and
    write in SRAM.
    """
    int8_macs = fp16_macs = sram_bytes = 0.0
    for o in range(ops.shape[0]):
        op = ops[o]
        if op.unit == _DPU and op.a_item <= 1.0:
            int8_macs += grid_macs(arch, op)
        elif op.unit == _DPU:
            fp16_macs += grid_macs(arch, op)
        elif op.unit == _DSP:
            sram_bytes += op.elements * (op.a_item + op.c_item)
    return int8_macs, fp16_macs, sram_bytes


@kernel
def reads(op: Any) -> bool:
    """Whether an operator reads from DRAM."""
    return bool(op.a_dram_bytes + op.b_dram_bytes + op.extra_dram_bytes > 0.0)
