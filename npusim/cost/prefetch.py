"""Prefetch over operators: idle DMA engines fetch weights of later operators into free SRAM.

An operator stalls where its transfers take longer than its work. Constants and inputs of the network exist
before the inference begins, so earlier operators that leave the engines idle can fetch them. The schedule
goes through the operators of a device in the order of execution. An operator that stalls takes idle time of
the engines from the operators before it, the latest first. What it fetches waits in SRAM: all operators in
between must leave room for it. The first operator after a call of the runtime starts anew: the NPU's work
ends there. Each second of transfers that moves to an idle time saves a second.

With as many bytes of SRAM a second for all operators, no schedule saves more: the latest idle time holds SRAM
for the shortest time, and what an early operator leaves idle a later one can use. With broadcasts to several
tiles for some operators and not for others a schedule may save more. Mappings of operators do not depend on
the schedule. Each operator is visited once: idle times that are used up leave a stack for good, and where no
room is left the stack is empty.

A row-wise fusion is one operator to the schedule. It stalls where the transfers of all its operators take
longer than its work, and as long as these would stall one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.cost.kernels import compiled, compiled_making_arrays
from npusim.cost.plans import PlanTable
from npusim.cost.records import Bytes, Floats, Ints, Seconds, dtype_of
from npusim.cost.terms import (
    BEST_S,
    DMA_TERM_S,
    FUSED_SUMS,
    HELD_PER_S,
    OWN_ROOM,
    PAUSES_S,
    ROOM,
    STALL_S,
    add_fused,
    fused_chain_s,
    fused_stall_s,
)

_LEAST_BYTES = 1.0
"""Room that is none."""


class TransferRecord:
    """A transfer that one operator makes for a later one."""

    during: int
    """Operator while which the engines fetch."""
    operator: int
    """Operator that stalls less; -1 behind the last transfer."""
    seconds: Seconds
    """Time of the engines."""
    held_bytes: Bytes
    """SRAM of all tiles that the bytes take until the operator ends."""
    is_own: int
    """1 where they lie in a buffer of the operator's own tiling, which it fills once."""


TRANSFER_DTYPE = dtype_of(TransferRecord)


class Prefetch(NamedTuple):
    """Scratch of a schedule, and what it saves."""

    saved_s: Floats
    """Time saved on each array device, shape (array devices, columns)."""
    chain_idle_s: Floats
    """Idle time of the engines in each row-wise fusion, at its last operator; shape (operators, columns)."""
    chain_stall_s: Floats
    """Stall of each row-wise fusion, likewise."""
    fused_sums: Floats
    """Shape (FUSED_SUMS, columns)."""
    stack: Floats
    """Stack of idle times: idle time (s), least room from then to the next entry (bytes), time taken (s);
    shape (3, operators + 1)."""
    operator: Ints
    """Operator of each entry."""


class Progress(NamedTuple):
    """Entries of the stack, transfers so far, bytes that the operator holds beside its buffers."""

    entries: int
    transfers: int
    held_bytes: float


_IDLE_S, _ROOM, _MOVED_S = range(3)


@compiled_making_arrays
def new_prefetch(arrays: int, operators: int, columns: int) -> Prefetch:
    """Return empty storage for schedules."""
    return Prefetch(
        np.zeros((arrays, columns)),
        np.empty((operators, columns)),
        np.empty((operators, columns)),
        np.empty((FUSED_SUMS, columns)),
        np.empty((3, operators + 1)),
        np.empty(operators + 1, np.int64),
    )


@compiled
def fill_chains(
    table: PlanTable, family: int, row_of: Ints, terms: Floats, dsp_s: Floats, arrays: Any, scratch: Prefetch
) -> None:
    """Write idle time of the engines and stall of each row-wise fusion of a plan, at each point."""
    leaf_op, points, sums = table.leaf_op[family], dsp_s.shape[1], scratch.fused_sums
    for leaf in range(leaf_op.shape[0]):
        count = -leaf_op[leaf]
        if count <= 0 or count > leaf:
            continue
        last = leaf_op[leaf - 1]
        sums[:] = 0.0
        for member in range(leaf - count, leaf):
            o = leaf_op[member]
            add_fused(terms[row_of[o]], dsp_s[o], points, sums)
        pieces = arrays[table.array_of[last]].stream_pieces
        for p in range(points):
            busy_s = sums[DMA_TERM_S, p] + sums[PAUSES_S, p]
            scratch.chain_idle_s[last, p] = max(0.0, fused_chain_s(sums, pieces, p) - busy_s)
            scratch.chain_stall_s[last, p] = fused_stall_s(sums, p)


