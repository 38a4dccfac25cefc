"""MAC arrays in plain Python: walks a loop nest step by step, and looks at which elements are where.

Nothing of `npusim.cost.units.arrays` is used. A level's instance holds the elements that the innermost loops
it was given touch; whenever another set is needed, all of it is moved. Sizes must divide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

LOOPS = ("B", "G", "K", "C", "OY", "OX", "FY", "FX")


@dataclass
class Walk:
    """One order of a nest on an array."""

    order: Sequence[tuple[str, int]]
    """(loop, factor), innermost first."""
    axes: Sequence[tuple[str, int]]
    """(loop, lanes) of each axis."""
    spans: Sequence[Sequence[bool]]
    """For each level of the operand: which axes share an instance."""
    cuts: Sequence[int]
    """Innermost factors that each level holds."""
    stride: int = 1


def element(operand: str, at: dict[str, int], stride: int) -> tuple[int, ...]:
    """Return which element of an operand a step works with."""
    if operand == "W":
        return (at["G"], at["K"], at["C"], at["FY"], at["FX"])
    if operand == "O":
        return (at["B"], at["G"], at["K"], at["OY"], at["OX"])
    return (at["B"], at["G"], at["C"], at["OY"] * stride + at["FY"], at["OX"] * stride + at["FX"])


def _indices(walk: Walk, counters: Sequence[int], lanes: Sequence[int]) -> dict[str, int]:
    """Return the index of each loop: lanes vary fastest, then factors from the innermost."""
    at, weight = dict.fromkeys(LOOPS, 0), dict.fromkeys(LOOPS, 1)
    for (loop, count), lane in zip(walk.axes, lanes, strict=True):
        at[loop] += lane * weight[loop]
        weight[loop] *= count
    for (loop, factor), counter in zip(walk.order, counters, strict=True):
        at[loop] += counter * weight[loop]
        weight[loop] *= factor
    return at


def steps(walk: Walk) -> Iterator[tuple[int, ...]]:
    """Yield the counters of all steps in time, innermost factor first."""
    for outer in product(*(range(factor) for _, factor in reversed(walk.order))):
        yield tuple(reversed(outer))


def _instances(walk: Walk, place: int) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    """Return the lanes of each instance of a level; place -1 stands for the PEs."""
    found: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for lanes in product(*(range(count) for _, count in walk.axes)):
        spans = walk.spans[place] if place >= 0 else [False] * len(walk.axes)
        name = tuple(lane for lane, inside in zip(lanes, spans, strict=True) if not inside)
        found.setdefault(name, []).append(lanes)
    return found


def moved(walk: Walk, operand: str, place: int) -> tuple[int, int]:
    """Return elements (written into all instances below a level, read from all instances of the level)."""
    held_loops = walk.cuts[place - 1] if place > 0 else 0
    below, above = _instances(walk, place - 1), _instances(walk, place)
    below_total = above_total = 0
    last: dict[tuple[int, ...], frozenset[tuple[int, ...]]] = {}
    inner = list(product(*(range(factor) for _, factor in walk.order[:held_loops])))
    for counters in steps(walk):
        if any(counters[:held_loops]):
            continue
        needed = {}
        for name, members in below.items():
            needed[name] = frozenset(
                element(operand, _indices(walk, (*part, *counters[held_loops:]), lanes), walk.stride)
                for part in inner
                for lanes in members
            )
        if needed == last:
            continue
        last = needed
        below_total += sum(len(one) for one in needed.values())
        for members in above.values():
            under = {name for name, lanes in below.items() if set(lanes) & set(members)}
            above_total += len(frozenset().union(*(needed[name] for name in under)))
    return below_total, above_total


def covered(windows: Sequence[tuple[int, int]]) -> int:
    """Return the cycles of the longest period that lie in the window at the start of some period."""
    longest = max(period for period, _ in windows)
    return sum(any(cycle % period < may for period, may in windows) for cycle in range(longest))
