"""Memory levels between SRAM of an array device and DRAM: the bytes that they serve, and how fast.

A level serves a tensor that it still holds when an operator reads it again, or when another operator reads
it. The bytes between two uses decide, not the address: `between` bytes are counted for each operand while a
graph is lowered (`npusim.cost.lowering.liveness`), as though all of them passed through the level.

    cache     holds the operand where  between + size <= capacity          (least recently used)
    software  holds as much of it as   capacity - between  leaves room for

Matrices that are marked to stay (CacheG) come first in a level that software manages; other operands share
the rest. Levels are inclusive: an outer one serves what no nearer one holds. Within one operator, the tiling
decides what passes between two reads of the same byte: where weights are stationary, all activations and a
block of weights. Software keeps results that only the same device reads out of DRAM; a cache writes them.

A byte passes through the memory that supplies it and through each level inside that one; these transfer at
the same time. So the bytes of an operator take as long as the busiest of DRAM, levels and DMA engines. A
level of DRAM's own bandwidth then changes no latency, and a faster one shortens the wait for DRAM. A level
slower than a memory outside it supplies nothing: data go past it.

The first piece, which overlaps with no work, is counted at the rate of DRAM. No capacity serves nothing, and
more never serves less: so more capacity is never slower.

A level that several devices share is the outermost one of each. Distances between uses count the bytes of all
these devices, and one device finds the results of another there. Parallel inferences have an even part of the
capacity each, as contexts of one device have of its own levels. All bytes of all devices, DRAM's
included, pass through the banks of the level.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from npusim.arch.array import OPERANDS
from npusim.compiling.kernels import compiled
from npusim.compiling.records import Bytes, Floats, Number, Share, Vector, dtype_of
from npusim.cost.lowering import tables
from npusim.cost.lowering.tables import ACTIVATIONS_HELD, MATMUL, OUTPUTS_HELD, WEIGHTS_HELD, OpRecord
from npusim.cost.machine.architecture import BIT_OF
from npusim.cost.units import resources
from npusim.cost.units.rates import BESIDE, LEVEL_SOURCE, LEVEL_WAIT, READ, READ_WAIT, WRITE
from npusim.cost.units.resources import LEVEL_READ_BYTES, LEVEL_WRITTEN_BYTES, LEVELS, CandidateRecord

WEIGHTS, INPUTS, OUTPUTS = (BIT_OF[name] for name in OPERANDS)


class ServedRecord:
    """Bytes of one operator that the levels of a device serve, the nearest first."""

    first_bytes: Annotated[Vector, LEVELS, "B"]
    """Bytes of first reads, by level."""
    written_bytes: Annotated[Vector, LEVELS, "B"]
    """Results that never reach DRAM, by level."""
    compulsory_bytes: Bytes
    """First reads of all operands."""
    first_share: Share
    """Share of the first reads that levels serve."""
    is_any: Number
    """1 where a level serves first reads or results, or may serve repeated reads of a tiling; else 0."""
    shared_place: Number
    """Place of the shared level, counted from 1; 0: none."""


SERVED_DTYPE = dtype_of(ServedRecord)
_ROUNDING = 1e-9


@compiled
def share_held(capacity: float, between_bytes: float, size_bytes: float, is_cache: bool) -> float:
    """Return the share of an operand that a level still holds when it is used again.

    Parameters
    ----------
    between_bytes : float
        Bytes since its last use, plus one; 0: it was not used before.
    """
    if between_bytes <= 0.0 or size_bytes <= 0.0:
        return 0.0
    room = capacity - (between_bytes - 1.0)
    if is_cache:
        return 1.0 if room >= size_bytes else 0.0
    return float(min(1.0, max(0.0, room / size_bytes)))


@compiled
def _passes(operands: float, bit: float) -> bool:
    """Return whether an operand passes through a level, given the level's operand bits."""
    return bool(np.floor(operands / bit) % 2.0 == 1.0)


@compiled
def has_levels(arch: Any) -> bool:
    """Return whether any memory level of a device has room."""
    level_bytes = 0.0
    for k in range(LEVELS):
        level_bytes += arch.level_bytes[k]
    return bool(level_bytes > 0.0)


