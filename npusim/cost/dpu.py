"""Convolutions and matrix products on one tile: how many pressings of the letterpress of :mod:`dpu_grid`.

A convolution's output is cut into stencils; full ones, those at the right edge, at the bottom edge and in the corner
differ in size, so at most four kinds of pixel areas times two kinds of channel blocks are costed, whatever the size.
A matrix product M x K x N is a 1x1 convolution whose M rows the compiler folds to a grid of pixels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.grid import (
    act_feed_cycles,
    area_cycles,
    drain_cycles_per_byte,
    mode_shape,
    startup_cycles,
    tail_cycles,
    weight_feed_cycles,
    whole_words,
)
from npusim.cost.jit import kernel
from npusim.cost.sparsity import lane_density, skip_pace, worth_trying


@kernel
def conv_steps(p: Any, in_c: float, kernel_w: float, kernel_h: float, out_h: float, pad_top: float, pad_bottom: float, in_bytes: float) -> float:
    """Steps of the reduction of a convolution: kernel taps times pieces of input channels.

    A lone last output row beside vertical padding lets the grid skip about one tap (npu4000 silicon, 3x3: rows with
    ``out_h mod 4 = 1`` run 1/9 faster; the mechanism is not determined by the figures).
    """
    taps = kernel_w * kernel_h
    lone = out_h - np.floor(out_h / p.dpu_pixel_lanes_h) * p.dpu_pixel_lanes_h == 1.0
    if lone and pad_top + pad_bottom > 0.0:
        taps = max(1.0, taps - p.dpu_lone_row_taps)
    return taps * np.ceil(in_c * in_bytes / p.dpu_mac_bytes_per_cycle)


@kernel
def conv_pass_cycles(p: Any, out_w: float, out_h: float, out_c: float, steps: float, out_bytes: float, mode: int, write_tiles: float, act: float, weight: float, mac: float, exposed: float) -> float:
    """Cycles of a convolution with ``steps`` steps at given feeds (cycles a step and group) and MAC share."""
    across, down, ntk = mode_shape(p, mode)
    slots = across * down * p.dpu_slot_walk_cycles
    start = p.dpu_stencil_cycles
    per_byte = drain_cycles_per_byte(p, write_tiles, out_bytes)
    block_c = ntk * p.dpu_channel_lanes
    blocks = np.floor(out_c / block_c)
    rest_c = out_c - blocks * block_c
    rest_groups = np.ceil(rest_c / p.dpu_channel_lanes)
    block_drain = whole_words(p, block_c * out_bytes) * per_byte
    rest_drain = whole_words(p, rest_c * out_bytes) * per_byte
    full_w = across * p.dpu_pixel_lanes_w
    full_h = down * p.dpu_pixel_lanes_h
    columns = np.floor(out_w / full_w)
    rows = np.floor(out_h / full_h)
    rest_w = out_w - columns * full_w
    rest_h = out_h - rows * full_h
    edge_w = np.ceil(rest_w / p.dpu_pixel_lanes_w)
    edge_h = np.ceil(rest_h / p.dpu_pixel_lanes_h)
    total = startup_cycles(p, write_tiles)
    last = 0.0
    drain = 0.0
    if columns * rows > 0.0:
        cycles, last, drain = area_cycles(across * down, full_w * full_h, slots, act, weight, mac, exposed, steps,
                                          start, blocks, ntk, block_drain, rest_groups, rest_drain)
        total += columns * rows * cycles
    if edge_w * rows > 0.0:
        cycles, last, drain = area_cycles(edge_w * down, rest_w * full_h, slots, act, weight, mac, exposed, steps,
                                          start, blocks, ntk, block_drain, rest_groups, rest_drain)
        total += rows * cycles
    if columns * edge_h > 0.0:
        cycles, last, drain = area_cycles(across * edge_h, full_w * rest_h, slots, act, weight, mac, exposed, steps,
                                          start, blocks, ntk, block_drain, rest_groups, rest_drain)
        total += columns * cycles
    if edge_w * edge_h > 0.0:
        cycles, last, drain = area_cycles(edge_w * edge_h, rest_w * rest_h, slots, act, weight, mac, exposed, steps,
                                          start, blocks, ntk, block_drain, rest_groups, rest_drain)
        total += cycles
    largest = min(out_w, full_w) * min(out_h, full_h) * (block_drain if blocks > 0.0 else rest_drain)
    return total + tail_cycles(largest, last, drain)


@kernel
def conv_cycles(p: Any, out_w: float, out_h: float, out_c: float, in_c: float, kernel_w: float, kernel_h: float, pad_top: float, pad_bottom: float, in_bytes: float, weight_bytes: float, out_bytes: float, mode: int, write_tiles: float, act_density: float, weight_density: float, act_block: float, weight_block: float) -> float:
    """Cycles of one convolution workload on one tile.

    Parameters
    ----------
    p : record
        Parameters ``dpu_...``.
    out_w, out_h, out_c, in_c : float
        Output size in pixels and channels; input channels.
    kernel_w, kernel_h, pad_top, pad_bottom : float
        Kernel size and vertical padding in pixels. The stride enters only through the output's size: silicon rows
        of stride 1 and 2 lie on one line.
    in_bytes, weight_bytes, out_bytes : float
        Bytes an element (1 int8, 2 fp16).
    mode : int
        MPE mode, see :func:`mode_shape`.
    write_tiles : float
        Tiles that receive the output.
    act_density, weight_density : float
        Shares of non-zeros, 1 = dense.
    act_block, weight_block : float
        Shares of granules (lanes x window) that are not empty; 1 when unknown.

    Returns
    -------
    float
        DPU cycles: start-up + sum over stencils of max(compute, drain) + drain of the last. Never more than dense.
    """
    steps = conv_steps(p, in_c, kernel_w, kernel_h, out_h, pad_top, pad_bottom, in_bytes)
    act = act_feed_cycles(p)
    weight = weight_feed_cycles(p)
    best = conv_pass_cycles(p, out_w, out_h, out_c, steps, out_bytes, mode, write_tiles, act, weight, 1.0, 0.0)
    if act_density < 1.0 or weight_density < 1.0:
        act_lane = lane_density(act_density, act_block, p.dpu_pixel_lanes_w * p.dpu_pixel_lanes_h,
                                p.dpu_sparse_window_act)
        weight_lane = lane_density(weight_density, weight_block, p.dpu_channel_lanes, p.dpu_sparse_window_weight)
        for side in range(1, 4):
            if worth_trying(side, act_density, weight_density):
                mac, a, w = skip_pace(p, side, act_lane, weight_lane, weight_density, weight_bytes)
                best = min(best, conv_pass_cycles(p, out_w, out_h, out_c, steps, out_bytes, mode, write_tiles,
                                                  act * a, weight * w, mac, p.dpu_sparse_drain_exposed))
    return best


@kernel
def matmul_pass_cycles(p: Any, across: float, down: float, ntk: float, groups: float, steps: float, n: float, out_bytes: float, per_byte: float, act: float, weight: float, mac: float, exposed: float) -> float:
    """Cycles without start-up of a product in one mode, its rows folded to ``groups`` groups of pixels."""
    nthw = across * down
    full = np.floor(groups / nthw)
    rest = groups - full * nthw
    if rest > across:
        # A stencil is a rectangle: its last row of groups is filled up.
        rest = np.ceil(rest / across) * across
    lanes = p.dpu_pixel_lanes_w * p.dpu_pixel_lanes_h
    slots = nthw * p.dpu_slot_walk_cycles
    block_c = ntk * p.dpu_channel_lanes
    blocks = np.floor(n / block_c)
    rest_c = n - blocks * block_c
    rest_groups = np.ceil(rest_c / p.dpu_channel_lanes)
    block_drain = whole_words(p, block_c * out_bytes) * per_byte
    rest_drain = whole_words(p, rest_c * out_bytes) * per_byte
    total = 0.0
    last = 0.0
    drain = 0.0
    if full > 0.0:
        cycles, last, drain = area_cycles(nthw, nthw * lanes, slots, act, weight, mac, exposed, steps,
                                          p.dpu_stencil_cycles, blocks, ntk, block_drain, rest_groups, rest_drain)
        total = full * cycles
    if rest > 0.0:
        cycles, last, drain = area_cycles(rest, rest * lanes, slots, act, weight, mac, exposed, steps,
                                          p.dpu_stencil_cycles, blocks, ntk, block_drain, rest_groups, rest_drain)
        total += cycles
    largest = min(groups, nthw) * lanes * (block_drain if blocks > 0.0 else rest_drain)
    return total + tail_cycles(largest, last, drain)

@kernel
def matmul_mode_cycles(p: Any, m: float, k: float, n: float, in_bytes: float, weight_bytes: float, out_bytes: float, mode: int, write_tiles: float, act_density: float, weight_density: float, act_block: float, weight_block: float) -> float:
    """Cycles of a matrix product M x K x N on one tile in one MPE mode; arguments as in `matmul_cycles`.

    Zeros are skipped in the first mode only: the cost model's sparse grid shows no gain of the others.
    """
    steps = np.ceil(k * in_bytes / p.dpu_mac_bytes_per_cycle)
    groups = np.ceil(m / (p.dpu_pixel_lanes_w * p.dpu_pixel_lanes_h))
    act, weight = act_feed_cycles(p), weight_feed_cycles(p)
    per_byte = drain_cycles_per_byte(p, write_tiles, out_bytes)
    across, down, ntk = mode_shape(p, mode)
    best = matmul_pass_cycles(p, across, down, ntk, groups, steps, n, out_bytes, per_byte, act, weight, 1.0, 0.0)
    if mode == 0 and (act_density < 1.0 or weight_density < 1.0):
        pixels = p.dpu_pixel_lanes_w * p.dpu_pixel_lanes_h
        act_lane = lane_density(act_density, act_block, pixels, p.dpu_sparse_window_act)
        weight_lane = lane_density(weight_density, weight_block, p.dpu_channel_lanes, p.dpu_sparse_window_weight)
        for side in range(1, 4):
            if worth_trying(side, act_density, weight_density):
                mac, a, w = skip_pace(p, side, act_lane, weight_lane, weight_density, weight_bytes)
                exposed = p.dpu_sparse_drain_exposed
                best = min(best, matmul_pass_cycles(p, across, down, ntk, groups, steps, n, out_bytes, per_byte, act * a, weight * w, mac, exposed))
    return startup_cycles(p, write_tiles) + best


@kernel
def matmul_cycles(p: Any, m: float, k: float, n: float, in_bytes: float, weight_bytes: float, out_bytes: float, write_tiles: float, act_density: float, weight_density: float, act_block: float, weight_block: float) -> float:
    """DOC"""
    best = np.inf
    for mode in range(3):
        best = min(best, matmul_mode_cycles(p, m, k, n, in_bytes, weight_bytes, out_bytes, mode, write_tiles, act_density, weight_density, act_block, weight_block))
    return best
