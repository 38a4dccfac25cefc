"""The MAC grid of one tile: cycles of products, convolutions and channelwise work, with zero skipping.

Register tiles. Outputs are stationary. They are cut into *register tiles*, as many outputs as the
accumulators hold: groups of pixels times groups of channels (mode 16x16: 16 and 4; 8x16: 8 and 8; 4x16: 4 and
16). In each *step* (8 bytes of input channels of one kernel tap) each pixel group meets each channel group
once, one cycle each. Meanwhile loaders refill the operand registers from SRAM for the next step; the slower
of the two sets the pace. A finished register tile is written back while the next one computes.

Zeros. Each MAC unit has a bitmap of the non-zero operands of its pixel and its output channel and skips
zeros. But the units advance together: the next input channels start when the unit with the most non-zeros is
done. So the saving follows the *fullest* lane, skipping empty steps costs time, and loaders still feed the
grid. That is why the speed-up saturates near 2.5, and why few output channels gain little.

Products. Full register tiles of a convolution, register tiles at the right edge, at the bottom edge and in
the corner differ in size: four kinds of pixel areas times two kinds of channel blocks at most are costed, at
any size. A matrix product M x K x N is a 1x1 convolution whose M rows the compiler folds to a grid of pixels.

Channelwise work (depthwise convolution, pooling, elementwise). No input channel meets another, so seven of
the eight multipliers of a MAC unit idle and the SRAM ports set the rate: a group of 4 x 4 pixels x 32 B of
channels takes at least four cycles per kernel tap (512 B through 128 B per cycle).

All functions are scalar equations in cycles of the DPU clock. Units, sources and uncertainties of the
``dpu_...`` columns are in ``configs/socs``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npusim.compiling.kernels import compiled
from npusim.compiling.records import Bytes, Elements, Number, Share
from npusim.cost.lowering.tables import OpRecord
from npusim.cost.machine.architecture import MODES, ArchRecord


class DpuWorkload(NamedTuple):
    """Work of the MAC grid of one tile (Intel: a DPU workload).

    A product M x K x N has M as `out_w`, K as `in_c` and N as `out_c`; its M x K operand is the activation,
    the K x N operand the weights. The stride of a convolution enters through the output's size only: silicon
    rows of stride 1 and 2 lie on one line.
    """

    out_w: Elements
    """Output width in pixels, at least 1, as all sizes."""
    out_h: Elements
    """Output height in pixels."""
    out_c: Elements
    """Output channels."""
    in_c: Elements = 1.0
    """Input channels."""
    kernel_w: Elements = 1.0
    """Width of the window in pixels."""
    kernel_h: Elements = 1.0
    """Height of the window in pixels."""
    stride: Elements = 1.0
    """Step of the window of work without a sum over channels."""
    pad_top: Elements = 0.0
    """Padding above the image."""
    pad_bottom: Elements = 0.0
    """Padding below the image."""
    act_bytes: Bytes = 1.0
    """An activation: 1 int8, 2 fp16."""
    weight_bytes: Bytes = 1.0
    """A weight."""
    out_bytes: Bytes = 1.0
    """An output."""
    write_tiles: Number = 1.0
    """Tiles that receive the output."""
    act_density: Share = 1.0
    """Non-zero activations, 1 = dense."""
    weight_density: Share = 1.0
    """Non-zero weights."""
    act_block_density: Share = 1.0
    """Granules (lanes x window) of activations that are not empty; 1 when unknown."""
    weight_block_density: Share = 1.0
    """The same for the weights."""
    mac_rate: Number = 1.0
    """Rate of the MAC units relative to that of the operands' width: own formats, regular sparsity."""
    act_widening: Number = 0.0
    """Cycles in which the loaders of the tile widen an activation."""
    weight_widening: Number = 0.0
    """The same for a weight."""


