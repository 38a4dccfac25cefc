"""Orders of the temporal loops: the candidates of the search over tilings.

What is left of each loop after unrolling is cut into prime factors, and these are merged, the two smallest of
the loop that has most, until `MOST_FACTORS` are left (or one a loop). A candidate is an order of these
factors, the innermost first; where it is cut into what each level holds follows (`allocation`). So the
candidates are all distinct orders, 720 at most.

Why these suffice. Which elements move, and how often, depends on two things alone: which loops run inside
the part of a tensor that a level holds, and in which order the others run outside. Both are settled by an
order of factors and a cut through it at each level, so every tiling whose sizes are products of the factors
is among the candidates, and the search over them is complete: no pruning, no random start. What is left out
are tilings with factors that were merged, and tiles that do not divide a loop. A dataflow that keeps an
operand in the PEs has all loops that do not concern it run inside the others, which leaves fewer orders.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.arrays.loops import (
    BATCH,
    GROUPS,
    INPUT_CHANNELS,
    KERNEL_HEIGHT,
    KERNEL_WIDTH,
    LOOP_COUNT,
    OPERAND_COUNT,
    OUTPUT_CHANNELS,
    OUTPUT_HEIGHT,
    OUTPUT_WIDTH,
    is_irrelevant,
)
from npusim.cost.arrays.machine import ArrayRecord
from npusim.cost.jit import compiled, compiled_making_arrays

MOST_FACTORS = 6
"""Factors that all loops together are cut into; a tool that searches the same orders has the same limit."""

_LONGEST = 64
_TURNS = np.array(
    [
        OUTPUT_CHANNELS, GROUPS, OUTPUT_WIDTH, OUTPUT_HEIGHT, INPUT_CHANNELS, KERNEL_WIDTH, KERNEL_HEIGHT,
        BATCH,
    ],
    np.int64,
)  # fmt: skip
"""Which of loops with equally many factors has two of them merged first."""


@compiled_making_arrays
def loop_factors(steps: Any, most: int) -> tuple[Any, Any]:
    """Cut loops into factors and merge them.

    Parameters
    ----------
    steps : array of float64, shape (LOOP_COUNT,)
    most : int
        Factors of all loops together, but never less than one a loop.

    Returns
    -------
    loops : array of int64, shape (factors,)
        Loop of each factor.
    factors : array of float64, shape (factors,)
    """
    of = np.zeros((LOOP_COUNT, _LONGEST))
    counts = np.zeros(LOOP_COUNT, np.int64)
    total = loops = 0
    for loop in range(LOOP_COUNT):
        rest, prime = steps[loop], 2.0
        while rest > 1.0:
            if prime * prime > rest:
                prime = rest
            if np.floor(rest / prime) * prime == rest:
                of[loop, counts[loop]] = prime
                counts[loop] += 1
                rest = rest / prime
            else:
                prime += 1.0
        total += counts[loop]
        loops += 1 if counts[loop] > 0 else 0
    while total > max(most, loops):
        _merge(of, counts)
        total -= 1
    return _flat(of, counts, total)


@compiled
def _merge(of: Any, counts: Any) -> None:
    """Merge the two smallest factors of the loop that has most."""
    longest = _TURNS[0]
    for loop in _TURNS:
        if counts[loop] > counts[longest]:
            longest = loop
    last = counts[longest] - 1
    product = of[longest, 0] * of[longest, 1]
    place = 0
    while place < last - 1 and of[longest, place + 2] < product:
        of[longest, place] = of[longest, place + 2]
        place += 1
    for later in range(place + 1, last):
        of[longest, later] = of[longest, later + 1]
    of[longest, place] = product
    counts[longest] = last


@compiled_making_arrays
def _flat(of: Any, counts: Any, total: int) -> tuple[Any, Any]:
    """List the factors of all loops, loop by loop, ascending."""
    loops, factors = np.zeros(total, np.int64), np.ones(total)
    place = 0
    for loop in range(LOOP_COUNT):
        for i in range(counts[loop]):
            loops[place], factors[place] = loop, of[loop, i]
            place += 1
    return loops, factors


@compiled
def next_order(loops: Any, factors: Any) -> bool:
    """Rearrange factors to the next distinct order; False after the last, which is a descending one."""
    last = loops.shape[0] - 1
    place = last - 1
    while place >= 0 and not _is_before(loops, factors, place, place + 1):
        place -= 1
    if place < 0:
        return False
    other = last
    while not _is_before(loops, factors, place, other):
        other -= 1
    _swap(loops, factors, place, other)
    low, high = place + 1, last
    while low < high:
        _swap(loops, factors, low, high)
        low, high = low + 1, high - 1
    return True


@compiled
def _is_before(loops: Any, factors: Any, a: int, b: int) -> bool:
    return bool(loops[a] < loops[b] or (loops[a] == loops[b] and factors[a] < factors[b]))


@compiled
def _swap(loops: Any, factors: Any, a: int, b: int) -> None:
    loops[a], loops[b] = loops[b], loops[a]
    factors[a], factors[b] = factors[b], factors[a]


@compiled
def is_allowed(machine: ArrayRecord, loops: Any) -> bool:
    """Whether a dataflow allows an order: what keeps its operand in place runs inside everything else."""
    place, count = 0, loops.shape[0]
    inner = 0
    for loop in range(LOOP_COUNT):
        if machine.inner[loop] > 0.0:
            for i in range(count):
                inner += 1 if loops[i] == loop else 0
    while place < inner:
        if machine.inner[loops[place]] == 0.0:
            return False
        place += 1
    stays = int(machine.stationary)
    if stays >= OPERAND_COUNT:
        return True
    has_moved = False
    for i in range(count):
        if not is_irrelevant(stays, loops[i]):
            has_moved = True
        elif has_moved:
            return False
    return True
