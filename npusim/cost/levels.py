"""Memory levels between the SRAM of an array device and DRAM: which bytes they serve, and how fast.

A tensor that an operator reads again, or that one operator hands to another, is served by a level that still
holds it. What passes between two uses decides that, not where it lies: `between` bytes are counted for each
operand while a graph is lowered (`npusim.cost.liveness`), as though all of them went through the level.

    cache     holds the operand where  between + size <= capacity          (least recently used is replaced)
    software  holds as much of it as   capacity - between  leaves room for

Matrices that are marked to stay (CacheG) come first in a level that software manages: they share it, and the
rest is left to the others. Within one operator, what is fetched again passes all of the operator's operands
and results in between. Levels are inclusive: an outer one serves what no nearer one holds. Results that
only the same device reads need never reach DRAM where software knows that; a cache writes them back.

The first piece, which nothing hides, is counted at DRAM's rate (`npusim.cost.rates` has those of levels). No
capacity serves nothing, and more of it never less: so it is never slower.

A level that several devices share is the outermost one of each. What all of them touch passes through it, so
distances between uses are counted over all of them, and what one makes the other finds there. Inferences that
work side by side have an even part of its capacity each, as contexts of one device have of its own levels.
What all devices move through it takes as long as its banks need for it, as with DRAM.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from npusim.arch.array import OPERANDS
from npusim.cost.candidates import CANDIDATE_SIZE
from npusim.cost.kernels import compiled
from npusim.cost.rates import LEVEL_SOURCE, LEVEL_WAIT, READ_WAIT
from npusim.cost.records import Bytes, Floats, Number, Share, Vector, dtype_of
from npusim.cost.resources import LEVEL_READ_BYTES, LEVEL_WRITTEN_BYTES, LEVELS, READ_BYTES, WRITTEN_BYTES
from npusim.cost.tables import Between, OpRecord, Unit

_DPU, _DSP, _DMA = (int(u) for u in (Unit.DPU, Unit.DSP, Unit.DMA))

BIT_OF = {name: float(1 << i) for i, name in enumerate(OPERANDS)}
"""Bit of each operand that may pass through a level."""
WEIGHTS, INPUTS, OUTPUTS = (BIT_OF[name] for name in OPERANDS)


class ServedRecord:
    """What the levels of a device serve of one operator, the nearest first."""

    first_bytes: Annotated[Vector, LEVELS, "B"]
    """Of what is read for the first time, by level."""
    again_share: Annotated[Vector, LEVELS, "share"]
    """Share of what is read again, by level."""
    written_bytes: Annotated[Vector, LEVELS, "B"]
    """Of what is written and never needs to reach DRAM, by level."""
    compulsory_bytes: Bytes
    """What is read for the first time."""
    first_share: Share
    """Share of it that levels serve."""
    is_any: Number
    """Whether any level serves anything; 0 or 1."""
    shared_place: Number
    """Place of the level that several devices share, counted from 1; 0: there is none."""


SERVED_DTYPE = dtype_of(ServedRecord)


@compiled
def share_held(capacity: float, between_bytes: float, size_bytes: float, is_cache: bool) -> float:
    """Return the share of an operand that a level still holds when it is used again.

    Parameters
    ----------
    between_bytes : float
        What passed since its last use, and one byte more; 0: it was not used before.
    """
    if between_bytes <= 0.0 or size_bytes <= 0.0:
        return 0.0
    room = capacity - (between_bytes - 1.0)
    if is_cache:
        return 1.0 if room >= size_bytes else 0.0
    return float(min(1.0, max(0.0, room / size_bytes)))


@compiled
def _passes(operands: float, bit: float) -> bool:
    """Whether an operand passes through a level."""
    return bool(np.floor(operands / bit) % 2.0 == 1.0)


@compiled
def compulsory_bytes(op: OpRecord) -> float:
    """Return what an operator reads from outside SRAM at least: each operand once, of a triangle its half."""
    left = op.a_triangle_bytes if op.triangle else op.a_dram_bytes
    return float(left + op.b_dram_bytes + op.extra_dram_bytes)


@compiled
def _between(op: OpRecord, is_shared: bool) -> Between:
    return op.between_shared if is_shared else op.between


@compiled
def fill_served(arch: Any, op: OpRecord, served: ServedRecord) -> None:
    """Fill in what the levels of a device serve of one operator.

    Parameters
    ----------
    arch : record of ARCH_DTYPE
        Of its capacity each of the inferences that work side by side has its part.
    """
    left = op.a_triangle_bytes if op.triangle else op.a_dram_bytes
    served.compulsory_bytes = compulsory_bytes(op)
    first = again = written = 0.0
    served.is_any, served.shared_place = 0.0, arch.shared_place
    for k in range(LEVELS):
        served.first_bytes[k] = served.again_share[k] = served.written_bytes[k] = 0.0
        if arch.level_bytes[k] <= 0.0:
            continue
        is_shared, operands = k + 1 == int(arch.shared_place), arch.level_operands[k]
        capacity = arch.level_bytes[k] / (arch.sharers if is_shared else arch.contexts)
        passed = _between(op, is_shared)
        is_cache = arch.level_is_cache[k] > 0.0
        pinned_bytes = op.pinned_shared_bytes if is_shared else op.pinned_bytes
        pinned = 0.0 if is_cache else min(1.0, capacity / max(1.0, pinned_bytes))
        rest = capacity if is_cache else max(0.0, capacity - pinned_bytes)
        a = b = extra = c = 0.0
        if _passes(operands, INPUTS):
            a = left * share_held(rest, passed.a, left, is_cache)
            if op.a_pinned > 0.0 and passed.a > 0.0:
                a = max(a, left * pinned)
        if _passes(operands, WEIGHTS):
            b = op.b_dram_bytes * share_held(rest, passed.b, op.b_dram_bytes, is_cache)
            if op.b_pinned > 0.0 and passed.b > 0.0:
                b = max(b, op.b_dram_bytes * pinned)
            extra = op.extra_dram_bytes * share_held(rest, passed.extra, op.extra_dram_bytes, is_cache)
        if not is_cache and _passes(operands, OUTPUTS) and _passes(operands, INPUTS):
            c = op.c_dram_bytes * share_held(rest, passed.c, op.c_dram_bytes, False)
        footprint = served.compulsory_bytes + op.c_dram_bytes
        held = share_held(rest, 1.0, footprint, is_cache) if _passes(operands, INPUTS) else 0.0
        if not _passes(operands, WEIGHTS):
            held = 0.0
        served.first_bytes[k] = max(0.0, a + b + extra - first)
        served.again_share[k] = max(0.0, held - again)
        served.written_bytes[k] = max(0.0, c - written)
        first, again, written = max(first, a + b + extra), max(again, held), max(written, c)
        served.is_any = 1.0 if first + again + written > 0.0 else served.is_any
    served.first_share = first / served.compulsory_bytes if served.compulsory_bytes > 0.0 else 0.0


@compiled
def fill_all_served(arrays: Any, rows: Any, served: Any) -> None:
    """Fill in what levels serve of each row of an operator table; hosts have levels of their own.

    Parameters
    ----------
    arrays : array of ARCH_DTYPE, shape (array devices,)
    """
    for r in range(rows.shape[0]):
        if rows[r].unit in (_DPU, _DSP, _DMA):
            fill_served(arrays[rows[r].device], rows[r], served[r])


@compiled
def serve(candidates: Any, row_starts: Any, served: Any) -> None:
    """Have the levels serve the mapping candidates what they hold: it is no demand on DRAM any more.

    Parameters
    ----------
    candidates : array of CANDIDATE_DTYPE
        Candidates of row `r` are `candidates[row_starts[r] : row_starts[r + 1]]`; nothing of them is served
        yet.
    served : array of SERVED_DTYPE, shape (rows,)
    """
    numbers = candidates.view(np.float64)
    for r in range(served.shape[0]):
        if served[r].is_any > 0.0:
            for c in range(row_starts[r], row_starts[r + 1]):
                first = c * CANDIDATE_SIZE
                read, from_levels, to_levels = numbers[first + READ_BYTES], 0.0, 0.0
                again = max(0.0, read - served[r].compulsory_bytes)
                for k in range(LEVELS):
                    near = min(served[r].first_bytes[k], read) + served[r].again_share[k] * again
                    numbers[first + LEVEL_READ_BYTES + k] = near
                    numbers[first + LEVEL_WRITTEN_BYTES + k] = served[r].written_bytes[k]
                    from_levels += near
                    to_levels += served[r].written_bytes[k]
                numbers[first + READ_BYTES] -= from_levels
                numbers[first + WRITTEN_BYTES] -= to_levels


@compiled
def first_wait_s(served: ServedRecord, rates: Floats, point: int) -> float:
    """Return the wait for an operator's first byte: of what levels serve, theirs, in proportion (s).

    Parameters
    ----------
    rates : array of float64, shape (RATES, points)
    """
    wait_s = rates[READ_WAIT, point]
    if served.is_any > 0.0 and served.compulsory_bytes > 0.0:
        for k in range(LEVELS):
            share = served.first_bytes[k] / served.compulsory_bytes
            wait_s -= share * (rates[READ_WAIT, point] - rates[LEVEL_WAIT + k, point])
    return float(wait_s)


@compiled
def sourced_bytes(numbers: Floats, first: int, rates: Floats, point: int, source: int) -> float:
    """Return the bytes of levels that one of them supplies at a point, or DRAM (`LEVELS`).

    Parameters
    ----------
    numbers : array of float64
        The table of candidates as numbers; the candidate begins at `first`.
    """
    total = 0.0
    for k in range(LEVELS):
        if int(rates[LEVEL_SOURCE + k, point]) == source:
            total += numbers[first + LEVEL_READ_BYTES + k] + numbers[first + LEVEL_WRITTEN_BYTES + k]
    return float(total)


@compiled
def add_candidate_demands(
    numbers: Floats, candidate: float, repeats: float, rates: Floats, point: int, demands: Floats
) -> None:
    """Add to a vector of demands what a mapping candidate needs at a point, each time its operator runs.

    Parameters
    ----------
    candidate : float
        Its place in the table of candidates, whose numbers are `numbers`.
    rates : array of float64, shape (RATES, points)
    demands : array of float64, shape (COUNT,)
    """
    first = int(candidate) * CANDIDATE_SIZE
    for r in range(LEVEL_READ_BYTES):
        demands[r] += repeats * numbers[first + r]
    for k in range(LEVELS):
        source = int(rates[LEVEL_SOURCE + k, point])
        read_at = READ_BYTES if source == LEVELS else LEVEL_READ_BYTES + source
        written_at = WRITTEN_BYTES if source == LEVELS else LEVEL_WRITTEN_BYTES + source
        demands[read_at] += repeats * numbers[first + LEVEL_READ_BYTES + k]
        demands[written_at] += repeats * numbers[first + LEVEL_WRITTEN_BYTES + k]


@compiled
def shared_bytes_per_s(arch: Any) -> float:
    """Return what the level moves that a device shares (B/s); as everywhere, no less than DRAM."""
    return float(max(arch.level_bytes_per_s[int(arch.shared_place) - 1], arch.dram_bytes_per_s))


@compiled
def shared_levels_s(
    arrays: Any, moved: Floats, bytes_per_s: Floats, dram_bytes_per_s: float, point: int
) -> float:
    """Return the time that the busiest level needs for what all devices move that share it (s).

    Parameters
    ----------
    arrays : array of ARCH_DTYPE, shape (array devices,)
        Which level each of them shares.
    moved : array of float64, shape (array devices, points)
        Bytes of each device.
    bytes_per_s : array of float64, shape (array devices, points)
        What the level moves that each device shares; as everywhere, no less than DRAM.
    """
    longest_s = 0.0
    for d in range(arrays.shape[0]):
        if arrays[d].shared_place == 0.0:
            continue
        total = 0.0
        for other in range(arrays.shape[0]):
            if arrays[other].shared_level == arrays[d].shared_level:
                total += moved[other, point]
        longest_s = max(longest_s, total / max(bytes_per_s[d, point], dram_bytes_per_s))
    return float(longest_s)