class SkippedShares(NamedTuple):
    """Cycles with zero skipping over cycles of dense operands: computing, and feeds of both operands."""

    mac: float = 1.0
    act: float = 1.0
    weight: float = 1.0
    exposed: float = 0.0
    """Share of the shorter of computing and write-back that does not overlap."""


class ReductionCycles(NamedTuple):
    """Cycles of the whole reduction of a register tile; feeds for each group of pixels or channels."""

    start: float
    mac: float
    """MAC units, for each pair of a pixel group and a channel group."""
    slots: float
    """Walk of the loader over the pixel slots of the mode, filled or not."""
    act: float
    weight: float
    exposed: float
    """Share as in `SkippedShares`; 0 for dense operands."""


class Channels(NamedTuple):
    """Output channels in blocks of a register tile: full blocks, and the last, partial block.

    Each has channel groups (0: no last block) and the write-back of its channels (cycles per pixel).
    """

    blocks: float
    block_groups: float
    block_drain: float
    rest_groups: float
    rest_drain: float


class AreaCycles(NamedTuple):
    """Cycles of all channel blocks over an area of pixels."""

    total: float
    last: float
    """Of these, the cycles of the last register tile."""
    last_drain: float
    """Cycles of its write-back, which the next register tile hides."""


@compiled
def tile_workload(op: OpRecord, out_w: float, out_h: float, out_c: float, skips_zeros: bool) -> DpuWorkload:
    """Return the work of one tile on its share of an operator; all fields, as numba knows no defaults."""
    act_density = op.a_density if skips_zeros else 1.0
    act_block_density = op.a_block_density if skips_zeros else 1.0
    weight_density = op.b_density if skips_zeros else 1.0
    return DpuWorkload(
        out_w,
        out_h,
        out_c,
        op.in_c,
        op.kernel_w,
        op.kernel_h,
        op.stride_w,
        0.0,
        0.0,
        op.a_item,
        op.b_item,
        op.c_item,
        1.0,
        act_density,
        weight_density,
        act_block_density,
        1.0,
        op.mac_rate,
        op.a_widening,
        op.b_widening,
    )


@compiled
def mode_shape(arch: ArchRecord, mode: int) -> tuple[float, float, float]:
    """Return pixel groups across and down, and channel groups, of a register tile; see `npu.dpu.modes`."""
    return arch.dpu_mode_w[mode], arch.dpu_mode_h[mode], arch.dpu_mode_c[mode]


@compiled
def mac_format(item_bytes: float) -> int:
    """Return the place of an operand's format in `MAC_FORMATS`, by the bytes of an element."""
    if item_bytes < 1.0:
        return 0
    return 1 if item_bytes < 2.0 else 2 if item_bytes < 4.0 else 3


@compiled
def reduction_cycles(
    arch: ArchRecord, slots: float, taps: float, work: DpuWorkload, skipped: SkippedShares
) -> ReductionCycles:
    """Return the cycles of a whole reduction.

    A MAC unit reads its input channels in steps of ``dpu_mac_bytes_per_cycle``, the loader in pieces of
    ``dpu_feed_piece_bytes`` through all ports: a wider MAC unit has fewer steps, but the same pieces. Where
    elements are widened on their way, a feed takes no less than their widening (``npu.dpu.widening``). One
    port feeds the weights of a window of more than ``dpu_window_elements``, as VGG's 7 x 7 x 512 shows.
    Source of the feeds: fitted; silicon rows with 16 output channels (``silicon_dpu.csv``) are bound by
    activations, rows with few pixels and products with few rows by weights.
    """
    channel_bytes, piece_bytes = work.in_c * work.act_bytes, arch.dpu_feed_piece_bytes
    step_bytes = arch.dpu_mac_bytes_per_cycle[mac_format(work.act_bytes)] * work.mac_rate
    steps = taps * float(np.ceil(channel_bytes / step_bytes))
    pieces = taps * float(np.ceil(channel_bytes / piece_bytes))
    act_bytes = arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h * piece_bytes
    act_feed = act_bytes / (arch.dpu_act_bytes_per_port_cycle * arch.dpu_read_ports)
    weight_bytes = arch.dpu_channel_lanes * piece_bytes
    ports = 1.0 if taps > 1.0 and taps * work.in_c > arch.dpu_window_elements else arch.dpu_read_ports
    weight_feed = weight_bytes / (arch.dpu_weight_bytes_per_port_cycle * ports)
    act_feed = max(act_feed, act_bytes / work.act_bytes * work.act_widening)
    weight_feed = max(weight_feed, weight_bytes / work.act_bytes * work.weight_widening)
    return ReductionCycles(
        arch.dpu_register_tile_cycles,
        steps * skipped.mac,
        steps * slots * arch.dpu_slot_walk_cycles,
        pieces * skipped.act * act_feed,
        pieces * skipped.weight * weight_feed,
        skipped.exposed,
    )


