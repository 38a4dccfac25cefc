"""SymG: a product whose left operand is symmetric and of which only the lower triangle is stored.

A distance table in a road atlas is printed once below its diagonal; to know how far everything is from one town you read along its
row, then turn the corner and read down its column. Reading down is the price: the block (i, j) serves output rows i as it stands
and output rows j transposed.

Two ways, and the better is taken. *Once*: every block is fetched once and both uses follow each other, so the
partial sums of all output rows stay in SRAM with all of the right operand; the second use reads the block
transposed, at `symg_transposed_rate` of the normal pace. *Twice*: every off-diagonal block is fetched for each
use, which moves what dense storage moves; only the memory is saved.

Once never moves more than any way to fetch a dense matrix. Cutting the columns into passes whose partial sums fit
would be a third way, but two passes over a triangle move more than one over the dense matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.dma import copy_s, stream_s
from npusim.cost.dpu import matmul_mode_cycles, mode_shape
from npusim.cost.jit import kernel
from npusim.cost.products import cost_product, edge_s, sum_rate, tile_share
from npusim.cost.tables import Order, Split

__all__ = ["busiest_share", "cost_triangle"]

_ROWS = int(Split.ROWS)
_OUTPUTS_HELD = int(Order.OUTPUTS_HELD)


@kernel
def busiest_share(row_blocks: float, tiles: float) -> float:
    """Share of the work that the busiest tile has when the triangle's blocks are dealt out one by one."""
    blocks = row_blocks * (row_blocks + 1.0) / 2.0
    return float(np.ceil(blocks / tiles) / blocks)


@kernel
def cost_triangle(arch: Any, op: Any, result: Any) -> None:
    """Cost a product with a stored triangle: the best of fetching blocks twice and once.

    Fills the same fields of `result` as `npusim.cost.products.cost_product`.
    """
    cost_product(arch, op, result)  # twice: the DRAM bytes of the row are those of the dense matrix
    for mode in range(3):
        for split in range(3):
            most, _, channels = tile_share(arch, op, split)
            # Tiles that share the triangle add up each other's partial sums, so fewer tiles may be quicker.
            used = 1.0 if split == _ROWS else most
            while used <= most:
                _fetch_once(arch, op, result, split, mode, used, channels)
                used += 1.0


@kernel
def _fetch_once(arch: Any, op: Any, result: Any, split: int, mode: int, used: float, channels: float) -> None:
    """Try one split, mode and number of tiles."""
    across, down, _ = mode_shape(arch, mode)
    pixels = min(op.out_w, across * arch.dpu_pixel_lanes_w * down * arch.dpu_pixel_lanes_h)
    block_bytes = 2.0 * pixels * pixels * op.a_item
    b_bytes = 0.0 if op.b_resident else op.in_c * channels * op.b_item
    sums = op.out_w * channels * arch.dpu_sum_bytes
    out_bytes = 0.0 if op.c_resident else 2.0 * pixels * channels * op.c_item
    working = b_bytes + sums + block_bytes + out_bytes
    if working > arch.sram_tile_bytes - op.live_copied_bytes - op.live_spread_bytes / arch.tiles:
        return
    read = op.a_triangle_bytes + op.b_dram_bytes + op.extra_dram_bytes
    dma_s = stream_s(arch, read, op.c_dram_bytes, 0.0)
    if split == _ROWS:
        dma_s += copy_s(arch, (used - 1.0) * sums)
    dpu_s = _grid_s(arch, op, pixels, channels, mode, used if split == _ROWS else 1.0)
    first = 0.5 * block_bytes if op.a_triangle_bytes > 0.0 and not op.a_prefetch else 0.0
    if op.b_dram_bytes > 0.0 and not op.b_prefetch:
        first += pixels * channels * op.b_item
    latency = max(dpu_s, dma_s) + edge_s(arch, op, first, 0.5 * out_bytes)
    if latency < result.latency_s:
        blocks = np.ceil(op.out_w / pixels)
        result.latency_s = latency
        result.dpu_s = dpu_s
        result.dma_s = dma_s
        result.dram_bytes = read + op.c_dram_bytes
        result.sram_bytes = used * working + arch.tiles * op.live_copied_bytes + op.live_spread_bytes
        result.split = split
        result.mode = mode
        result.order = _OUTPUTS_HELD
        result.tiles = int(used)
        result.row_blocks = int(blocks)
        result.column_blocks = 1
        result.channel_chunks = int(blocks)


@kernel
def _grid_s(arch: Any, op: Any, pixels: float, channels: float, mode: int, sharing: float) -> float:
    """Time of the MAC grid on the busiest of `sharing` tiles that share the blocks of the triangle (s)."""
    row_blocks = np.ceil(op.out_w / pixels)
    share = busiest_share(row_blocks, sharing)
    cycles = matmul_mode_cycles(
        arch, np.ceil(op.out_w * share), op.in_c, channels, op.a_item, op.b_item, op.c_item, mode, 1.0, 1.0, 1.0, 1.0, 1.0
    )  # fmt: skip
    # Half of the products read their block as it stands, half transposed.
    turned = 0.5 + 0.5 / arch.symg_transposed_rate
    # Each block adds to the sums of its columns' rows: read and written once a block.
    update = 0.5 * row_blocks * op.out_w * share * channels * 2.0 * arch.dpu_sum_bytes / sum_rate(arch)
    starts = (np.ceil(row_blocks * row_blocks * share) - 1.0) * arch.dpu_startup_cycles
    return float(op.batch * (cycles * turned + update + starts) / arch.dpu_clock_hz)
