r"""16. Other dataflows: what stays where.

The same layer, output-, weight-, input- and row-stationary: what differs, if the multiplications do not?

A lane needs two operands and a sum for each multiplication. One of the three may *stay* in the lane while the others pass: the sum
(*output-stationary*, as Intel's NPU), a weight (*weight-stationary*, as TPU v1), an input, or a row of a filter that slides over a row of the image
(*row-stationary*, as Eyeriss, whose lanes keep {kept} B of all three). All compute the same; they differ in what passes between SRAM and the array. Sums that
leave the array before they are finished come back, and have {sum_bytes} B each. Below, a convolution on an array of {edge} x {edge} lanes;
with a kernel of 1 it is the product of a matrix.

Question
--------
A long sum: many input channels. Which one writes and reads the most unfinished sums?

- [ ] output-stationary
- [x] weight- and input-stationary
- [ ] row-stationary
- [ ] all the same

An operand stays and the sums travel: each of them leaves the array and comes back for every slice of the sum that the array holds.

Exercise
--------
A 256 x 256 weight-stationary array of 8-bit weights: how many KiB of weights does it hold?

Answer: 64 KiB

One weight in each lane, one byte each. 65,536 bytes are 64 KiB.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from npusim.arch.array import LOOPS, OPERANDS, Dataflow, MacArray, shipped_dataflows
from npusim.cost import FROM_BELOW, TO_BELOW, LoopNest, array_record, best_order
from npusim.course.drawings import stacked
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.course.machine import uncompiled
from npusim.reporting.engineering import engineering, percent

FLOWS = ("output_stationary", "weight_stationary", "input_stationary", "row_stationary")
EDGE, SUM_BYTES, ROW_BYTES = 32, 4, 512
"""Lanes on a side, bytes of a sum, and bytes that a lane keeps of operands that stay by the row."""
SAME = 1e-9
SIZES = [16, 32, 64, 128, 256]


class Moved(NamedTuple):
    """Bytes between SRAM and the array, and the cycles of a layer."""

    inputs: float
    weights: float
    sums_out: float
    sums_back: float
    cycles: float

    @property
    def total(self) -> float:
        """All bytes."""
        return self.inputs + self.weights + self.sums_out + self.sums_back


def _array(flow: Dataflow) -> tuple[Any, Sequence[str]]:
    """Return the record of an array under a dataflow, and the operands that its lanes keep."""
    kept = list(OPERANDS) if flow.stationary == "any" else [flow.stationary]
    least = {"width": "100 kB/cycle", "least_access": "1 B", "read_energy": "0 J/B", "ports": "two_of_each"}
    room = ROW_BYTES if flow.stationary == "any" else SUM_BYTES
    levels = {
        "lane": {"capacity": f"{room} B", "operands": kept, "shared_by": [], **least},
        "sram": {
            **least,
            "capacity": "1 GB",
            "operands": list(OPERANDS),
            "shared_by": "all",
            "read_energy": "1 pJ/B",
        },
    }
    axes = {"rows": EDGE, "columns": EDGE}
    tree = {"axes": axes, "transfer": "systolic", "mac_energy": "0 pJ/MAC", "levels": levels}
    array = MacArray.model_validate(tree)
    return array_record(array, flow, array.levels["sram"])[0], kept


@cache
def moved(name: str, side: int, k: int, n: int, kernel: int) -> Moved:
    """Return what a dataflow moves for a convolution of int8; the image has `side` x `side` pixels."""
    sizes = np.ones(len(LOOPS))
    named = {"output_height": side, "output_width": side, "kernel_height": kernel, "kernel_width": kernel}
    for loop, steps in {**named, "input_channels": k, "output_channels": n}.items():
        sizes[LOOPS.index(loop)] = steps
    record, kept = _array(shipped_dataflows()[name])
    nest = LoopNest(sizes, 1.0, 1.0, float(side), float(side), 8.0 * np.array([1, 1, 1, SUM_BYTES]))
    with uncompiled():
        mapped = best_order(record, nest, True)  # only SRAM takes energy: the order that moves least
    # The level above what the lanes keep is SRAM.
    sram = {operand: mapped.billed_bits[i, int(operand in kept)] / 8 for i, operand in enumerate(OPERANDS)}
    inputs, weights, sums = sram["inputs"], sram["weights"], sram["outputs"]
    return Moved(
        inputs[TO_BELOW],
        weights[TO_BELOW],
        sums[FROM_BELOW],
        sums[TO_BELOW],
        mapped.cost.steps + mapped.cost.skew,
    )


def _named(names: list[str]) -> str:
    return ", ".join(name.replace("_", "-") for name in names)


def _least(costs: dict[str, Moved], field: str) -> list[str]:
    """Return the dataflows with the least of something."""
    least = min(getattr(cost, field) for cost in costs.values())
    return [flow for flow, cost in costs.items() if getattr(cost, field) <= least * (1 + SAME)]


@picture(
    side=Slider("pixels on a side", [8, 16, 32, 64], 32),
    k=Slider("input channels $K$", SIZES, 128),
    n=Slider("output channels $N$", SIZES, 64),
    kernel=Slider("edge of the kernel", [1, 3, 5], 3),
    height=320,
)
def _flows(side: int, k: int, n: int, kernel: int) -> Shown:
    costs = {flow: moved(flow, side, k, n, kernel) for flow in FLOWS}
    macs = side**2 * k * n * kernel**2
    least, quickest = _least(costs, "total"), _least(costs, "cycles")
    best = costs[least[0]]
    most_back = max(cost.sums_back for cost in costs.values())
    back = [flow for flow, cost in costs.items() if most_back and cost.sums_back >= most_back * (1 - SAME)]
    parts = {
        "inputs read": "inputs",
        "weights read": "weights",
        "sums and results written": "sums_out",
        "sums read": "sums_back",
    }
    bars = {
        flow: {name: getattr(cost, field) for name, field in parts.items()} for flow, cost in costs.items()
    }
    text = rf"""
        $$\begin{{aligned}} \text{{reuse}} &= \frac{{\text{{multiply-accumulates}}}}{{\text{{bytes between SRAM and array}}}} \\[1ex] &=
        \frac{{{macs / 1e6:.4g}\;\text{{M}}}}{{{best.total / 1e6:.3g}\;\text{{MB}}}} = \mathbf{{{macs / best.total:.1f}}} \end{{aligned}}$$

        That is **{_named(least)}**, with the least traffic here: {engineering(best.total, "B")}.
        {f"Most sums are read by **{_named(back)}**: {engineering(most_back, 'B')}" if back else "Here no dataflow reads a sum: each is finished where it began"}.
        Fewest cycles: **{_named(quickest)}**, {engineering(costs[quickest[0]].cycles, "")}, lanes busy {percent(macs / EDGE**2 / costs[quickest[0]].cycles)};
        SRAM is taken to keep up with every array.

        `npusim estimate gcn-cora --set npu.dpu.dataflow=weight_stationary` runs a network on Intel's NPU with another dataflow, with DRAM and the tiling in SRAM.
        """
    return stacked(bars, "bytes between SRAM and the array", "B"), text


LESSON = Lesson(__doc__, _flows, numbers={"kept": ROW_BYTES, "sum_bytes": SUM_BYTES, "edge": EDGE})
