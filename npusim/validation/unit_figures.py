"""Figures of single units, measured or of Intel's cost model: transfers, DPU workloads, DSP kernels.

Tasks of traced networks are predicted by the same equations, whole traced networks by the event engine; these
are rebuilt from the shapes of their tasks in the trace of Intel's profiler.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from npusim.cost import CMX2CMX, CMX2DDR, DDR2CMX, DDR2DDR, DpuOperation
from npusim.engines.event import run_events
from npusim.errors import ConfigError
from npusim.graph import Editor, Graph
from npusim.mapping import Run, map_graph
from npusim.ops import DType
from npusim.validation.figures import Figures, Floats, TablePredictor
from npusim.validation.unit_models import Machine, call_seconds, dpu_cycles, dpu_rows, transfer_seconds

_DIRECTIONS = {"ddr2cmx": DDR2CMX, "cmx2ddr": CMX2DDR, "cmx2cmx": CMX2CMX, "ddr2ddr": DDR2DDR}
_MODES = {"16x16": 0, "8x16": 1, "4x16": 2}  # number of each MPE mode, as in `npu.dpu.modes`
# Operation of the MAC grid for each operator of the figures.
_OPERATIONS = {
    "convolution": DpuOperation.CONVOLUTION,
    "dw_convolution": DpuOperation.DEPTHWISE,
    "avepool": DpuOperation.AVGPOOL,
    "maxpool": DpuOperation.MAXPOOL,
    "eltwise": DpuOperation.ELTWISE,
    "eltwise_mul": DpuOperation.ELTWISE,
}
_WORDS = {"dw_convolution": "depthwise", "avepool": "average pooling", "eltwise": "elementwise"}
_ITEM_BYTES = {"uint8": 1.0, "int8": 1.0, "fp16": 2.0, "float16": 2.0, "bfloat16": 2.0}
_SIDES = {"act": "activations", "weight": "weights", "dual": "both"}


def _mapped(figures: Figures, column: str, values: Mapping[str, str]) -> NDArray[np.object_]:
    return np.array([values.get(word, word) for word in figures[column]], object)


def _transfer_s(figures: Figures, machine: Machine) -> Floats:
    """Return the seconds of transfers; each engine moves so many bytes."""
    one = np.ones(len(figures))
    engines = figures.columns.get("engines", one)
    row_bytes = figures.columns.get("row_bytes", 0.0 * one)
    payload = row_bytes * figures["rows"] if "rows" in figures.columns else figures["bytes"] * engines
    direction = np.array([_DIRECTIONS[name] for name in figures["direction"]], np.int64)
    seconds: Floats = transfer_seconds(machine.arch[0], direction, payload, row_bytes, engines)
    return seconds


TRANSFERS = TablePredictor(_transfer_s)
"""Transfers: of `bytes` by one engine or several, or of many rows. The stride is not part of the equation."""


def _on_grid(figures: Figures, table: NDArray[np.void]) -> Figures:
    """Return figures with their rows of DPU_ROW, which `_cycles` predicts."""
    return figures.with_columns(work=table)


def _cycles(figures: Figures, machine: Machine) -> Floats:
    """Return the cycles by the DPU's equations."""
    cycles: Floats = dpu_cycles(machine.arch[0], figures["work"])
    return cycles


def workload_table(figures: Figures) -> NDArray[np.void]:
    """Return the rows of `silicon_dpu` as DPU_ROW."""
    kernel, pads = figures.sizes("kernel"), figures.sizes("pad_tblr")
    return dpu_rows(
        len(figures),
        dpu_operation=[int(_OPERATIONS[op]) for op in figures["op"]],
        out_w=figures["out_w"],
        out_h=figures["out_h"],
        out_c=figures["out_c"],
        in_c=figures["in_c"],
        kernel_w=kernel[:, 0],
        kernel_h=kernel[:, 1],
        stride=figures.sizes("stride")[:, 0],
        pad_top=pads[:, 0],
        pad_bottom=pads[:, 1],
        item_bytes=[_ITEM_BYTES[name] for name in figures["in_dtype"]],
        mode=[_MODES[name] for name in figures["mpe_mode"]],
        write_tiles=_write_tiles(figures),
        act_density=1.0 - figures["act_sparsity"],
        weight_density=_weight_density(figures),
    )


