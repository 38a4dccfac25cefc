"""Operators without a reduction over channels: elements stream in, something is done to each, results stream out.

A conveyor belt: it runs at the pace of the slower of the belt (DMA) and the worker (DSP, or the MAC grid's simple modes).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.channelwise import depthwise_cycles, eltwise_cycles, maxpool_cycles
from npusim.cost.dma import copy_s, stream_s
from npusim.cost.dsp import dsp_operator_s
from npusim.cost.jit import kernel
from npusim.cost.products import edge_s
from npusim.cost.tables import Form, Split

__all__ = ["cost_stream", "grid_stream_cycles"]

_MAXPOOL, _ELTWISE = int(Form.MAXPOOL), int(Form.ELTWISE)
_ROWS = int(Split.ROWS)


@kernel
def grid_stream_cycles(arch: Any, op: Any) -> float:
    """Cycles of one tile of the MAC grid for depthwise convolution, pooling or an elementwise operator split by rows."""
    rows = np.ceil(op.out_h / arch.tiles)
    if op.form == _ELTWISE:
        pixels = np.ceil(op.out_w * op.out_h / arch.tiles)
        return float(eltwise_cycles(arch, pixels, 1.0, op.out_c, op.a_item, 1.0))
    if op.form == _MAXPOOL:
        best = np.inf
        for mode in range(3):
            best = min(best, maxpool_cycles(arch, op.out_w, rows, op.out_c, op.kernel_w, op.kernel_h, op.a_item, mode, 1.0))
        return float(best)
    return float(
        depthwise_cycles(arch, op.out_w, rows, op.out_c, op.kernel_w, op.kernel_h, op.stride_w, 0.0, 0.0, op.a_item, 1.0)
    )


@kernel
def cost_stream(arch: Any, op: Any, result: Any, on_grid: bool, on_dsp: bool) -> None:
    """Cost an operator whose elements stream past the MAC grid, the DSPs, or DMA alone.

    Pieces are double-buffered; the first piece in and the last out are a `stream_pieces`-th of the traffic and hidden by nothing.
    """
    read = op.a_dram_bytes + op.b_dram_bytes + op.extra_dram_bytes
    dma_s = stream_s(arch, read, op.c_dram_bytes, 0.0)
    work_s = 0.0
    if on_grid:
        work_s = op.batch * grid_stream_cycles(arch, op) / arch.dpu_clock_hz
        result.dpu_s = work_s
    elif on_dsp:
        dsps = arch.tiles * arch.dsps_per_tile
        work_s = dsp_operator_s(op.dsp, op.elements, op.rows, dsps, arch.dsp_lanes, arch.vpu_clock_hz, True)
        result.dsp_s = work_s
    else:  # what neither comes from DRAM nor goes there is copied within SRAM
        dma_s += copy_s(arch, max(0.0, op.copy_bytes - max(read, op.c_dram_bytes)))
    free = arch.tiles * (arch.sram_tile_bytes - op.live_copied_bytes) - op.live_spread_bytes
    first, last = read / arch.stream_pieces, op.c_dram_bytes / arch.stream_pieces
    piece = min(first + last, 0.5 * free)
    start_s = edge_s(arch, op, 0.0 if op.a_prefetch else first, last)
    result.dma_s = dma_s
    result.dram_bytes = read + op.c_dram_bytes
    result.sram_bytes = arch.tiles * op.live_copied_bytes + op.live_spread_bytes + 2.0 * max(piece, 0.0)
    result.split = _ROWS
    result.tiles = int(arch.tiles)
    result.row_blocks = int(arch.stream_pieces)
    result.column_blocks = 1
    result.channel_chunks = 1
    fits = free > 0.0 or (free == 0.0 and first + last == 0.0)
    result.latency_s = max(work_s, dma_s) + start_s if fits else np.inf
