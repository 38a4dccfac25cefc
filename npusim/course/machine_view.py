"""A product on one tile, step by step: tasks of the event engine, and the array's steps within each.

The event engine simulates a product followed by a Gelu on the DSP. Its tasks say when DMA, array and DSP
work, and on which part. Within a task of the array, steps follow the order of the loops that the array's
model found cheapest. Nothing here has equations of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np

import npusim
from npusim.arch import Soc
from npusim.arch.array import LOOPS
from npusim.cost import LoopNest, Order
from npusim.cost.arrays.allocation import FROM_BELOW, TO_BELOW
from npusim.cost.arrays.mapper import mapped_order
from npusim.cost.arrays.nest import unroll
from npusim.cost.kernels import VARIABLE, plain_kernels
from npusim.course.machine import machine
from npusim.engines.event import run_events
from npusim.engines.event.build import fused_chains, resident_tensors
from npusim.engines.event.jobs import NpuUnits, TilingStep, job_of
from npusim.engines.timeline import TaskKind
from npusim.errors import ConfigError
from npusim.mapping import Mapped
from npusim.scenario import Scenario

MOST = 64
"""Largest size of a product."""
LANES = 8
"""Lanes on a side of the array of the lesson's machine."""
FLOWS = ["output_stationary", "weight_stationary", "input_stationary", "row_stationary"]
"""Dataflows that unroll two of the three loops of a product."""
_SETTINGS = (
    "npu.tiles=1",
    "npu.dma.engines=1",
    "npu.dsp.per_tile=1",
    "npu.sram.per_tile=16KiB",
    "npu.launch_overhead=0us",
    "npu.dispatch_overhead=0us",
    "dram.bandwidth=4GB/s",
    f"npu.dpu.array={{axes: {{rows: {LANES}, columns: {LANES}}}, transfer: broadcast}}",
)
_LETTERS = {"batch": "m", "input_channels": "k", "output_channels": "n"}
"""Loops of a product by their letters."""
_ITEM_BITS, _SUM_BITS = 8.0, 32.0
_UNITS = {
    TaskKind.DMA_IN: "DMA",
    TaskKind.DPU: "array",
    TaskKind.DSP: "DSP",
    TaskKind.DMA_OUT: "DMA",
}


COUNTERS = ("cycles", "macs", "dram_read", "dram_written", "sram_read", "sram_written")
"""Cycles of the array, multiply-accumulates, and bytes."""


class Box(NamedTuple):
    """Part of a product: first and end of rows, sum and columns."""

    m: tuple[int, int]
    k: tuple[int, int]
    n: tuple[int, int]


class Task(NamedTuple):
    """What a unit does from one moment to another."""

    unit: str
    what: str
    start_s: float
    end_s: float
    box: Box | None
    """Part of the product that it computes, or brings an operand for."""
    amounts: dict[str, float]
    """What it adds to each counter."""


class MachineSteps(NamedTuple):
    """A product on one tile, as `steps.js` draws it; loops are letters."""

    sizes: dict[str, int]
    dataflow: str
    stationary: str
    lanes: list[tuple[str, int]]
    """Loop and lanes of each axis of the array."""
    blocks: list[tuple[str, int]]
    """Loops over parts of the product, outermost first, with their turns."""
    order: list[str]
    """Loops within a part, outermost first."""
    tasks: list[Task]
    counters: dict[str, float]
    """What the analytical engine says of the whole: the counters end there."""

    @property
    def busy_share(self) -> float:
        """Share of the lanes that multiply, over the cycles in which the array works."""
        lanes = prod(count for _, count in self.lanes)
        return self.counters["macs"] / (self.counters["cycles"] * lanes)

    @property
    def alternative(self) -> str:
        """What the picture shows, in words."""
        totals = ", ".join(f"{name.replace('_', ' ')} {value:.6g}" for name, value in self.counters.items())
        size = " x ".join(str(size) for size in self.sizes.values())
        return f"A product {size}, {self.dataflow.replace('_', '-')}, in {len(self.tasks)} tasks: {totals}."

    @property
    def spec(self) -> str:
        """JSON for `steps.js`."""
        return json.dumps({**self._asdict(), "tasks": [task._asdict() for task in self.tasks]})


@contextmanager
def _compiling_nothing() -> Iterator[None]:
    """Run even long kernels as plain Python: at these sizes they take less time than compiling them."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "plain"
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


def step_machine(dataflow: str) -> Soc:
    """Return the lesson's machine: Core Ultra Series 2 with one tile, a small array and a slow DRAM."""
    return machine("core-ultra-series2", *_SETTINGS, f"npu.dpu.dataflow={dataflow}")


