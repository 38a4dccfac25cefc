"""Twin of `npusim.cost.tilings.search`: every way to fetch each block of a stored triangle once."""

import math
from typing import Any

import naive_dma as dma
import naive_dpu
from naive_products import Choice, at_rate, overlapped, tiles_and_share

from npusim.cost.lowering.tables import Order, Split


def choices_once(arch: Any, op: Any) -> list[Choice]:
    """Return every split, mode and number of tiles whose partial sums fit, with its cost."""
    most, _, _ = tiles_and_share(arch, op, Split.ROWS)
    ways = [(Split.ROWS, used, op.out_c) for used in range(1, most + 1)]
    for split in (Split.COLUMNS, Split.SINGLE):
        used, _, channels = tiles_and_share(arch, op, split)
        ways.append((split, used, channels))
    found = []
    for split, used, channels in ways:
        for mode in range(3):
            choice = _once(arch, op, split, used, channels, mode)
            found += [choice] if choice is not None else []
    return found


def _once(arch: Any, op: Any, split: Split, used: int, channels: float, mode: int) -> Choice | None:
    n = op.out_w
    lanes = arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h
    side = min(n, arch.dpu_mode_w[mode] * arch.dpu_mode_h[mode] * lanes)
    per_side = math.ceil(n / side)
    blocks = per_side * (per_side + 1) // 2
    busiest = math.ceil(blocks / used) / blocks if split is Split.ROWS else 1.0
    sums = n * channels * arch.dpu_sum_bytes
    two_blocks = 2 * side * side * op.a_item
    b = 0.0 if op.b_resident else op.in_c * channels * op.b_item
    c = 0.0 if op.c_resident else side * channels * op.c_item
    working = b + sums + two_blocks + 2 * c
    free = arch.sram_tile_bytes - op.live_copied_bytes - op.live_spread_bytes / arch.tiles
    if working > free:
        return None
    rate = arch.dpu_drain_bytes_per_port_cycle * arch.dpu_write_ports
    items, share = (op.a_item, op.b_item, op.c_item), math.ceil(n * busiest)
    fast = at_rate(arch, op)
    product = naive_dpu.matmul_mode_cycles(fast, share, op.in_c, channels, items, mode, 1.0, naive_dpu.DENSE)
    straight, transposed = 0.5, 0.5 / arch.symg_transposed_rate
    update = per_side * busiest * sums / rate
    starts = (math.ceil(per_side**2 * busiest) - 1) * arch.dpu_startup_cycles
    dpu_s = op.batch * (product * (straight + transposed) + update + starts) / arch.dpu_clock_hz
    read = op.a_triangle_bytes + op.b_dram_bytes + op.extra_dram_bytes
    dma_s = dma.stream_s(arch, read, op.c_dram_bytes)
    copied = (used - 1) * sums if split is Split.ROWS else 0.0
    if copied:
        dma_s += dma.copy_s(arch, copied)
    first = two_blocks / 2 if op.a_triangle_bytes > 0 and not op.a_prefetch else 0.0
    if op.b_dram_bytes > 0 and not op.b_prefetch:
        first += side * channels * op.b_item
    reads = op.a_dram_bytes + op.b_dram_bytes + op.extra_dram_bytes > 0
    times = {
        "dpu_s": dpu_s,
        "dma_s": dma_s,
        "edges_s": dma.stream_s(arch, first, c if op.c_dram_bytes > 0 else 0.0),
        "waits_s": float(dma.waits_s(arch, first, reads, op.c_dram_bytes > 0)),
    }
    past = op.a_triangle_bytes / used
    times |= overlapped(arch, times, past / (free - b - sums) if past > 0 else 0.0)
    return Choice(
        split=split,
        mode=mode,
        order=Order.OUTPUTS_HELD,
        tiles=used,
        row_pieces=per_side,
        strips=1,
        register_tile_pixels=arch.dpu_mode_w[mode] * arch.dpu_mode_h[mode] * lanes,
        fine=False,
        buffers=2,
        common_s=float(dma.waits_s(arch, 0.0, reads, op.c_dram_bytes > 0)),
        register_tile_channels=arch.dpu_mode_c[mode] * arch.dpu_channel_lanes,
        row_blocks=per_side,
        column_blocks=1,
        channel_chunks=per_side,
        **{name: float(time) for name, time in times.items()},
        dram_bytes=read + op.c_dram_bytes,
        copied_bytes=copied,
        sram_peak_bytes=used * working + arch.tiles * op.live_copied_bytes + op.live_spread_bytes,
    )