def _write_tiles(figures: Figures) -> Floats:
    """Return the number of tiles that receive the output.

    On npu3720, rows of a clustered layer that differ only in `output_write_tiles` have identical cycles: no
    broadcast ran there, whatever the column says.
    """
    clustered = (figures["npu"] == "npu3720") & (figures["isi"] == "clustering")
    return np.where(clustered, 1.0, figures["output_write_tiles"])


def _weight_density(figures: Figures) -> Floats:
    """Return the share of non-zero weights that the grid exploits.

    `weight_sparsity` shows a saving only in npu3720 rows of mode 8x16 with one write tile; elsewhere rows
    with and without it have the same cycles.
    """
    skips = (figures["npu"] == "npu3720") & (figures["mpe_mode"] == "8x16")
    skips &= figures["output_write_tiles"] == 1
    return np.where(skips, 1.0 - figures["weight_sparsity"], 1.0)


def _prepare_workloads(figures: Figures) -> Figures:
    return _on_grid(figures, workload_table(figures)).with_columns(operator=_mapped(figures, "op", _WORDS))


WORKLOADS = TablePredictor(_cycles, prepare=_prepare_workloads)
"""Measured workloads on one tile."""

_SPARSE_SHAPE = re.compile(r"CONV(\d+)x(\d+)s(\d+) UINT8 in\d+x\d+x(\d+) out(\d+)x(\d+)x(\d+) \((\w+)\)")


def _prepare_sparse(figures: Figures) -> Figures:
    """Resolve `same` to the workload above it, and name the sparse side."""
    workloads: list[str] = []
    for row, text in enumerate(figures["workload"]):
        workloads.append(workloads[-1] if text == "same" and workloads else text)
        if not _SPARSE_SHAPE.fullmatch(workloads[-1]):
            allowed = "CONV3x3s2 UINT8 in28x9x256 out14x4x256 (8x16), or `same` below such a row"
            raise figures.refusal(row, "workload", allowed)
    act, weight = figures["act_sparsity"] > 0, figures["weight_sparsity"] > 0
    side = np.select([act & weight, act, weight], ["both", "activations", "weights"], "dense")
    figures = figures.with_columns(workload=np.array(workloads, object), side=side.astype(object))
    return _on_grid(figures, sparse_table(figures))


def sparse_table(figures: Figures) -> NDArray[np.void]:
    """Return the rows of `silicon_sparsity` as DPU_ROW."""
    shapes = [match.groups() for text in figures["workload"] if (match := _SPARSE_SHAPE.fullmatch(text))]
    sizes = np.array([[float(number) for number in shape[:7]] for shape in shapes]).reshape(-1, 7)
    names = ("kernel_w", "kernel_h", "stride", "in_c", "out_w", "out_h", "out_c")
    return dpu_rows(
        len(figures),
        dpu_operation=int(DpuOperation.CONVOLUTION),
        **dict(zip(names, sizes.T, strict=True)),
        pad_bottom=(sizes[:, 1] > 1).astype(float),
        mode=[_MODES[shape[7]] for shape in shapes],
        write_tiles=[2.0 if "owt2" in split else 1.0 for split in figures["split"]],
        act_density=1.0 - figures["act_sparsity"],
        weight_density=1.0 - figures["weight_sparsity"],
    )


SPARSE = TablePredictor(_cycles, prepare=_prepare_sparse)
"""Measured sparse convolutions on one tile."""


def product_table(figures: Figures) -> NDArray[np.void]:
    """Return the rows of `costmodel_gemm` or `costmodel_sparse_gemm` as DPU_ROW."""
    return dpu_rows(
        len(figures),
        dpu_operation=int(DpuOperation.MATMUL),
        out_w=figures["m"],
        in_c=figures["k"],
        out_c=figures["n"],
        item_bytes=[_ITEM_BYTES[name] for name in figures["dtype"]],
        act_density=1.0 - figures.columns.get("act_sparsity", 0.0),
        weight_density=1.0 - figures.columns.get("weight_sparsity", 0.0),
    )