def mapped_product(m: int, k: int, n: int, dataflow: str) -> Mapped:
    """Return an int8 product [m, k] x [k, n] and a Gelu of its result, mapped to the lesson's machine."""
    editor = npusim.Editor(f"product {m} x {k} x {n}")
    left = editor.input("activations", (m, k), npusim.DType.INT8)
    right = editor.constant("weights", (k, n), npusim.DType.INT8)
    editor.outputs.append(editor.unary("Gelu", editor.matmul(left, right, "product"), "gelu"))
    return Scenario(editor.finish(), step_machine(dataflow)).mapped


def machine_steps(m: int, k: int, n: int, dataflow: str) -> MachineSteps:
    """Return a product on the lesson's machine step by step.

    Parameters
    ----------
    m, k, n : int
        Rows, length of the sums and columns, 1 to `MOST`.
    dataflow : str
        One of `FLOWS`.

    Raises
    ------
    ConfigError
        A size is out of range.
    """
    sizes = {"m": m, "k": k, "n": n}
    for name, size in sizes.items():
        if not 1 <= size <= MOST:
            raise ConfigError(f"{size}", file=name.upper(), allowed=f"a whole number from 1 to {MOST}")
    with plain_kernels(), _compiling_nothing():
        mapped = mapped_product(m, k, n, dataflow)
        order, lanes = _array_loops(mapped.arch["npu"]["array"], sizes)
        line = run_events(mapped).timeline
        pieces = fused_chains(mapped, resident_tensors(mapped))[0].pieces
        steps = job_of(mapped, 0, NpuUnits(mapped.arch["npu"]), pieces).tiling.steps
    assert line is not None
    boxes = list(_boxes(steps, mapped.results[0], sizes))
    loads, products, costs = iter(_loads(steps, boxes)), iter(boxes), _Shares(mapped)
    tasks = []
    for row in line.working:
        kind, moved = TaskKind(line.kind[row]), float(line.bytes[row])
        start_s, end_s = float(line.start[row]), float(line.end[row])
        what, box, amounts = "results", None, {"dram_written": moved, "sram_read": moved}
        if kind == TaskKind.DMA_IN:
            (what, box), amounts = next(loads), {"dram_read": moved, "sram_written": moved}
        elif kind == TaskKind.DPU:
            what, box = "product", next(products)
            amounts = costs.of_product(box, end_s - start_s)
        elif kind == TaskKind.DSP:
            what, amounts = "Gelu", costs.of_gelu(end_s - start_s)
        tasks.append(
            Task(_UNITS[kind], what, start_s, end_s, box, {**dict.fromkeys(COUNTERS, 0.0), **amounts})
        )
    stays = str(mapped.soc.npu.dpu.dataflow.stationary)  # type: ignore[union-attr]
    parts = _parts(boxes)
    return MachineSteps(sizes, dataflow, stays, lanes, parts, order, tasks, analytical_counters(mapped))


def analytical_counters(mapped: Mapped) -> dict[str, float]:
    """Return what the analytical engine says of each counter, over product and Gelu."""
    results = mapped.results
    read, written = float(results["dram_read_bytes"].sum()), float(results["dram_bytes"].sum())
    return {
        "cycles": float(results["dpu_s"].sum()) * float(mapped.soc.npu.dpu.clock),
        "macs": float(mapped.graph.macs_of(mapped.graph.operators["product"])),
        "dram_read": read,
        "dram_written": written - read,
        "sram_read": float(results["sram_read_bytes"].sum()),
        "sram_written": float(results["sram_written_bytes"].sum()),
    }


class _Shares:
    """Amounts of parts of the product and of the Gelu; DMA has its own, the array and the DSP the rest."""

    def __init__(self, mapped: Mapped) -> None:
        results = mapped.results
        self._macs = float(mapped.graph.macs_of(mapped.graph.operators["product"]))
        self._clock_hz, self._dsp_s = float(mapped.soc.npu.dpu.clock), float(results["dsp_s"][1])
        read, written = results["sram_read_bytes"], results["sram_written_bytes"]
        loaded = results["dram_read_bytes"]
        stored = results["dram_bytes"] - loaded
        self._read, self._written = read - stored, written - loaded

    def of_product(self, box: Box, seconds: float) -> dict[str, float]:
        macs = float(prod(end - first for first, end in box))
        share = macs / self._macs
        cycles, moved = seconds * self._clock_hz, (self._read[0], self._written[0])
        read, written = (share * float(size) for size in moved)
        return {"cycles": cycles, "macs": macs, "sram_read": read, "sram_written": written}

    def of_gelu(self, seconds: float) -> dict[str, float]:
        share = seconds / self._dsp_s
        return {
            "sram_read": share * float(self._read[1]),
            "sram_written": share * float(self._written[1]),
        }


