"""The MAC grid of one tile: cycles of a stencil of outputs, 4 x 4 pixels by 16 channels per cycle.

Outputs stay put. They are cut into *stencils*, as many as the accumulators hold: some groups of pixels times
some groups of channels (mode 16x16: 16 and 4; 8x16: 8 and 8; 4x16: 4 and 16). For each *step* (8 bytes of
input channels of one kernel tap) every pixel group meets every channel group once, one cycle each, while
loaders refill the operand registers from SRAM for the next step; the slower of the two sets the pace. A
finished stencil is written back while the next one computes.

All functions are scalar equations; all cycles are of the DPU clock. ``p`` is one record of
`npusim.cost.architecture.ARCH_DTYPE`, or whatever has its ``dpu_...`` fields; units, sources and
uncertainties of the numbers stand in ``configs/socs``. What does not depend on the stencil is computed once
and passed down, because a sweep runs these lines some ten billion times.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.jit import compiled

__all__ = [
    "Channels",
    "ReductionCycles",
    "area_cycles",
    "channel_blocks",
    "drain_cycles_per_byte",
    "mode_shape",
    "reduction_cycles",
    "startup_cycles",
    "tail_cycles",
]


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
def mode_shape(p: Any, mode: int) -> tuple[float, float, float]:
    """Pixel groups across, pixel groups down and channel groups of a stencil.

    Parameters
    ----------
    p : record
        ``dpu_mode_w``, ``dpu_mode_h`` and ``dpu_mode_c``, each of shape (modes,).
    mode : int
        Position in the SoC's table ``npu.dpu.modes``: 0, 1, 2 for CUBOID_16x16, 8x16, 4x16.

    Returns
    -------
    tuple of float
        Their product is the number of accumulators of a MAC unit.
    """
    return p.dpu_mode_w[mode], p.dpu_mode_h[mode], p.dpu_mode_c[mode]


@compiled
def _act_feed_cycles(p: Any) -> float:
    """Cycles to read one piece (8 B of input channels) of all pixels of a pixel group through all ports.

    Source: fitted; silicon rows with 16 output channels (``silicon_dpu.csv``) are bound by it.
    """
    read = p.dpu_pixel_lanes_w * p.dpu_pixel_lanes_h * p.dpu_feed_piece_bytes
    return float(read / (p.dpu_act_bytes_per_port_cycle * p.dpu_read_ports))


@compiled
def _weight_feed_cycles(p: Any) -> float:
    """Cycles to read one piece of weights of a channel group through all ports.

    Source: fitted; silicon rows with few pixels and products with few rows are bound by it.
    """
    read = p.dpu_channel_lanes * p.dpu_feed_piece_bytes
    return float(read / (p.dpu_weight_bytes_per_port_cycle * p.dpu_read_ports))


@compiled
def reduction_cycles(
    p: Any,
    slots: float,
    taps: float,
    channel_bytes: float,
    mac: float,
    act: float,
    weight: float,
    exposed: float,
) -> ReductionCycles:
    """Cycles of a whole reduction.

    Parameters
    ----------
    p : record
        Parameters of the grid.
    slots : float
        Pixel slots of the mode.
    taps, channel_bytes : float
        Kernel taps; bytes of a pixel's input channels. A MAC unit takes steps of ``dpu_mac_bytes_per_cycle``
        and the loader reads pieces of ``dpu_feed_piece_bytes``: the same on today's parts, but a wider MAC
        unit takes fewer steps and reads no less.
    mac, act, weight : float
        Cycles of computing, of activation feed and of weight feed relative to dense operands
        (`npusim.cost.sparsity.skip_pace`).
    exposed : float
        Share of the shorter of computing and write-back that nothing hides.
    """
    steps = taps * float(np.ceil(channel_bytes / p.dpu_mac_bytes_per_cycle))
    pieces = taps * float(np.ceil(channel_bytes / p.dpu_feed_piece_bytes))
    return ReductionCycles(
        p.dpu_stencil_cycles,
        steps * mac,
        steps * slots * p.dpu_slot_walk_cycles,
        pieces * act * _act_feed_cycles(p),
        pieces * weight * _weight_feed_cycles(p),
        exposed,
    )


@compiled
def drain_cycles_per_byte(p: Any, write_tiles: float, out_bytes: float) -> float:
    """Cycles a byte that leaves the grid.

    Slower when the result goes to other tiles' SRAM as well, and for fp16, whose post-processing handles
    fewer elements per cycle (the latter by the cost model only).
    """
    rate = p.dpu_drain_bytes_per_port_cycle * p.dpu_write_ports
    if write_tiles > 1.0:
        rate *= p.dpu_broadcast_rate
    if out_bytes > 1.0:
        rate *= p.dpu_fp16_output_rate
    return float(1.0 / rate)


@compiled
def startup_cycles(p: Any, write_tiles: float) -> float:
    """Cycles before the first and after the last stencil that nothing hides."""
    return float(p.dpu_startup_cycles + (p.dpu_broadcast_cycles if write_tiles > 1.0 else 0.0))


@compiled
def _word_bytes(p: Any, channel_bytes: float) -> float:
    """Bytes that a pixel's channels occupy in SRAM: whole words."""
    return float(np.ceil(channel_bytes / p.dpu_sram_word_bytes) * p.dpu_sram_word_bytes)


@compiled
def channel_blocks(p: Any, out_c: float, groups: float, write_tiles: float, out_bytes: float) -> Channels:
    """Cut ``out_c`` output channels of ``out_bytes`` each into blocks of ``groups`` channel groups."""
    per_byte = drain_cycles_per_byte(p, write_tiles, out_bytes)
    block_c = groups * p.dpu_channel_lanes
    blocks = float(np.floor(out_c / block_c))
    rest_c = out_c - blocks * block_c
    return Channels(
        blocks,
        groups,
        _word_bytes(p, block_c * out_bytes) * per_byte,
        float(np.ceil(rest_c / p.dpu_channel_lanes)),
        _word_bytes(p, rest_c * out_bytes) * per_byte,
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

    Parameters
    ----------
    reduction, channels
        The reduction, and the blocks of output channels.
    groups, pixels : float
        Pixel groups and pixels of the area.

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
    """Write-back left over after the last stencil: its own, or the rest of the largest before it.

    Parameters
    ----------
    channels : Channels
        Blocks of output channels.
    largest_pixels : float
        Pixels of the largest stencil.
    last, last_drain : float
        Cycles and write-back of the last stencil.
    """
    largest = largest_pixels * (channels.drain if channels.blocks > 0.0 else channels.rest_drain)
    return max(last_drain, largest - last)
