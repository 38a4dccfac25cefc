"""Costs of one run of each operator at each design point, the terms that plans and fusions add up."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.compiling.kernels import compiled, compiled_making_arrays
from npusim.compiling.records import Bools, Floats, Ints
from npusim.cost.lowering.tables import DpuOperation, OpRecord, Order, Split
from npusim.cost.tilings.candidates import reads_dram
from npusim.cost.units.levels import ServedRecord, first_wait_s, sourced_bytes
from npusim.cost.units.needs import CANDIDATE_SIZE, CandidateRecord, refills
from npusim.cost.units.rates import (
    CYCLE,
    DSP,
    PAGE_WALK,
    READ,
    READ_WAIT,
    SRAM,
    TILE_SRAM,
    WRITE_WAIT,
    Choices,
    dma_time_s,
    fill_beside,
    overlapped_s,
    prologue_epilogue_s,
    restart_s,
    stall_s,
)
from npusim.cost.units.resources import LEVELS

_MATMUL, _CONVOLUTION = int(DpuOperation.MATMUL), int(DpuOperation.CONVOLUTION)
_ROWS, _COLUMNS, _WEIGHTS_HELD = int(Split.ROWS), int(Split.COLUMNS), int(Order.WEIGHTS_HELD)


class Terms(NamedTuple):
    """Costs of one run of each row of a plan table under its chosen mapping; shape (rows, columns).

    `best_s` is the latency without the common wait for a first byte, `wait_s` that wait. Its parts: time of
    the grid (`dpu_s`), of the first piece in and the last out (`exposed_s`, of which `known_s` can be
    prefetched), of all transfers (`dma_s`), waits of refills and pauses. Prefetch over operators reads the
    last four (`npusim.cost.network.prefetch`): the stall that it can save, the room in SRAM for weights of
    later operators and for its own, and the SRAM that a second of its transfers takes.
    """

    is_filled: Bools
    """Whether a row has its costs, shape (rows,)."""
    candidate: Ints
    """Place of the mapping in the table of candidates."""
    best_s: Floats
    wait_s: Floats
    dpu_s: Floats
    exposed_s: Floats
    known_s: Floats
    refill_wait_s: Floats
    pauses_s: Floats
    dma_s: Floats
    dram_bytes: Floats
    shared_bytes: Floats
    """Bytes through the level that devices share, DRAM's included."""
    sram_peak_bytes: Floats
    stall_s: Floats
    room_bytes: Floats
    own_room_bytes: Floats
    held_bytes_per_s: Floats


@compiled_making_arrays
def new_terms(rows: int, columns: int) -> Terms:
    """Return empty storage for the costs of rows."""
    t, candidate = np.zeros((15, rows, columns)), np.zeros((rows, columns), np.int64)
    costs = (t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10], t[11], t[12], t[13], t[14])
    return Terms(np.zeros(rows, np.bool_), candidate, *costs)