@compiled
def _room(arch: Any, op: OpRecord, level: int) -> tuple[float, float]:
    """Return the bytes of a level for an operator, and the share of marked matrices that it holds."""
    is_shared = level + 1 == int(arch.shared_place)
    capacity = arch.level_bytes[level] / (arch.sharers if is_shared else arch.contexts)
    if arch.level_is_cache[level] > 0.0:
        return capacity, 0.0
    pinned_bytes = op.pinned_shared_bytes if is_shared else op.pinned_bytes
    return max(0.0, capacity - pinned_bytes), min(1.0, capacity / max(1.0, pinned_bytes))


@compiled
def _is_tiled(op: OpRecord) -> bool:
    """Return whether an operator is a product or convolution, whose tiling may read bytes again."""
    return bool(
        op.unit == tables.DPU and (op.dpu_operation == MATMUL or op.dpu_operation == tables.CONVOLUTION)
    )


class Repeats(NamedTuple):
    """Repeated reads of an operand under a tiling (bytes)."""

    moved: float
    """Of all reads after the first of each byte."""
    panel: float
    """Bytes of the operand between two reads of the same byte: what a level must hold."""
    beside: float
    """Other bytes that pass between them."""


@compiled
def _products(op: OpRecord) -> float:
    """Return how many products of a batch follow each other, each with operands of its own."""
    return float(op.batch if op.dpu_operation == MATMUL else 1.0)


@compiled
def repeats_of_weights(op: OpRecord, new: CandidateRecord) -> Repeats:
    """Return the repeated reads of weights: once for each block of rows, unless weights are stationary.

    A segment, whose weights stay, reads them once.
    """
    rows = new.strips * new.row_blocks
    if new.order == WEIGHTS_HELD or rows <= 1.0 or op.b_resident:
        return Repeats(0.0, 0.0, 0.0)
    blocks = 2.0 if new.order == OUTPUTS_HELD else 1.0  # of rows, which activations of both pass
    beside = (blocks * op.a_dram_bytes + op.c_dram_bytes + op.extra_dram_bytes) / rows
    return Repeats(op.b_dram_bytes * (rows - 1.0), op.b_dram_bytes / _products(op), beside / _products(op))


@compiled
def repeats_of_activations(op: OpRecord, new: CandidateRecord) -> Repeats:
    """Return the repeated reads of activations: once for each block of columns unless stationary.

    Where both operands stream, the blocks of columns of one block of rows follow each other: so what lies
    between is a block of rows.
    """
    columns, halo = new.column_blocks, resources.halo_factor(op, new.row_blocks, new.strips)
    if new.order == ACTIVATIONS_HELD or columns <= 1.0:
        return Repeats(0.0, 0.0, 0.0)
    blocks = new.strips * new.row_blocks if new.order == OUTPUTS_HELD else 1.0
    beside = op.b_dram_bytes / columns + (op.c_dram_bytes + op.extra_dram_bytes) / (columns * blocks)
    moved, panel = op.a_dram_bytes * halo * (columns - 1.0), op.a_dram_bytes * halo / blocks
    return Repeats(moved, panel / _products(op), beside / _products(op))


@compiled
def _repeats_of_borders(op: OpRecord, new: CandidateRecord) -> Repeats:
    """Return the reads of input rows and columns at borders that the neighbouring block or strip has read."""
    halo = resources.halo_factor(op, new.row_blocks, new.strips)
    if halo <= 1.0:
        return Repeats(0.0, 0.0, 0.0)
    rows = new.strips * new.row_blocks
    blocks = new.strips if new.strips > 1.0 else rows
    beside = 0.0 if new.order == WEIGHTS_HELD else op.b_dram_bytes * rows / blocks
    beside += (op.c_dram_bytes + op.extra_dram_bytes) / blocks
    moved, panel = op.a_dram_bytes * (halo - 1.0), op.a_dram_bytes * halo / blocks
    return Repeats(moved, panel / _products(op), beside / _products(op))


@compiled
def _share_again(repeats: Repeats, room: float, is_cache: bool) -> float:
    """Return the share of repeated reads that a level with `room` bytes serves."""
    if repeats.moved <= 0.0:
        return 0.0
    if is_cache:
        return 1.0 if repeats.panel + repeats.beside <= room else 0.0
    return float(min(1.0, room / repeats.panel))