@compiled
def drain_cycles_per_byte(arch: ArchRecord, write_tiles: float, out_bytes: float) -> float:
    """Return the cycles that the grid needs to write one byte of its result.

    They grow when the result goes to other tiles' SRAM as well, and for fp16, whose post-processing handles
    fewer elements per cycle (the latter by the cost model only).
    """
    rate = arch.dpu_drain_bytes_per_port_cycle * arch.dpu_write_ports
    if write_tiles > 1.0:
        rate *= arch.dpu_broadcast_rate
    if out_bytes > 1.0:
        rate *= arch.dpu_fp16_output_rate
    return float(1.0 / rate)


@compiled
def startup_cycles(arch: ArchRecord, write_tiles: float) -> float:
    """Return the cycles before the first register tile and after the last one, which no work hides."""
    return float(arch.dpu_startup_cycles + (arch.dpu_broadcast_cycles if write_tiles > 1.0 else 0.0))


@compiled
def _word_bytes(arch: ArchRecord, channel_bytes: float) -> float:
    """Return the bytes that a pixel's channels occupy in SRAM: whole words."""
    return float(np.ceil(channel_bytes / arch.dpu_sram_word_bytes) * arch.dpu_sram_word_bytes)


@compiled
def channel_blocks(arch: ArchRecord, work: DpuWorkload, groups: float) -> Channels:
    """Cut output channels into blocks of ``groups`` channel groups."""
    per_byte = drain_cycles_per_byte(arch, work.write_tiles, work.out_bytes)
    block_c = groups * arch.dpu_channel_lanes
    blocks = float(np.floor(work.out_c / block_c))
    rest_c = work.out_c - blocks * block_c
    return Channels(
        blocks,
        groups,
        _word_bytes(arch, block_c * work.out_bytes) * per_byte,
        float(np.ceil(rest_c / arch.dpu_channel_lanes)),
        _word_bytes(arch, rest_c * work.out_bytes) * per_byte,
    )


@compiled
def _register_tile_cycles(
    reduction: ReductionCycles, pixel_groups: float, channel_groups: float, drain_cycles: float
) -> float:
    """Return the cycles of a register tile: compute or feed, or the write-back of the one before it."""
    # Both operands share the ports, so their feeds add up.
    feed = reduction.slots + pixel_groups * reduction.act + channel_groups * reduction.weight
    compute = reduction.start + max(pixel_groups * channel_groups * reduction.mac, feed)
    return max(compute, drain_cycles) + reduction.exposed * min(compute, drain_cycles)


@compiled
def area_cycles(
    reduction: ReductionCycles, channels: Channels, pixel_groups: float, pixels: float
) -> AreaCycles:
    """Return the cycles of all channel blocks over an area of the pixels of one register tile.

    One register tile per block: full blocks take equally long, the last one has the channels that remain.
    """
    total = last = drain_cycles = 0.0
    if channels.blocks > 0.0:
        drain_cycles = pixels * channels.block_drain
        last = _register_tile_cycles(reduction, pixel_groups, channels.block_groups, drain_cycles)
        total = channels.blocks * last
    if channels.rest_groups > 0.0:  # fewer channel groups compute and drain faster
        drain_cycles = pixels * channels.rest_drain
        last = _register_tile_cycles(reduction, pixel_groups, channels.rest_groups, drain_cycles)
        total += last
    return AreaCycles(total, last, drain_cycles)


