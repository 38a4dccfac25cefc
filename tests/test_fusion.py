"""What rides along on an output of the MAC grid: bias, activation, requantisation, residual sum."""

import pytest

from npusim.arch import load_soc
from npusim.graph import Editor
from npusim.mapping.fusion import fuse
from npusim.ops import DType

SERIES2 = "core-ultra-series2"
SHAPES = {"Convolution": (32, 16, 3, 3), "GroupConvolution": (32, 1, 1, 3, 3)}


def convolution(
    editor: Editor, source: str, name: str, type_: str = "Convolution", channels: int = 32
) -> str:
    shape = list(SHAPES[type_])
    shape[0] = channels
    size = editor.tensors[source].shape[-1]
    weights = editor.constant(f"{name}/weights", shape, DType.FP16)
    return editor.op(
        type_, (source, weights), (1, channels, size, size), DType.FP16, name,
        strides=(1, 1), pads_begin=(1, 1), pads_end=(1, 1), dilations=(1, 1),
    )  # fmt: skip


def groups(editor: Editor, output: str, *settings: str) -> dict[str, tuple[str, ...]]:
    editor.outputs.append(output)
    return {g.main: g.fused for g in fuse(editor.finish(), load_soc(SERIES2, list(settings)), "npu")}


@pytest.mark.parametrize("type_", SHAPES)
@pytest.mark.parametrize("shape", [(1, 32, 1, 1), (32, 1, 1), (1, 1, 1, 1), ()])
def test_bias_and_activation_of_a_convolution_ride_along_whatever_the_width(type_, shape):
    editor = Editor("conv")
    x = editor.input("x", (1, 32 if type_ == "GroupConvolution" else 16, 24, 24), DType.FP16)
    conv = convolution(editor, x, "conv", type_)
    bias = editor.op(
        "Add", (conv, editor.constant("b", shape, DType.FP16)), (1, 32, 24, 24), DType.FP16, "bias"
    )
    act = editor.op("Clamp", (bias,), (1, 32, 24, 24), DType.FP16, "relu6", min=0.0, max=6.0)
    assert groups(editor, act) == {"conv": ("bias", "relu6")}


@pytest.mark.parametrize("shape", [(1, 1, 1, 32), (1, 1, 32, 1), (1, 32, 32, 32)])
def test_a_constant_per_pixel_does_not_ride_along_on_a_convolution(shape):
    editor = Editor("conv")
    x = editor.input("x", (1, 16, 32, 32), DType.FP16)
    conv = convolution(editor, x, "conv")
    map_ = editor.constant("map", shape, DType.FP16)
    out = editor.op("Add", (conv, map_), (1, 32, 32, 32), DType.FP16, "sum")
    assert groups(editor, out) == {"conv": (), "sum": ()}


@pytest.mark.parametrize("fused", [True, False])
def test_a_residual_sum_rides_along_where_the_data_sheet_says_so(fused):
    editor = Editor("residual")
    x = editor.input("x", (1, 16, 32, 32), DType.FP16)
    left = convolution(editor, x, "left")
    right = convolution(editor, x, "right")
    total = editor.op("Add", (left, right), (1, 32, 32, 32), DType.FP16, "sum")
    out = editor.op("Relu", (total,), (1, 32, 32, 32), DType.FP16, "relu")
    found = groups(editor, out, f"npu.dpu.fuse_residual={str(fused).lower()}")
    assert found == (
        {"left": ("sum", "relu"), "right": ()} if fused else {"left": (), "right": (), "sum": ("relu",)}
    )
    # What a group reads is made by an earlier one.
    if fused:
        assert list(found) == ["right", "left"]


def test_an_operator_type_that_the_data_sheet_does_not_list_stays_apart():
    editor = Editor("conv")
    conv = convolution(editor, editor.input("x", (1, 16, 32, 32), DType.FP16), "conv")
    act = editor.op("Relu", (conv,), (1, 32, 32, 32), DType.FP16, "relu")
    assert groups(editor, act, "npu.dpu.fused_ops=[add]") == {"conv": (), "relu": ()}
