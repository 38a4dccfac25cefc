"""Joins and splits in place: which need no copy, and that nothing gets dearer or lost by it."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim import estimate, load_soc
from npusim.cost import Unit
from npusim.graph import Editor, Graph
from npusim.mapping.fusion import fuse
from npusim.ops import DType, Operator, Tensor

SERIES2 = "core-ultra-series2"
COPIED = "npu.schedule.in_place_ops=[]"


def images(editor: Editor, count: int, channels: int = 32, size: int = 24) -> list[str]:
    """Return images that the grid makes."""
    x = editor.input("x", (1, 16, size, size), DType.FP16)
    weights = editor.constant("w", (channels, 16, 3, 3), DType.FP16)
    return [
        editor.op(
            "Convolution", (x, weights), (1, channels, size, size), DType.FP16, f"conv{i}",
            strides=(1, 1), pads_begin=(1, 1), pads_end=(1, 1), dilations=(1, 1),
        )
        for i in range(count)
    ]  # fmt: skip


def joined(editor: Editor, parts: list[str], axis: int = 1) -> str:
    shape = list(editor.tensors[parts[0]].shape)
    shape[axis] = sum(editor.tensors[part].shape[axis] for part in parts)
    return editor.op("Concat", parts, shape, DType.FP16, "join", axes=(axis,))


def pooled(editor: Editor, x: str) -> str:
    return editor.op(
        "MaxPool", (x,), editor.tensors[x].shape, DType.FP16, f"{x}/pool",
        kernel=(3, 3), strides=(1, 1), pads_begin=(1, 1), pads_end=(1, 1),
    )  # fmt: skip


def unit_of(editor: Editor, output: str, name: str, *settings: str) -> Unit:
    editor.outputs.append(output)
    groups = fuse(editor.finish(), load_soc(SERIES2, list(settings)), "npu")
    return next(group.unit for group in groups if group.main == name)


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_what_the_grid_makes_and_reads_is_joined_in_place(axis):
    editor = Editor("join")
    assert unit_of(editor, pooled(editor, joined(editor, images(editor, 3), axis)), "join") is Unit.VIEW


def test_an_activation_that_rides_along_writes_into_the_joined_tensor():
    editor = Editor("join")
    parts = [editor.unary("Relu", x, f"{x}/relu") for x in images(editor, 2)]
    assert unit_of(editor, pooled(editor, joined(editor, parts)), "join") is Unit.VIEW


def test_the_switch_has_every_join_copied():
    editor = Editor("join")
    out = pooled(editor, joined(editor, images(editor, 2)))
    assert unit_of(editor, out, "join", COPIED) is Unit.DMA


def test_a_part_that_somebody_else_reads_is_copied():
    editor = Editor("join")
    parts = images(editor, 2)
    editor.outputs.append(pooled(editor, parts[0]))
    assert unit_of(editor, pooled(editor, joined(editor, parts)), "join") is Unit.DMA


def test_parts_that_the_dsps_make_are_copied():
    editor = Editor("join")
    parts = [editor.unary("Swish", x, f"{x}/swish") for x in images(editor, 2)]
    assert unit_of(editor, pooled(editor, joined(editor, parts)), "join") is Unit.DMA


def test_parts_that_begin_where_the_grid_cannot_write_are_copied():
    editor = Editor("join")
    parts = images(editor, 2, channels=12)  # 24 bytes of a pixel
    assert unit_of(editor, pooled(editor, joined(editor, parts)), "join") is Unit.DMA


def test_a_tensor_joined_with_itself_is_copied():
    editor = Editor("join")
    (part,) = images(editor, 1)
    assert unit_of(editor, pooled(editor, joined(editor, [part, part])), "join") is Unit.DMA


@pytest.mark.parametrize(("axis", "unit"), [(1, Unit.DMA), (2, Unit.VIEW)])
def test_an_image_is_split_in_place_along_its_rows_alone(axis, unit):
    editor = Editor("split")
    (x,) = images(editor, 1)
    shape = list(editor.tensors[x].shape)
    shape[axis] //= 2
    names = ("split", "split:1")
    editor.outputs += [pooled(editor, part) for part in split(editor, x, names, tuple(shape), axis)]
    groups = fuse(editor.finish(), load_soc(SERIES2), "npu")
    assert next(group.unit for group in groups if group.main == "split") is unit


def split(editor: Editor, x: str, names: tuple[str, ...], shape: tuple[int, ...], axis: int) -> list[str]:
    parts = [Tensor(name, shape, DType.FP16) for name in names]
    editor.add_operator(Operator(names[0], "Split", (x,), names, {"axes": (axis,)}), parts)
    return list(names)


def network(widths: list[int], axis: int, size: int, halves: bool) -> Graph:
    """Return convolutions that are joined, perhaps split again, and read by others."""
    editor = Editor("network")
    x = editor.input("x", (1, 16, size, size), DType.FP16)
    parts = []
    for i, width in enumerate(widths):
        weights = editor.constant(f"w{i}", (width, 16, 1, 1), DType.FP16)
        parts.append(
            editor.op("Convolution", (x, weights), (1, width, size, size), DType.FP16, f"conv{i}",
                      strides=(1, 1), pads_begin=(0, 0), pads_end=(0, 0), dilations=(1, 1))
        )  # fmt: skip
    whole = joined(editor, parts, axis)
    last = [whole]
    if halves:
        shape = list(editor.tensors[whole].shape)
        shape[2] //= 2
        last = split(editor, whole, ("split", "split:1"), tuple(shape), 2)
    editor.outputs = [pooled(editor, part) for part in last]
    return editor.finish()


@settings(max_examples=15)
@given(
    st.lists(st.sampled_from([8, 16, 48, 64]), min_size=2, max_size=4),
    st.sampled_from([1, 2]),
    st.sampled_from([8, 56, 160]),
    st.booleans(),
)
def test_in_place_is_never_slower_and_moves_no_byte_more(widths, axis, size, halves):
    widths = widths if axis == 1 else [widths[0]] * len(widths)
    graph = network(widths, axis, size, halves)
    for engine in ("analytical", "event"):
        there, copied = (
            estimate(graph, load_soc(SERIES2, changes), engine=engine) for changes in ([], [COPIED])
        )
        assert there.latency_s <= copied.latency_s * (1 + 1e-9)
        assert there.dram_bytes <= copied.dram_bytes
        assert there.memory.dram_peak_bytes <= copied.memory.dram_peak_bytes
        # What goes in and out is moved once at least.
        compulsory = [*graph.outputs, "x", *(name for name in graph.tensors if name.startswith("w"))]
        assert there.dram_bytes >= sum(graph.tensors[name].bytes for name in compulsory) - 1


@pytest.mark.parametrize(("tight", "halves"), list(product([False, True], repeat=2)))
def test_what_is_joined_is_counted_once(tight, halves):
    """Without room in SRAM every part is written once and read once."""
    graph = network([64, 64], 1, 64, halves)
    found = estimate(graph, load_soc(SERIES2, ["npu.sram.per_tile=64KiB"] if tight else []))
    whole = graph.tensors["join"].bytes
    parts = [graph.tensors[name].bytes for name in ("x", "w0", "w1", *graph.outputs)]
    if tight:
        assert found.dram_bytes >= sum(parts) + 2 * whole
        assert found.memory.results_peak_bytes == pytest.approx(whole)
    else:
        assert found.memory.results_peak_bytes == 0.0
