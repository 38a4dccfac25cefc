"""Every number of every shipped data sheet moves some figure of some estimate, or is marked informative.

A number is changed as a user would, by an override; figures are those of an estimate: totals, and time,
energy, traffic and memory of each operator. One small network for each part of the machine is enough.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from npusim.arch import Soc, load_soc, soc_names, with_overrides
from npusim.arch.loading import soc_file
from npusim.config import Override, parse_override
from npusim.config.overrides import field_key
from npusim.config.reading import read_yaml
from npusim.cost.lowering.execution import SPELLINGS, execution_of
from npusim.engines.analytical import mapped_estimate
from npusim.errors import ConfigError, InfeasibleError
from npusim.graph import Editor, Graph
from npusim.mapping import map_graph
from npusim.ops import OPERATORS, DType, Family, Storage
from npusim.scenario import resolve_run
from npusim.studies.sustained import with_sustained
from npusim.techniques import apply
from npusim.units import Count, Quantity
from npusim.workloads import load_workload

FP16, INT8 = DType.FP16, DType.INT8
SIZES = ((1, 7), (3, 100), (200, 300), (1000, 64))
SERIES1 = "core-ultra-series1"
"""Its sheet has the numbers of series 2, which every run of the tests tries."""


# ---------------------------------------------------------------------------------------------- networks
def _convolution(
    editor: Editor, name: str, dtype: DType, image: tuple[int, ...], out: int, stride: int = 1
) -> None:
    """Add a 3x3 convolution with padding; `out` 0: a depthwise one."""
    channels, height, width = image
    x = editor.input(f"x{name}", (1, *image), dtype)
    weight = (out, channels, 3, 3) if out else (channels, 1, 1, 3, 3)
    w = editor.constant(f"w{name}", weight, dtype)
    shape = (1, out or channels, (height - 1) // stride + 1, (width - 1) // stride + 1)
    type_ = "Convolution" if out else "GroupConvolution"
    editor.outputs.append(editor.op(type_, (x, w), shape, dtype, name, strides=(stride, stride)))


@cache
def grid_network(dtype: DType) -> Graph:
    """Work of the MAC grid: products, convolutions, depthwise ones, pooling, sums, zeros, a triangle."""
    editor = Editor(f"grid {dtype}")
    for i, (image, out, stride) in enumerate(
        [
            ((64, 28, 28), 64, 1), ((16, 17, 17), 32, 1), ((256, 1, 1), 256, 1), ((512, 8, 8), 16, 1),
            ((64, 4, 4), 512, 1), ((16, 33, 33), 0, 1), ((64, 16, 16), 0, 1), ((8, 33, 33), 0, 2),
        ]
    ):  # fmt: skip
        _convolution(editor, f"c{i}", dtype, image, out, stride)
    for type_ in ("MaxPool", "AvgPool"):
        x = editor.input(f"x{type_}", (1, 32, 16, 16), dtype)
        editor.outputs.append(
            editor.op(type_, (x,), (1, 32, 8, 8), dtype, type_, kernel=(2, 2), strides=(2, 2))
        )
    a, b = editor.input("a", (2000, 700), dtype), editor.input("b", (2000, 700), dtype)
    editor.outputs.append(editor.eltwise("Add", a, b, "sum"))
    rounded = editor.add("FakeQuantize", (editor.input("q", (2000, 700)),), "rounded", DType.INT8, levels=256)
    editor.outputs.append(rounded)
    for i, (m, k, n) in enumerate([(64, 256, 64), (2708, 1433, 64), (1, 1024, 4096), (5000, 5000, 64)]):
        a, b = editor.input(f"a{i}", (m, k), dtype), editor.constant(f"b{i}", (k, n), dtype)
        editor.outputs.append(editor.matmul(a, b, f"product{i}"))
    for i, (left, right) in enumerate([(0.01, 1.0), (1.0, 0.1), (0.1, 0.1), (0.3, 1.0)]):
        zvc = [Storage.ZVC if density < 1.0 else Storage.DENSE for density in (left, right)]
        for m, k, n, add in ((1024, 1024, 64, editor.constant), (1024, 512, 2048, editor.input)):
            a = add(
                f"za{i}{k}", (m, k), dtype, density=left, storage=zvc[0], block_density=min(1.0, 2 * left)
            )
            b = editor.constant(f"zb{i}{k}", (k, n), dtype, density=right, storage=zvc[1])
            editor.outputs.append(editor.matmul(a, b, f"zeros{i}{k}"))
    deep = [editor.input(name, shape, dtype) for name, shape in (("da", (512, 60000)), ("db", (60000, 512)))]
    editor.outputs.append(editor.matmul(*deep, "deep"))
    for width in (64, 60):  # joined in place, and copied
        halves = [
            editor.matmul(
                editor.input(f"h{i}{width}", (64, 64), dtype),
                editor.constant(f"hw{i}{width}", (64, width), dtype),
                f"half{i}{width}",
            )
            for i in (0, 1)
        ]
        whole = (64, 2 * width)
        joined = editor.op("Concat", tuple(halves), whole, dtype, f"joined{width}", axes=(1,))
        weights = editor.constant(f"hw{width}", (2 * width, 64), dtype)
        editor.outputs.append(editor.matmul(joined, weights, f"after{width}"))
    triangle = editor.constant("t", (1500, 1500), dtype, symmetric=True, storage=Storage.TRIANGLE)
    editor.outputs.append(editor.matmul(triangle, editor.input("tx", (1500, 64), dtype), "triangle"))
    return editor.finish()


@cache
def array_network(dtype: DType) -> Graph:
    """Work of an accelerator: convolutions, one of few channels, products, what is fused and what is not."""
    editor = Editor(f"array {dtype}")
    for i, (image, out, stride) in enumerate(
        [((64, 14, 14), 64, 1), ((3, 33, 33), 32, 2), ((256, 7, 7), 128, 1), ((16, 28, 28), 512, 1)]
    ):
        _convolution(editor, f"c{i}", dtype, image, out, stride)
    x, w = editor.input("x", (1, 32, 28, 28), dtype), editor.constant("w", (32, 32, 3, 3), dtype)
    x = editor.op("Convolution", (x, w), (1, 32, 28, 28), dtype, "first", strides=(1, 1))
    x = editor.unary("Relu", x, "relu")
    for type_ in ("MaxPool", "AvgPool"):
        pooled = editor.op(type_, (x,), (1, 32, 14, 14), dtype, type_, kernel=(2, 2), strides=(2, 2))
        editor.outputs.append(pooled)
    a, b = editor.input("a", (200, 300), dtype), editor.constant("b", (300, 640), dtype)
    editor.outputs.append(editor.unary("Softmax", editor.matmul(a, b, "product"), "softmax", axes=(1,)))
    a, b = editor.input("sa", (300, 300), dtype), editor.input("sb", (300, 300), dtype)
    editor.outputs.append(editor.eltwise("Add", a, b, "sum"))
    return editor.finish()


def _operator(editor: Editor, type_: str, size: tuple[int, int], name: str) -> str:
    """Add an operator of a type on a matrix."""
    family = OPERATORS[type_].family if type_ in OPERATORS else Family.UNKNOWN
    x = editor.input(f"x{name}", size, FP16)
    if family in (Family.ELTWISE, Family.COMPARE):  # of two shapes: the grid takes none of them
        return editor.eltwise(type_, x, editor.input(f"y{name}", (size[0], 1), FP16), name)
    if family is Family.SELECT:
        return editor.select(editor.input(f"c{name}", size, DType.BOOL), x, x, name)
    if family is Family.REDUCE:
        return editor.op(type_, (x,), (size[0], 1), FP16, name, axes=(1,), keep_dims=True)
    if family is Family.SOFTMAX:
        return editor.unary(type_, x, name, axes=(1,))
    half = max(1, size[0] // 2)
    if family is Family.GATHER:
        return editor.op(
            type_, (x, editor.input(f"i{name}", (half,), DType.INT32)), (half, size[1]), FP16, name
        )
    if family is Family.SCATTER:
        index, update = (editor.input(f"{part}{name}", (half, size[1]), FP16) for part in "iu")
        return editor.op(type_, (x, index, update), size, FP16, name, axes=(0,))
    if type_ == "Assign":
        return editor.op(type_, (x,), size, FP16, name, variable=editor.state(f"s{name}", size, FP16))
    if type_ == "Transpose":
        return editor.op(type_, (x,), size[::-1], FP16, name, order=(1, 0))
    if family is Family.MOVE and type_ in ("Broadcast", "Tile"):
        return editor.op(type_, (editor.input(f"v{name}", (size[0], 1), FP16),), size, FP16, name)
    return editor.op(type_, (x,), size, INT8 if family is Family.CONVERT else FP16, name)


@cache
def element_network(types: tuple[str, ...]) -> Graph:
    """Operators on matrices of several sizes, and one on Booleans."""
    editor = Editor("elements")
    for type_ in types:
        for i, size in enumerate(SIZES):
            editor.outputs.append(_operator(editor, type_, size, f"{type_}{i}"))
    if "ScatterElementsUpdate" in types:
        x, index, update = (editor.input(f"m{part}", (300, 200), FP16) for part in "xiu")
        editor.outputs.append(
            editor.op("ScatterElementsUpdate", (x, index, update), (300, 200), FP16, "most", reduction="max")
        )
    if "Add" in types:  # along columns, and Booleans from outside
        x = editor.input("x", (300, 200), FP16)
        editor.outputs.append(
            editor.op("ReduceSum", (x,), (1, 200), FP16, "columns", axes=(0,), keep_dims=True)
        )
        one, other = (editor.input(name, (64, 64), DType.BOOL) for name in ("one", "other"))
        editor.outputs.append(editor.eltwise("LogicalAnd", one, other, "booleans"))
    if "Gather" in types:  # single numbers, and short rows
        for width in (1, 16):
            x, index = editor.input(f"g{width}", (900, width), FP16), f"gi{width}"
            rows = editor.input(index, (30_000,), DType.INT32)
            editor.outputs.append(
                editor.op("Gather", (x, rows), (30_000, width), FP16, f"g/{width}", axes=(0,))
            )
    if "Softmax" in types:  # along columns
        editor.outputs.append(editor.unary("Softmax", editor.input("sx", (300, 200)), "across", axes=(0,)))
    if "Transpose" in types:  # rows that stay in one piece
        x = editor.input("rows", (200, 10, 64), FP16)
        editor.outputs.append(editor.op("Transpose", (x,), (10, 200, 64), FP16, "whole", order=(1, 0, 2)))
    return editor.finish()


@cache
def far() -> Graph:
    """Rows gathered from a table that no cache holds: beside it, nothing else would stay in caches."""
    editor = Editor("far")
    table, index = (
        editor.input("table", (1_000_000, 640), FP16),
        editor.input("index", (300_000,), DType.INT32),
    )
    editor.outputs.append(editor.op("Gather", (table, index), (300_000, 640), FP16, "far"))
    return editor.finish()


HOST_TYPES = (
    "Add", "Divide", "Exp", "Sigmoid", "Log", "Power", "Softmax", "ReduceSum", "Transpose", "Gather",
    "ScatterElementsUpdate", "TakePages", "Broadcast",
)  # fmt: skip


@cache
def types_of(kernel: str) -> tuple[str, ...]:
    """Operator types whose DSP kernel has a name, or another spelling of it."""
    names = {kernel, *(name for name, other in SPELLINGS.items() if other == kernel)}
    own = {type_: execution_of(traits).dsp_kernel or type_.lower() for type_, traits in OPERATORS.items()}
    return tuple(type_ for type_, name in own.items() if name in names)


@cache
def small() -> Graph:
    return apply(load_workload("gcn-cora"), "stagr")


@cache
def compressed() -> Graph:
    return load_workload("gcn-cora", ["workload.form=csr"])


@cache
def planar() -> Graph:
    """A large product, and an operator that keeps a network planar on some GPUs."""
    editor = Editor("planar")
    a, b = editor.input("a", (2048, 2048), FP16), editor.constant("b", (2048, 2048), FP16)
    editor.outputs.append(editor.matmul(a, b, "product"))
    table, index = editor.input("table", (64, 64), FP16), editor.input("index", (64, 64), DType.INT32)
    editor.outputs.append(editor.op("GatherElements", (table, index), (64, 64), FP16, "fetched", axes=(0,)))
    return editor.finish()


# ------------------------------------------------------------------------------------------------ probes
def probes(soc: Soc, path: str) -> Iterator[tuple[Graph, dict[str, Any]]]:
    """Networks and ways to run them that a number may bear on, the likeliest first."""
    parts = path.split(".")
    if soc.has("accelerator") and parts[0] != "cpu":
        for dtype in (INT8, FP16):
            yield array_network(dtype), {}
            yield array_network(dtype), {"hint": "throughput"}
    if parts[1:3] == ["dsp", "kernels"] and len(parts) > 5:
        yield element_network(types_of(parts[5]) or ("NobodyKnowsThis",)), {}
    if parts[1:2] == ["exposed"]:
        yield element_network(("Transpose",)), {}
    if parts[0] == "package":
        yield small(), {"device": "cpu"}
    if parts[1:2] == ["planar"]:
        yield planar(), {"device": parts[0]}
    if parts[0] in ("cpu", "gpu"):
        yield element_network(HOST_TYPES), {"device": parts[0]}
        for dtype in (DType.FP32, FP16, INT8, DType.BF16):
            yield grid_network(dtype), {"device": parts[0]}
        yield far(), {"device": parts[0]}
        yield small(), {"device": parts[0], "hint": "throughput"}
        yield compressed(), {"device": parts[0]}
        return
    for dtype in (INT8, FP16):
        yield grid_network(dtype), {}
    yield element_network(("Greater", "Softmax", "Convert")), {}
    yield small(), {"hint": "throughput"}
    if parts[0] == "npu":
        yield small(), {"hint": "throughput", "tiles": 1}
    if parts[-1] == "contexts":  # of a device that runs little of the networks above
        yield grid_network(INT8), {"device": parts[0], "hint": "throughput"}
    if parts[0] == "dram":
        yield element_network(HOST_TYPES), {"device": "cpu"}
        yield far(), {"device": "cpu"}


def figures(soc: Soc, graph: Graph, run: dict[str, Any]) -> Any:
    """Figures of an estimate: the totals, and what each operator comes to."""
    mapped = map_graph(graph, soc, resolve_run(soc, **run))
    rows = [np.asarray(mapped.results[name], float).ravel() for name in mapped.results.dtype.names]
    return np.concatenate([np.array(mapped.total.tolist(), float).ravel(), *rows])


def sustained_figures(soc: Soc, graph: Graph, run: dict[str, Any]) -> Any:
    """Return what a package sustains as an array; an empty one where its limits are below its idle power."""
    mapped = map_graph(graph, soc, resolve_run(soc, **run))
    try:
        result = with_sustained(mapped_estimate(mapped), soc).sustained
    except ConfigError:
        return np.zeros(0)
    assert result is not None
    course = [value for moment in result.course for value in (moment.power_w, *moment.figures.values())]
    return np.array([result.burst_per_s, result.throughput_per_s, result.burst_s or 0.0, *course])


def numbers(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Quantity | Count]]:
    """Yield each number that a data sheet states, informative ones too."""
    if isinstance(value, BaseModel):
        for name, info in type(value).model_fields.items():
            yield from numbers(getattr(value, name), (*path, field_key(name, info)))
    elif isinstance(value, dict):
        for key, inside in value.items():
            yield from numbers(inside, (*path, str(key)))
    elif isinstance(value, Quantity | Count) and not str(value.source).startswith("absent"):
        yield ".".join(path[1:] if path[0] == "devices" else path), value


def company(path: str) -> list[str]:
    """Settings without which nothing would ask for a number."""
    parts = path.split(".")
    if "operating_points" in parts:
        return [f"{parts[0]}.operating_point={parts[2]}"]
    if "levels" in parts[:2]:  # of a device, or shared; those of an array are always used
        level = path.rpartition(".")[0]
        return [f"{level}.managed_by=software"] + [f"{level}.capacity=16MiB"] * (parts[-1] != "capacity")
    if parts[-1] == "leakage_share":
        return [f"{parts[0]}.voltage=0.7 V"]
    if ".dpu.model.row_" in path:
        return ["npu.dpu.model.row_reuse_channels=32", "npu.dpu.model.row_reuse_kernel_w=3"]
    if parts[1:3] == ["dsp", "kernels"]:
        return [f"{parts[0]}.dsp.kernel_generation={parts[3]}"]
    return []


def changes(number: Quantity | Count) -> Iterator[Any]:
    """Other values of a number."""
    if isinstance(number, Count):
        yield from (int(number) + 1, max(0, int(number) - 1), 3 * int(number) + 2)
        return
    for factor in (1.5, 0.5, 8.0, 0.01, 1e-4, 0.98) if number else ():
        yield Quantity(float(number) * factor, number.unit).as_written()
    if not number:
        yield from (Quantity(value, number.unit).as_written() for value in (1.0, 0.5, 30.0, 3e7, 1e-6))


def moves(soc: Soc, path: str, number: Quantity | Count) -> bool:
    """Tell whether another value of a number moves any figure, or cannot stand beside the others."""
    beside, read = tuple(company(path)), sustained_figures if path.startswith("package.") else figures
    for value in changes(number):
        setting = Override(tuple(path.split(".")), value, f"--set {path}={value}")
        try:
            machine = with_overrides(soc, [*map(parse_override, beside), setting])
        except ConfigError as error:
            if "peak_bandwidth" in str(error):  # a limit, which is what it is for
                return True
            continue
        for graph, run in probes(soc, path):
            try:
                before = _before(read, soc.name, beside, graph, tuple(run.items()))
            except InfeasibleError:  # a network that this machine is too small for
                continue
            try:
                after = read(machine, graph, run)
            except InfeasibleError:  # what ran does not fit any more
                return True
            if before.shape != after.shape or not np.array_equal(before, after):
                return True
    return False


@cache
def _machine(name: str, settings: tuple[str, ...]) -> Soc:
    return load_soc(name, settings)


@cache
def _before(
    read: Callable[[Soc, Graph, dict[str, Any]], Any],
    name: str,
    settings: tuple[str, ...],
    graph: Graph,
    run: tuple[tuple[str, Any], ...],
) -> Any:
    return read(_machine(name, settings), graph, dict(run))


def is_informative(soc: Soc, path: str, number: Quantity | Count) -> bool:
    """Tell whether a setting of a number is refused because no estimate reads it."""
    try:
        with_overrides(soc, {path: number})
    except ConfigError as error:
        return "informative" in str(error)
    return False


def idle_numbers(name: str) -> list[str]:
    """Return the numbers of a data sheet that neither move anything nor are marked."""
    soc = load_soc(name)
    own = set(_paths(read_yaml(soc_file(name)).data)) if soc.extends else None
    found = []
    for path, number in numbers(soc):
        if own is not None and path not in own:
            continue
        if not is_informative(soc, path, number) and not moves(soc, path, number):
            found.append(path)
    return found


def _paths(data: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    if isinstance(data, dict) and "value" not in data:
        for key, value in data.items():
            yield from _paths(value, (*path, key) if (*path, key) != ("devices",) else ())
    else:
        yield ".".join(path)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.slow] * (n == SERIES1 or load_soc(n).has("accelerator")))
        for n in soc_names()
    ],
)
def test_every_number_of_a_data_sheet_moves_a_figure_or_is_informative(name: str) -> None:
    assert idle_numbers(name) == []


@pytest.mark.parametrize("dtype", ["int8", "fp16"])
def test_a_rate_of_the_grid_moves_the_time_of_its_own_format_alone(dtype: str) -> None:
    soc = load_soc("core-ultra-series2")
    slow = with_overrides(soc, {f"npu.dpu.macs_per_mpe.{dtype}": "1 MAC/cycle"})
    for graph_dtype in (INT8, FP16):
        before, after = (map_graph(grid_network(graph_dtype), one, resolve_run(one)) for one in (soc, slow))
        moved = after.total["dpu_s"] > 1.1 * before.total["dpu_s"]
        assert moved == (graph_dtype == dtype)


def test_a_grid_without_a_format_computes_in_the_next_it_has() -> None:
    soc = load_soc("core-ultra-series2")
    wide = {"npu.dpu.macs_per_mpe.fp32": "1 MAC/cycle", "technology.energy.mac.fp32": "9 pJ/MAC"}
    wide |= {"technology.area.mac.fp32": "900 um^2/MAC"}
    one, two = (
        map_graph(grid_network(DType.FP32), m, resolve_run(m)) for m in (soc, with_overrides(soc, wide))
    )
    half = map_graph(grid_network(FP16), soc, resolve_run(soc))
    assert half.total["dpu_s"] <= one.total["dpu_s"] < 1.2 * two.total["dpu_s"]
    assert two.total["energy_j"] > one.total["energy_j"]
    assert two.total["area_mm2"] > one.total["area_mm2"]
