"""Work of the MAC grid without a sum over channels: depthwise convolution, pooling, elementwise.

No input channel meets another, so seven of the eight multipliers of a MAC unit idle and the SRAM ports set
the rate: a group of 4 x 4 pixels x 32 B of channels takes at least four cycles per kernel tap (512 B through
128 B per cycle). All functions are scalar equations; ``p`` is as in `npusim.cost.grid`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.grid import drain_cycles_per_byte, mode_shape, startup_cycles
from npusim.cost.jit import compiled

__all__ = ["depthwise_cycles", "eltwise_cycles", "maxpool_cycles"]


@compiled
def _blocks(p: Any, channel_bytes: float) -> float:
    """Blocks of channels, 32 B each, that a pass handles."""
    return float(np.ceil(channel_bytes / p.dpu_channelwise_block_bytes))


@compiled
def _pixel_groups(p: Any, out_w: float, out_h: float) -> float:
    """Groups of pixel lanes that cover an output."""
    return float(np.ceil(out_w / p.dpu_pixel_lanes_w) * np.ceil(out_h / p.dpu_pixel_lanes_h))


@compiled
def _block_cycles(p: Any) -> float:
    """Cycles in which the ports read one block of channels of one pixel group."""
    read = p.dpu_pixel_lanes_w * p.dpu_pixel_lanes_h * p.dpu_channelwise_block_bytes
    return float(read / (p.dpu_read_ports * p.dpu_channelwise_bytes_per_port_cycle))


@compiled
def _padded_share(
    out_size: float, kernel_size: float, stride: float, pad_before: float, pad_after: float
) -> float:
    """Share of (output row, kernel row) pairs that read padding."""
    missing = pad_before * (pad_before + stride) + pad_after * (pad_after + stride)
    return min(1.0, missing / (2.0 * stride * out_size * kernel_size))


@compiled
def depthwise_cycles(
    p: Any, out_w: float, out_h: float, channels: float, kernel_w: float, kernel_h: float, stride: float,
    pad_top: float, pad_bottom: float, in_bytes: float, write_tiles: float,
) -> float:  # fmt: skip
    """Cycles of a depthwise convolution, or average pooling (equal weights), on one tile.

    Parameters
    ----------
    p : record
        Parameters ``dpu_...``.
    out_w, out_h, channels : float
        Output size in pixels; channels; each at least 1.
    kernel_w, kernel_h, stride, pad_top, pad_bottom : float
        Kernel size, stride and vertical padding in pixels.
    in_bytes : float
        Bytes an element (1 int8, 2 fp16).
    write_tiles : float
        Tiles that receive the output.

    Returns
    -------
    float
        DPU cycles.
    """
    size = channels * in_bytes
    blocks = _blocks(p, size)
    taps = kernel_w * kernel_h
    if stride == 1.0 and 1.0 < kernel_w <= p.dpu_row_reuse_kernel_w:
        if channels <= p.dpu_row_reuse_channels:
            # Few channels let the loader keep a row: 4 + kernel_w - 1 columns serve kernel_w taps.
            reads = (p.dpu_pixel_lanes_w + kernel_w - 1.0) / p.dpu_pixel_lanes_w
            taps = min(taps, kernel_h * reads * p.dpu_row_reuse_cost)
        else:
            taps *= p.dpu_row_overlap_cost
    taps *= 1.0 - p.dpu_padding_saving * _padded_share(out_h, kernel_h, stride, pad_top, pad_bottom)
    if stride > 1.0:
        # Strided pixels of few channels fall on the same banks; more blocks spread them.
        taps *= 1.0 + p.dpu_stride_conflict / (blocks * blocks)
    if size <= 0.5 * p.dpu_channelwise_block_bytes:
        taps *= p.dpu_half_block_cost
    group_cycles = _block_cycles(p) * (taps * p.dpu_depthwise_tap_cost + p.dpu_depthwise_group_cost)
    work = blocks * (p.dpu_channelwise_start_cycles + _pixel_groups(p, out_w, out_h) * group_cycles)
    return float(startup_cycles(p, write_tiles) + work)


@compiled
def maxpool_cycles(
    p: Any, out_w: float, out_h: float, channels: float, kernel_w: float, kernel_h: float, in_bytes: float,
    mode: int, write_tiles: float,
) -> float:  # fmt: skip
    """Cycles of max pooling on one tile; arguments as in `depthwise_cycles`.

    ``mode`` is the MPE mode: fewer pixel slots are slower.
    """
    across, down, _ = mode_shape(p, mode)
    groups = _pixel_groups(p, out_w, out_h)
    stencil_w = across * p.dpu_pixel_lanes_w
    stencil_h = down * p.dpu_pixel_lanes_h
    stencils = np.ceil(out_w / stencil_w) * np.ceil(out_h / stencil_h)
    cost = p.dpu_pool_tap_cost
    if mode > 0:
        cost *= p.dpu_pool_few_slots_cost
    tap_groups = groups * cost + stencils * p.dpu_pool_stencil_cost
    reads = tap_groups * kernel_w * kernel_h + groups * p.dpu_depthwise_group_cost
    work = p.dpu_channelwise_start_cycles + _block_cycles(p) * reads
    return float(startup_cycles(p, write_tiles) + _blocks(p, channels * in_bytes) * work)


@compiled
def eltwise_cycles(
    p: Any, out_w: float, out_h: float, channels: float, in_bytes: float, write_tiles: float
) -> float:
    """Cycles of an elementwise sum of two tensors on one tile; arguments as in `depthwise_cycles`.

    Pixels occupy whole 32 B blocks. int8 is bound by the ports, fp16 by the narrower adder; a broadcast of
    the result to other tiles by the broadcast path.
    """
    padded = out_w * out_h * _blocks(p, channels * in_bytes) * p.dpu_channelwise_block_bytes
    rate = p.dpu_eltwise_bytes_per_port_cycle * p.dpu_read_ports
    if in_bytes > 1.0:
        rate *= p.dpu_fp16_output_rate
    cycles = padded / rate
    if write_tiles > 1.0:
        cycles = max(cycles, padded * drain_cycles_per_byte(p, write_tiles, in_bytes))
    return float(p.dpu_startup_cycles + cycles)