def channelwise_table(figures: Figures) -> NDArray[np.void]:
    """Return the rows of `costmodel_eltwise_pool` as DPU_ROW; 3x3 kernels are padded by one pixel."""
    kernel = figures.sizes("kernel")
    padding = (kernel[:, 1] == 3).astype(float)
    return dpu_rows(
        len(figures),
        dpu_operation=[int(_OPERATIONS[op]) for op in figures["op"]],
        out_w=np.ceil(figures["w"] / figures["stride"]),
        out_h=np.ceil(figures["h"] / figures["stride"]),
        out_c=figures["c"],
        in_c=figures["c"],
        kernel_w=kernel[:, 0],
        kernel_h=kernel[:, 1],
        stride=figures["stride"],
        pad_top=padding,
        pad_bottom=padding,
        item_bytes=[_ITEM_BYTES[name] for name in figures["dtype"]],
    )


def _speedup(figures: Figures, machine: Machine) -> Floats:
    """Return the speed-up by zeros: cycles of the dense product over cycles of the sparse one."""
    dense = figures["work"].copy()
    dense["act_density"] = dense["weight_density"] = 1.0
    ratio: Floats = dpu_cycles(machine.arch[0], dense) / _cycles(figures, machine)
    return ratio


def _prepare_sparse_products(figures: Figures) -> Figures:
    speedup = figures["dense_dpu_cycles"] / figures["dpu_cycles"]
    columns = figures.with_columns(side=_mapped(figures, "kind", _SIDES), speedup=speedup)
    return _on_grid(columns, product_table(figures))


PRODUCTS = TablePredictor(_cycles, prepare=lambda figures: _on_grid(figures, product_table(figures)))
"""Dense products on one tile."""
SPARSE_PRODUCTS = TablePredictor(_speedup, prepare=_prepare_sparse_products)
"""Speed-up of products by zeros."""
CHANNELWISE = TablePredictor(_cycles, prepare=lambda figures: _on_grid(figures, channelwise_table(figures)))
"""Pooling, depthwise convolution and elementwise operators on one tile."""

# Kernels by their number of rows, where they work along an axis that their parameters do not name. Found by
# trying: the table does not say.
_KERNELS_ALONG = {
    "h*c": "gather gptq mvn6_oneax mvn6_onlyoneax mvn6_threeax",
    "w*h": "interpolatewh_1 mvn_fused normalizel2onlyc softmax_x",
    "c": "mvn mvn6 mvn6_fourax mvn6_twoax mvn_2ax",
}
_ROWS_OF = {kernel: rows for rows, kernels in _KERNELS_ALONG.items() for kernel in kernels.split()}


def row_counts(figures: Figures) -> Floats:
    """Return the rows of each call of a kernel along an axis; 1 for the others."""
    w, h, c = figures["w"], figures["h"], figures["c"]
    counts = {"w*h": w * h, "h*c": h * c, "c": c, "": np.ones(len(figures))}
    rows = np.ones(len(figures))
    for i, (op, params) in enumerate(zip(figures["op"], figures["params"], strict=True)):
        axis = "h*c" if "axis=W" in params else "w*h" if "axis=C" in params else _ROWS_OF.get(op, "")
        rows[i] = counts[axis][i]
    return rows


def _calls(figures: Figures) -> list[tuple[str, str]]:
    return list(zip(figures["kernel_source"], figures["op"], strict=True))


def _kernel_s(figures: Figures, machine: Machine) -> Floats:
    calls = _calls(figures)
    number = {call: i for i, call in enumerate(sorted(set(calls)))}
    # As in an estimate: a kernel that neither the generation nor its fallbacks have is costed as unknown.
    unknown = machine.dsp_kernel(machine.soc.npu.dsp.kernel_generation, "unknown")
    kernels = [machine.dsp_kernel(*call) or unknown for call in number]
    which = np.array([number[call] for call in calls], np.int64)
    return call_seconds(machine, kernels, which, figures["out_elements"], figures["rows"])