@compiled
def schedule(
    table: PlanTable, family: int, row_of: Ints, terms: Floats, p: int, scratch: Prefetch, transfers: Any
) -> None:
    """Write the time that prefetch saves at one point under a plan; call `fill_chains` before.

    Parameters
    ----------
    terms : array of float64, shape (rows, TERMS, columns)
    transfers : array of TRANSFER_DTYPE
        Written: all transfers, two for each operator at the most. Empty: they are not wanted.
    """
    chain_leaf, leaf_op, stack = table.chain_leaf[family], table.leaf_op[family], scratch.stack
    scratch.saved_s[:, p] = 0.0
    progress: Any = Progress(0, 0, 0.0)
    for o in range(row_of.shape[0]):
        r, d, leaf = row_of[o], table.array_of[o], chain_leaf[o]
        progress = Progress(0 if table.rows[r].launches > 0.0 else progress.entries, progress.transfers, 0.0)
        if d < 0 or (leaf >= 0 and leaf_op[leaf - 1] != o):
            continue
        if leaf < 0:
            room = terms[r, ROOM, p]
            idle_s = max(0.0, terms[r, BEST_S, p] - terms[r, PAUSES_S, p] - terms[r, DMA_TERM_S, p])
            stall_s = terms[r, STALL_S, p]
            progress = _prefetch(terms[r], p, stall_s, o, d, progress, scratch, transfers)
        else:
            room, idle_s, stall_s = np.inf, scratch.chain_idle_s[o, p], scratch.chain_stall_s[o, p]
            for place in range(leaf + leaf_op[leaf], leaf):
                member = leaf_op[place]
                of_member = terms[row_of[member]]
                room, own_s = min(room, of_member[ROOM, p]), min(stall_s, of_member[STALL_S, p])
                progress = _prefetch(of_member, p, own_s, member, d, progress, scratch, transfers)
                stall_s -= own_s
        top, room = progress.entries, room - progress.held_bytes
        if room <= _LEAST_BYTES:
            progress = Progress(0, progress.transfers, 0.0)
        elif idle_s > 0.0:
            stack[_IDLE_S, top], stack[_ROOM, top], scratch.operator[top] = idle_s, room, o
            progress = Progress(top + 1, progress.transfers, 0.0)
        elif top > 0:
            stack[_ROOM, top - 1] = min(stack[_ROOM, top - 1], room)
    if progress.transfers < transfers.shape[0]:
        transfers[progress.transfers].operator = -1


@compiled
def _prefetch(
    terms: Floats,
    p: int,
    stall_s: float,
    operator: int,
    device: int,
    progress: Progress,
    scratch: Prefetch,
    transfers: Any,
) -> Progress:
    """Move transfers of an operator to idle times before it, the latest first, for a stall at most."""
    stack, level, top, count = scratch.stack, progress.entries, progress.entries, progress.transfers
    all_held_bytes = progress.held_bytes
    held_per_s, own_room = terms[HELD_PER_S, p], terms[OWN_ROOM, p]
    reach_s = (own_room - all_held_bytes) / held_per_s if stall_s > 0.0 else 0.0
    while stall_s > 0.0 and level > 0 and reach_s > 0.0:
        level -= 1
        reach_s = min(reach_s, stack[_ROOM, level] / held_per_s)
        moved_s = min(min(stack[_IDLE_S, level], stall_s), reach_s)
        stack[_MOVED_S, level] = moved_s
        stack[_IDLE_S, level] -= moved_s
        stall_s -= moved_s
        reach_s -= moved_s
        scratch.saved_s[device, p] += moved_s
        if count < transfers.shape[0] and moved_s > 0.0:
            transfer = transfers[count]
            transfer.during, transfer.operator = scratch.operator[level], operator
            transfer.seconds, transfer.held_bytes = moved_s, moved_s * held_per_s
            transfer.is_own = 1 if own_room == np.inf else 0
            count += 1
    if level < top:  # entries above `level` are used up: one entry remains, with the least room
        held_bytes, least_room = 0.0, np.inf
        for entry in range(level, top):
            held_bytes += stack[_MOVED_S, entry] * held_per_s
            least_room = min(least_room, stack[_ROOM, entry] - held_bytes)
        stack[_ROOM, level] = least_room
        top = level + 1 if least_room > _LEAST_BYTES else 0
        all_held_bytes += held_bytes if own_room < np.inf else 0.0
    return Progress(top, count, all_held_bytes)
