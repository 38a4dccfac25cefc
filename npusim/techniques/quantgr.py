"""QuantGr: symmetric static 8-bit integers for the weights, activations and masks of the MAC grid's
operators.

Like rounding prices to whole francs before adding up a long bill: the sum is off by little, and the till is
quicker. The scales are known beforehand, so the till never has to look at the whole bill first.
"""

from __future__ import annotations

from enum import StrEnum

from npusim.graph import Editor, Graph
from npusim.ops import DType, Operator, Role, TensorKind
from npusim.techniques.frontier import free_name
from npusim.techniques.int8_tensors import anchors, int8_tensors
from npusim.techniques.technique import Parameters, Technique, lacks

__all__ = ["QUANTGR", "Arrival", "QuantgrParameters"]

NEEDS = "a floating-point matrix product or convolution"


class Arrival(StrEnum):
    """How inputs of quantised operators reach the NPU."""

    INT8 = "int8"
    """The host keeps them in 8 bits: the scales are static, so it writes an entry of the mask as an integer
    at once.
    """
    CPU = "cpu"
    """They arrive in floating point and the CPU converts them in each inference."""
    NPU = "npu"
    """They arrive in floating point and the NPU converts them in each inference."""


class QuantgrParameters(Parameters):
    """Who rounds the inputs."""

    inputs: Arrival = Arrival.INT8
    """How features and run-time masks arrive: as `int8`, or as floating point to be converted by the `cpu` or
    the `npu`.
    """


def _check(graph: Graph, _: QuantgrParameters) -> str | None:
    return None if anchors(graph) else lacks("quantgr", NEEDS, graph)


def _rewrite(graph: Graph, parameters: QuantgrParameters) -> Graph:
    editor = Editor.of(graph)
    able = int8_tensors(graph)
    host = None if parameters.inputs is Arrival.NPU else "cpu"
    for name in sorted(able):
        if graph.tensors[name].kind is TensorKind.ACTIVATION or parameters.inputs is Arrival.INT8:
            editor.change_tensor(name, dtype=DType.INT8)
        else:
            _convert(editor, graph, name, list(graph.readers(name)), host)
    products = anchors(graph)
    for name in dict.fromkeys(t for op in products for t in op.inputs[:2] if t not in able):
        readers = [op for op in products if name in op.inputs[:2]]
        writer = graph.writer(name)
        if graph.tensors[name].kind is TensorKind.CONSTANT:
            _round_constant(editor, graph, name, readers)
        else:
            _convert(editor, graph, name, readers, writer.device if writer is not None else host)
    _round_factors(editor, graph, able)
    editor.meta["precision"] = "int8"
    return editor.finish()


def _convert(editor: Editor, graph: Graph, name: str, readers: list[Operator], device: str | None) -> None:
    """Put a Convert between a tensor that stays floating and its quantised readers, on the maker's device."""
    tensor, writer = graph.tensors[name], graph.writer(name)
    editor.region = writer.region if writer is not None else "preprocess"
    rounded = free_name(editor, f"{name}/int8")
    made = tensor.with_(name=rounded, dtype=DType.INT8, kind=TensorKind.ACTIVATION, structural=False)
    editor.add_operator(Operator(rounded, "Convert", (name,), (rounded,), {}, editor.region, device), [made])
    editor.rewire(name, rounded, only=[op.name for op in readers])


def _round_constant(editor: Editor, graph: Graph, name: str, readers: list[Operator]) -> None:
    if len(graph.readers(name)) == len(readers):
        editor.change_tensor(name, dtype=DType.INT8)
        return
    copy = free_name(editor, f"{name}/int8")
    editor.tensors[copy] = graph.tensors[name].with_(name=copy, dtype=DType.INT8)
    editor.rewire(name, copy, only=[op.name for op in readers])


def _round_factors(editor: Editor, graph: Graph, able: frozenset[str]) -> None:
    """Round constants that integers are multiplied by; a bias keeps its format: it is added before."""
    whole = [op for op in graph if op.type == "Multiply" and able.issuperset(op.outputs)]
    for name in dict.fromkeys(t for op in whole for t in op.inputs):
        tensor = graph.tensors[name]
        if tensor.kind is TensorKind.CONSTANT and tensor.dtype.is_float and tensor.role is not Role.BIAS:
            _round_constant(editor, graph, name, [op for op in whole if name in op.inputs])


QUANTGR = Technique(
    name="quantgr",
    summary=(
        "Weights, activations and masks of matrix products become 8-bit integers; the DSPs' operators stay "
        "floating."
    ),
    words=(
        "In 8 bits the grid does twice the multiplications a cycle and everything it reads takes half the "
        "bytes, which is what counts for products bound by memory. Scales are fixed beforehand and "
        "symmetric, so rounding happens where a result is stored. What the DSPs compute stays floating, with "
        "a Convert where its result enters a product."
    ),
    numerics=(
        "Rounding to 255 levels: about 0.1 points of accuracy on Cora; a padded row with a self-loop would "
        "double norm's step."
    ),
    rewrite=_rewrite,
    check=_check,
    needs=NEEDS,
    parameters=QuantgrParameters,
    exact=False,
    source="GraNNite, section IV-C",
)
