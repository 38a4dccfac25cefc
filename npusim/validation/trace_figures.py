"""Traced small networks: single tasks by the unit equations, whole networks by the event engine.

A whole network is rebuilt from its tasks as Intel's profiler saw them: their shapes leave no choice.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from npusim.config.tables import Choice, Text
from npusim.cost import DDR2CMX, DSP_KERNEL_DTYPE, DpuOperation, fill_numbers
from npusim.engines.event import run_events
from npusim.errors import ConfigError
from npusim.graph import Editor, Graph
from npusim.mapping import Run, map_graph
from npusim.ops import DType
from npusim.validation.evidence import TablePredictor
from npusim.validation.figures import Figures, Floats, key_of
from npusim.validation.unit_models import Machine, dpu_cycles, dpu_rows, dsp_seconds, transfer_seconds

_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)")
_ROWS = re.compile(r"(\d+) rows x (\d+) B")
_CONV = re.compile(r"CONV(\d)x(\d)s(\d) fp16 Cin(\d+)")
_POOL = re.compile(r"MAXPOOL(\d)x(\d)s(\d)")
_COUNT = re.compile(r"(\d+) (?:B|elems)")
_TIME = re.compile(r"\d+\.\d+")
_FP16_BYTES = 2.0
_WALL = re.compile(r"(\d+\.?\d*) wall")
_NETWORK = "3-layer net"


def _measured(figures: Figures) -> Floats:
    """Mean of the times of a row (s); what stands in brackets repeats it in cycles."""
    return np.array([np.mean(_times(text)) * 1e-6 for text in figures["time_us"]])


def _times(text: str) -> list[float]:
    return [float(number) for number in _TIME.findall(text.partition("(")[0])]


def _prepare(figures: Figures) -> Figures:
    """Leave out the totals of whole networks, which are no task; check the times."""
    for row, text in enumerate(figures["time_us"]):
        if not _times(text) or min(_times(text)) <= 0:
            raise figures.refusal(row, "time_us", "microseconds above 0: 1.89, or a range 6.79-7.92")
    tasks = figures.where(figures["engine"] != "total")
    left_out = len(figures) - len(tasks)
    notes = (f"left out {left_out} totals of whole networks: they are no single task",) if left_out else ()
    return Figures(tasks.file, tasks.ids, tasks.columns, (*tasks.notes, *notes))


def _predict(figures: Figures, machine: Machine) -> Floats:
    by_engine = {"DMA": _transfer, "SHAVE": _kernel, "DPU": _workload}
    return np.array([by_engine[figures["engine"][row]](figures, row, machine) for row in range(len(figures))])


def _number(figures: Figures, row: int) -> float:
    text = figures["bytes_or_elems"][row]
    found = _COUNT.search(text)
    if found is None:
        raise figures.refusal(row, "bytes_or_elems", "a count such as 11160 B or 2976 elems")
    return float(found[1])


def _transfer(figures: Figures, row: int, machine: Machine) -> float:
    payload, strided = _number(figures, row), _ROWS.search(figures["shape"][row])
    row_bytes = float(strided[2]) if strided else 0.0
    arguments = (np.array([value]) for value in (payload, row_bytes, 1.0))
    return float(transfer_seconds(machine.arch[0], np.array([DDR2CMX]), *arguments)[0])


def _kernel(figures: Figures, row: int, machine: Machine) -> float:
    """Time of a Convert as an estimate takes it: the call and its elements, on one DSP."""
    found = machine.soc.npu.dsp.kernel("convert")
    if found is None:
        raise ConfigError("no kernel `convert`", key="dsp.kernels", allowed="a generation that has it")
    kernels = np.zeros(1, DSP_KERNEL_DTYPE)
    fill_numbers(kernels[0], found[1], found[2])
    lanes, clock_hz = float(machine.arch["dsp_lanes"][0]), float(machine.arch["vpu_clock_hz"][0])
    elements = np.array([_number(figures, row)])
    return float(dsp_seconds(kernels, np.zeros(1, np.int64), elements, np.ones(1), lanes, clock_hz)[0])


def _workload(figures: Figures, row: int, machine: Machine) -> float:
    """Time of a workload in the MPE mode that suits it best; mean over the shapes of a row."""
    text = " ".join(figures[name][row] for name in ("task", "shape"))
    shapes = [tuple(map(float, shape)) for shape in _SHAPE.findall(text.replace("out ", ""))]
    if not shapes:
        raise figures.refusal(row, "task", "a task with a shape such as 30x16x48")
    cycles = [min(_cycles(text, shape, mode, machine) for mode in range(3)) for shape in shapes]
    return float(np.mean(cycles)) / float(machine.arch["dpu_clock_hz"][0])


def _cycles(text: str, shape: tuple[float, ...], mode: int, machine: Machine) -> float:
    columns: dict[str, float] = dict(zip(("out_w", "out_h", "out_c"), shape, strict=True))
    conv, pool = _CONV.search(text), _POOL.search(text)
    if conv is not None:
        kernel, in_c = conv.groups()[:3], float(conv[4])
        columns |= {
            "dpu_operation": int(DpuOperation.CONVOLUTION),
            "in_c": in_c,
            "pad_top": 1.0,
            "pad_bottom": 1.0,
        }
    elif pool is not None:
        kernel = pool.groups()
        columns |= {"dpu_operation": int(DpuOperation.MAXPOOL)}
    else:
        kernel = ("1", "1", "1")
        columns |= {"dpu_operation": int(DpuOperation.ELTWISE)}
    columns |= dict(zip(("kernel_w", "kernel_h", "stride"), map(float, kernel), strict=True))
    table = dpu_rows(1, item_bytes=_FP16_BYTES, mode=mode, **columns)
    return float(dpu_cycles(machine.arch[0], table)[0])


TASKS = TablePredictor(
    columns=(
        Choice("engine", ("DMA", "SHAVE", "DPU", "total")),
        *map(Text, ("task", "shape", "bytes_or_elems", "time_us")),
    ),
    measured=_measured,
    predict=_predict,
    unit="s",
    dimensions=("engine",),
    duplicates=key_of("npu", "engine", "task"),
    prepare=_prepare,
)
"""Traced tasks; times of a row that was traced several times are averaged."""


def traced_network() -> Graph:
    """Return the traced network: convolution, pooling, twice, between conversions to fp16 and back.

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


def _prepare_networks(figures: Figures) -> Figures:
    """Keep the totals of whole networks."""
    totals = figures.where(figures["engine"] == "total")
    for row, (task, time) in enumerate(zip(totals["task"], totals["time_us"], strict=True)):
        if task != _NETWORK:
            raise totals.refusal(row, "task", f"the network that is known: {_NETWORK}")
        if _WALL.search(time) is None:
            raise totals.refusal(row, "time_us", "a time from first to last task: 85.70 wall")
    return totals


def _network_s(figures: Figures) -> Floats:
    found = (_WALL.search(text) for text in figures["time_us"])
    return np.array([float(match[1]) * 1e-6 for match in found if match is not None])


def _predict_networks(figures: Figures, machine: Machine) -> Floats:
    """Time without the runtime's call, on all tiles, as in the trace (2 and 6 tiles)."""
    run = Run("latency", 1, int(machine.soc.npu.tiles))
    acted = run_events(map_graph(traced_network(), machine.soc, run))
    seconds = acted.latency_s - float(machine.soc.npu.launch_overhead)
    return np.full(len(figures), seconds)


NETWORKS = replace(TASKS, measured=_network_s, predict=_predict_networks, prepare=_prepare_networks)
"""Wall times of traced networks."""