@compiled
def tail_cycles(channels: Channels, largest_pixels: float, last: float, last_drain: float) -> float:
    """Return the write-back after the last register tile: its own, or the rest of the largest earlier one."""
    largest = largest_pixels * (channels.block_drain if channels.blocks > 0.0 else channels.rest_drain)
    return max(last_drain, largest - last)


@compiled
def full_register_tile_cycles(arch: ArchRecord, work: DpuWorkload, mode: int) -> tuple[float, float]:
    """Return the cycles of a full register tile of a product, and of a row of them over all its channels.

    A register tile takes a fixed time, and work that grows with its pixels, its channels, or both. So a
    smaller one takes more for each.
    """
    across, down, channel_groups = mode_shape(arch, mode)
    slots = across * down
    pixels = slots * arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h
    channels = channel_blocks(arch, work, channel_groups)
    register_tile, row, drain = np.inf, np.inf, pixels * channels.block_drain
    for side in range(SIDES if mode == 0 else 1):
        if worth_trying(side, work):
            skipped = skipped_shares(arch, side, work)
            reduction = reduction_cycles(arch, slots, 1.0, work, skipped)
            register_tile = min(register_tile, _register_tile_cycles(reduction, slots, channel_groups, drain))
            row = min(row, area_cycles(reduction, channels, slots, pixels).total)
    return register_tile, row


DENSE, ACTIVATIONS, WEIGHTS, BOTH = 0, 1, 2, 3
"""Whose bitmaps the grid uses to skip zeros."""
SIDES = 4
"""Number of these choices."""

_FULLEST_OF_16 = 1.77
"""Expected maximum of 16 standard normal variables."""


@compiled
def lane_density(density: float, block_density: float, lanes: float, window: float) -> float:
    """Return the share of the dense steps that the fullest of several lanes keeps.

    A window of a lane holds ``density * window`` non-zeros on average, with the spread of a binomial. The
    fullest of 16 lanes lies 1.77 spreads above; ``sqrt(1 - 1/lanes)`` makes a single lane not wait.

    Parameters
    ----------
    block_density : float
        Share of granules (all lanes x one window) that are not empty; 1 where unknown. Empty granules are
        skipped whole and the others are denser accordingly.
    window : float
        Elements of the reduction between two waits of a lane (fitted).
    """
    if density >= 1.0:
        return 1.0
    block = min(max(block_density, density, 1e-12), 1.0)
    inside = density / block
    variance = inside * (1.0 - inside) * (1.0 - 1.0 / lanes) / window
    return float(block * min(1.0, inside + _FULLEST_OF_16 * np.sqrt(variance)))


@compiled
def worth_trying(side: int, work: DpuWorkload) -> bool:
    """Return whether a choice of bitmaps uses only operands that hold zeros."""
    uses_act = side in (ACTIVATIONS, BOTH)
    uses_weight = side in (WEIGHTS, BOTH)
    return (not uses_act or work.act_density < 1.0) and (not uses_weight or work.weight_density < 1.0)