def _prepare_kernels(figures: Figures) -> Figures:
    """Add the rows of each call, and a text of its size."""
    rows = row_counts(figures)
    sizes = [f"{elements:g}/{count:g}" for elements, count in zip(figures["out_elements"], rows, strict=True)]
    return figures.with_columns(rows=rows, call=np.array(sizes, object))


KERNELS = TablePredictor(
    _kernel_s,
    prepare=_prepare_kernels,
    # Calls without a kernel of their own source.
    unmodelled=lambda figures, machine: [
        op not in machine.generation(source).kernels for source, op in _calls(figures)
    ],
)
"""Bare kernel calls. An estimate may pad a call up to the next loop's threshold where that is faster."""

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


def _prepare_tasks(figures: Figures) -> Figures:
    """Leave out the totals of whole networks; average the times of a task."""
    for row, text in enumerate(figures["time_us"]):
        if not _times(text) or min(_times(text)) <= 0:
            raise figures.refusal(row, "time_us", "microseconds above 0: 1.89, or a range 6.79-7.92")
    tasks = figures.where(figures["engine"] != "total")
    left_out = len(figures) - len(tasks)
    notes = (f"left out {left_out} totals of whole networks: they are no single task",) if left_out else ()
    seconds = np.array([np.mean(_times(text)) * 1e-6 for text in tasks["time_us"]])
    return replace(tasks.with_columns(measured_s=seconds), notes=(*tasks.notes, *notes))


def _task_s(figures: Figures, machine: Machine) -> Floats:
    by_engine = {"DMA": _traced_transfer_s, "SHAVE": _convert_s, "DPU": _workload_s}
    return np.array([by_engine[figures["engine"][row]](figures, row, machine) for row in range(len(figures))])


def _number(figures: Figures, row: int) -> float:
    text = figures["bytes_or_elems"][row]
    count = _COUNT.search(text)
    if count is None:
        raise figures.refusal(row, "bytes_or_elems", "a count such as 11160 B or 2976 elems")
    return float(count[1])


def _traced_transfer_s(figures: Figures, row: int, machine: Machine) -> float:
    payload, strided = _number(figures, row), _ROWS.search(figures["shape"][row])
    row_bytes = float(strided[2]) if strided else 0.0
    arguments = (np.array([value]) for value in (payload, row_bytes, 1.0))
    return float(transfer_seconds(machine.arch[0], np.array([DDR2CMX]), *arguments)[0])


def _convert_s(figures: Figures, row: int, machine: Machine) -> float:
    """Return the time of a Convert as in an estimate: the call and its elements, on one DSP."""
    convert = machine.dsp_kernel(machine.soc.npu.dsp.kernel_generation, "convert")
    if convert is None:
        raise ConfigError("no kernel `convert`", key="dsp.kernels", allowed="a generation that has it")
    elements = np.array([_number(figures, row)])
    return float(call_seconds(machine, [convert], np.zeros(1, np.int64), elements, np.ones(1))[0])


def _workload_s(figures: Figures, row: int, machine: Machine) -> float:
    """Return the time of a workload in its fastest MPE mode; mean over the shapes of a row."""
    text = " ".join(figures[name][row] for name in ("task", "shape"))
    shapes = [tuple(map(float, shape)) for shape in _SHAPE.findall(text.replace("out ", ""))]
    if not shapes:
        raise figures.refusal(row, "task", "a task with a shape such as 30x16x48")
    cycles = [min(_traced_cycles(text, shape, mode, machine) for mode in range(3)) for shape in shapes]
    return float(np.mean(cycles)) / float(machine.arch["dpu_clock_hz"][0])


def _traced_cycles(text: str, shape: tuple[float, ...], mode: int, machine: Machine) -> float:
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


TASKS = TablePredictor(_task_s, prepare=_prepare_tasks)
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
