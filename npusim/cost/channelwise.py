"""Work of the MAC grid without a sum over channels: depthwise convolution, pooling, elementwise.

No input channel meets another, so seven of the eight multipliers of a MAC unit idle and the SRAM ports set
the rate: a group of 4 x 4 pixels x 32 B of channels takes at least four cycles per kernel tap (512 B through
128 B per cycle). All functions are scalar equations; ``arch`` is as in `npusim.cost.grid`.
"""

from __future__ import annotations

import numpy as np

from npusim.cost.architecture import ArchRecord
from npusim.cost.grid import DpuWorkload, drain_cycles_per_byte, mode_shape, startup_cycles
from npusim.cost.jit import compiled


@compiled
def _blocks(arch: ArchRecord, channel_bytes: float) -> float:
    """Blocks of channels, 32 B each, that a pass handles."""
    return float(np.ceil(channel_bytes / arch.dpu_channelwise_block_bytes))


@compiled
def _pixel_groups(arch: ArchRecord, out_w: float, out_h: float) -> float:
    """Groups of pixel lanes that cover an output."""
    return float(np.ceil(out_w / arch.dpu_pixel_lanes_w) * np.ceil(out_h / arch.dpu_pixel_lanes_h))


@compiled
def _block_cycles(arch: ArchRecord) -> float:
    """Cycles in which the ports read one block of channels of one pixel group."""
    read = arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h * arch.dpu_channelwise_block_bytes
    return float(read / (arch.dpu_read_ports * arch.dpu_channelwise_bytes_per_port_cycle))


@compiled
def _padded_share(work: DpuWorkload) -> float:
    """Share of (output row, kernel row) pairs that read padding."""
    before, after = work.pad_top, work.pad_bottom
    missing = before * (before + work.stride) + after * (after + work.stride)
    return min(1.0, missing / (2.0 * work.stride * work.out_h * work.kernel_h))


@compiled
def depthwise_cycles(arch: ArchRecord, work: DpuWorkload) -> float:
    """DPU cycles of a depthwise convolution, or average pooling (equal weights), on one tile."""
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
    taps *= 1.0 - arch.dpu_padding_saving * _padded_share(work)
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
    """DPU cycles of max pooling on one tile; arguments as in `depthwise_cycles`.

    ``mode`` is the MPE mode: fewer pixel slots are slower.
    """
    across, down, _ = mode_shape(arch, mode)
    groups = _pixel_groups(arch, work.out_w, work.out_h)
    stencil_w = across * arch.dpu_pixel_lanes_w
    stencil_h = down * arch.dpu_pixel_lanes_h
    stencils = np.ceil(work.out_w / stencil_w) * np.ceil(work.out_h / stencil_h)
    cost = arch.dpu_pool_tap_cost
    if mode > 0:
        cost *= arch.dpu_pool_few_slots_cost
    tap_groups = groups * cost + stencils * arch.dpu_pool_stencil_cost
    reads = tap_groups * work.kernel_w * work.kernel_h + groups * arch.dpu_depthwise_group_cost
    cycles = arch.dpu_channelwise_start_cycles + _block_cycles(arch) * reads
    blocks = _blocks(arch, work.out_c * work.act_bytes)
    return float(startup_cycles(arch, work.write_tiles) + blocks * cycles)


@compiled
def eltwise_cycles(arch: ArchRecord, work: DpuWorkload) -> float:
    """DPU cycles of an elementwise sum of two tensors on one tile; arguments as in `depthwise_cycles`.

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
