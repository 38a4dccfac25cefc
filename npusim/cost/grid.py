"""The MAC grid of one tile: cycles of a stencil of outputs, 4 x 4 pixels by 16 channels per cycle.

Outputs stay put. They are cut into *stencils*, as many as the accumulators hold: some groups of pixels times
some groups of channels (mode 16x16: 16 and 4; 8x16: 8 and 8; 4x16: 4 and 16). For each *step* (8 bytes of
input channels of one kernel tap) every pixel group meets every channel group once, one cycle each, while
loaders refill the operand registers from SRAM for the next step; the slower of the two sets the pace. A
finished stencil is written back while the next one computes.

All functions are scalar equations; all cycles are of the DPU clock. ``arch`` is one record of
`npusim.cost.architecture.ARCH_DTYPE`, or whatever has its ``dpu_...`` fields; units, sources and
uncertainties of the numbers stand in ``configs/socs``. What does not depend on the stencil is computed once
and passed down, because a sweep runs these lines some ten billion times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npusim.cost.architecture import ArchRecord
from npusim.cost.jit import compiled
from npusim.cost.records import Bytes, Elements, Number, Share
from npusim.cost.tables import OpRecord


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


class SkippedShares(NamedTuple):
    """What zeros make of a reduction, relative to dense operands."""

    mac: float = 1.0
    """Cycles of computing."""
    act: float = 1.0
    """Activation feed."""
    weight: float = 1.0
    """Weight feed."""
    exposed: float = 0.0
    """Share of the shorter of computing and write-back that nothing hides."""


class ReductionCycles(NamedTuple):
    """Cycles that the whole reduction of a stencil takes, by what they are spent on."""

    start: float
    """Start of the stencil."""
    mac: float
    """MAC units, for each pair of a pixel group and a channel group."""
    slots: float
    """The loader's walk over the mode's pixel slots, filled or not."""
    act: float
    """Activation feed of a pixel group."""
    weight: float
    """Weight feed of a channel group."""
    exposed: float
    """Share of the shorter of computing and write-back that nothing hides; 0 for dense operands."""


class Channels(NamedTuple):
    """How output channels are cut into blocks that a stencil holds."""

    blocks: float
    """Full blocks."""
    groups: float
    """Channel groups of a full block."""
    drain: float
    """Write-back of a full block's channels (cycles per pixel)."""
    rest_groups: float
    """Channel groups of the last, partial block; 0 when there is none."""
    rest_drain: float
    """Its write-back (cycles per pixel)."""


@compiled
def tile_workload(op: OpRecord, out_w: float, out_h: float, out_c: float, skips_zeros: bool) -> DpuWorkload:
    """Return the work of one tile on its share of an operator; all fields, as numba knows no defaults."""
    act_density = op.a_density if skips_zeros else 1.0
    act_block_density = op.a_block_density if skips_zeros else 1.0
    weight_density = op.b_density if skips_zeros else 1.0
    return DpuWorkload(
        out_w, out_h, out_c, op.in_c, op.kernel_w, op.kernel_h, op.stride_w, 0.0, 0.0, op.a_item, op.b_item,
        op.c_item, 1.0, act_density, weight_density, act_block_density, 1.0,
    )  # fmt: skip


@compiled
def mode_shape(arch: ArchRecord, mode: int) -> tuple[float, float, float]:
    """Pixel groups across, pixel groups down and channel groups of a stencil.

    Parameters
    ----------
    arch : record of ARCH_DTYPE
        ``dpu_mode_w``, ``dpu_mode_h`` and ``dpu_mode_c``, each of shape (modes,).
    mode : int
        Position in the SoC's table ``npu.dpu.modes``: 0, 1, 2 for CUBOID_16x16, 8x16, 4x16.

    Returns
    -------
    tuple of float
        Their product is the number of accumulators of a MAC unit.
    """
    return arch.dpu_mode_w[mode], arch.dpu_mode_h[mode], arch.dpu_mode_c[mode]


@compiled
def _act_feed_cycles(arch: ArchRecord) -> float:
    """Cycles to read one piece (8 B of input channels) of all pixels of a pixel group through all ports.

    Source: fitted; silicon rows with 16 output channels (``silicon_dpu.csv``) are bound by it.
    """
    read = arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h * arch.dpu_feed_piece_bytes
    return float(read / (arch.dpu_act_bytes_per_port_cycle * arch.dpu_read_ports))