@compiled
def fill_again(arch: Any, op: OpRecord, new: CandidateRecord, numbers: Floats, first: int) -> None:
    """Write the repeated reads that each memory level serves into the level bytes of a candidate.

    The tiling decides how many bytes pass between two reads of the same byte. A cache serves them if all of
    these fit. Software keeps the panel that is read again, and nothing else: of activations first, because a
    byte of them saves most, then of weights, then of borders. The numbers of the candidate start at
    `numbers[first]`.
    """
    a, b = repeats_of_activations(op, new), repeats_of_weights(op, new)
    borders, inside = _repeats_of_borders(op, new), 0.0
    footprint = op.a_triangle_bytes + op.b_dram_bytes + op.extra_dram_bytes + op.c_dram_bytes
    for k in range(LEVELS):
        again = 0.0
        if arch.level_bytes[k] > 0.0:
            is_cache, (room, pinned) = arch.level_is_cache[k] > 0.0, _room(arch, op, k)
            has_inputs = _passes(arch.level_operands[k], INPUTS)
            has_weights = _passes(arch.level_operands[k], WEIGHTS)
            if op.triangle:  # both uses of a block, which all operands may part
                moved = numbers[first + resources.READ_BYTES] - (footprint - op.c_dram_bytes)
                held = share_held(room, 1.0, footprint, is_cache) if has_inputs and has_weights else 0.0
                again = max(0.0, moved) * held
            elif _is_tiled(op):
                share_a = share_b = share_borders = 0.0
                if has_inputs:
                    share_a = _share_again(a, room, is_cache)
                    room -= 0.0 if is_cache else share_a * a.panel
                    share_a = max(share_a, pinned * op.a_pinned)
                if has_weights:
                    share_b = _share_again(b, room, is_cache)
                    room -= 0.0 if is_cache else share_b * b.panel
                    share_b = max(share_b, pinned * op.b_pinned)
                if has_inputs:
                    share_borders = max(share_a, _share_again(borders, room, is_cache))
                again = share_a * a.moved + share_b * b.moved + share_borders * borders.moved
        numbers[first + LEVEL_READ_BYTES + k] = max(0.0, again - inside)
        inside = max(inside, again)


@compiled
def assume_all_repeats_served(op: OpRecord, new: CandidateRecord) -> None:
    """Write into a bound of candidates that the first level serves all repeated reads, the most possible."""
    a_bytes = op.a_triangle_bytes if op.triangle else op.a_dram_bytes
    first_bytes = a_bytes + op.b_dram_bytes + op.extra_dram_bytes
    new.level0_read_bytes = max(0.0, new.read_bytes - first_bytes)
    new.level1_read_bytes = new.level2_read_bytes = 0.0


@compiled
def _held_bytes(
    size_bytes: float, reuse_distance: float, unpinned_room: float, pinned_share: float, is_cache: bool
) -> float:
    """Return the bytes of an operand that a level still holds, in its unpinned room or pinned.

    `reuse_distance` is `between_bytes` of `share_held`; `pinned_share` is 0 where the operand is not marked.
    """
    share = share_held(unpinned_room, reuse_distance, size_bytes, is_cache)
    return float(size_bytes * max(share, pinned_share)) if reuse_distance > 0.0 else 0.0


@compiled
def _held_reads(arch: Any, op: OpRecord, level: int, a_bytes: float) -> float:
    """Return the bytes of first reads of an operator that a level holds, of operands that pass through it."""
    is_cache, (unpinned_room, pinned_share) = arch.level_is_cache[level] > 0.0, _room(arch, op, level)
    reuse_distance = op.between_shared if level + 1 == int(arch.shared_place) else op.between
    held = 0.0
    if _passes(arch.level_operands[level], INPUTS):
        a_pinned = pinned_share * op.a_pinned
        held = _held_bytes(a_bytes, reuse_distance.a, unpinned_room, a_pinned, is_cache)
    if _passes(arch.level_operands[level], WEIGHTS):
        b_pinned = pinned_share * op.b_pinned
        held += _held_bytes(op.b_dram_bytes, reuse_distance.b, unpinned_room, b_pinned, is_cache)
        held += _held_bytes(op.extra_dram_bytes, reuse_distance.extra, unpinned_room, 0.0, is_cache)
    return float(held)


