"""Costs of one operator at each design point, in the terms that plans and row-wise fusions add up."""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.candidates import CANDIDATE_SIZE, CandidateRecord, reads_dram, refills
from npusim.cost.kernels import compiled
from npusim.cost.levels import ServedRecord, first_wait_s, sourced_bytes
from npusim.cost.rates import (
    BEST,
    CYCLE,
    DSP,
    INDEX,
    PAGE_WALK,
    READ,
    READ_WAIT,
    SRAM,
    TILE_SRAM,
    WRITE_WAIT,
    dma_time_s,
    fill_beside,
    overlapped_s,
    prologue_epilogue_s,
    restart_s,
    stall_s,
)
from npusim.cost.records import Floats
from npusim.cost.resources import LEVELS
from npusim.cost.tables import DpuOperation, OpRecord, Order, Split

_MATMUL, _CONVOLUTION = int(DpuOperation.MATMUL), int(DpuOperation.CONVOLUTION)
_ROWS, _COLUMNS, _WEIGHTS_HELD = int(Split.ROWS), int(Split.COLUMNS), int(Order.WEIGHTS_HELD)
_DPU_S, _PROLOGUE_EPILOGUE_S, _REFILL_WAIT_S, PAUSES_S, DMA_TERM_S, _DRAM, _SHARED, STALL_S = range(8)
BEST_S, WAIT_S, _KNOWN_S, SRAM_TERM, CANDIDATE, ROOM, OWN_ROOM, HELD_PER_S = range(8, 16)
TERMS = 16
"""Rows of the table of the costs of one operator at each point; the last three, `STALL_S` and `_KNOWN_S` are
of prefetch (`npusim.cost.prefetch`)."""
_FUSED_DSP, _FUSED_APART = 5, 6
FUSED_SUMS = 7
"""Rows of the sums over a row-wise fusion; the first five sum the first terms."""


@compiled
def fill_terms(
    candidates: Any,
    choices: Floats,
    served: ServedRecord,
    rates: Floats,
    op: OpRecord,
    is_prefetching: bool,
    points: int,
    terms: Floats,
) -> None:
    """Write the costs of an operator's chosen candidate at each point, over all repeats.

    `is_prefetching` tells whether the device fetches weights over operators (`npusim.cost.prefetch`).
    """
    reads, writes, numbers = reads_dram(op), op.c_dram_bytes > 0.0, candidates.view(np.float64)
    is_served = served.is_any > 0.0
    for p in range(points):
        terms[BEST_S, p] = choices[BEST, p]
    for p in range(points):
        terms[CANDIDATE, p] = choices[INDEX, p]
    for p in range(points):
        wait_s = rates[READ_WAIT, p] if reads else 0.0
        terms[WAIT_S, p] = wait_s + (rates[WRITE_WAIT, p] if writes else 0.0)
    if reads and is_served:
        for p in range(points):
            terms[WAIT_S, p] = first_wait_s(served, rates, p) + (rates[WRITE_WAIT, p] if writes else 0.0)
    first: Any = np.int64(0)
    while first < points:  # neighbours mostly have the same candidate
        index, last = int(choices[INDEX, first]), first + 1
        while last < points and choices[INDEX, last] == index:
            last += 1
        candidate = candidates[index]
        fill_beside(numbers, index * CANDIDATE_SIZE, is_served, rates, first, last)
        for p in range(first, last):
            terms[DMA_TERM_S, p] = dma_time_s(candidate, rates, p)
        for p in range(first, last):
            terms[_PROLOGUE_EPILOGUE_S, p] = prologue_epilogue_s(candidate, rates, p)
            terms[_KNOWN_S, p] = candidate.known_bytes * rates[READ, p]
        for p in range(first, last):
            terms[_REFILL_WAIT_S, p] = refills(candidate, rates[TILE_SRAM, p]) * rates[READ_WAIT, p]
        for p in range(first, last):
            pause_s = candidate.restarts * restart_s(rates, p)
            terms[PAUSES_S, p] = candidate.page_walks * rates[PAGE_WALK, p] + pause_s
        for p in range(first, last):
            terms[_DPU_S, p] = candidate.grid_cycles * rates[CYCLE, p]
        for p in range(first, last):
            terms[_DRAM, p] = candidate.read_bytes + candidate.written_bytes
        if is_served:
            for p in range(first, last):
                terms[_DRAM, p] += sourced_bytes(numbers, index * CANDIDATE_SIZE, rates, p, LEVELS)
        for p in range(first, last):
            terms[_SHARED, p] = terms[_DRAM, p]
        if is_served:
            shared_level = int(served.shared_place) - 1
            for p in range(first, last):
                terms[_SHARED, p] += sourced_bytes(numbers, index * CANDIDATE_SIZE, rates, p, shared_level)
        for p in range(first, last):
            terms[SRAM_TERM, p] = min(candidate.sram_peak_bytes, rates[SRAM, p]) - op.reserved_bytes
            terms[STALL_S, p] = 0.0
        if is_prefetching:
            _fill_stalls(candidate, served, rates, op, first, last, terms)
        first = last
    if op.repeats != 1.0:
        for term in range(SRAM_TERM):
            if term != STALL_S:  # the first run alone can be prefetched
                for p in range(points):
                    terms[term, p] *= op.repeats


