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

from npusim.compiling.kernels import compiled, compiled_making_arrays
from npusim.compiling.records import Bytes, Floats, Ints, Seconds, dtype_of
from npusim.cost.network.plan_costs import fused_s, fused_stall_s, fused_work
from npusim.cost.network.terms import Costing, Terms

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
    """Scratch of a schedule, and what it saves.

    The stack has an entry for each idle time of the engines: during which operator it is, how long, how long
    the operator that is being scheduled uses it, and the least room from then to the next entry.
    """

    saved_s: Floats
    """Time saved on each array device, shape (array devices, columns)."""
    during: Ints
    idle_s: Floats
    moved_s: Floats
    room_bytes: Floats
    transfers: Any
    """Transfers of the latest schedule, two for each operator at the most, array of TRANSFER_DTYPE."""


class Progress(NamedTuple):
    """Entries of the stack, transfers so far, bytes that the operator holds beside its buffers."""

    entries: int
    transfers: int
    held_bytes: float


@compiled_making_arrays
def new_prefetch(arrays: int, operators: int, columns: int) -> Prefetch:
    """Return empty storage for schedules."""
    stack, during = np.empty((3, operators + 1)), np.empty(operators + 1, np.int64)
    transfers = np.zeros(1 + 2 * operators, TRANSFER_DTYPE)
    return Prefetch(np.zeros((arrays, columns)), during, stack[0], stack[1], stack[2], transfers)


@compiled
def schedule(costing: Costing, family: int, arrays: Any, p: int, scratch: Prefetch) -> None:
    """Write the transfers at one point under the latest plan, and the time that they save."""
    table, row_of, terms = costing.table, costing.row_of, costing.terms
    chain_leaf, leaf_op = table.chain_leaf[family], table.leaf_op[family]
    scratch.saved_s[:, p] = 0.0
    progress: Any = Progress(0, 0, 0.0)
    for o in range(row_of.shape[0]):
        r, d, leaf = row_of[o], table.array_of[o], chain_leaf[o]
        progress = Progress(0 if table.rows[r].launches > 0.0 else progress.entries, progress.transfers, 0.0)
        if d < 0 or (leaf >= 0 and leaf_op[leaf - 1] != o):
            continue
        if leaf < 0:
            repeats, room = table.rows[r].repeats, terms.room_bytes[r, p]
            working_s = repeats * terms.best_s[r, p] - repeats * terms.pauses_s[r, p]
            idle_s = max(0.0, working_s - repeats * terms.dma_s[r, p])
            progress = _prefetch(terms, r, p, terms.stall_s[r, p], o, d, progress, scratch)
        else:
            members = leaf_op[leaf + leaf_op[leaf] : leaf]
            work, room = fused_work(costing, members, p), np.inf
            fusion_s, stall_s = fused_s(work, arrays[d].stream_pieces), fused_stall_s(work)
            idle_s = max(0.0, fusion_s - (work.dma_s + work.pauses_s))
            for i in range(members.shape[0]):
                row = row_of[members[i]]
                room, own_s = min(room, terms.room_bytes[row, p]), min(stall_s, terms.stall_s[row, p])
                progress = _prefetch(terms, row, p, own_s, members[i], d, progress, scratch)
                stall_s -= own_s
        top, room = progress.entries, room - progress.held_bytes
        if room <= _LEAST_BYTES:
            progress = Progress(0, progress.transfers, 0.0)
        elif idle_s > 0.0:
            scratch.idle_s[top], scratch.room_bytes[top], scratch.during[top] = idle_s, room, o
            progress = Progress(top + 1, progress.transfers, 0.0)
        elif top > 0:
            scratch.room_bytes[top - 1] = min(scratch.room_bytes[top - 1], room)
    scratch.transfers[progress.transfers].operator = -1


@compiled
def _prefetch(
    terms: Terms,
    r: int,
    p: int,
    stall_s: float,
    operator: int,
    device: int,
    progress: Progress,
    scratch: Prefetch,
) -> Progress:
    """Move transfers of an operator to idle times before it, the latest first, for a stall at most."""
    level, top, count = progress.entries, progress.entries, progress.transfers
    idle_s, room_bytes, all_held_bytes = scratch.idle_s, scratch.room_bytes, progress.held_bytes
    held_per_s, own_room = terms.held_bytes_per_s[r, p], terms.own_room_bytes[r, p]
    reach_s = (own_room - all_held_bytes) / held_per_s if stall_s > 0.0 else 0.0
    while stall_s > 0.0 and level > 0 and reach_s > 0.0:
        level -= 1
        reach_s = min(reach_s, room_bytes[level] / held_per_s)
        moved_s = min(min(idle_s[level], stall_s), reach_s)
        scratch.moved_s[level] = moved_s
        idle_s[level] -= moved_s
        stall_s -= moved_s
        reach_s -= moved_s
        scratch.saved_s[device, p] += moved_s
        if moved_s > 0.0:
            transfer = scratch.transfers[count]
            transfer.during, transfer.operator = scratch.during[level], operator
            transfer.seconds, transfer.held_bytes = moved_s, moved_s * held_per_s
            transfer.is_own = 1 if own_room == np.inf else 0
            count += 1
    if level < top:  # entries above `level` are used up: one entry remains, with the least room
        held_bytes, least_room = 0.0, np.inf
        for entry in range(level, top):
            held_bytes += scratch.moved_s[entry] * held_per_s
            least_room = min(least_room, room_bytes[entry] - held_bytes)
        room_bytes[level] = least_room
        top = level + 1 if least_room > _LEAST_BYTES else 0
        all_held_bytes += held_bytes if own_room < np.inf else 0.0
    return Progress(top, count, all_held_bytes)
