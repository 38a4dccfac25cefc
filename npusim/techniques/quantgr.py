"""QuantGr: symmetric static int8 for weights, activations and masks of the MAC grid's operators."""

from dataclasses import replace
from enum import StrEnum

from npusim.graph import Editor, Graph
from npusim.ops import DType, Family, Int8Use, Operator, Role, Tensor, TensorKind
from npusim.techniques.preprocessing import unique_name
from npusim.techniques.technique import Parameters, Stage, Technique


class InputConversion(StrEnum):
    """How inputs of quantised operators reach the NPU."""

    INT8 = "int8"  # the host stores them in 8 bits; the scales are static, so it writes integers at once
    CPU = "cpu"  # they are floating point, and the CPU converts them at each inference
    NPU = "npu"  # they are floating point, and the NPU converts them at each inference


class QuantgrParameters(Parameters):
    """Who rounds the inputs."""

    inputs: InputConversion = InputConversion.INT8
    """Format of features and run-time masks: `int8`, or floating point that the `cpu` or `npu` converts."""


def _rewrite(graph: Graph, parameters: QuantgrParameters) -> Graph:
    """Weights, activations and masks of products become 8-bit integers; operators of DSPs stay floating.

    In 8 bits the grid does twice the multiplications per cycle and reads half the bytes, which matters for
    products bound by memory. Scales are fixed beforehand and symmetric, so rounding happens where a result is
    stored. Operators of DSPs stay floating, with a Convert where their result enters a product.
    """
    editor = Editor.of(graph)
    able = int8_tensors(graph)
    host = None if parameters.inputs is InputConversion.NPU else "cpu"
    for name in sorted(able):
        if graph.tensors[name].kind is TensorKind.ACTIVATION or parameters.inputs is InputConversion.INT8:
            editor.change_tensor(name, dtype=DType.INT8)
        else:
            _convert(editor, graph, name, list(graph.readers(name)), host)
    products = float_products(graph)
    for name in dict.fromkeys(t for op in products for t in op.inputs[:2] if t not in able):
        readers = [op for op in products if name in op.inputs[:2]]
        writer = graph.writer(name)
        if graph.tensors[name].kind is TensorKind.CONSTANT:
            _round_constant(editor, graph, name, readers)
        else:
            _convert(editor, graph, name, readers, writer.device if writer is not None else host)
    _round_factors(editor, graph, able)
    editor.meta = replace(editor.meta, precision=DType.INT8)
    return editor.finish()


def _convert(editor: Editor, graph: Graph, name: str, readers: list[Operator], device: str | None) -> None:
    """Add a Convert between a floating tensor and its quantised readers."""
    tensor, writer = graph.tensors[name], graph.writer(name)
    neighbour = writer if writer is not None else readers[0]
    rounded = unique_name(editor, f"{name}/int8")
    result = tensor.with_(name=rounded, dtype=DType.INT8, kind=TensorKind.ACTIVATION, structural=False)
    region, part = neighbour.region, neighbour.part
    convert = Operator(rounded, "Convert", (name,), (rounded,), {}, region, device, part=part)
    editor.add_operator(convert, [result])
    editor.rewire(name, rounded, only=[op.name for op in readers])


def _round_constant(editor: Editor, graph: Graph, name: str, readers: list[Operator]) -> None:
    if len(graph.readers(name)) == len(readers):
        editor.change_tensor(name, dtype=DType.INT8)
        return
    copy = unique_name(editor, f"{name}/int8")
    editor.tensors[copy] = graph.tensors[name].with_(name=copy, dtype=DType.INT8)
    editor.rewire(name, copy, only=[op.name for op in readers])


def _round_factors(editor: Editor, graph: Graph, able: frozenset[str]) -> None:
    """Round constant factors of integers; a bias keeps its format."""
    whole = [op for op in graph if op.type == "Multiply" and able.issuperset(op.outputs)]
    for name in dict.fromkeys(t for op in whole for t in op.inputs):
        tensor = graph.tensors[name]
        if tensor.kind is TensorKind.CONSTANT and tensor.dtype.is_float and tensor.role is not Role.BIAS:
            _round_constant(editor, graph, name, [op for op in whole if name in op.inputs])


def float_products(graph: Graph) -> tuple[Operator, ...]:
    """Return the floating-point products and convolutions, except those with the setting `keep_float`."""
    return tuple(
        op
        for op in graph
        if op.traits.int8 is Int8Use.MULTIPLIES
        and not op.attrs.get("keep_float")
        and all(t.dtype.is_float for t in graph.inputs_of(op)[:2])
    )


def int8_tensors(graph: Graph) -> frozenset[str]:
    """Return the floating activations and inputs that can be 8-bit integers without a conversion.

    All readers must take integers, and the writer must store them. Products take them. Views, moves, gathers
    and monotone operators do if their own result is an integer; so do additions of a bias and products with a
    constant, which the output stage of the grid computes in wider numbers. DSP operators (softmax, scatter,
    ELU) read and write floating point.
    """
    products = {op.name for op in float_products(graph)}
    able = {t.name for t in graph.tensors.values() if _may_be_int8(graph, t, products)}
    while True:
        kept = {name for name in able if _stays_int8(graph, name, able, products)}
        if kept == able:
            return frozenset(kept)
        able = kept


def _may_be_int8(graph: Graph, tensor: Tensor, products: set[str]) -> bool:
    if not tensor.dtype.is_float or tensor.kind is TensorKind.CONSTANT or tensor.name in graph.outputs:
        return False
    writer = graph.writer(tensor.name)
    if writer is None or not graph.readers(tensor.name):
        return bool(graph.readers(tensor.name))
    stores = writer.name in products or writer.traits.int8 is Int8Use.PASSES
    return stores and tensor.name not in graph.structural


def _stays_int8(graph: Graph, name: str, able: set[str], products: set[str]) -> bool:
    if not all(_accepts_int8(graph, op, name, able, products) for op in graph.readers(name)):
        return False
    writer = graph.writer(name)
    # The output stage of the grid clips and rounds a Relu at once.
    if writer is None or writer.name in products or writer.type == "Relu":
        return True
    return all(_is_source(writer, graph.tensors[t], able) for t in writer.inputs)


def _is_source(op: Operator, tensor: Tensor, able: set[str]) -> bool:
    """Whether an operand is an integer, or a constant that can be rounded to 8 bits."""
    if tensor.name in able or not tensor.dtype.is_float:
        return True
    # The -1e4 of an attention mask exceeds the range of the other operand.
    is_additive_mask = op.type == "Add" and tensor.role is Role.MASK
    return tensor.kind is TensorKind.CONSTANT and not is_additive_mask


def _accepts_int8(graph: Graph, op: Operator, name: str, able: set[str], products: set[str]) -> bool:
    if op.name in products:
        return name in op.inputs[:2]
    is_index = op.family is Family.GATHER and op.inputs[0] != name
    is_condition = op.family is Family.SELECT and op.inputs[0] == name
    if op.traits.int8 is not Int8Use.PASSES or is_index or is_condition:
        return False
    return able.issuperset(op.outputs)


QUANTGR = Technique(
    name="quantgr",
    numerics=(
        "Rounding to 255 levels: about 0.1 points on Cora; a padded row with a self-loop would double "
        "norm's step."
    ),
    rewrite=_rewrite,
    stage=Stage.PRECISION,
    needs="a floating-point matrix product or convolution",
    finds=lambda graph, _: float_products(graph),
    parameters=QuantgrParameters,
    exact=False,
    precision=DType.INT8,
    source="GraNNite, section IV-C",
)