@compiled
def _fill_stalls(
    candidate: CandidateRecord,
    served: ServedRecord,
    rates: Floats,
    op: OpRecord,
    first: int,
    last: int,
    terms: Floats,
) -> None:
    """Write what prefetch can gain at some points for one run of a candidate, and the SRAM that it needs.

    Work stalls while transfers take longer than work and buffers allow. The stall is at most one pass over
    operands that exist before the inference. SRAM that the streamed operand needs as buffers is not free, nor
    is a third buffer of results, one of which is written while the next two are made.
    """
    a_bytes = (op.a_triangle_bytes if op.triangle else op.a_dram_bytes) if op.a_prefetch else 0.0
    b_bytes = op.b_dram_bytes if op.b_prefetch else 0.0
    known_bytes = (a_bytes + b_bytes) * (1.0 - served.first_share)
    is_product = op.dpu_operation == _MATMUL or op.dpu_operation == _CONVOLUTION
    a_copies = candidate.tiles if is_product and candidate.split == _COLUMNS else 1.0
    b_copies = candidate.tiles if is_product and candidate.split == _ROWS else 1.0
    held_bytes = a_bytes * a_copies + b_bytes * b_copies
    is_held = is_product and candidate.channel_chunks == 1.0 and candidate.strips == 1.0
    if candidate.order == _WEIGHTS_HELD:
        is_held = is_held and candidate.column_blocks == 1.0 and a_bytes == 0.0
    else:
        is_held = is_held and candidate.row_blocks == 1.0 and b_bytes == 0.0
    for p in range(first, last):
        work_s, dma_s = max(terms[_DPU_S, p], rates[DSP, p]), terms[DMA_TERM_S, p]
        exposed_s, refills_s = terms[_PROLOGUE_EPILOGUE_S, p], terms[_REFILL_WAIT_S, p]
        stalls_s = stall_s(work_s, dma_s, exposed_s, terms[_KNOWN_S, p], refills_s)
        terms[STALL_S, p] = min(known_bytes * rates[READ, p], stalls_s)
        tiles, free_bytes = rates[SRAM, p] / rates[TILE_SRAM, p], rates[SRAM, p] - terms[SRAM_TERM, p]
        if op.c_dram_bytes > 0.0:
            c_share = op.c_dram_bytes / (op.c_dram_bytes + op.a_dram_bytes)
            streaming_bytes = terms[SRAM_TERM, p] + op.reserved_bytes - tiles * candidate.held_bytes
            free_bytes -= 0.5 * c_share * max(0.0, streaming_bytes)
        if candidate.streamed_bytes > 0.0:
            slack_s = terms[BEST_S, p] - terms[PAUSES_S, p] - 0.5 * (work_s + dma_s)
            buffer_bytes = (
                candidate.streamed_bytes * rates[READ_WAIT, p] / slack_s if slack_s > 0.0 else np.inf
            )
            unused_bytes = rates[TILE_SRAM, p] - candidate.held_bytes - buffer_bytes
            free_bytes = min(free_bytes, tiles * unused_bytes + op.reserved_bytes)
        terms[ROOM, p] = max(0.0, free_bytes)
        terms[OWN_ROOM, p] = np.inf if is_held else terms[ROOM, p]
        terms[HELD_PER_S, p] = held_bytes / (known_bytes * rates[READ, p]) if known_bytes > 0.0 else 1.0


@compiled
def add_fused(terms: Floats, dsp_s: Floats, points: int, fused_sums: Floats) -> None:
    """Add one row-fused operator to the per-unit sums of its fusion.

    SRAM has room for the weights of all operators, so these come in while others work.
    """
    for s in range(DMA_TERM_S + 1):
        for p in range(points):
            fused_sums[s, p] += terms[s, p]
    for p in range(points):
        fused_sums[_PROLOGUE_EPILOGUE_S, p] -= terms[_KNOWN_S, p]
    for p in range(points):
        fused_sums[_FUSED_DSP, p] += dsp_s[p]
    for p in range(points):
        fused_sums[_FUSED_APART, p] += terms[BEST_S, p] - terms[PAUSES_S, p]


@compiled
def fused_chain_s(fused_sums: Floats, pieces: float, p: int) -> float:
    """Return the time of a row-wise fusion at a point (s), which replaces the latencies of its operators.

    The operators work at the same time: units overlap, prologues and epilogues add up. Filling the pipeline
    takes longer: one of `pieces` blocks of rows passes through all operators in turn.
    """
    work_s = max(fused_sums[_DPU_S, p], fused_sums[_FUSED_DSP, p])
    exposed_s, wait_s = fused_sums[_PROLOGUE_EPILOGUE_S, p], fused_sums[_REFILL_WAIT_S, p]
    fusion_s = overlapped_s(work_s, fused_sums[DMA_TERM_S, p], exposed_s, wait_s)
    filling_s = (fused_sums[_FUSED_APART, p] - fusion_s) / pieces
    return float(fusion_s + filling_s + fused_sums[PAUSES_S, p])


@compiled
def fused_stall_s(fused_sums: Floats, p: int) -> float:
    """Return how much longer than work and buffers allow the transfers of a row-wise fusion take (s)."""
    work_s, dma_s = max(fused_sums[_DPU_S, p], fused_sums[_FUSED_DSP, p]), fused_sums[DMA_TERM_S, p]
    return stall_s(work_s, dma_s, fused_sums[_PROLOGUE_EPILOGUE_S, p], 0.0, fused_sums[_REFILL_WAIT_S, p])
