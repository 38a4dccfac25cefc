"""Number formats of a graph: 8-bit integers where products take them, and those of a workload."""

from collections.abc import Mapping
from dataclasses import replace

from npusim.graph.editor import Editor, unique_name, with_meta
from npusim.graph.graph import Graph
from npusim.ops import DType, Family, Int8Use, Operator, Role, Storage, Tensor, TensorKind
from npusim.ops.formats import Formats
from npusim.ops.sparsity import parse_sparsity


def in_int8(graph: Graph, stored_inputs: bool = True, host: str | None = "cpu") -> Graph:
    """Return a graph whose products take 8-bit integers.

    Parameters
    ----------
    stored_inputs : bool
        Whether inputs come in 8 bits. Otherwise a Convert on `host` rounds them (None: on the NPU).
    """
    editor = Editor.of(graph)
    able = int8_tensors(graph)
    for name in sorted(able):
        if graph.tensors[name].kind is TensorKind.ACTIVATION or stored_inputs:
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


_SCALE_BYTES = 2.0
"""Bytes of the scale of an output channel of integer weights: a half-precision number."""


def in_formats(graph: Graph) -> Graph:
    """Return a graph whose products read weights and activations as `GraphMeta.formats` says.

    Narrow activations stand where QuantGr's 8-bit integers would. Weights alone are narrower beside
    activations as they are: integers then have a scale for each output channel.
    """
    wanted = graph.meta.formats
    if wanted == Formats():
        return graph
    if wanted.is_narrow and graph.meta.precision is not DType.INT8:
        graph = in_int8(graph)
    editor, weights = Editor.of(graph), _weights(graph)
    narrow = wanted.activations if wanted.is_narrow else None
    if narrow is not None:
        for tensor in graph.tensors.values():
            if tensor.dtype is DType.INT8 and tensor.name not in weights:
                editor.change_tensor(tensor.name, dtype=DType(narrow))
    wanted_weights = wanted.weights or narrow
    if wanted_weights is not None:
        dtype = DType(wanted_weights)
        for name, channels in weights.items():
            is_scaled = not dtype.is_float and graph.tensors[name].dtype is not dtype
            scales_bytes = _SCALE_BYTES * channels if is_scaled else 0.0
            editor.change_tensor(name, dtype=dtype, scales_bytes=scales_bytes)
    if wanted.weight_sparsity is not None:
        pattern, density = parse_sparsity(wanted.weight_sparsity)
        zeros = {"pattern": pattern, "density": density, "storage": Storage.ZVC}
        for name, channels in weights.items():
            editor.change_tensor(name, channels=channels, **zeros)
    if wanted.activation_density is not None:
        for tensor in graph.tensors.values():
            families = {op.family for op in graph.readers(tensor.name)}
            is_inner = tensor.kind is TensorKind.ACTIVATION and tensor.name not in graph.outputs
            if is_inner and families == {Family.CONVOLUTION}:
                editor.change_tensor(tensor.name, density=wanted.activation_density, storage=Storage.ZVC)
    editor.meta = replace(editor.meta, formats=Formats())
    return editor.finish()


def with_formats(graph: Graph, wanted: Formats) -> Graph:
    """Return a graph that gets formats behind its techniques; a `ConfigError` refuses impossible ones."""
    wanted.check()
    return graph if wanted == Formats() else with_meta(graph, formats=wanted)


def _weights(graph: Graph) -> Mapping[str, int]:
    """Return the constant weights of products, which nothing else reads, with their output channels.

    Weights that a file has packed already stay as they are.
    """
    channels: dict[str, int] = {}
    for op in graph:
        if op.traits.int8 is Int8Use.MULTIPLIES:
            shape = graph.outputs_of(op)[0].shape
            for tensor in graph.inputs_of(op)[:2]:
                is_weight = tensor.kind is TensorKind.CONSTANT and tensor.role in (Role.WEIGHT, Role.NONE)
                is_weight = is_weight and not tensor.scales_bytes
                readers = graph.readers(tensor.name)
                if is_weight and all(each.traits.int8 is Int8Use.MULTIPLIES for each in readers):
                    channels[tensor.name] = shape[-1 if op.family is Family.MATMUL else 1]
    return channels
