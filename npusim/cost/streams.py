"""Operators without a reduction over channels: elements stream in, something is done to each, results
stream out.

A conveyor belt: it runs at the pace of the slower of the belt (DMA) and the worker (DSP, or the MAC grid's
simple modes).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.channelwise import depthwise_cycles, eltwise_cycles, maxpool_cycles
from npusim.cost.energy import grid_sram_bytes
from npusim.cost.jit import kernel
from npusim.cost.tables import Form, Split

__all__ = ["grid_stream_cycles", "search_stream"]

_MAXPOOL, _ELTWISE = int(Form.MAXPOOL), int(Form.ELTWISE)
_ROWS = int(Split.ROWS)


@kernel
def grid_stream_cycles(arch: Any, op: Any) -> float:
    """Cycles of one tile of the MAC grid for depthwise convolution, pooling or an elementwise operator
    split by rows.
    """
    rows = np.ceil(op.out_h / arch.tiles)
    if op.form == _ELTWISE:
        pixels = np.ceil(op.out_w * op.out_h / arch.tiles)
        return float(eltwise_cycles(arch, pixels, 1.0, op.out_c, op.a_item, 1.0))
    if op.form == _MAXPOOL:
        best = np.inf
        for mode in range(3):
            best = min(
                best,
                maxpool_cycles(
                    arch, op.out_w, rows, op.out_c, op.kernel_w, op.kernel_h, op.a_item, mode, 1.0
                ),
            )
        return float(best)
    return float(
        depthwise_cycles(
            arch, op.out_w, rows, op.out_c, op.kernel_w, op.kernel_h, op.stride_w, 0.0, 0.0, op.a_item, 1.0
        )
    )


@kernel
def search_stream(arch: Any, op: Any, found: Any, start: int, on_grid: bool, on_dsp: bool) -> int:
    """Put the one way to stream elements past the MAC grid, the DSPs, or DMA alone on a shortlist.

    Pieces are double-buffered; the first piece in and the last out are a `stream_pieces`-th of the traffic
    and hidden by nothing. Arguments and result as of `npusim.cost.products.search_product`; the time of
    DSPs is priced apart.
    """
    read = op.a_dram_bytes + op.b_dram_bytes + op.extra_dram_bytes
    free = arch.tiles * (arch.sram_tile_bytes - op.live_copied_bytes) - op.live_spread_bytes
    first, last = read / arch.stream_pieces, op.c_dram_bytes / arch.stream_pieces
    if free < 0.0 or (free == 0.0 and first + last > 0.0):
        return start
    new = found[start]
    new.grid_cycles = op.batch * grid_stream_cycles(arch, op) if on_grid else 0.0
    new.read_bytes = read
    new.read_gaps = 0.0
    new.written_bytes = op.c_dram_bytes
    # What neither comes from DRAM nor goes there is copied within SRAM.
    new.copied_bytes = 0.0 if on_grid or on_dsp else max(0.0, op.copy_bytes - max(read, op.c_dram_bytes))
    new.first_bytes = 0.0 if op.a_prefetch else first
    new.last_bytes = last
    new.refills = read / free if read > 0.0 else 0.0
    new.walks = 1.0 if new.first_bytes > arch.dma_page_bytes else 0.0
    new.grid_sram_bytes = grid_sram_bytes(arch, op, 0) if on_grid else 0.0
    new.dram_bytes = read + op.c_dram_bytes
    new.sram_bytes = (
        arch.tiles * op.live_copied_bytes + op.live_spread_bytes + min(2.0 * (first + last), free)
    )
    new.split, new.order, new.mode, new.tiles = _ROWS, 0.0, 0.0, arch.tiles
    new.row_blocks, new.column_blocks, new.channel_chunks = arch.stream_pieces, 1.0, 1.0
    return start + 1