@compiled
def skipped_shares(arch: ArchRecord, side: int, work: DpuWorkload) -> SkippedShares:
    """Return relative cycles of a reduction with bitmaps of ACTIVATIONS, WEIGHTS, BOTH or none (DENSE).

    The compiler uses the fastest. One bitmap leads the skip: on silicon both sides sparse are barely faster
    than the better side (``silicon_sparsity.csv``, 16x16). A grid with ``dpu_skips_by_both`` intersects both
    bitmaps, whose zeros count as independent. Scanning the bitmap takes ``1 /
    dpu_sparse_skip_max`` of the dense time and each kept step restarts the pipeline for
    ``dpu_sparse_restart`` of a step. Weights lie compressed in SRAM (non-zeros plus one bit per element), so
    their feed shrinks (silicon, 8x16, both sides sparse); activations are read through a table of pointers at
    ``dpu_sparse_act_feed`` times the dense feed.
    """
    if side == DENSE:
        return SkippedShares(1.0, 1.0, 1.0, 0.0)
    lanes, window = arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h, arch.dpu_sparse_window_act
    act_lane = lane_density(work.act_density, work.act_block_density, lanes, window)
    lanes, window = arch.dpu_channel_lanes, arch.dpu_sparse_window_weight
    weight_lane = lane_density(work.weight_density, work.weight_block_density, lanes, window)
    lane = act_lane if side == ACTIVATIONS else weight_lane
    if side == BOTH:
        lane = act_lane * weight_lane if arch.dpu_skips_by_both else min(act_lane, weight_lane)
    share = max(lane, 1.0 / arch.dpu_sparse_skip_max + arch.dpu_sparse_restart * lane)
    act_feed = 1.0 if side == WEIGHTS else arch.dpu_sparse_act_feed
    weight_feed = 1.0 if side == ACTIVATIONS else min(1.0, work.weight_density + 0.125 / work.weight_bytes)
    return SkippedShares(share, act_feed, weight_feed, arch.dpu_sparse_drain_exposed)


@compiled
def effective_taps(arch: ArchRecord, work: DpuWorkload) -> float:
    """Return the kernel taps that the grid works through.

    A lone last output row next to vertical padding lets the grid skip about one tap (npu4000 silicon, 3x3:
    rows with ``out_h mod 4 = 1`` run 1/9 faster; the figures do not determine the mechanism).
    """
    taps = work.kernel_w * work.kernel_h
    lanes = arch.dpu_pixel_lanes_h
    lone = work.out_h - np.floor(work.out_h / lanes) * lanes == 1.0
    if lone and work.pad_top + work.pad_bottom > 0.0:
        taps = max(1.0, taps - arch.dpu_lone_row_taps)
    return taps


@compiled
def _conv_areas(
    arch: ArchRecord, work: DpuWorkload, mode: int, reduction: ReductionCycles, channels: Channels
) -> float:
    """Return the cycles of all register tiles over ``out_w`` x ``out_h`` output pixels, without start-up."""
    across, down, _ = mode_shape(arch, mode)
    full_w, full_h = across * arch.dpu_pixel_lanes_w, down * arch.dpu_pixel_lanes_h
    columns, rows = np.floor(work.out_w / full_w), np.floor(work.out_h / full_h)
    rest_w, rest_h = work.out_w - columns * full_w, work.out_h - rows * full_h
    edge_w, edge_h = np.ceil(rest_w / arch.dpu_pixel_lanes_w), np.ceil(rest_h / arch.dpu_pixel_lanes_h)
    total = last = drain = 0.0
    for at_bottom in range(2):
        count_h, groups_h, height = (1.0, edge_h, rest_h) if at_bottom else (rows, down, full_h)
        for at_right in range(2):
            count_w, groups_w, width = (1.0, edge_w, rest_w) if at_right else (columns, across, full_w)
            if count_w * count_h * groups_w * groups_h > 0.0:
                cycles, last, drain = area_cycles(reduction, channels, groups_w * groups_h, width * height)
                total += count_w * count_h * cycles
    return total + tail_cycles(channels, min(work.out_w, full_w) * min(work.out_h, full_h), last, drain)