def _boxes(steps: Sequence[TilingStep], result: Any, sizes: dict[str, int]) -> Iterator[Box]:
    """Yield the part of the product that each step of its tiling computes; pieces are whole rows of lanes."""
    chunks = int(result["channel_chunks"])
    columns = round(sum(step.b > 0 for step in steps) / chunks)
    if Order(int(result["order"])) is not Order.WEIGHTS_HELD:
        columns = max(1, min(columns, round(1 / (chunks * max(step.b for step in steps)))))
    pieces = round(1 / min(step.work * columns * chunks for step in steps))
    widths = {"m": _width(sizes["m"], pieces), "k": _width(sizes["k"], chunks)}
    widths["n"] = _width(sizes["n"], columns)
    turn, row, first_row = -1, 0, 0
    for step in steps:
        if step.b > 0:
            turn += 1
            first_row = first_row if turn % (columns * chunks) else row
            row = first_row
        places = {"m": row, "k": turn % chunks, "n": turn // chunks % columns}
        row += round(step.work * columns * chunks * pieces)
        ends = {"m": row, "k": places["k"] + 1, "n": places["n"] + 1}
        yield Box(
            *((places[loop] * widths[loop], min(ends[loop] * widths[loop], sizes[loop])) for loop in "mkn")
        )


def _width(size: int, parts: int) -> int:
    """Return the size of one of so many parts, in whole groups of lanes."""
    return size if parts == 1 else ceil(ceil(size / parts) / LANES) * LANES


def _loads(steps: Sequence[TilingStep], boxes: Sequence[Box]) -> Iterator[tuple[str, Box]]:
    """Yield what each transfer from DRAM brings, in their order: an operand, and the part that needs it."""
    for step, box in zip(steps, boxes, strict=True):
        if step.b > 0:
            yield "weights", box
        if step.a > 0:
            yield "activations", box


def _parts(boxes: Sequence[Box]) -> list[tuple[str, int]]:
    """Return the loops over parts, outermost first, with their turns: the outermost changes last."""
    ranges = {loop: [box[place] for box in boxes] for place, loop in enumerate("mkn")}
    changes = {
        loop: next((i for i, each in enumerate(values) if each != values[0]), len(values))
        for loop, values in ranges.items()
    }
    turns = {loop: len(set(values)) for loop, values in ranges.items() if len(set(values)) > 1}
    return sorted(turns.items(), key=lambda each: -changes[each[0]])


def _array_loops(array: Any, sizes: dict[str, int]) -> tuple[list[str], list[tuple[str, int]]]:
    """Return the order of an array's loops with the least traffic, outermost first, and its axes' lanes."""
    names = [name for name in LOOPS if name in _LETTERS]
    all_sizes = np.ones(len(LOOPS))
    for name in names:
        all_sizes[LOOPS.index(name)] = sizes[_LETTERS[name]]
    bits = np.array([_ITEM_BITS, _ITEM_BITS, _ITEM_BITS, _SUM_BITS])
    nest = LoopNest(all_sizes, 1.0, 1.0, 1.0, 1.0, bits)
    unrolling, least, best = unroll(array, nest), np.inf, names
    for order in permutations(names):  # the innermost first
        loops = np.array([LOOPS.index(name) for name in order])
        mapped = mapped_order(array, nest, loops, unrolling.steps[loops], 1)
        inside = [mapped.billed_bits[operand, depth - 2] for operand, depth in enumerate(unrolling.depth[:3])]
        moved = sum(float(flows[TO_BELOW] + flows[FROM_BELOW]) for flows in inside)
        if np.isfinite(mapped.cost.cycles) and moved < least:
            least, best = moved, list(order)
    axes = (
        [LOOPS[int(loop)] for loop in array["axis_loops"][3 * axis : 3 * axis + 3] if loop >= 0]
        for axis in (0, 1)
    )
    used = [next(_LETTERS[name] for name in axis if name in _LETTERS) for axis in axes]
    return [_LETTERS[name] for name in reversed(best)], [(loop, LANES) for loop in used]
