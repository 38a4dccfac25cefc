"""Operators of networks from the wild: what is imported of them, how much work they are counted as."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import npusim
from npusim.graph import Editor, Graph
from npusim.ops import DType, Operator, Tensor, Work

ov = pytest.importorskip("openvino")

from npusim.frontends.openvino_ir import graph_of_model  # noqa: E402

ops = ov.opset15


def constant(*shape: int) -> Any:
    return ops.constant(np.ones(shape, dtype=np.float32))


def integers(*values: int) -> Any:
    return ops.constant(np.array(values, dtype=np.int64))


def imported(build: Callable[..., Any], *shapes: Sequence[int]) -> Graph:
    """Import the model that makes one result of inputs of some shapes."""
    inputs = []
    for number, shape in enumerate(shapes):
        inputs.append(ops.parameter(list(shape), ov.Type.f32))
        inputs[-1].set_friendly_name(f"x{number}")
    made = build(*inputs)
    return graph_of_model(
        ov.Model([made if isinstance(made, ov.Output) else made.output(0)], inputs, "m"), "m"
    )


IMAGE = (1, 16, 32, 32)
FAMILIES: dict[str, tuple[Callable[..., Any], tuple[Sequence[int], ...]]] = {
    "Interpolate": (
        lambda x: ops.interpolate(x, integers(64, 64), "nearest", "sizes", axes=integers(2, 3)), (IMAGE,)
    ),
    "ConvolutionBackpropData": (
        lambda x: ops.convolution_backprop_data(x, constant(16, 8, 2, 2), [2, 2]), (IMAGE,)
    ),
    "DepthToSpace": (lambda x: ops.depth_to_space(x, "blocks_first", 2), (IMAGE,)),
    "SpaceToDepth": (lambda x: ops.space_to_depth(x, "blocks_first", 2), (IMAGE,)),
    "GroupNormalization": (
        lambda x: ops.group_normalization(x, constant(16), constant(16), 4, 1e-5), (IMAGE,)
    ),
    "LRN": (lambda x: ops.lrn(x, integers(1), 1e-4, 0.75, 1.0, 5), (IMAGE,)),
    "HardSigmoid": (lambda x: ops.hard_sigmoid(x, np.float32(0.2), np.float32(0.5)), (IMAGE,)),
    "Round": (ops.round, (IMAGE,)),
    "GridSample": (lambda x, g: ops.grid_sample(x, g, {"mode": "bilinear"}), (IMAGE, (1, 20, 20, 2))),
    "AdaptiveAvgPool": (lambda x: ops.adaptive_avg_pool(x, integers(7, 7)), (IMAGE,)),
    "ReverseSequence": (lambda x: ops.reverse_sequence(x, integers(4, 3, 2, 1), 0, 1), ((4, 10, 8),)),
    "NonMaxSuppression": (
        lambda b, s: ops.non_max_suppression(b, s, integers(10), np.float32(0.5), np.float32(0.1)).output(0),
        ((1, 100, 4), (1, 5, 100)),
    ),
    "LSTMSequence": (
        lambda x: ops.lstm_sequence(
            x, constant(2, 1, 64), constant(2, 1, 64), integers(50, 50),
            constant(1, 256, 32), constant(1, 256, 64), constant(1, 256), 64, "forward",
        ).output(0),
        ((2, 50, 32),),
    ),
}  # fmt: skip


@pytest.mark.few(3)
@pytest.mark.parametrize("type_", FAMILIES)
def test_it_is_known_and_costed_on_every_device_by_both_engines(type_: str) -> None:
    build, shapes = FAMILIES[type_]
    graph = imported(build, *shapes)
    kept = {"LSTMSequence": "LSTMGates"}.get(type_, type_)
    assert [op.type for op in graph if op.type == kept] and all(op.traits.known for op in graph)
    for device in ("npu", "cpu", "gpu"):
        one, two = (
            npusim.estimate(graph, "core-ultra-series2", device=device, engine=engine)
            for engine in ("analytical", "event")
        )
        assert one.latency_s == pytest.approx(two.latency_s, rel=0.15)
        assert not any("does not know" in warning for warning in one.warnings)


@pytest.mark.parametrize("masked", [False, True])
def test_an_attention_is_two_products_around_a_softmax(masked: bool) -> None:
    shapes = [(1, 8, 128, 64), (1, 8, 96, 64), (1, 8, 96, 32), *([(1, 1, 128, 96)] if masked else [])]
    graph = imported(ops.scaled_dot_product_attention, *shapes)
    assert graph.macs == 8 * 128 * 96 * (64 + 32)
    assert [op.type for op in graph] == ["MatMul", "Multiply", *["Add"] * masked, "Softmax", "MatMul"]


def test_an_attention_is_never_quicker_than_its_products_on_the_full_grid() -> None:
    graph = imported(ops.scaled_dot_product_attention, *[(1, 8, 1024, 64)] * 3)
    soc = npusim.load_soc("core-ultra-series2")
    roofline_s = graph.macs / soc.npu.peak_macs_per_s("fp16")
    assert npusim.estimate(graph, soc).latency_s > roofline_s


@pytest.mark.parametrize(
    ("equation", "a", "b", "macs"),
    [
        ("bij,bjk->bik", (4, 16, 32), (4, 32, 8), 4 * 16 * 32 * 8),
        ("bqhd,bkhd->bhqk", (4, 16, 3, 32), (4, 8, 3, 32), 4 * 3 * 16 * 8 * 32),
        ("ij,kj->ki", (5, 7), (6, 7), 5 * 6 * 7),
    ],
)
def test_an_einsum_of_two_is_a_product(
    equation: str, a: tuple[int, ...], b: tuple[int, ...], macs: int
) -> None:
    graph = imported(lambda x, y: ops.einsum([x, y], equation), a, b)
    assert graph.macs == macs
    sizes = dict(zip(equation.replace(",", "").partition("->")[0], (*a, *b), strict=True))
    assert graph.tensors[graph.outputs[0]].shape == tuple(sizes[x] for x in equation.partition("->")[2])


def counted(type_: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], **attrs: object) -> Work:
    op = Operator("op", type_, tuple(f"x{i}" for i in range(len(inputs))), ("y",), attrs)
    tensors = [Tensor(f"x{i}", shape) for i, shape in enumerate(inputs)]
    return op.traits.work(op, tensors, [Tensor("y", output)])


def test_a_transposed_convolution_multiplies_each_input_pixel_by_each_tap() -> None:
    work = counted("ConvolutionBackpropData", [(1, 16, 8, 8), (16, 4, 3, 3)], (1, 4, 16, 16), strides=(2, 2))
    assert work.macs == 8 * 8 * 16 * 4 * 9
    assert (work.kernel_w, work.out_w, work.out_c) == (2, 16, 4)


def test_a_recurrent_layer_reads_its_weights_at_every_step() -> None:
    inputs = [(2, 50, 32), (2, 1, 64), (2, 1, 64), (2,), (1, 256, 32), (1, 256, 64), (1, 256)]
    work = counted("LSTMSequence", inputs, (2, 1, 50, 64))
    assert (work.macs, work.rows) == (2 * 50 * 256 * (32 + 64), 50)


def test_an_interpolation_reads_as_many_neighbours_as_its_mode_has() -> None:
    shapes = [(1, 4, 8, 8)], (1, 4, 16, 16)
    nearest, linear, cubic = (
        counted("Interpolate", *shapes, mode=m) for m in ("nearest", "linear_onnx", "cubic")
    )
    assert (nearest.elements, linear.elements, cubic.elements) == (1024, 4 * 1024, 16 * 1024)


def test_a_gather_reads_the_rows_it_takes_and_not_the_table() -> None:
    def traffic(rows: int, taken: int) -> float:
        editor = Editor("gather")
        table = editor.constant("table", (rows, 64))
        indices = editor.input("indices", (taken,), DType.INT32)
        editor.outputs = [editor.gather(table, indices, "taken")]
        return npusim.estimate(editor.finish(), "core-ultra-series2").dram_bytes

    assert traffic(50_000, 128) == traffic(5_000, 128) < traffic(5_000, 1_000)
