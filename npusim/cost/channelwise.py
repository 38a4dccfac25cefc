"""Work without a sum over channels (depthwise, pooling, elementwise): a wide road with one lane open.

No input channel meets another, so seven of the eight multipliers of a MAC unit idle and the SRAM ports set the pace:
a group of 4 x 4 pixels x 32 B of channels takes four cycles a kernel tap at best (512 B through 128 B a cycle).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.jit import kernel
from npusim.cost.grid import mode_shape, startup_cycles


@kernel
def channel_blocks(p: Any, channel_bytes: float) -> float:
    """Blocks of 32 B of channels that a pass handles."""
    return np.ceil(channel_bytes / p.dpu_channelwise_block_bytes)


@kernel
def block_cycles(p: Any) -> float:
    """Cycles in which the ports read one block of channels of one pixel group."""
    lanes = p.dpu_pixel_lanes_w * p.dpu_pixel_lanes_h
    return lanes * p.dpu_channelwise_block_bytes / (p.dpu_read_ports * p.dpu_channelwise_bytes_per_port_cycle)


@kernel
def padded_share(out_size: float, kernel_size: float, stride: float, pad_before: float, pad_after: float) -> float:
    """Share of (output row, kernel row) pairs that read padding."""
    missing = pad_before * (pad_before + stride) + pad_after * (pad_after + stride)
    return min(1.0, missing / (2.0 * stride * out_size * kernel_size))


@kernel
def depthwise_cycles(p: Any, out_w: float, out_h: float, channels: float, kernel_w: float, kernel_h: float, stride: float, pad_top: float, pad_bottom: float, in_bytes: float, write_tiles: float) -> float:
    """Cycles of a depthwise convolution (or average pooling: the same work with equal weights) on one tile."""
    size = channels * in_bytes
    blocks = channel_blocks(p, size)
    groups = np.ceil(out_w / p.dpu_pixel_lanes_w) * np.ceil(out_h / p.dpu_pixel_lanes_h)
    taps = kernel_w * kernel_h
    if stride == 1 and 1 < kernel_w <= p.dpu_row_reuse_kernel_w:
        if channels <= p.dpu_row_reuse_channels:
            # Few channels let the loader keep a row: 4 + kw - 1 columns serve kw taps.
            reads = (p.dpu_pixel_lanes_w + kernel_w - 1.0) / p.dpu_pixel_lanes_w
            taps = min(taps, kernel_h * reads * p.dpu_row_reuse_cost)
        else:
            taps *= p.dpu_row_reuse_cost
    taps *= 1.0 - p.dpu_padding_saving * padded_share(out_h, kernel_h, stride, pad_top, pad_bottom)
    if stride > 1:
        # Strided pixels of few channels fall on the same banks; more blocks spread them.
        taps *= 1.0 + p.dpu_stride_conflict / (blocks * blocks)
    if size <= 0.5 * p.dpu_channelwise_block_bytes:
        taps *= p.dpu_half_block_cost
    return (startup_cycles(p, write_tiles) + blocks * p.dpu_channelwise_start_cycles
            + blocks * groups * block_cycles(p) * (taps * p.dpu_depthwise_tap_cost + p.dpu_depthwise_group_cost))


@kernel
def maxpool_cycles(p: Any, out_w: float, out_h: float, channels: float, kernel_w: float, kernel_h: float, in_bytes: float, mode: int, write_tiles: float) -> float:
    """Cycles of max pooling on one tile; ``mode`` as in :func:`dpu.conv_cycles`."""
    across, down, _ = mode_shape(p, mode)
    blocks = channel_blocks(p, channels * in_bytes)
    groups = np.ceil(out_w / p.dpu_pixel_lanes_w) * np.ceil(out_h / p.dpu_pixel_lanes_h)
    stencils = np.ceil(out_w / (across * p.dpu_pixel_lanes_w)) * np.ceil(out_h / (down * p.dpu_pixel_lanes_h))
    cost = p.dpu_pool_tap_cost
    if mode > 0:
        cost *= p.dpu_pool_few_slots_cost
    work = groups * cost + stencils * p.dpu_pool_stencil_cost
    return (startup_cycles(p, write_tiles) + blocks * p.dpu_channelwise_start_cycles
            + blocks * block_cycles(p) * (work * kernel_w * kernel_h + groups * p.dpu_depthwise_group_cost))


@kernel
def eltwise_cycles(p: Any, out_w: float, out_h: float, channels: float, in_bytes: float, write_tiles: float) -> float:
    """Cycles of an elementwise sum of two tensors on one tile.

    Pixels occupy whole 32 B blocks. int8 is bound by the ports, fp16 by the narrower adder; a broadcast of the result
    to other tiles by the broadcast path.
    """
    pixels = out_w * out_h
    padded = pixels * channel_blocks(p, channels * in_bytes) * p.dpu_channelwise_block_bytes
    rate = p.dpu_eltwise_bytes_per_port_cycle * p.dpu_read_ports
    if in_bytes > 1:
        rate *= p.dpu_fp16_output_rate
    cycles = padded / rate
    if write_tiles > 1:
        cycles = max(cycles, padded / (p.dpu_broadcast_bytes_per_port_cycle * p.dpu_write_ports))
    return p.dpu_startup_cycles + cycles