@compiled
def _held_results(arch: Any, op: OpRecord, level: int) -> float:
    """Return the bytes of results that a level keeps from DRAM until their last reader."""
    operands = arch.level_operands[level]
    is_readable = _passes(operands, OUTPUTS) and _passes(operands, INPUTS)  # readers have them as inputs
    if arch.level_is_cache[level] > 0.0 or not is_readable:
        return 0.0
    reuse_distance = op.between_shared if level + 1 == int(arch.shared_place) else op.between
    return _held_bytes(op.c_dram_bytes, reuse_distance.c, _room(arch, op, level)[0], 0.0, False)


@compiled
def fill_served(arch: Any, op: OpRecord, served: ServedRecord) -> None:
    """Fill in the bytes of an operator that each memory level of a device (ARCH_DTYPE) serves.

    A level holds an operand as far as its capacity exceeds the bytes that passed since the last use (reuse
    distance). A marked operand has pinned bytes in a level of software in their place, where these are more.
    Only software keeps results out of DRAM, and only where their readers can read them in the same level. The
    nearest level that holds a byte serves it: each level adds what nearer ones do not hold.
    """
    a_bytes = op.a_triangle_bytes if op.triangle else op.a_dram_bytes
    served.compulsory_bytes = a_bytes + op.b_dram_bytes + op.extra_dram_bytes
    read_nearer = written_nearer = 0.0
    served.is_any, served.shared_place = 0.0, arch.shared_place
    for k in range(LEVELS):
        served.first_bytes[k] = served.written_bytes[k] = 0.0
        if arch.level_bytes[k] <= 0.0:
            continue
        read, written = _held_reads(arch, op, k, a_bytes), _held_results(arch, op, k)
        served.first_bytes[k] = max(0.0, read - read_nearer)
        served.written_bytes[k] = max(0.0, written - written_nearer)
        read_nearer, written_nearer = max(read_nearer, read), max(written_nearer, written)
        served.is_any = 1.0 if read_nearer + written_nearer > 0.0 or _is_tiled(op) else served.is_any
    served.first_share = read_nearer / served.compulsory_bytes if served.compulsory_bytes > 0.0 else 0.0


@compiled
def serve_rows(arrays: Any, rows: Any, candidates: Any, row_starts: Any, served: Any) -> None:
    """Write to `served` the bytes of each operator from memory levels, and deduct them from DRAM bytes.

    DRAM bytes are those of the tiling candidates. Rows on hosts are skipped: a host models its own caches.

    Parameters
    ----------
    arrays : array of ARCH_DTYPE, shape (array devices,)
    candidates : array of CANDIDATE_DTYPE
        Candidates of row `r` are `candidates[row_starts[r] : row_starts[r + 1]]`.
    served : array of SERVED_DTYPE, shape (rows,)
        Written.
    """
    numbers = candidates.view(np.float64)
    for r in range(rows.shape[0]):
        is_served = rows[r].unit in (tables.DPU, tables.DSP, tables.DMA) and has_levels(
            arrays[rows[r].device]
        )
        if is_served:
            fill_served(arrays[rows[r].device], rows[r], served[r])
        for c in range(row_starts[r], row_starts[r + 1] if is_served else row_starts[r]):
            offset = c * resources.CANDIDATE_SIZE
            read_bytes, read_from_levels, written_to_levels = numbers[offset + resources.READ_BYTES], 0.0, 0.0
            fill_again(arrays[rows[r].device], rows[r], candidates[c], numbers, offset)
            for k in range(LEVELS):
                numbers[offset + LEVEL_READ_BYTES + k] += min(served[r].first_bytes[k], read_bytes)
                numbers[offset + LEVEL_WRITTEN_BYTES + k] = served[r].written_bytes[k]
                read_from_levels += numbers[offset + LEVEL_READ_BYTES + k]
                written_to_levels += served[r].written_bytes[k]
            numbers[offset + resources.READ_BYTES] -= read_from_levels
            numbers[offset + resources.WRITTEN_BYTES] -= written_to_levels


