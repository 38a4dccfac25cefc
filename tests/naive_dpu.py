"""The slow, obvious twin of the MAC grid's equations: register tile by register tile, in plain Python.

`npusim.cost.units.grid` costs the few kinds of register tiles that exist
and multiply; here every register tile of a workload is visited in the order in which the grid works on it.
``p`` is an object with the fields ``dpu_...`` of a row of the architecture table.
"""

import math
from collections.abc import Iterator
from typing import Any

RegisterTile = tuple[int, float, int, float]  # pixel groups, pixels, channel groups, channels
Zeros = tuple[float, float, float, float]  # densities of activations and weights, the same of their granules

DENSE: Zeros = (1.0, 1.0, 1.0, 1.0)
SPEEDS = (
    ("dense", False, False),
    ("activations", True, False),
    ("weights", False, True),
    ("both", True, True),
)


def pieces(total: float, size: float) -> Iterator[float]:
    """Cut a length into pieces of a size; the last one may be smaller."""
    while total > 0:
        yield min(total, size)
        total -= size


def image_register_tiles(
    p: Any, out_w: float, out_h: float, out_c: float, mode: int
) -> Iterator[RegisterTile]:
    """Visit the register tiles of an image: for each area of pixels, all blocks of channels."""
    lanes_w, lanes_h = p.dpu_pixel_lanes_w, p.dpu_pixel_lanes_h
    across, down = p.dpu_mode_w[mode], p.dpu_mode_h[mode]
    wide_and_tall = []  # the full areas first, then the right edge, the bottom edge, the corner
    for tall in pieces(out_h, down * lanes_h):
        for wide in pieces(out_w, across * lanes_w):
            wide_and_tall.append((wide, tall))
    wide_and_tall.sort(key=lambda size: (size[1] < down * lanes_h, size[0] < across * lanes_w))
    for wide, tall in wide_and_tall:
        groups = math.ceil(wide / lanes_w) * math.ceil(tall / lanes_h)
        for channels in pieces(out_c, p.dpu_mode_c[mode] * p.dpu_channel_lanes):
            yield groups, wide * tall, math.ceil(channels / p.dpu_channel_lanes), channels


def folded_register_tiles(p: Any, m: float, n: float, mode: int) -> Iterator[RegisterTile]:
    """Visit the register tiles of a product whose rows are folded to groups of pixels."""
    lanes = p.dpu_pixel_lanes_w * p.dpu_pixel_lanes_h
    across, down = p.dpu_mode_w[mode], p.dpu_mode_h[mode]
    for pixels in pieces(m, across * down * lanes):
        groups = math.ceil(pixels / lanes)
        if groups > across:
            groups = math.ceil(groups / across) * across  # whole rows of groups
        for channels in pieces(n, p.dpu_mode_c[mode] * p.dpu_channel_lanes):
            yield groups, pixels, math.ceil(channels / p.dpu_channel_lanes), channels


def write_back(p: Any, pixels: float, channels: float, item: float, write_tiles: float) -> float:
    """Cycles in which a register tile's outputs leave, in whole words of SRAM."""
    words = math.ceil(channels * item / p.dpu_sram_word_bytes)
    rate = p.dpu_drain_bytes_per_port_cycle * p.dpu_write_ports
    rate *= p.dpu_broadcast_rate if write_tiles > 1 else 1
    rate *= p.dpu_fp16_output_rate if item > 1 else 1
    return pixels * words * p.dpu_sram_word_bytes / rate


def fullest_lane(density: float, granules: float, lanes: float, window: float) -> float:
    """Share of the steps that the fullest of 16 lanes keeps: the mean and 1.77 standard deviations."""
    if density >= 1:
        return 1.0
    filled = min(1.0, max(granules, density, 1e-12))
    mean = density / filled
    deviation = math.sqrt(mean * (1 - mean) / window * (1 - 1 / lanes))
    return filled * min(1.0, mean + 1.77 * deviation)