@compiled
def _weight_feed_cycles(arch: ArchRecord) -> float:
    """Cycles to read one piece of weights of a channel group through all ports.

    Source: fitted; silicon rows with few pixels and products with few rows are bound by it.
    """
    read = arch.dpu_channel_lanes * arch.dpu_feed_piece_bytes
    return float(read / (arch.dpu_weight_bytes_per_port_cycle * arch.dpu_read_ports))


@compiled
def mac_format(item_bytes: float) -> int:
    """Place of an operand's format in `npusim.cost.architecture.MAC_FORMATS`, by the bytes of an element."""
    if item_bytes < 1.0:
        return 0
    return 1 if item_bytes < 2.0 else 2 if item_bytes < 4.0 else 3


@compiled
def reduction_cycles(
    arch: ArchRecord, slots: float, taps: float, work: DpuWorkload, skipped: SkippedShares
) -> ReductionCycles:
    """Cycles of a whole reduction.

    Parameters
    ----------
    work : DpuWorkload
        A MAC unit takes its input channels in steps of ``dpu_mac_bytes_per_cycle``, and the loader reads
        pieces of ``dpu_feed_piece_bytes``: the same on today's parts, but a wider MAC unit takes fewer steps
        and reads no less.
    """
    channel_bytes = work.in_c * work.act_bytes
    step_bytes = arch.dpu_mac_bytes_per_cycle[mac_format(work.act_bytes)]
    steps = taps * float(np.ceil(channel_bytes / step_bytes))
    pieces = taps * float(np.ceil(channel_bytes / arch.dpu_feed_piece_bytes))
    return ReductionCycles(
        arch.dpu_stencil_cycles,
        steps * skipped.mac,
        steps * slots * arch.dpu_slot_walk_cycles,
        pieces * skipped.act * _act_feed_cycles(arch),
        pieces * skipped.weight * _weight_feed_cycles(arch),
        skipped.exposed,
    )


@compiled
def drain_cycles_per_byte(arch: ArchRecord, write_tiles: float, out_bytes: float) -> float:
    """Cycles a byte that leaves the grid.

    Slower when the result goes to other tiles' SRAM as well, and for fp16, whose post-processing handles
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
    """Cycles before the first and after the last stencil that nothing hides."""
    return float(arch.dpu_startup_cycles + (arch.dpu_broadcast_cycles if write_tiles > 1.0 else 0.0))


@compiled
def _word_bytes(arch: ArchRecord, channel_bytes: float) -> float:
    """Bytes that a pixel's channels occupy in SRAM: whole words."""
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
def _stencil_cycles(reduction: ReductionCycles, groups: float, channel_groups: float, drain: float) -> float:
    """Cycles of one stencil: computing or feeding, or the write-back of the stencil before it."""
    feed = (
        reduction.slots + groups * reduction.act + channel_groups * reduction.weight
    )  # both operands share the ports: they add
    compute = reduction.start + max(groups * channel_groups * reduction.mac, feed)
    return max(compute, drain) + reduction.exposed * min(compute, drain)


@compiled
def area_cycles(
    reduction: ReductionCycles, channels: Channels, groups: float, pixels: float
) -> tuple[float, float, float]:
    """Cycles of all channel blocks over one area of pixels.

    Returns
    -------
    tuple of float
        Cycles of the area; cycles and write-back of its last stencil.
    """
    total = 0.0
    last = 0.0
    drain = 0.0
    if channels.blocks > 0.0:
        drain = pixels * channels.drain
        last = _stencil_cycles(reduction, groups, channels.groups, drain)
        total = channels.blocks * last
    if channels.rest_groups > 0.0:
        drain = pixels * channels.rest_drain
        last = _stencil_cycles(reduction, groups, channels.rest_groups, drain)
        total += last
    return total, last, drain


@compiled
def tail_cycles(channels: Channels, largest_pixels: float, last: float, last_drain: float) -> float:
    """Write-back left over after the last stencil: its own, or the rest of the largest before it."""
    largest = largest_pixels * (channels.drain if channels.blocks > 0.0 else channels.rest_drain)
    return max(last_drain, largest - last)