@compiled
def first_wait_s(served: ServedRecord, rates: Floats, point: int) -> float:
    """Return the wait for the first byte of an operator (s): DRAM and levels, weighted by their bytes."""
    wait_s = rates[READ_WAIT, point]
    if served.is_any > 0.0 and served.compulsory_bytes > 0.0:
        for k in range(LEVELS):
            share = served.first_bytes[k] / served.compulsory_bytes
            wait_s -= share * (rates[READ_WAIT, point] - rates[LEVEL_WAIT + k, point])
    return float(wait_s)


@compiled
def sourced_bytes(numbers: Floats, first: int, rates: Floats, point: int, source: int) -> float:
    """Return the level bytes of a candidate that level `source` (`LEVELS`: DRAM) supplies at a point.

    The numbers of the candidate start at `numbers[first]`.
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
    """Add the demands of a candidate at a point, over all repeats, to one row of demands.

    `candidate` is a place in the table of candidates, whose numbers are `numbers`.
    """
    first = int(candidate) * resources.CANDIDATE_SIZE
    for r in range(LEVEL_READ_BYTES):
        demands[r] += repeats * numbers[first + r]
    for k in range(LEVELS):
        source = int(rates[LEVEL_SOURCE + k, point])
        read_at = resources.READ_BYTES if source == LEVELS else LEVEL_READ_BYTES + source
        written_at = resources.WRITTEN_BYTES if source == LEVELS else LEVEL_WRITTEN_BYTES + source
        demands[read_at] += repeats * numbers[first + LEVEL_READ_BYTES + k]
        demands[written_at] += repeats * numbers[first + LEVEL_WRITTEN_BYTES + k]


@compiled
def fill_through(numbers: Floats, first: int, rates: Floats, point: int, result: tables.ResultRecord) -> None:
    """Write the bytes of a candidate that pass through each memory level; arguments as of `sourced_bytes`."""
    through = numbers[first + resources.READ_BYTES] + numbers[first + resources.WRITTEN_BYTES]
    for inward in range(LEVELS):
        k = LEVELS - 1 - inward
        through += numbers[first + LEVEL_READ_BYTES + k] + numbers[first + LEVEL_WRITTEN_BYTES + k]
        source = int(rates[LEVEL_SOURCE + k, point])
        if source < LEVELS:
            result.through_bytes[source] = through


@compiled
def sets_pace(
    arch: Any, result: tables.ResultRecord, numbers: Floats, first: int, rates: Floats, point: int
) -> bool:
    """Return whether a memory level sets the pace of a candidate's transfers, not DRAM or the DMA engines.

    Arguments as of `sourced_bytes`, after `fill_through` and `npusim.cost.units.rates.fill_beside`.
    """
    level_s = 0.0
    for k in range(LEVELS):
        if result.through_bytes[k] > 0.0:
            level_s = max(level_s, result.through_bytes[k] / arch.level_bytes_per_s[k])
    dram_s = numbers[first + resources.READ_BYTES] * rates[READ, point]
    dram_s += numbers[first + resources.WRITTEN_BYTES] * rates[WRITE, point]
    transfer_s = dram_s + rates[BESIDE, point]
    return bool(level_s > dram_s * (1.0 + _ROUNDING) and level_s >= transfer_s * (1.0 - _ROUNDING))


@compiled
def shared_bytes_per_s(arch: Any) -> float:
    """Return the bandwidth of a device's shared memory level (B/s); infinite where data go past it."""
    bytes_per_s = arch.level_bytes_per_s[int(arch.shared_place) - 1]
    return float(bytes_per_s if bytes_per_s >= arch.dram_bytes_per_s else np.inf)


@compiled
def shared_levels_s(
    arrays: Any, moved: Floats, bytes_per_s: Floats, dram_bytes_per_s: float, point: int
) -> float:
    """Return the time of the busiest shared level for the bytes of all its devices (s).

    `moved` are the bytes that pass through the level to each device, DRAM's included, `bytes_per_s` is the
    level's bandwidth; shape (array devices, points).
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