@compiled
def _matmul_areas(
    arch: ArchRecord, work: DpuWorkload, mode: int, reduction: ReductionCycles, channels: Channels
) -> float:
    """Return the cycles of all register tiles over a product's rows, folded to pixel groups; no start-up."""
    across, down, _ = mode_shape(arch, mode)
    lanes, slots = arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h, across * down
    full = np.floor(work.out_w / (slots * lanes))
    rest_pixels = work.out_w - full * slots * lanes
    rest = np.ceil(rest_pixels / lanes)
    if rest > across:  # a register tile is a rectangle: its last row of groups is filled up
        rest = np.ceil(rest / across) * across
    total = last = drain = 0.0
    if full > 0.0:
        cycles, last, drain = area_cycles(reduction, channels, slots, slots * lanes)
        total = full * cycles
    if rest > 0.0:
        cycles, last, drain = area_cycles(reduction, channels, rest, rest_pixels)
        total += cycles
    return total + tail_cycles(channels, slots * lanes if full > 0.0 else rest_pixels, last, drain)


@compiled
def _cycles_in_mode(arch: ArchRecord, work: DpuWorkload, mode: int, taps: float, is_product: bool) -> float:
    """Return start-up + sum over register tiles of max(compute, write-back) + write-back of the last.

    The compiler takes the fastest choice of bitmaps. The first mode alone skips zeros of a product: the
    sparse grid of the cost model shows no gain of the other modes.
    """
    across, down, channel_groups = mode_shape(arch, mode)
    channels, best = channel_blocks(arch, work, channel_groups), np.inf
    for side in range(1 if is_product and mode > 0 else SIDES):
        if worth_trying(side, work):
            skipped = skipped_shares(arch, side, work)
            reduction = reduction_cycles(arch, across * down, taps, work, skipped)
            if is_product:
                best = min(best, _matmul_areas(arch, work, mode, reduction, channels))
            else:
                best = min(best, _conv_areas(arch, work, mode, reduction, channels))
    return startup_cycles(arch, work.write_tiles) + best


@compiled
def conv_cycles(arch: ArchRecord, work: DpuWorkload, mode: int) -> float:
    """Return the cycles of one convolution on one tile in one MPE mode; at most those of dense operands."""
    return _cycles_in_mode(arch, work, mode, effective_taps(arch, work), False)


@compiled
def matmul_mode_cycles(arch: ArchRecord, work: DpuWorkload, mode: int) -> float:
    """Return the cycles of a matrix product on one tile in one MPE mode.

    The rows fold to full groups of pixels; a product with a layout one pixel wide is a convolution with
    ``out_w = 1`` and costs about four times as much.
    """
    return _cycles_in_mode(arch, work, mode, 1.0, True)


@compiled
def matmul_cycles(arch: ArchRecord, work: DpuWorkload) -> float:
    """Return the cycles of a matrix product in its best MPE mode."""
    best = np.inf
    for mode in range(MODES):
        best = min(best, matmul_mode_cycles(arch, work, mode))
    return best


@compiled
def _blocks(arch: ArchRecord, channel_bytes: float) -> float:
    """Return the blocks of channels, 32 B each, that a pass handles."""
    return float(np.ceil(channel_bytes / arch.dpu_channelwise_block_bytes))


@compiled
def _pixel_groups(arch: ArchRecord, out_w: float, out_h: float) -> float:
    """Return the groups of pixel lanes that cover an output."""
    return float(np.ceil(out_w / arch.dpu_pixel_lanes_w) * np.ceil(out_h / arch.dpu_pixel_lanes_h))


@compiled
def _block_cycles(arch: ArchRecord) -> float:
    """Return the cycles in which the ports read one block of channels of one pixel group."""
    read = arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h * arch.dpu_channelwise_block_bytes
    return float(read / (arch.dpu_read_ports * arch.dpu_channelwise_bytes_per_port_cycle))


