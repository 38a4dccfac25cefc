"""Layers that run depth-first: cuts move the fewest bytes, bands fit, and no network is slower."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Machine
from test_cost_kernel import check as check_twin
from test_event import check_bounds, check_conservation, check_exclusiveness
from test_plan_table import check_every_plan

from npusim import estimate
from npusim.cost.lowering.bands import band_bytes
from npusim.cost.lowering.liveness import roots
from npusim.engines.event import run_events
from npusim.errors import InfeasibleError
from npusim.graph import Editor, Graph
from npusim.mapping import Mapped, Run, map_graph
from npusim.mapping.depth_first import Run as LayerRun
from npusim.mapping.depth_first import runs as layer_runs
from npusim.mapping.fusion import fuse
from npusim.ops import DType
from npusim.scenario import Scenario

ON, OFF = "npu.schedule.depth_first=true", "npu.schedule.depth_first=false"
SERIES2 = Machine("core-ultra-series2")
FP16 = 2


def convolved(editor: Editor, image: str, channels: int, name: str, kernel: int = 3, stride: int = 1) -> str:
    """Add a convolution with zeros around its image."""
    _, in_c, rows, columns = editor.tensors[image].shape
    pad, dtype = kernel // 2, editor.tensors[image].dtype
    weights = editor.constant(f"{name}/w", (channels, in_c, kernel, kernel), dtype)
    shape = (1, channels, *((size + 2 * pad - kernel) // stride + 1 for size in (rows, columns)))
    pads = {"pads_begin": (pad, pad), "pads_end": (pad, pad), "strides": (stride, stride)}
    return editor.op("Convolution", (image, weights), shape, dtype, name, **pads)


def layers(
    count: int, rows: int, columns: int, channels: int, kernel: int = 3, outputs: int | None = None
) -> Graph:
    """Convolutions in a row that keep the size of their image of three channels."""
    editor = Editor("layers")
    image = editor.input("x", (1, 3, rows, columns), DType.FP16)
    for i in range(count):
        width = channels if i < count - 1 or outputs is None else outputs
        image = convolved(editor, image, width, f"conv{i}", kernel)
    editor.outputs.append(image)
    return editor.finish()


@st.composite
def images(draw: Any) -> Graph:
    """Convolutions, depthwise ones, poolings and sums in a row on an image; some results have two readers."""
    editor = Editor("image")
    dtype = draw(st.sampled_from([DType.FP16, DType.INT8]))
    size = st.sampled_from([1, 9, 33, 64, 130, 240])
    image = editor.input("x", (1, draw(st.integers(1, 40)), draw(size), draw(size)), dtype)
    waiting = image
    for i in range(draw(st.integers(2, 7))):
        kind = draw(st.sampled_from(["conv", "conv", "conv", "depthwise", "pool", "sum", "softmax"]))
        _, channels, rows, columns = shape = editor.tensors[image].shape
        kernel, stride = draw(st.sampled_from([1, 3, 5])), draw(st.sampled_from([1, 1, 2, 3]))
        name, pad = f"{i}_{kind}", kernel // 2
        narrower = (1, channels, *((n + 2 * pad - kernel) // stride + 1 for n in (rows, columns)))
        window = {"strides": (stride, stride), "pads_begin": (pad, pad), "pads_end": (pad, pad)}
        if kind == "conv":
            image = convolved(editor, image, draw(st.integers(1, 70)), name, kernel, stride)
        elif kind == "depthwise":
            filters = editor.constant(f"{name}/w", (channels, 1, 1, kernel, kernel), dtype)
            image = editor.op("GroupConvolution", (image, filters), narrower, dtype, name, **window)
        elif kind == "pool":
            image = editor.op("MaxPool", (image,), narrower, dtype, name, kernel=(kernel, kernel), **window)
        elif kind == "softmax":
            image = editor.unary("Softmax", image, name, axes=(1,))
        else:
            other = waiting if editor.tensors[waiting].shape == shape else editor.input(name, shape, dtype)
            image = editor.eltwise("Add", image, other, f"{name}_add")
        waiting = image if draw(st.booleans()) else waiting
        if draw(st.integers(0, 5)) == 0:
            editor.outputs.append(image)
    if image not in editor.outputs:
        editor.outputs.append(image)
    return editor.finish()


@st.composite
def small_machines(draw: Any) -> Machine:
    """Machines with little SRAM and slow or fast DRAM."""
    settings_ = {
        "npu.sram.per_tile": st.sampled_from(["20KiB", "64KiB", "200KiB", "1440KiB"]),
        "dram.bandwidth": st.sampled_from(["1GB/s", "10GB/s", "80GB/s"]),
        "npu.schedule.stream_pieces": st.sampled_from(["1", "8"]),
    }
    name = draw(st.sampled_from(["core-ultra-series1", "core-ultra-series2"]))
    return Machine(name, tuple(f"{key}={draw(values)}" for key, values in settings_.items()))


def mapped_on(machine: Machine, graph: Graph, tiles: int = 2) -> Mapped | None:
    try:
        return map_graph(graph, machine.soc, Run(tiles=tiles))
    except InfeasibleError:
        return None


@given(images(), small_machines(), st.integers(1, 2))
@settings(max_examples=40)
def test_no_network_is_slower_than_without(graph, machine, tiles):
    before, after = (mapped_on(machine.but(switch), graph, tiles) for switch in (OFF, ON))
    if before is not None:
        assert after is not None
        assert after.total["latency_s"] <= before.total["latency_s"]


@given(images(), small_machines())
@settings(max_examples=40)
def test_what_enters_and_leaves_crosses_dram_once_at_least(graph, machine):
    mapped = mapped_on(machine.but(ON), graph)
    if mapped is None:
        return
    read = {name for op in graph for name in op.inputs} - {name for op in graph for name in op.outputs}
    compulsory = sum(graph.tensors[name].bytes for name in (*read, *graph.outputs))
    assert mapped.total["dram_bytes"] >= compulsory * (1 - 1e-9)


@given(images(), small_machines())
@settings(max_examples=30)
def test_laws_of_the_event_engine_hold_in_bands(graph, machine):
    mapped = mapped_on(machine.but(ON), graph)
    if mapped is not None:
        run = run_events(mapped)
        check_conservation(mapped, run.timeline)
        check_exclusiveness(run.timeline)
        check_bounds(mapped, run, run.timeline)


@pytest.mark.few(1)
@pytest.mark.parametrize(("rows", "columns", "channels"), [(33, 40, 16), (40, 9, 24), (64, 64, 5)])
def test_the_kernel_agrees_with_its_twin_in_bands(rows, columns, channels):
    soc = SERIES2.but(ON, "npu.sram.per_tile=20KiB", "dram.bandwidth=1GB/s").soc
    mapped = map_graph(layers(3, rows, columns, channels), soc, Run(tiles=2))
    assert mapped.lowered.ops["bands"].any()
    check_twin(mapped)


@pytest.mark.few(1)
@pytest.mark.parametrize("workload", ["unet-camvid", "yolo-v3-tiny"])
@pytest.mark.parametrize("bandwidth", ["20GB/s", "80GB/s"])
def test_engines_agree_on_networks_in_bands(workload, bandwidth):
    mapped = Scenario(workload, "core-ultra-series2", settings=[ON, f"dram.bandwidth={bandwidth}"]).mapped
    assert mapped.lowered.ops["bands"].any()
    assert run_events(mapped).latency_s == pytest.approx(float(mapped.total["latency_s"]), rel=0.15)


@given(images(), small_machines())
@settings(max_examples=15)
def test_each_plan_is_that_of_lowering_it_alone(graph, machine):
    check_every_plan(graph, machine.but(ON).soc, step=5)


@given(images(), small_machines(), st.sampled_from([1.1, 1.5, 2.0, 4.0]))
@settings(max_examples=25)
def test_more_sram_hardly_ever_hurts(graph, machine, factor):
    before = mapped_on(machine.but(ON), graph)
    size = machine.soc.npu.sram.per_tile * factor
    after = mapped_on(machine.but(ON, f"npu.sram.per_tile={size:.0f}B"), graph)
    if before is not None:
        assert after is not None
        assert after.total["latency_s"] <= 1.002 * before.total["latency_s"]


def test_only_input_weights_and_result_cross_dram():
    """Eight layers at 720p: 1280 x 720 x (3 + 12) fp16, and 9 x (3 + 6 x 32 + 12) x 32 weights, once."""
    graph = layers(8, 720, 1280, 32, outputs=12)
    mapped = map_graph(graph, SERIES2.but(ON).soc, Run(tiles=4))
    weights = 9 * 32 * (3 + 6 * 32 + 12)
    assert mapped.total["dram_bytes"] == FP16 * (1280 * 720 * (3 + 12) + weights)
    without = map_graph(graph, SERIES2.but(OFF).soc, Run(tiles=4))
    passed = FP16 * 1280 * 720 * 32 * 7  # between layers: written, and read at least once
    assert without.total["dram_bytes"] > 2 * passed
    assert mapped.total["latency_s"] < 0.8 * without.total["latency_s"]
    assert run_events(mapped).latency_s == pytest.approx(float(mapped.total["latency_s"]), rel=0.05)


@pytest.mark.parametrize("kernel", [3, 5, 7])
def test_a_line_buffer_takes_the_rows_that_windows_share(kernel):
    graph = layers(2, 64, 100, 16, kernel)
    row_bytes = 100 * 16 * FP16
    size = band_bytes(graph, "conv0", 8)
    assert size.spread == (64 / 8 + kernel - 1) * row_bytes
    assert size.copied == size.spread * (kernel - 1) / 100


def test_a_wider_window_takes_more_sram():
    soc = SERIES2.but(ON, "dram.bandwidth=1GB/s").soc
    for kernel in (1, 3, 5):
        mapped = map_graph(layers(4, 720, 1280, 16, kernel), soc, Run(tiles=4))
        live = mapped.lowered.ops[1]["live_spread_bytes"]
        rows = 720 / mapped.lowered.ops[1]["bands"] + kernel - 1
        assert live == pytest.approx(3 * rows * 1280 * 16 * FP16)


def found_runs(graph: Graph) -> list[LayerRun]:
    soc = SERIES2.but(ON).soc
    groups = fuse(graph, soc, "npu")
    return layer_runs(graph, groups, roots(graph, groups), soc)


def test_a_residual_cuts():
    editor = Editor("residual")
    image = convolved(editor, editor.input("x", (1, 16, 64, 64), DType.FP16), 16, "stem")
    inner = convolved(editor, convolved(editor, image, 16, "first"), 16, "second")
    joined = editor.eltwise("Add", inner, image, "sum")
    editor.outputs.append(convolved(editor, joined, 16, "last"))
    found = [[layer.result for layer in run.layers] for run in found_runs(editor.finish())]
    assert found == [["first", "second", "sum", "last"]]  # the sum reads the stem from outside the segment


@pytest.mark.parametrize("kind", ["Softmax", "Concat", "upsampled"])
def test_what_the_grid_does_not_do_by_rows_cuts(kind):
    editor = Editor("cut")
    image = convolved(editor, editor.input("x", (1, 16, 64, 64), DType.FP16), 16, "first")
    if kind == "Softmax":
        image = editor.unary("Softmax", image, "between", axes=(1,))
    elif kind == "Concat":
        parts = (image, editor.input("y", (1, 16, 64, 64), DType.FP16))
        image = editor.op("Concat", parts, (1, 32, 64, 64), DType.FP16, "between", axes=(1,))
    else:
        weights = editor.constant("w", (16, 16, 2, 2), DType.FP16)
        up = (1, 16, 128, 128)
        strides = {"strides": (2, 2)}
        image = editor.op("ConvolutionBackpropData", (image, weights), up, DType.FP16, "between", **strides)
    editor.outputs.append(convolved(editor, image, 16, "last"))
    assert found_runs(editor.finish()) == []


def moved_bytes(run: LayerRun, cuts: set[int], limit_bytes: float, whole: set[str]) -> float:
    """Return the bytes over DRAM of results where a run is cut behind some layers; infinite: no fit."""
    last = len(run.layers) - 1
    starts = [0, *(cut + 1 for cut in sorted(cuts))]
    for first, end in zip(starts, [*sorted(cuts), last], strict=True):
        if any(run.layers[i].result in whole for i in range(first, end)):
            return np.inf
        needs = [s.needed_bytes for s in run.segments[end] if s.first == first]
        if end > first and min(needs, default=np.inf) > limit_bytes:
            return np.inf
    return sum(run.layers[cut].result_bytes for cut in cuts if run.layers[cut].result not in whole)


@given(images(), st.floats(0.0, 1.0), st.sets(st.integers(0, 6)))
@settings(max_examples=60)
def test_cuts_move_the_fewest_bytes(graph, share, kept):
    for run in found_runs(graph):
        whole = {layer.result for i, layer in enumerate(run.layers) if i in kept}
        limit_bytes = share * max((s.needed_bytes for ends in run.segments for s in ends), default=0.0)
        passed = dict(run.cut(limit_bytes, whole))
        cuts = {i for i, layer in enumerate(run.layers[:-1]) if layer.result not in passed}
        every = [
            set(some) for n in range(len(run.layers)) for some in combinations(range(len(run.layers) - 1), n)
        ]
        fewest = min(moved_bytes(run, some, limit_bytes, whole) for some in every)
        assert moved_bytes(run, cuts, limit_bytes, whole) == fewest


def test_an_estimate_names_its_segments():
    found = estimate("yolo-v3-tiny", "core-ultra-series2", settings=[ON])
    segments = {op.mapping.segment for op in found.operators if op.mapping and op.mapping.bands > 1}
    assert segments
    assert segments < {op.name for op in found.operators}
    assert estimate("yolo-v3-tiny", "core-ultra-series2").dram_bytes > found.dram_bytes
