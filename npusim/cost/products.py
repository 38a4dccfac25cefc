"""Matrix products and convolutions on the tiles: who gets which rows, and how often each operand crosses DRAM.

A kitchen with several cooks: give each some of the dishes (rows) and everyone the sauce (weights), or each a sauce and everyone
the dishes (columns). Which is quicker depends on the menu, so every way is costed and the best kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.dma import CMX2DDR, DDR2CMX, latency_s, stream_s
from npusim.cost.dpu import conv_cycles, matmul_mode_cycles, mode_shape
from npusim.cost.jit import kernel
from npusim.cost.tables import Form, Order, Split
from npusim.cost.tiling import Block, best_blocks, largest_share, next_count

__all__ = ["cost_product", "edge_s", "sum_rate", "tile_share"]

_MATMUL = int(Form.MATMUL)
_ROWS, _COLUMNS, _SINGLE = int(Split.ROWS), int(Split.COLUMNS), int(Split.SINGLE)
_WEIGHTS_HELD, _ACTIVATIONS_HELD, _OUTPUTS_HELD = int(Order.WEIGHTS_HELD), int(Order.ACTIVATIONS_HELD), int(Order.OUTPUTS_HELD)


@kernel
def tile_share(arch: Any, op: Any, split: int) -> tuple[float, float, float]:
    """Return (tiles used, output rows of a tile, output channels of a tile) under a split.

    A product's rows are dealt out in groups of pixel lanes, a convolution's as image rows, channels in groups of channel lanes.
    """
    lanes = arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h if op.form == _MATMUL else 1.0
    length = op.out_w if op.form == _MATMUL else op.out_h
    if split == _ROWS:
        share = np.ceil(np.ceil(length / lanes) / arch.tiles) * lanes
        return min(arch.tiles, np.ceil(length / share)), min(share, length), op.out_c
    if split == _COLUMNS:
        share = np.ceil(np.ceil(op.out_c / arch.dpu_channel_lanes) / arch.tiles) * arch.dpu_channel_lanes
        return min(arch.tiles, np.ceil(op.out_c / share)), length, min(share, op.out_c)
    return 1.0, length, op.out_c


@kernel
def _tile_cycles(arch: Any, op: Any, rows: float, channels: float, mode: int) -> float:
    """Cycles of the MAC grid for one tile's share of one product of a batch."""
    if op.form == _MATMUL:
        return matmul_mode_cycles(
            arch, rows, op.in_c, channels, op.a_item, op.b_item, op.c_item, mode, 1.0,
            op.a_density, op.b_density, op.a_block_density, 1.0,
        )  # fmt: skip
    return conv_cycles(
        arch, op.out_w, rows, channels, op.in_c, op.kernel_w, op.kernel_h, 0.0, 0.0, op.a_item, op.b_item, op.c_item, mode, 1.0,
        op.a_density, op.b_density, op.a_block_density, 1.0,
    )  # fmt: skip


@kernel
def _block(arch: Any, op: Any, rows: float, channels: float, mode: int) -> Block:
    """Cut a tile's share into stencils of a mode and size them in bytes."""
    across, down, channel_groups = mode_shape(arch, mode)
    stencil_c = min(channels, channel_groups * arch.dpu_channel_lanes)
    taps = op.kernel_w * op.kernel_h
    if op.form == _MATMUL:
        stencil_m = min(rows, across * arch.dpu_pixel_lanes_w * down * arch.dpu_pixel_lanes_h)
        a_bytes = stencil_m * op.in_c * op.a_item * op.a_pack
        halo = 0.0
        pixels = stencil_m
    else:
        stencil_m = min(rows, down * arch.dpu_pixel_lanes_h)
        line = op.in_w * op.in_c * op.a_item * op.a_pack
        a_bytes = stencil_m * op.stride_h * line
        halo = max(0.0, op.kernel_h - op.stride_h) * line
        pixels = stencil_m * op.out_w
    b_bytes = stencil_c * op.in_c * taps * op.b_item * op.b_pack
    c_bytes = pixels * stencil_c * op.c_item
    free = arch.sram_tile_bytes - op.live_copied_bytes - op.live_spread_bytes / arch.tiles
    return Block(
        np.ceil(rows / stencil_m),
        np.ceil(channels / stencil_c),
        max(1.0, np.ceil(op.in_c / arch.dpu_channel_lanes)) if op.form == _MATMUL else 1.0,
        0.0 if op.a_resident else a_bytes,
        0.0 if op.a_resident else halo,
        0.0 if op.b_resident else b_bytes,
        0.0 if op.c_resident else c_bytes,
        pixels * stencil_c * arch.dpu_sum_bytes,
        free,
    )


@kernel
def _reads(op: Any, order: int, row_blocks: float, column_blocks: float) -> tuple[float, float]:
    """Return bytes read from DRAM: (of the activations, of everything else)."""
    a_passes = 1.0 if order == _ACTIVATIONS_HELD else column_blocks
    b_passes = 1.0 if order == _WEIGHTS_HELD else row_blocks
    return op.a_dram_bytes * a_passes, op.b_dram_bytes * b_passes + op.extra_dram_bytes


@kernel
def sum_rate(arch: Any) -> float:
    """Bytes of partial sums a cycle that the grid puts down in SRAM or takes up again: the rate of its outputs."""
    return arch.dpu_drain_bytes_per_port_cycle * arch.dpu_write_ports