def paces(p: Any, zeros: Zeros, weight_item: float) -> Iterator[tuple[float, float, float, float]]:
    """Yield (computing, activation feed, weight feed, exposed share) for each sensible use of bitmaps."""
    act, weight, act_granules, weight_granules = zeros
    lanes = p.dpu_pixel_lanes_w * p.dpu_pixel_lanes_h
    act_kept = fullest_lane(act, act_granules, lanes, p.dpu_sparse_window_act)
    weight_kept = fullest_lane(weight, weight_granules, p.dpu_channel_lanes, p.dpu_sparse_window_weight)
    for name, uses_act, uses_weight in SPEEDS:
        if (uses_act and act >= 1) or (uses_weight and weight >= 1):
            continue
        if name == "dense":
            yield 1.0, 1.0, 1.0, 0.0
            continue
        kept = min([act_kept] * uses_act + [weight_kept] * uses_weight)
        computing = max(kept, 1 / p.dpu_sparse_skip_max + p.dpu_sparse_restart * kept)
        act_feed = p.dpu_sparse_act_feed if uses_act else 1.0
        bitmap = 1 / 8 / weight_item
        weight_feed = min(1.0, weight + bitmap) if uses_weight else 1.0
        yield computing, act_feed, weight_feed, p.dpu_sparse_drain_exposed


FORMATS = (0.5, 1, 2, 4)
"""Bytes of an element of each format of the grid."""


def grid_cycles(
    p: Any, register_tiles: list[RegisterTile], taps: float, in_bytes: float, items: tuple[float, float,
    float], mode: int, write_tiles: float, zeros: Zeros,
) -> float:  # fmt: skip
    """Cycles of register tiles; ``items`` are the bytes of an activation, a weight and an output."""
    steps = taps * math.ceil(in_bytes / p.dpu_mac_bytes_per_cycle[FORMATS.index(items[0])])
    reads = taps * math.ceil(in_bytes / p.dpu_feed_piece_bytes)
    ports, piece = p.dpu_read_ports, p.dpu_feed_piece_bytes
    pixels_read = p.dpu_pixel_lanes_w * p.dpu_pixel_lanes_h * piece / (p.dpu_act_bytes_per_port_cycle * ports)
    is_long = taps > 1 and taps * in_bytes / items[0] > p.dpu_window_elements
    weights_read = (
        p.dpu_channel_lanes * piece / (p.dpu_weight_bytes_per_port_cycle * (1 if is_long else ports))
    )
    walk = p.dpu_mode_w[mode] * p.dpu_mode_h[mode] * p.dpu_slot_walk_cycles
    start = p.dpu_startup_cycles + (p.dpu_broadcast_cycles if write_tiles > 1 else 0)
    totals = []
    for computing, act_feed, weight_feed, exposed in paces(p, zeros, items[1]):
        total, drains, last = start, [], 0.0
        for groups, pixels, channel_groups, channels in register_tiles:
            macs = steps * groups * channel_groups * computing
            feed = steps * walk
            feed += reads * (groups * pixels_read * act_feed + channel_groups * weights_read * weight_feed)
            compute = p.dpu_register_tile_cycles + max(macs, feed)
            drain = write_back(p, pixels, channels, items[2], write_tiles)
            last = max(compute, drain) + exposed * min(compute, drain)
            total += last
            drains.append(drain)
        totals.append(total + max(drains[-1], drains[0] - last))  # the first register tile is the largest
    return min(totals)


def conv_cycles(
    p: Any, out_w: float, out_h: float, out_c: float, in_c: float, kernel: tuple[float, float],
    pads: tuple[float, float], items: tuple[float, float, float], mode: int, write_tiles: float, zeros: Zeros,
) -> float:  # fmt: skip
    """Cycles of a convolution; kernel as (width, height), pads as (top, bottom)."""
    taps = kernel[0] * kernel[1]
    if out_h % p.dpu_pixel_lanes_h == 1 and any(pads):
        taps = max(1.0, taps - p.dpu_lone_row_taps)
    register_tiles = list(image_register_tiles(p, out_w, out_h, out_c, mode))
    return grid_cycles(p, register_tiles, taps, in_c * items[0], items, mode, write_tiles, zeros)


def matmul_mode_cycles(
    p: Any, m: float, k: float, n: float, items: tuple[float, float, float], mode: int, write_tiles: float,
    zeros: Zeros,
) -> float:  # fmt: skip
    """Cycles of a product in one mode; only the first skips zeros."""
    register_tiles = list(folded_register_tiles(p, m, n, mode))
    return grid_cycles(
        p, register_tiles, 1, k * items[0], items, mode, write_tiles, zeros if mode == 0 else DENSE
    )


