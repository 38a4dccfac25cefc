"""Convolutions and matrix products on one tile: cycles of the MAC grid, stencil by stencil.

A convolution's output is cut into stencils; full ones, those at the right edge, at the bottom edge and in the
corner differ in size, so at most four kinds of pixel areas times two kinds of channel blocks are costed,
whatever the size. A matrix product M x K x N is a 1x1 convolution whose M rows the compiler folds to a grid
of pixels. `npusim.cost.grid` has the equations of one stencil.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.grid import (
    Channels,
    ReductionCycles,
    area_cycles,
    channel_blocks,
    mode_shape,
    reduction_cycles,
    startup_cycles,
    tail_cycles,
)
from npusim.cost.jit import compiled
from npusim.cost.sparsity import DENSE, SIDES, lane_density, skip_pace, worth_trying

__all__ = ["conv_cycles", "effective_taps", "matmul_cycles", "matmul_mode_cycles", "mode_shape"]

_MODES = 3


@compiled
def effective_taps(
    p: Any, kernel_w: float, kernel_h: float, out_h: float, pad_top: float, pad_bottom: float
) -> float:
    """Kernel taps that the grid works through.

    A lone last output row beside vertical padding lets the grid skip about one tap (npu4000 silicon, 3x3:
    rows with ``out_h mod 4 = 1`` run 1/9 faster; the figures do not determine the mechanism).
    """
    taps = kernel_w * kernel_h
    lone = out_h - np.floor(out_h / p.dpu_pixel_lanes_h) * p.dpu_pixel_lanes_h == 1.0
    if lone and pad_top + pad_bottom > 0.0:
        taps = max(1.0, taps - p.dpu_lone_row_taps)
    return taps


@compiled
def _side_pace(
    p: Any, side: int, slots: float, taps: float, channel_bytes: float, weight_bytes: float,
    act_density: float, weight_density: float, act_block: float, weight_block: float,
) -> ReductionCycles:  # fmt: skip
    """Reduction under a choice of bitmaps; arguments as in `conv_cycles` and `reduction_cycles`."""
    if side == DENSE:
        return reduction_cycles(p, slots, taps, channel_bytes, 1.0, 1.0, 1.0, 0.0)
    lanes = p.dpu_pixel_lanes_w * p.dpu_pixel_lanes_h
    act_lane = lane_density(act_density, act_block, lanes, p.dpu_sparse_window_act)
    weight_lane = lane_density(weight_density, weight_block, p.dpu_channel_lanes, p.dpu_sparse_window_weight)
    mac, act, weight = skip_pace(p, side, act_lane, weight_lane, weight_density, weight_bytes)
    return reduction_cycles(p, slots, taps, channel_bytes, mac, act, weight, p.dpu_sparse_drain_exposed)


@compiled
def _conv_areas(
    p: Any,
    out_w: float,
    out_h: float,
    across: float,
    down: float,
    reduction: ReductionCycles,
    channels: Channels,
) -> float:
    """Cycles, without start-up, of all stencils over an output of ``out_w`` x ``out_h`` pixels."""
    full_w = across * p.dpu_pixel_lanes_w
    full_h = down * p.dpu_pixel_lanes_h
    columns = np.floor(out_w / full_w)
    rows = np.floor(out_h / full_h)
    rest_w = out_w - columns * full_w
    rest_h = out_h - rows * full_h
    edge_w = np.ceil(rest_w / p.dpu_pixel_lanes_w)
    edge_h = np.ceil(rest_h / p.dpu_pixel_lanes_h)
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
    return total + tail_cycles(channels, min(out_w, full_w) * min(out_h, full_h), last, drain)


@compiled
def conv_cycles(
    p: Any, out_w: float, out_h: float, out_c: float, in_c: float, kernel_w: float, kernel_h: float,
    pad_top: float, pad_bottom: float, in_bytes: float, weight_bytes: float, out_bytes: float, mode: int,
    write_tiles: float, act_density: float, weight_density: float, act_block: float, weight_block: float,
) -> float:  # fmt: skip
    """Cycles of one convolution on one tile in one MPE mode.

    Parameters
    ----------
    p : record
        Parameters ``dpu_...`` of `npusim.cost.architecture.ARCH_DTYPE`.
    out_w, out_h, out_c, in_c : float
        Output size in pixels and channels; input channels; each at least 1.
    kernel_w, kernel_h, pad_top, pad_bottom : float
        Kernel size and vertical padding in pixels. The stride enters only through the output's size: silicon
        rows of stride 1 and 2 lie on one line.
    in_bytes, weight_bytes, out_bytes : float
        Bytes an element (1 int8, 2 fp16).
    mode : int
        MPE mode, see `npusim.cost.grid.mode_shape`.
    write_tiles : float
        Tiles that receive the output.
    act_density, weight_density : float
        Shares of non-zeros, 1 = dense.
    act_block, weight_block : float
        Shares of granules (lanes x window) that are not empty; 1 when unknown.

    Returns
    -------
    float
        DPU cycles: start-up + sum over stencils of max(compute, write-back) + write-back of the last. Never
        more than dense.
    """
    across, down, channel_groups = mode_shape(p, mode)
    taps = effective_taps(p, kernel_w, kernel_h, out_h, pad_top, pad_bottom)
    channels = channel_blocks(p, out_c, channel_groups, write_tiles, out_bytes)
    best = np.inf
    for side in range(SIDES):
        if worth_trying(side, act_density, weight_density):
            reduction = _side_pace(
                p, side, across * down, taps, in_c * in_bytes, weight_bytes,
                act_density, weight_density, act_block, weight_block,
            )  # fmt: skip
            best = min(best, _conv_areas(p, out_w, out_h, across, down, reduction, channels))
    return startup_cycles(p, write_tiles) + best


@compiled
def _matmul_areas(
    p: Any, m: float, across: float, down: float, reduction: ReductionCycles, channels: Channels
) -> float:
    """Cycles, without start-up, of all stencils over ``m`` rows that are folded to groups of pixels."""
    lanes = p.dpu_pixel_lanes_w * p.dpu_pixel_lanes_h
    slots = across * down
    full = np.floor(m / (slots * lanes))
    rest_pixels = m - full * slots * lanes
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
def matmul_mode_cycles(
    p: Any, m: float, k: float, n: float, in_bytes: float, weight_bytes: float, out_bytes: float, mode: int,
    write_tiles: float, act_density: float, weight_density: float, act_block: float, weight_block: float,
) -> float:  # fmt: skip
    """Cycles of a matrix product M x K x N on one tile in one MPE mode.

    Parameters
    ----------
    p : record
        Parameters ``dpu_...``.
    m, k, n : float
        Rows, reduction, columns, each at least 1. The M x K operand is the activation, the K x N operand the
        weights.
    in_bytes, weight_bytes, out_bytes, mode, write_tiles : float
        As in `conv_cycles`.
    act_density, weight_density, act_block, weight_block : float
        As in `conv_cycles`.

    Returns
    -------
    float
        DPU cycles. The rows are taken to fold to full groups of pixels; a product that must keep a layout one
        pixel wide goes through `conv_cycles` with ``out_w = 1`` and costs about four times as much. Zeros are
        skipped in the first mode only: the cost model's sparse grid shows no gain of the other modes.
    """
    across, down, channel_groups = mode_shape(p, mode)
    channels = channel_blocks(p, n, channel_groups, write_tiles, out_bytes)
    best = np.inf
    for side in range(SIDES if mode == 0 else 1):
        if worth_trying(side, act_density, weight_density):
            reduction = _side_pace(
                p, side, across * down, 1.0, k * in_bytes, weight_bytes,
                act_density, weight_density, act_block, weight_block,
            )  # fmt: skip
            best = min(best, _matmul_areas(p, m, across, down, reduction, channels))
    return startup_cycles(p, write_tiles) + best


@compiled
def matmul_cycles(
    p: Any, m: float, k: float, n: float, in_bytes: float, weight_bytes: float, out_bytes: float,
    write_tiles: float, act_density: float, weight_density: float, act_block: float, weight_block: float,
) -> float:  # fmt: skip
    """Cycles of a matrix product in its best MPE mode; arguments as in `matmul_mode_cycles`."""
    best = np.inf
    for mode in range(_MODES):
        cycles = matmul_mode_cycles(
            p, m, k, n, in_bytes, weight_bytes, out_bytes, mode, write_tiles,
            act_density, weight_density, act_block, weight_block,
        )  # fmt: skip
        best = min(best, cycles)
    return best
