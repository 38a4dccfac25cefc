"""Traced small networks: tasks by the unit equations, whole networks by the event engine.

A whole network is rebuilt from the shapes of its tasks in the trace of Intel's profiler.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from npusim.cost import DDR2CMX, DpuOperation
from npusim.engines.event import run_events
from npusim.errors import ConfigError
from npusim.graph import Editor, Graph
from npusim.mapping import Run, map_graph
from npusim.ops import DType
from npusim.validation.figures import Figures, Floats, TablePredictor
from npusim.validation.unit_models import Machine, call_seconds, dpu_cycles, dpu_rows, transfer_seconds

_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)")
_ROWS = re.compile(r"(\d+) rows x (\d+) B")
_CONV = re.compile(r"CONV(\d)x(\d)s(\d) fp16 Cin(\d+)")
_POOL = re.compile(r"MAXPOOL(\d)x(\d)s(\d)")
_COUNT = re.compile(r"(\d+) (?:B|elems)")
_TIME = re.compile(r"\d+\.\d+")
_FP16_BYTES = 2.0
_WALL = re.compile(r"(\d+\.?\d*) wall")
_NETWORK = "3-layer net"


def _times(text: str) -> list[float]:
    """Return the microseconds of a row; the text in brackets repeats them in cycles."""
    return [float(number) for number in _TIME.findall(text.partition("(")[0])]


def _prepare(figures: Figures) -> Figures:
    """Leave out the totals of whole networks; average the times of a task."""
    for row, text in enumerate(figures["time_us"]):
        if not _times(text) or min(_times(text)) <= 0:
            raise figures.refusal(row, "time_us", "microseconds above 0: 1.89, or a range 6.79-7.92")
    tasks = figures.where(figures["engine"] != "total")
    left_out = len(figures) - len(tasks)
    notes = (f"left out {left_out} totals of whole networks: they are no single task",) if left_out else ()
    seconds = np.array([np.mean(_times(text)) * 1e-6 for text in tasks["time_us"]])
    return replace(tasks.with_columns(measured_s=seconds), notes=(*tasks.notes, *notes))


def _predict(figures: Figures, machine: Machine) -> Floats:
    by_engine = {"DMA": _transfer, "SHAVE": _kernel, "DPU": _workload}
    return np.array([by_engine[figures["engine"][row]](figures, row, machine) for row in range(len(figures))])


def _number(figures: Figures, row: int) -> float:
    text = figures["bytes_or_elems"][row]
    count = _COUNT.search(text)
    if count is None:
        raise figures.refusal(row, "bytes_or_elems", "a count such as 11160 B or 2976 elems")
    return float(count[1])


def _transfer(figures: Figures, row: int, machine: Machine) -> float:
    payload, strided = _number(figures, row), _ROWS.search(figures["shape"][row])
    row_bytes = float(strided[2]) if strided else 0.0
    arguments = (np.array([value]) for value in (payload, row_bytes, 1.0))
    return float(transfer_seconds(machine.arch[0], np.array([DDR2CMX]), *arguments)[0])


def _kernel(figures: Figures, row: int, machine: Machine) -> float:
    """Return the time of a Convert as in an estimate: the call and its elements, on one DSP."""
    convert = machine.dsp_kernel(machine.soc.npu.dsp.kernel_generation, "convert")
    if convert is None:
        raise ConfigError("no kernel `convert`", key="dsp.kernels", allowed="a generation that has it")
    elements = np.array([_number(figures, row)])
    return float(call_seconds(machine, [convert], np.zeros(1, np.int64), elements, np.ones(1))[0])


def _workload(figures: Figures, row: int, machine: Machine) -> float:
    """Return the time of a workload in its fastest MPE mode; mean over the shapes of a row."""
    text = " ".join(figures[name][row] for name in ("task", "shape"))
    shapes = [tuple(map(float, shape)) for shape in _SHAPE.findall(text.replace("out ", ""))]
    if not shapes:
        raise figures.refusal(row, "task", "a task with a shape such as 30x16x48")
    cycles = [min(_cycles(text, shape, mode, machine) for mode in range(3)) for shape in shapes]
    return float(np.mean(cycles)) / float(machine.arch["dpu_clock_hz"][0])


def _cycles(text: str, shape: tuple[float, ...], mode: int, machine: Machine) -> float:
    columns: dict[str, float] = dict(zip(("out_w", "out_h", "out_c"), shape, strict=True))
    operation = DpuOperation.ELTWISE
    if (window := _CONV.search(text)) is not None:
        operation = DpuOperation.CONVOLUTION
        columns |= {"in_c": float(window[4]), "pad_top": 1.0, "pad_bottom": 1.0}
    elif (window := _POOL.search(text)) is not None:
        operation = DpuOperation.MAXPOOL
    if window is not None:
        names = ("kernel_w", "kernel_h", "stride")
        columns |= {name: float(number) for name, number in zip(names, window.groups(), strict=False)}
    table = dpu_rows(1, dpu_operation=int(operation), item_bytes=_FP16_BYTES, mode=mode, **columns)
    return float(dpu_cycles(machine.arch[0], table)[0])


TASKS = TablePredictor(_predict, prepare=_prepare)
"""Traced tasks; the times of a task that was traced several times are averaged."""


def traced_network() -> Graph:
    """Return the traced network: convolution, pooling, twice, between conversions to fp16 and back.

    The tasks' output sizes (60x60x48, 30x30x48, 28x28x64, 14x14x64 over all tiles) give every shape.
    """
    editor = Editor("traced network")
    fp16 = DType.FP16
    x = editor.input("x", (1, 3, 62, 62), DType.FP32)
    x = editor.op("Convert", (x,), (1, 3, 62, 62), fp16, "convert_in")
    # The permutation runs as an elementwise task.
    x = editor.op("Add", (x, x), (1, 3, 62, 62), fp16, "layout")
    for i, (out_c, size, pooled) in enumerate(((48, 60, 30), (64, 28, 14))):
        in_c = editor.tensors[x].shape[1]
        weights = editor.constant(f"weights{i}", (out_c, in_c, 3, 3), fp16)
        shape = (1, out_c, size, size)
        x = editor.op("Convolution", (x, weights), shape, fp16, f"convolution{i}", strides=(1, 1))
        shape = (1, out_c, pooled, pooled)
        x = editor.op("MaxPool", (x,), shape, fp16, f"pooling{i}", kernel=(3, 3), strides=(2, 2))
    editor.outputs.append(editor.op("Convert", (x,), editor.tensors[x].shape, DType.FP32, "convert_out"))
    return editor.finish()


def _prepare_networks(figures: Figures) -> Figures:
    """Keep the totals of whole networks."""
    totals = figures.where(figures["engine"] == "total")
    seconds = np.empty(len(totals))
    for row, (task, time) in enumerate(zip(totals["task"], totals["time_us"], strict=True)):
        wall = _WALL.search(time)
        if task != _NETWORK:
            raise totals.refusal(row, "task", f"the network that is known: {_NETWORK}")
        if wall is None:
            raise totals.refusal(row, "time_us", "a time from first to last task: 85.70 wall")
        seconds[row] = float(wall[1]) * 1e-6
    return totals.with_columns(measured_s=seconds)


def _predict_networks(figures: Figures, machine: Machine) -> Floats:
    """Return the simulated time without the runtime's call, on all tiles as in the trace (2 and 6)."""
    run = Run("latency", 1, int(machine.soc.npu.tiles))
    simulated = run_events(map_graph(traced_network(), machine.soc, run))
    seconds = simulated.latency_s - float(machine.soc.npu.launch_overhead)
    return np.full(len(figures), seconds)


NETWORKS = TablePredictor(_predict_networks, prepare=_prepare_networks)
"""Wall times of traced networks."""