def block_reads(p: Any) -> float:
    """Cycles to read one block of channels for all pixels of a group."""
    lanes = p.dpu_pixel_lanes_w * p.dpu_pixel_lanes_h
    return lanes * p.dpu_channelwise_block_bytes / (p.dpu_read_ports * p.dpu_channelwise_bytes_per_port_cycle)


def padded_share(out_h: float, kernel_h: float, stride: float, pads: tuple[float, float]) -> float:
    """Share of pairs (output row, kernel row) that read padding: a triangle of them on each side."""
    triangles = [pad * (pad + stride) / (2 * stride) for pad in pads]
    return min(1.0, sum(triangles) / (out_h * kernel_h))


def depthwise_cycles(
    p: Any, out_w: float, out_h: float, channels: float, kernel: tuple[float, float], stride: float,
    pads: tuple[float, float], item: float, write_tiles: float,
) -> float:  # fmt: skip
    """Cycles of a depthwise convolution: block by block of channels, group by group of pixels."""
    kernel_w, kernel_h = kernel
    blocks = math.ceil(channels * item / p.dpu_channelwise_block_bytes)
    taps = kernel_w * kernel_h
    shares_columns = stride == 1 and 1 < kernel_w <= p.dpu_row_reuse_kernel_w
    if shares_columns and channels <= p.dpu_row_reuse_channels:
        columns = p.dpu_pixel_lanes_w + kernel_w - 1
        taps = min(taps, kernel_h * columns / p.dpu_pixel_lanes_w * p.dpu_row_reuse_cost)
    elif shares_columns:
        taps *= p.dpu_row_overlap_cost
    taps *= 1 - p.dpu_padding_saving * padded_share(out_h, kernel_h, stride, pads)
    taps *= 1 + p.dpu_stride_conflict / blocks**2 if stride > 1 else 1
    taps *= p.dpu_half_block_cost if channels * item <= p.dpu_channelwise_block_bytes / 2 else 1
    total = p.dpu_startup_cycles + (p.dpu_broadcast_cycles if write_tiles > 1 else 0)
    for _ in range(blocks):
        total += p.dpu_channelwise_start_cycles
        for _ in pieces(out_h, p.dpu_pixel_lanes_h):
            for _ in pieces(out_w, p.dpu_pixel_lanes_w):
                total += block_reads(p) * (taps * p.dpu_depthwise_tap_cost + p.dpu_depthwise_group_cost)
    return total


def maxpool_cycles(
    p: Any, out_w: float, out_h: float, channels: float, kernel: tuple[float, float], item: float, mode: int,
    write_tiles: float,
) -> float:  # fmt: skip
    """Cycles of max pooling: block by block of channels, register tile by register tile of pixels."""
    taps = kernel[0] * kernel[1]
    cost = p.dpu_pool_tap_cost * (p.dpu_pool_few_slots_cost if mode > 0 else 1)
    one_block = p.dpu_mode_c[mode] * p.dpu_channel_lanes
    total = p.dpu_startup_cycles + (p.dpu_broadcast_cycles if write_tiles > 1 else 0)
    for _ in range(math.ceil(channels * item / p.dpu_channelwise_block_bytes)):
        total += p.dpu_channelwise_start_cycles
        for groups, *_ in image_register_tiles(p, out_w, out_h, one_block, mode):
            per_tap = groups * cost + p.dpu_pool_register_tile_cost
            total += block_reads(p) * (taps * per_tap + groups * p.dpu_depthwise_group_cost)
    return total


def eltwise_cycles(
    p: Any, out_w: float, out_h: float, channels: float, item: float, write_tiles: float
) -> float:
    """Cycles of a sum of two tensors: pixel by pixel."""
    a_pixel = math.ceil(channels * item / p.dpu_channelwise_block_bytes) * p.dpu_channelwise_block_bytes
    narrow = p.dpu_fp16_output_rate if item > 1 else 1
    adding = a_pixel / (p.dpu_eltwise_bytes_per_port_cycle * p.dpu_read_ports * narrow)
    leaving = p.dpu_drain_bytes_per_port_cycle * p.dpu_write_ports * p.dpu_broadcast_rate * narrow
    if write_tiles > 1:
        adding = max(adding, a_pixel / leaving)
    return p.dpu_startup_cycles + sum(adding for _ in range(int(out_w * out_h)))
