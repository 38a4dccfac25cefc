"""Check of lab 1: the share of busy lanes by the equation and in the whole model."""

from collections.abc import Iterator
from math import ceil, isclose

from pydantic import PositiveInt

from npusim.course.drawings import busy_share, grid_of
from npusim.course.machine import estimate, machine, product

MOST_MACS, LEAST_BUSY = 50e6, 0.59


def check_equation(busy_percent: float) -> Iterator[tuple[bool, str, str]]:
    grid = grid_of(machine())
    right = 100 * busy_share(grid, 100, 64, 40)
    hint = "round M up to a multiple of 16, K of 4 and N of 16; divide 100 * 64 * 40 by their product"
    if isclose(busy_percent, 100 - right, rel_tol=0.02):
        hint = "that is the share that waits"
    elif isclose(busy_percent, right / 100, rel_tol=0.02):
        hint = "the answer is asked in percent"
    elif isclose(busy_percent, 100 * 100 / (ceil(100 / 16) * 16), rel_tol=0.02):
        hint = "N is ragged too: 40 columns take three steps of 16"
    yield isclose(busy_percent, right, rel_tol=0.02), "the equation gives your share of busy lanes", hint


def check_product(
    rows: PositiveInt, depth: PositiveInt, columns: PositiveInt
) -> Iterator[tuple[bool, str, str]]:
    macs = rows * depth * columns
    yield macs <= MOST_MACS, f"{macs / 1e6:.3g} million MACs are at most 50 million", "make a size smaller"
    cost = estimate(product(rows, depth, columns)).operators[0]
    busy = cost.grid_utilisation or 0.0
    hint = (
        f"it waits for {cost.bound} and moves {cost.dram_bytes / 1e6:.2f} MB: M K + K N + M N numbers. "
        "For a fixed M K N, which shape has the least of them? And go close to the 50 million"
    )
    if cost.bound == "launch":
        hint = "the work is shorter than the start of the NPU: go close to the 50 million MACs"
    yield busy >= LEAST_BUSY, f"{busy:.1%} of the lanes are busy, at least {LEAST_BUSY:.0%}", hint
