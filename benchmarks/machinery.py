"""Processor time of a sweep with and without parts of its machinery: `python benchmarks/machinery.py CASE`.

`front` evaluates the first 4 million points of the shipped space for its front, with and without pruning of
dominated batches. `points` evaluates four ranges of it with the traversal order in boxes and in order of
numbers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from npusim.cost import BLOCK, TOTAL_DTYPE
from npusim.explore import points
from npusim.explore.campaign import Campaign
from npusim.explore.spaces import load_space

_CHUNK, _TURNS = 1 << 19, 3


def seconds(work: Callable[[], Any]) -> float:
    """Return the processor time of a call (s)."""
    started = time.process_time()
    work()
    return time.process_time() - started


def by_number(values: Any, is_rated: Any) -> tuple[Any, Any]:
    """Return all combinations in the order of their numbers, in place of `npusim.explore.points.in_boxes`."""
    count = int(np.prod([len(axis) for axis in values]))
    return np.arange(count), np.append(np.arange(0, count, BLOCK), count)


def main() -> None:
    """Measure one case by turns."""
    numba.set_num_threads(1)
    room, boxes = np.empty(_CHUNK, TOTAL_DTYPE), points.in_boxes
    starts = range(0, 8 * _CHUNK, _CHUNK) if sys.argv[1] == "front" else (0, 2_000_000, 7_000_000, 11_000_000)
    for _ in range(_TURNS):
        for is_with in (True, False):
            points.in_boxes = boxes if is_with or sys.argv[1] == "front" else by_number
            campaign = Campaign(load_space("gcn-cora"))
            campaign.totals(0, 2000, room)
            for_front = is_with and sys.argv[1] == "front"
            spent = seconds(lambda: [campaign.totals(s, s + _CHUNK, room, for_front) for s in starts])  # noqa: B023
            print("with" if is_with else "without", f"{spent:.2f} s")


if __name__ == "__main__":
    main()