@compiled
def fill_terms(
    candidates: Any,
    choices: Choices,
    served: ServedRecord,
    rates: Floats,
    op: OpRecord,
    is_prefetching: bool,
    points: int,
    terms: Terms,
    r: int,
) -> None:
    """Write the costs of an operator's chosen candidates at each point to row `r`.

    `is_prefetching` tells whether the device fetches weights over operators (`npusim.cost.network.prefetch`).
    """
    numbers, is_served, writes = candidates.view(np.float64), served.is_any > 0.0, op.c_dram_bytes > 0.0
    for p in range(points):
        terms.best_s[r, p] = choices.best_s[p]
    for p in range(points):
        terms.candidate[r, p] = choices.candidate[p]
    for p in range(points):
        wait_s = rates[READ_WAIT, p] if reads_dram(op) else 0.0
        if is_served and reads_dram(op):
            wait_s = first_wait_s(served, rates, p)
        terms.wait_s[r, p] = wait_s + (rates[WRITE_WAIT, p] if writes else 0.0)
    first: Any = np.int64(0)
    while first < points:  # neighbours mostly have the same candidate
        index, last = choices.candidate[first], first + 1
        while last < points and choices.candidate[last] == index:
            last += 1
        candidate, at = candidates[index], index * CANDIDATE_SIZE
        fill_beside(numbers, at, is_served, rates, first, last)
        for p in range(first, last):
            terms.dma_s[r, p] = dma_time_s(candidate, rates, p)
        for p in range(first, last):
            terms.exposed_s[r, p] = prologue_epilogue_s(candidate, rates, p)
        for p in range(first, last):
            terms.known_s[r, p] = candidate.known_bytes * rates[READ, p]
        for p in range(first, last):
            terms.refill_wait_s[r, p] = refills(candidate, rates[TILE_SRAM, p]) * rates[READ_WAIT, p]
        for p in range(first, last):
            pause_s = candidate.restarts * restart_s(rates, p)
            terms.pauses_s[r, p] = candidate.page_walks * rates[PAGE_WALK, p] + pause_s
        for p in range(first, last):
            terms.dpu_s[r, p] = candidate.grid_cycles * rates[CYCLE, p]
        for p in range(first, last):
            terms.dram_bytes[r, p] = candidate.read_bytes + candidate.written_bytes
            if is_served:
                terms.dram_bytes[r, p] += sourced_bytes(numbers, at, rates, p, LEVELS)
        for p in range(first, last):
            terms.shared_bytes[r, p] = terms.dram_bytes[r, p]
            if is_served:
                shared_level = int(served.shared_place) - 1
                terms.shared_bytes[r, p] += sourced_bytes(numbers, at, rates, p, shared_level)
        for p in range(first, last):
            sram_peak_bytes = min(candidate.sram_peak_bytes, rates[SRAM, p])
            terms.sram_peak_bytes[r, p] = sram_peak_bytes - op.reserved_bytes
        for p in range(first, last if is_prefetching else first):
            _fill_prefetch(candidate, served, rates, op, p, terms, r)
        first = last


@compiled
def _fill_prefetch(
    candidate: CandidateRecord,
    served: ServedRecord,
    rates: Floats,
    op: OpRecord,
    p: int,
    terms: Terms,
    r: int,
) -> None:
    """Write what prefetch can save of the first run of a candidate, and the SRAM that it takes.

    Prefetch saves the stall, but at most one pass over operands that exist before the inference. Weights of
    others take the room (`_free_bytes`); its own lie in its buffers where its tiling fills them once. A tile
    that shares a product holds its operand whole, so each of its bytes is held by several tiles.
    """
    a_bytes = (op.a_triangle_bytes if op.triangle else op.a_dram_bytes) if op.a_prefetch else 0.0
    b_bytes = op.b_dram_bytes if op.b_prefetch else 0.0
    known_s = (a_bytes + b_bytes) * (1.0 - served.first_share) * rates[READ, p]
    is_product = op.dpu_operation == _MATMUL or op.dpu_operation == _CONVOLUTION
    a_copies = candidate.tiles if is_product and candidate.split == _COLUMNS else 1.0
    b_copies = candidate.tiles if is_product and candidate.split == _ROWS else 1.0
    work_s, dma_s = max(terms.dpu_s[r, p], rates[DSP, p]), terms.dma_s[r, p]
    exposed_s, refills_s = terms.exposed_s[r, p], terms.refill_wait_s[r, p]
    terms.stall_s[r, p] = min(known_s, stall_s(work_s, dma_s, exposed_s, terms.known_s[r, p], refills_s))
    slack_s = terms.best_s[r, p] - terms.pauses_s[r, p] - 0.5 * (work_s + dma_s)
    peak_bytes = terms.sram_peak_bytes[r, p]
    room_bytes = max(0.0, _free_bytes(candidate, op, peak_bytes, slack_s, rates, p))
    terms.room_bytes[r, p] = room_bytes
    fills_once = is_product and _fills_once(candidate, a_bytes, b_bytes)
    terms.own_room_bytes[r, p] = np.inf if fills_once else room_bytes
    held_bytes = a_bytes * a_copies + b_bytes * b_copies
    terms.held_bytes_per_s[r, p] = held_bytes / known_s if known_s > 0.0 else 1.0