@kernel
def edge_s(arch: Any, op: Any, first_bytes: float, last_bytes: float) -> float:
    """Time at an operator's edges that no overlap hides: latency and bytes of the first piece in and the last piece out."""
    wait_s = stream_s(arch, first_bytes, last_bytes, 0.0)
    if op.a_dram_bytes + op.b_dram_bytes + op.extra_dram_bytes > 0.0:
        wait_s += latency_s(arch, DDR2CMX, first_bytes)
    if op.c_dram_bytes > 0.0:
        wait_s += latency_s(arch, CMX2DDR, last_bytes)
    return wait_s


@kernel
def _start_s(arch: Any, op: Any, block: Block, chunks: float) -> float:
    """Time before the first stencil can start and after the last has ended: the pieces that nothing hides."""
    wait = 0.0
    share = largest_share(chunks, block.chunks)
    if op.a_dram_bytes > 0.0 and not op.a_prefetch:
        wait += (block.a_bytes + block.a_halo_bytes) * share
    if op.b_dram_bytes > 0.0 and not op.b_prefetch:
        wait += block.b_bytes * share
    drain = block.c_bytes if op.c_dram_bytes > 0.0 else 0.0
    return edge_s(arch, op, wait, drain)


@kernel
def cost_product(arch: Any, op: Any, result: Any) -> None:
    """Find the fastest split, mode, order and tiling of a product and write its cost into `result`.

    Fills `latency_s`, `dpu_s`, `dma_s`, `dram_bytes`, `sram_bytes` and the tiling's fields; `latency_s` is infinite where no
    tiling fits into SRAM.
    """
    result.latency_s = np.inf
    for split in range(3):
        used, rows, channels = tile_share(arch, op, split)
        for mode in range(3):
            cycles = _tile_cycles(arch, op, rows, channels, mode)
            _search(arch, op, result, split, mode, used, cycles, _block(arch, op, rows, channels, mode))


@kernel
def _search(
    arch: Any, op: Any, result: Any, split: int, mode: int, used: float, cycles: float, block: Block
) -> None:
    """Try every candidate tiling of one split and mode (see `npusim.cost.tiling`).

    More chunks never shorten anything but the start, so the search ends where even the shortest start is too long.
    """
    shortest_start = _start_s(arch, op, block, block.chunks)
    others_s = stream_s(arch, op.b_dram_bytes + op.extra_dram_bytes, op.c_dram_bytes, 0.0)
    chunks = 1.0
    while chunks > 0.0:
        # Partial sums are written and read again once for each further chunk.
        spill = (chunks - 1.0) * 2.0 * block.rows * block.columns * block.sum_bytes / sum_rate(arch)
        # Stripes of whole rows are contiguous in DRAM; a chunk of the input channels is a piece of each row, unless
        # the compiler laid a constant out in the order of its use.
        row_bytes = op.in_c * op.a_item / chunks if chunks > 1.0 and not op.a_constant else 0.0
        least_dma_s = stream_s(arch, op.a_dram_bytes, 0.0, row_bytes) + others_s
        least_s = max(op.batch * (cycles + spill) / arch.dpu_clock_hz, least_dma_s)
        if least_s + shortest_start > result.latency_s:
            return
        start = _start_s(arch, op, block, chunks)
        if least_s + start <= result.latency_s:
            _try_blocks(arch, op, result, split, mode, used, cycles + spill, block, chunks, row_bytes, start)
        chunks = next_count(chunks, block.chunks)


@kernel
def _try_blocks(
    arch: Any,
    op: Any,
    result: Any,
    split: int,
    mode: int,
    used: float,
    cycles: float,
    block: Block,
    chunks: float,
    row_bytes: float,
    start: float,
) -> None:
    """Try every candidate of column blocks, each with the fewest row blocks, and keep the best in `result`."""
    columns = 1.0
    while columns > 0.0:
        tiling = best_blocks(block, columns, chunks)
        fits = tiling.sram_bytes < np.inf
        pieces = tiling.row_blocks * columns * chunks
        dpu_s = op.batch * (cycles + (pieces - 1.0) * arch.dpu_startup_cycles) / arch.dpu_clock_hz
        orders = 0 if not fits else 2 if chunks == 1.0 else 1
        for held in range(orders):
            order = held if chunks == 1.0 else _OUTPUTS_HELD
            a_read, other_read = _reads(op, order, tiling.row_blocks, columns)
            moved = a_read + other_read + op.c_dram_bytes
            dma_s = stream_s(arch, a_read, 0.0, row_bytes) + stream_s(arch, other_read, op.c_dram_bytes, 0.0)
            latency = max(dpu_s, dma_s) + start
            better = latency == result.latency_s and moved < result.dram_bytes
            if latency < result.latency_s or better:
                result.latency_s = latency
                result.dpu_s = dpu_s
                result.dma_s = dma_s
                result.dram_bytes = moved
                result.sram_bytes = used * tiling.sram_bytes + arch.tiles * op.live_copied_bytes + op.live_spread_bytes
                result.split = split
                result.mode = mode
                result.order = order
                result.tiles = int(used)
                result.row_blocks = int(tiling.row_blocks)
                result.column_blocks = int(columns)
                result.channel_chunks = int(chunks)
        if fits and tiling.row_blocks == 1.0:
            return  # more column blocks would only add to the traffic
        columns = next_count(columns, block.columns)
