"""SymG: a product whose left operand is symmetric and of which only the lower triangle is stored.

A distance table in a road atlas is printed once below its diagonal; to know how far everything is from one town you read along its
row, then turn the corner and read down its column. Reading down is the price: the block (i, j) serves output rows i as it stands
and output rows j transposed.

Two ways, and the better is taken. *Once*: every block is fetched once and both uses follow each other, so the partial sums of all
output rows stay in SRAM with all of the right operand; the second use reads the block transposed, at `symg_transposed_rate` of the
normal pace. *Twice*: every off-diagonal block is fetched for each use, which moves what dense storage moves; only the memory is saved.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.dma import copy_s, stream_s
from npusim.cost.dpu import matmul_mode_cycles, mode_shape
from npusim.cost.jit import kernel
from npusim.cost.products import cost_product, edge_s, sum_rate, tile_share
from npusim.cost.tables import Order, Split
from npusim.cost.tiling import next_count

__all__ = ["busiest_share", "cost_triangle"]

_ROWS, _COLUMNS, _SINGLE = int(Split.ROWS), int(Split.COLUMNS), int(Split.SINGLE)
_OUTPUTS_HELD = int(Order.OUTPUTS_HELD)


@kernel
def busiest_share(row_blocks: float, tiles: float) -> float:
    """Share of the work that the busiest tile has when the triangle's blocks are dealt out one by one."""
    blocks = row_blocks * (row_blocks + 1.0) / 2.0
    return float(np.ceil(blocks / tiles) / blocks)


@kernel
def cost_triangle(arch: Any, op: Any, result: Any) -> None:
    """Cost a product with a stored triangle: the best of fetching blocks twice and once.

    Fetching once is for saving traffic, so it is taken only where it moves no more than fetching twice. Fills the same fields of
    `result` as `npusim.cost.products.cost_product`.
    """
    cost_product(arch, op, result)  # twice: the DRAM bytes of the row are those of the dense matrix
    allowed = result.dram_bytes if result.latency_s < np.inf else np.inf
    for mode in range(3):
        for split in (_COLUMNS, _SINGLE):
            used, _, channels = tile_share(arch, op, split)
            _fetch_once(arch, op, result, allowed, split, mode, used, channels)
        # Tiles that share the triangle add up each other's partial sums, so fewer tiles may be quicker.
        for used in range(1, int(arch.tiles) + 1):
            _fetch_once(arch, op, result, allowed, _ROWS, mode, float(used), op.out_c)


@kernel
def _fetch_once(
    arch: Any, op: Any, result: Any, allowed: float, split: int, mode: int, used: float, channels: float
) -> None:
    """Try one split and mode; the channels of a tile are cut into passes until the partial sums fit."""
    across, down, _ = mode_shape(arch, mode)
    pixels = min(op.out_w, across * arch.dpu_pixel_lanes_w * down * arch.dpu_pixel_lanes_h)
    row_blocks = np.ceil(op.out_w / pixels)
    share = busiest_share(row_blocks, used) if split == _ROWS else 1.0
    rows = np.ceil(op.out_w * share)
    uses = np.ceil(row_blocks * row_blocks * share)
    # Half of the products read their block as it stands, half transposed.
    turned = 0.5 + 0.5 / arch.symg_transposed_rate
    block_bytes = 2.0 * pixels * pixels * op.a_item
    free = arch.sram_tile_bytes - op.live_copied_bytes - op.live_spread_bytes / arch.tiles
    groups = np.ceil(channels / arch.dpu_channel_lanes)
    passes = 1.0
    while passes > 0.0:
        wide = min(channels, np.ceil(groups / passes) * arch.dpu_channel_lanes)
        b_bytes = 0.0 if op.b_resident else op.in_c * wide * op.b_item
        sums = op.out_w * wide * arch.dpu_sum_bytes
        out_bytes = 0.0 if op.c_resident else pixels * wide * op.c_item * 2.0
        working = b_bytes + sums + block_bytes + out_bytes
        read = op.a_triangle_bytes * passes + op.b_dram_bytes + op.extra_dram_bytes
        if working <= free and read + op.c_dram_bytes <= allowed:
            cycles = matmul_mode_cycles(
                arch, rows, op.in_c, wide, op.a_item, op.b_item, op.c_item, mode, 1.0, 1.0, 1.0, 1.0, 1.0
            )
            # Each block adds to the sums of its columns' rows: read and written once a block.
            update = 0.5 * row_blocks * op.out_w * share * wide * 2.0 * arch.dpu_sum_bytes / sum_rate(arch)
            starts = (passes * uses - 1.0) * arch.dpu_startup_cycles
            dpu_s = op.batch * (passes * (cycles * turned + update) + starts) / arch.dpu_clock_hz
            dma_s = stream_s(arch, read, op.c_dram_bytes, 0.0)
            if split == _ROWS:
                dma_s += copy_s(arch, (used - 1.0) * sums * passes)
            first = 0.5 * block_bytes if op.a_triangle_bytes > 0.0 and not op.a_prefetch else 0.0
            if op.b_dram_bytes > 0.0 and not op.b_prefetch:
                first += pixels * wide * op.b_item
            latency = max(dpu_s, dma_s) + edge_s(arch, op, first, 0.5 * out_bytes)
            if latency < result.latency_s:
                result.latency_s = latency
                result.dpu_s = dpu_s
                result.dma_s = dma_s
                result.dram_bytes = read + op.c_dram_bytes
                result.sram_bytes = used * working + arch.tiles * op.live_copied_bytes + op.live_spread_bytes
                result.split = split
                result.mode = mode
                result.order = _OUTPUTS_HELD
                result.tiles = int(used)
                result.row_blocks = int(row_blocks)
                result.column_blocks = int(passes)
                result.channel_chunks = int(row_blocks)
        passes = next_count(passes, groups)