@compiled
def depthwise_cycles(arch: ArchRecord, work: DpuWorkload) -> float:
    """Return the DPU cycles of a depthwise convolution, or average pooling (equal weights), on one tile."""
    size = work.out_c * work.act_bytes
    blocks = _blocks(arch, size)
    taps = work.kernel_w * work.kernel_h
    if work.stride == 1.0 and 1.0 < work.kernel_w <= arch.dpu_row_reuse_kernel_w:
        if work.out_c <= arch.dpu_row_reuse_channels:
            # Few channels let the loader keep a row: 4 + kernel_w - 1 columns serve kernel_w taps.
            reads = (arch.dpu_pixel_lanes_w + work.kernel_w - 1.0) / arch.dpu_pixel_lanes_w
            taps = min(taps, work.kernel_h * reads * arch.dpu_row_reuse_cost)
        else:
            taps *= arch.dpu_row_overlap_cost
    # Pairs of output row and kernel row that read padding.
    before, after = work.pad_top, work.pad_bottom
    missing = before * (before + work.stride) + after * (after + work.stride)
    padded_share = min(1.0, missing / (2.0 * work.stride * work.out_h * work.kernel_h))
    taps *= 1.0 - arch.dpu_padding_saving * padded_share
    if work.stride > 1.0:
        # Strided pixels of few channels fall on the same banks; more blocks spread them.
        taps *= 1.0 + arch.dpu_stride_conflict / (blocks * blocks)
    if size <= 0.5 * arch.dpu_channelwise_block_bytes:
        taps *= arch.dpu_half_block_cost
    group_cycles = _block_cycles(arch) * (taps * arch.dpu_depthwise_tap_cost + arch.dpu_depthwise_group_cost)
    groups = _pixel_groups(arch, work.out_w, work.out_h)
    cycles = blocks * (arch.dpu_channelwise_start_cycles + groups * group_cycles)
    return float(startup_cycles(arch, work.write_tiles) + cycles)


@compiled
def maxpool_cycles(arch: ArchRecord, work: DpuWorkload, mode: int) -> float:
    """Return the DPU cycles of max pooling on one tile; MPE modes with fewer pixel slots are slower."""
    across, down, _ = mode_shape(arch, mode)
    groups = _pixel_groups(arch, work.out_w, work.out_h)
    register_tile_w = across * arch.dpu_pixel_lanes_w
    register_tile_h = down * arch.dpu_pixel_lanes_h
    register_tiles = np.ceil(work.out_w / register_tile_w) * np.ceil(work.out_h / register_tile_h)
    cost = arch.dpu_pool_tap_cost
    if mode > 0:
        cost *= arch.dpu_pool_few_slots_cost
    tap_groups = groups * cost + register_tiles * arch.dpu_pool_register_tile_cost
    reads = tap_groups * work.kernel_w * work.kernel_h + groups * arch.dpu_depthwise_group_cost
    cycles = arch.dpu_channelwise_start_cycles + _block_cycles(arch) * reads
    blocks = _blocks(arch, work.out_c * work.act_bytes)
    return float(startup_cycles(arch, work.write_tiles) + blocks * cycles)


@compiled
def eltwise_cycles(arch: ArchRecord, work: DpuWorkload) -> float:
    """Return the DPU cycles of an elementwise sum of two tensors on one tile.

    Pixels occupy whole 32 B blocks. int8 is bound by the ports, fp16 by the narrower adder; a broadcast of
    the result to other tiles by the broadcast path.
    """
    blocks = _blocks(arch, work.out_c * work.act_bytes)
    padded = work.out_w * work.out_h * blocks * arch.dpu_channelwise_block_bytes
    rate = arch.dpu_eltwise_bytes_per_port_cycle * arch.dpu_read_ports
    if work.act_bytes > 1.0:
        rate *= arch.dpu_fp16_output_rate
    cycles = padded / rate
    if work.write_tiles > 1.0:
        cycles = max(cycles, padded * drain_cycles_per_byte(arch, work.write_tiles, work.act_bytes))
    return float(arch.dpu_startup_cycles + cycles)
