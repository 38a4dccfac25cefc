"""The MAC grid of one tile: a letterpress that sets 4 x 4 pixels by 16 channels a cycle and must be fed and emptied.

Outputs stay put. They are cut into *stencils*, as many as the accumulators hold: ``nthw`` groups of pixels times
``ntk`` groups of channels (mode 16x16: 16 and 4; 8x16: 8 and 8; 4x16: 4 and 16). For each *step* (8 bytes of input
channels of one kernel tap) every pixel group meets every channel group once, one cycle each, while loaders refill the
operand registers from SRAM for the next step; the slower of the two sets the pace. A finished stencil is written back
while the next one computes.

Everything here is a scalar kernel; all cycles are of the DPU clock; ``p`` is one record of parameters whose values,
units, sources and uncertainties stand in ``configs/``. Quantities that do not depend on the stencil are computed once
and handed down, because a sweep runs these lines some ten billion times.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.jit import kernel


@kernel
def mode_shape(p: Any, mode: int) -> tuple[float, float, float]:
    """Pixel groups across, pixel groups down and channel groups of a stencil.

    Parameters
    ----------
    p : record
        ``dpu_mode_w``, ``dpu_mode_h`` and ``dpu_mode_c`` of every mode.
    mode : int
        0, 1, 2 for MPE modes CUBOID_16x16, 8x16, 4x16: each doubles the channel groups.

    Returns
    -------
    tuple of float
        (across, down, ntk); their product is the number of accumulators. The pixel part is as square as powers of
        two allow: 4 x 4, 4 x 2, 2 x 2.
    """
    return p.dpu_mode_w[mode], p.dpu_mode_h[mode], p.dpu_mode_c[mode]


@kernel
def act_feed_cycles(p: Any) -> float:
    """Cycles to read one step of activations for one pixel group: 16 pixels x 8 B through all ports.

    Source: fitted; silicon rows with 16 output channels (``silicon_dpu.csv``) are bound by it.
    """
    read = p.dpu_pixel_lanes_w * p.dpu_pixel_lanes_h * p.dpu_mac_bytes_per_cycle
    return read / (p.dpu_act_bytes_per_port_cycle * p.dpu_read_ports)


@kernel
def weight_feed_cycles(p: Any) -> float:
    """Cycles to read one step of weights for one channel group: 16 channels x 8 B through all ports.

    Source: fitted; silicon rows with few pixels and products with few rows are bound by it.
    """
    read = p.dpu_channel_lanes * p.dpu_mac_bytes_per_cycle
    return read / (p.dpu_weight_bytes_per_port_cycle * p.dpu_read_ports)


@kernel
def drain_cycles_per_byte(p: Any, write_tiles: float, out_bytes: float) -> float:
    """Cycles a byte that leaves the grid.

    Slower when the result is broadcast to other tiles' SRAM as well, and for fp16, whose post-processing handles fewer
    elements a cycle (cost model only).
    """
    port = p.dpu_broadcast_bytes_per_port_cycle if write_tiles > 1.0 else p.dpu_drain_bytes_per_port_cycle
    return 1.0 / (port * p.dpu_write_ports * (p.dpu_fp16_output_rate if out_bytes > 1.0 else 1.0))


@kernel
def startup_cycles(p: Any, write_tiles: float) -> float:
    """Cycles before the first and after the last stencil that nothing hides."""
    return p.dpu_startup_cycles + (p.dpu_broadcast_cycles if write_tiles > 1.0 else 0.0)


@kernel
def whole_words(p: Any, channel_bytes: float) -> float:
    """Bytes a pixel's channels occupy in SRAM: whole words."""
    return np.ceil(channel_bytes / p.dpu_sram_word_bytes) * p.dpu_sram_word_bytes


@kernel
def area_cycles(groups: float, pixels: float, slots: float, act: float, weight: float, mac: float, exposed: float, steps: float, start: float, blocks: float, block_groups: float, block_drain: float, rest_groups: float, rest_drain: float) -> float:
    """Cycles of all channel blocks over one pixel area.

    Parameters
    ----------
    groups, pixels : float
        Pixel groups and pixels of the area.
    slots, act, weight : float
        Cycles a step: the loader's walk over the mode's pixel slots, the feed of a pixel group, of a channel group.
        Both operands share the ports, so they add.
    mac : float
        Share of the MAC cycles kept where zeros are skipped, 1 dense.
    exposed : float
        Share of the shorter of compute and drain that is not hidden, 0 dense.
    steps, start : float
        Steps of the reduction; cycles to start a stencil.
    blocks, block_groups, block_drain : float
        Full blocks of channels, their channel groups, their drain in cycles a pixel.
    rest_groups, rest_drain : float
        Channel groups and drain of the last, partial block; 0 when there is none.

    Returns
    -------
    tuple of float
        Cycles of the area; cycles and drain of its last stencil.
    """
    total = 0.0
    last = 0.0
    drain = 0.0
    fixed_feed = slots + groups * act
    if blocks > 0.0:
        compute = start + steps * max(groups * block_groups * mac, fixed_feed + block_groups * weight)
        drain = pixels * block_drain
        last = max(compute, drain) + exposed * min(compute, drain)
        total = blocks * last
    if rest_groups > 0.0:
        compute = start + steps * max(groups * rest_groups * mac, fixed_feed + rest_groups * weight)
        drain = pixels * rest_drain
        last = max(compute, drain) + exposed * min(compute, drain)
        total += last
    return total, last, drain


@kernel
def tail_cycles(largest_drain: float, last: float, last_drain: float) -> float:
    """Drain left over after the last stencil: its own, or what its largest forerunner has not yet written."""
    return max(last_drain, largest_drain - last)
