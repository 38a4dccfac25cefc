"""Whole traced networks in the event engine: the time from the first task to the last.

The network is rebuilt from the traced tasks: their shapes leave no choice.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from npusim.config.tables import Choice, Text
from npusim.engines.event import run_events
from npusim.graph import Editor, Graph
from npusim.mapping import Run, map_graph
from npusim.ops import DType
from npusim.validation.evidence import TablePredictor
from npusim.validation.figures import Figures
from npusim.validation.keys import same
from npusim.validation.machine import Machine

__all__ = ["NETWORKS", "traced_network"]

_WALL = re.compile(r"(\d+\.?\d*) wall")
_NETWORK = "3-layer net"


def traced_network() -> Graph:
    """Return the traced network: two convolutions, each with a pooling, between conversions to fp16 and back.

    The tasks' output sizes (60x60x48, 30x30x48, 28x28x64, 14x14x64 over all tiles) give every shape.
    """
    editor = Editor("traced network")
    fp16 = DType.FP16
    x = editor.input("x", (1, 3, 62, 62), DType.FP32)
    x = editor.op("Convert", (x,), (1, 3, 62, 62), fp16, "convert_in")
    x = editor.op(
        "Add", (x, x), (1, 3, 62, 62), fp16, "layout"
    )  # the permutation runs as an elementwise task
    for i, (out_c, size, pooled) in enumerate(((48, 60, 30), (64, 28, 14))):
        in_c = editor.tensors[x].shape[1]
        weights = editor.constant(f"weights{i}", (out_c, in_c, 3, 3), fp16)
        x = editor.op(
            "Convolution", (x, weights), (1, out_c, size, size), fp16, f"convolution{i}", strides=(1, 1)
        )
        shape = (1, out_c, pooled, pooled)
        x = editor.op("MaxPool", (x,), shape, fp16, f"pooling{i}", kernel=(3, 3), strides=(2, 2))
    editor.outputs.append(editor.op("Convert", (x,), editor.tensors[x].shape, DType.FP32, "convert_out"))
    return editor.finish()


def _prepare(figures: Figures) -> Figures:
    """Keep the totals of whole networks."""
    totals = figures.where(figures["engine"] == "total")
    for row, (task, time) in enumerate(zip(totals["task"], totals["time_us"], strict=True)):
        if task != _NETWORK:
            raise totals.refusal(row, "task", f"the network that is known: {_NETWORK}")
        if _WALL.search(time) is None:
            raise totals.refusal(row, "time_us", "a time from first to last task: 85.70 wall")
    return totals


def _measured(figures: Figures) -> NDArray[np.float64]:
    found = (_WALL.search(text) for text in figures["time_us"])
    return np.array([float(match[1]) * 1e-6 for match in found if match is not None])


def _predict(figures: Figures, machine: Machine) -> NDArray[np.float64]:
    """Time without the runtime's call, on all tiles, as in the trace (2 and 6 tiles)."""
    run = Run("latency", 1, int(machine.soc.npu.tiles))
    acted = run_events(map_graph(traced_network(), machine.soc, run))
    seconds = acted.estimate.latency_s - float(machine.soc.npu.launch_overhead)
    return np.full(len(figures), seconds)


NETWORKS = TablePredictor(
    columns=(
        Choice("engine", ("DMA", "SHAVE", "DPU", "total")),
        Text("task"),
        Text("shape"),
        Text("bytes_or_elems"),
        Text("time_us"),
    ),
    measured=_measured,
    predict=_predict,
    unit="s",
    dimensions=("engine",),
    twins=same("npu", "engine", "task"),
    prepare=_prepare,
)
"""Wall times of traced networks."""
