"""Convolutions and matrix products on one tile: cycles of the MAC grid, stencil by stencil.

A convolution's output is cut into stencils; full ones, those at the right edge, at the bottom edge and in the
corner differ in size, so at most four kinds of pixel areas times two kinds of channel blocks are costed,
whatever the size. A matrix product M x K x N is a 1x1 convolution whose M rows the compiler folds to a grid
of pixels. `npusim.cost.grid` has the equations of one stencil.
"""

from __future__ import annotations

import numpy as np

from npusim.cost.architecture import ArchRecord
from npusim.cost.grid import (
    Channels,
    DpuWorkload,
    ReductionCycles,
    area_cycles,
    channel_blocks,
    mode_shape,
    reduction_cycles,
    startup_cycles,
    tail_cycles,
)
from npusim.cost.jit import compiled
from npusim.cost.sparsity import SIDES, skipped_shares, worth_trying

_MODES = 3


@compiled
def effective_taps(arch: ArchRecord, work: DpuWorkload) -> float:
    """Kernel taps that the grid works through.

    A lone last output row beside vertical padding lets the grid skip about one tap (npu4000 silicon, 3x3:
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
    arch: ArchRecord,
    work: DpuWorkload,
    across: float,
    down: float,
    reduction: ReductionCycles,
    channels: Channels,
) -> float:
    """Cycles, without start-up, of all stencils over an output of ``out_w`` x ``out_h`` pixels."""
    full_w = across * arch.dpu_pixel_lanes_w
    full_h = down * arch.dpu_pixel_lanes_h
    columns = np.floor(work.out_w / full_w)
    rows = np.floor(work.out_h / full_h)
    rest_w = work.out_w - columns * full_w
    rest_h = work.out_h - rows * full_h
    edge_w = np.ceil(rest_w / arch.dpu_pixel_lanes_w)
    edge_h = np.ceil(rest_h / arch.dpu_pixel_lanes_h)
    total = 0.0
    last = 0.0
    drain = 0.0
    if columns * rows > 0.0:
        cycles, last, drain = area_cycles(reduction, channels, across * down, full_w * full_h)
        total += columns * rows * cycles
    if edge_w * rows > 0.0:
        cycles, last, drain = area_cycles(reduction, channels, edge_w * down, rest_w * full_h)
        total += rows * cycles
    if columns * edge_h > 0.0:
        cycles, last, drain = area_cycles(reduction, channels, across * edge_h, full_w * rest_h)
        total += columns * cycles
    if edge_w * edge_h > 0.0:
        cycles, last, drain = area_cycles(reduction, channels, edge_w * edge_h, rest_w * rest_h)
        total += cycles
    return total + tail_cycles(channels, min(work.out_w, full_w) * min(work.out_h, full_h), last, drain)


@compiled
def conv_cycles(arch: ArchRecord, work: DpuWorkload, mode: int) -> float:
    """Cycles of one convolution on one tile in one MPE mode.

    Returns
    -------
    float
        DPU cycles: start-up + sum over stencils of max(compute, write-back) + write-back of the last. Never
        more than dense.
    """
    across, down, channel_groups = mode_shape(arch, mode)
    taps = effective_taps(arch, work)
    channels = channel_blocks(arch, work, channel_groups)
    best = np.inf
    for side in range(SIDES):
        if worth_trying(side, work):
            skipped = skipped_shares(arch, side, work)
            reduction = reduction_cycles(arch, across * down, taps, work, skipped)
            best = min(best, _conv_areas(arch, work, across, down, reduction, channels))
    return startup_cycles(arch, work.write_tiles) + best


@compiled
def _matmul_areas(
    arch: ArchRecord,
    work: DpuWorkload,
    across: float,
    down: float,
    reduction: ReductionCycles,
    channels: Channels,
) -> float:
    """Cycles, without start-up, of all stencils over a product's rows, folded to groups of pixels."""
    lanes = arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h
    slots = across * down
    full = np.floor(work.out_w / (slots * lanes))
    rest_pixels = work.out_w - full * slots * lanes
    rest = np.ceil(rest_pixels / lanes)
    if rest > across:
        rest = (
            np.ceil(rest / across) * across
        )  # a stencil is a rectangle: its last row of groups is filled up
    total = 0.0
    last = 0.0
    drain = 0.0
    if full > 0.0:
        cycles, last, drain = area_cycles(reduction, channels, slots, slots * lanes)
        total = full * cycles
    if rest > 0.0:
        cycles, last, drain = area_cycles(reduction, channels, rest, rest_pixels)
        total += cycles
    return total + tail_cycles(channels, slots * lanes if full > 0.0 else rest_pixels, last, drain)


@compiled
def matmul_mode_cycles(arch: ArchRecord, work: DpuWorkload, mode: int) -> float:
    """Cycles of a matrix product on one tile in one MPE mode; arguments as in `conv_cycles`.

    Returns
    -------
    float
        DPU cycles. The rows are taken to fold to full groups of pixels; a product that must keep a layout one
        pixel wide goes through `conv_cycles` with ``out_w = 1`` and costs about four times as much. Zeros are
        skipped in the first mode only: the cost model's sparse grid shows no gain of the other modes.
    """
    across, down, channel_groups = mode_shape(arch, mode)
    channels = channel_blocks(arch, work, channel_groups)
    best = np.inf
    for side in range(SIDES if mode == 0 else 1):
        if worth_trying(side, work):
            skipped = skipped_shares(arch, side, work)
            reduction = reduction_cycles(arch, across * down, 1.0, work, skipped)
            best = min(best, _matmul_areas(arch, work, across, down, reduction, channels))
    return startup_cycles(arch, work.write_tiles) + best


@compiled
def matmul_cycles(arch: ArchRecord, work: DpuWorkload) -> float:
    """Cycles of a matrix product in its best MPE mode; arguments as in `conv_cycles`."""
    best = np.inf
    for mode in range(_MODES):
        best = min(best, matmul_mode_cycles(arch, work, mode))
    return best