@compiled
def _fills_once(candidate: CandidateRecord, a_bytes: float, b_bytes: float) -> bool:
    """Return whether a product fills its buffers of the prefetched operands (bytes) only once."""
    if candidate.channel_chunks != 1.0 or candidate.strips != 1.0:
        return False
    if candidate.order == _WEIGHTS_HELD:
        return bool(candidate.column_blocks == 1.0 and a_bytes == 0.0)
    return bool(candidate.row_blocks == 1.0 and b_bytes == 0.0)


@compiled
def _free_bytes(
    candidate: CandidateRecord, op: OpRecord, peak_bytes: float, slack_s: float, rates: Floats, p: int
) -> float:
    """Return the SRAM of all tiles that a candidate leaves to weights of later operators.

    Half of the buffers of results counts again: one result is written while two are made. The streamed
    operand keeps buffers that are long enough for the wait of each refill: `slack_s` is the part of the
    latency that these waits may fill.
    """
    tiles, free_bytes = rates[SRAM, p] / rates[TILE_SRAM, p], rates[SRAM, p] - peak_bytes
    if op.c_dram_bytes > 0.0:
        c_share = op.c_dram_bytes / (op.c_dram_bytes + op.a_dram_bytes)
        streaming_bytes = peak_bytes + op.reserved_bytes - tiles * candidate.held_bytes
        free_bytes -= 0.5 * c_share * max(0.0, streaming_bytes)
    if candidate.streamed_bytes > 0.0:
        wait_s = rates[READ_WAIT, p]
        buffer_bytes = candidate.streamed_bytes * wait_s / slack_s if slack_s > 0.0 else np.inf
        unused_bytes = rates[TILE_SRAM, p] - candidate.held_bytes - buffer_bytes
        free_bytes = min(free_bytes, tiles * unused_bytes + op.reserved_bytes)
    return float(free_bytes)


class FusedWork(NamedTuple):
    """Work of the operators of a row-wise fusion, summed by what does it (s)."""

    dpu_s: float
    dsp_s: float
    dma_s: float
    exposed_s: float
    refill_wait_s: float
    pauses_s: float
    apart_s: float
    """Latency of the operators one after the other, without waits and pauses."""


@compiled
def fused_work(rows: Any, members: Ints, row_of: Ints, terms: Terms, dsp_s: Floats, column: int) -> FusedWork:
    """Return the summed work of the operators (`members`) of a row-wise fusion.

    SRAM has room for the weights of all of them, so these come in while others work.
    """
    dpu = dsp = dma = exposed = refill_wait = pauses = apart = 0.0
    for member in range(members.shape[0]):
        o = members[member]
        r = row_of[o]
        repeats = rows[r].repeats
        pause_s = repeats * terms.pauses_s[r, column]
        dpu += repeats * terms.dpu_s[r, column]
        dsp += dsp_s[o, column]
        dma += repeats * terms.dma_s[r, column]
        exposed += repeats * terms.exposed_s[r, column]
        exposed -= repeats * terms.known_s[r, column]
        refill_wait += repeats * terms.refill_wait_s[r, column]
        pauses += pause_s
        apart += repeats * terms.best_s[r, column] - pause_s
    return FusedWork(dpu, dsp, dma, exposed, refill_wait, pauses, apart)


@compiled
def fused_s(work: FusedWork, pieces: float) -> float:
    """Return the time of a row-wise fusion (s), which replaces the latencies of its operators.

    The operators work at the same time: units overlap, prologues and epilogues add up. Filling the pipeline
    takes longer: one of `pieces` blocks of rows passes through all operators in turn.
    """
    fusion_s = overlapped_s(max(work.dpu_s, work.dsp_s), work.dma_s, work.exposed_s, work.refill_wait_s)
    return float(fusion_s + (work.apart_s - fusion_s) / pieces + work.pauses_s)


@compiled
def fused_stall_s(work: FusedWork) -> float:
    """Return how much longer than work and buffers allow the transfers of a row-wise fusion take (s)."""
    return stall_s(max(work.dpu_s, work.dsp_s), work.dma_s, work.exposed_s, 0.0, work.refill_wait_s)
