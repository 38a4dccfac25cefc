"""A product on one tile, step by step: tasks of the event engine, and the array's steps within each.

The event engine simulates a product followed by a Gelu on the DSP. Its tasks say when DMA, array and DSP
work, and on which part. Within a task of the array, steps follow the loops of the dataflow, innermost the one
that leaves the stationary operand as it is. Nothing here has equations of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from math import ceil, prod
from typing import Any, NamedTuple

import npusim
from npusim.cost import Order
from npusim.course.machine import machine, uncompiled
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
_INNERMOST = {"outputs": "k", "inputs": "n"}
"""Loop that does not change the stationary operand; of weights, and of rows, m."""
_UNITS = {TaskKind.DMA_IN: "DMA", TaskKind.DMA_OUT: "DMA", TaskKind.DPU: "array", TaskKind.DSP: "DSP"}
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


def mapped_product(m: int, k: int, n: int, dataflow: str) -> Mapped:
    """Return an int8 product [m, k] x [k, n] and a Gelu of its result, mapped to one tile.

    The machine is Core Ultra Series 2 with a small array, one DSP, one DMA engine and a slow DRAM.
    """
    editor = npusim.Editor(f"product {m} x {k} x {n}")
    left = editor.input("activations", (m, k), npusim.DType.INT8)
    right = editor.constant("weights", (k, n), npusim.DType.INT8)
    editor.outputs.append(editor.unary("Gelu", editor.matmul(left, right, "product"), "gelu"))
    soc = machine("core-ultra-series2", *_SETTINGS, f"npu.dpu.dataflow={dataflow}")
    return Scenario(editor.finish(), soc).mapped


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
    with uncompiled():
        mapped = mapped_product(m, k, n, dataflow)
        line = run_events(mapped).timeline
        pieces = fused_chains(mapped, resident_tensors(mapped))[0].pieces
        steps = job_of(mapped, 0, NpuUnits(mapped.arch["npu"]), pieces).tiling.steps
    assert line is not None
    boxes = list(_boxes(steps, mapped.results[0], sizes))
    # For each step weights come first, then activations.
    shares = ((step.b, "weights", step.a, "activations", box) for step, box in zip(steps, boxes, strict=True))
    loads = [(what, box) for b, w, a, v, box in shares for part, what in ((b, w), (a, v)) if part > 0]
    places = {TaskKind.DMA_IN: iter(loads), TaskKind.DPU: iter(("product", box) for box in boxes)}
    others = {TaskKind.DSP: "Gelu", TaskKind.DMA_OUT: "results"}
    tasks = []
    for row in line.working:
        kind = TaskKind(line.kind[row])
        what, box = next(places[kind]) if kind in places else (others[kind], None)
        times = float(line.start[row]), float(line.end[row])
        amounts = _amounts(mapped, kind, box, times[1] - times[0], float(line.bytes[row]))
        tasks.append(Task(_UNITS[kind], what, *times, box, {**dict.fromkeys(COUNTERS, 0.0), **amounts}))
    flow: Any = mapped.soc.npu.dpu.dataflow
    lanes = [(next(_LETTERS[loop] for loop in axis if loop in _LETTERS), LANES) for axis in flow.unroll]
    innermost = _INNERMOST.get(flow.stationary, "m")
    order = [*(loop for loop in "knm" if loop != innermost), innermost]
    return MachineSteps(sizes, dataflow, flow.stationary, lanes, order, tasks, analytical_counters(mapped))


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


def _amounts(
    mapped: Mapped, kind: TaskKind, box: Box | None, seconds: float, moved: float
) -> dict[str, float]:
    """Return what a task adds to counters: in SRAM, array and DSP have what DMA does not bring or take."""
    results = mapped.results
    if kind == TaskKind.DMA_IN:
        return {"dram_read": moved, "sram_written": moved}
    if kind == TaskKind.DMA_OUT:
        return {"dram_written": moved, "sram_read": moved}
    amounts, operator, share = {}, 1, seconds / float(results["dsp_s"].sum() or 1.0)
    if box is not None:
        macs = float(prod(end - first for first, end in box))
        amounts = {"macs": macs, "cycles": seconds * float(mapped.soc.npu.dpu.clock)}
        operator, share = 0, macs / analytical_counters(mapped)["macs"]
    loaded, moved = (float(results[name][operator]) for name in ("dram_read_bytes", "dram_bytes"))
    read, written = (float(results[name][operator]) for name in ("sram_read_bytes", "sram_written_bytes"))
    return {
        **amounts,
        "sram_read": share * (read - moved + loaded),
        "sram_written": share * (written - loaded),
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
