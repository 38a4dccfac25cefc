"""GraphSplit, QuantGr, GraSp, SymG and CacheG: placement of operators, formats, storage and residency.

GraphSplit moves preprocessing with its control flow to the CPU, QuantGr rounds products to 8 bits, GraSp
compresses zeros (a bitmap and the non-zeros), SymG stores a symmetric norm matrix as a triangle, and CacheG
keeps a matrix that several layers read in SRAM.
"""

from typing import Any, Literal

from npusim.graph import Editor, Graph
from npusim.graph.formats import float_products, in_int8
from npusim.ops import Annotation, DType, Family, Role, Storage, Tensor, TensorKind
from npusim.techniques.aggregation import find_aggregations, find_edge_attentions
from npusim.techniques.preprocessing import (
    MATRIX_ROLES,
    is_node_matrix,
    preprocessing_operators,
    preprocessing_results,
    stored_tensors,
)
from npusim.techniques.stack import NPU_MEMORY_ONLY, NoParameters, Parameters, Stage, Technique


class QuantgrParameters(Parameters):
    """Who rounds the inputs."""

    inputs: Literal["int8", "cpu", "npu"] = "int8"
    """Format of features and run-time masks: `int8`, or floating point that the `cpu` or `npu` converts."""


def _quantgr(graph: Graph, parameters: QuantgrParameters) -> Graph:
    """Weights, activations and masks of products become 8-bit integers; operators of DSPs stay floating.

    In 8 bits the grid does twice the multiplications per cycle and reads half the bytes, which matters for
    products bound by memory. Scales are fixed beforehand and symmetric, so rounding happens where a result is
    stored. Operators of DSPs stay floating, with a Convert where their result enters a product.
    """
    host = None if parameters.inputs == "npu" else "cpu"
    return in_int8(graph, parameters.inputs == "int8", host)


QUANTGR = Technique(
    name="quantgr",
    numerics=(
        "Rounding to 255 levels: about 0.1 points on Cora; a padded row with a self-loop would double "
        "norm's step."
    ),
    rewrite=_quantgr,
    stage=Stage.PRECISION,
    needs="a floating-point matrix product or convolution",
    finds=lambda graph, _: float_products(graph),
    parameters=QuantgrParameters,
    exact=False,
    precision=DType.INT8,
    source="GraNNite, section IV-C",
)


def _graphsplit(graph: Graph, _: NoParameters) -> Graph:
    """Operators that follow from the edges alone prefer the CPU; the mapping decides by cost.

    Degrees, scatter, comparison and selection are control flow: slow on the NPU's DSPs, fast on a CPU. They
    depend on the edges only, so they need nothing from the NPU. Only their result crosses over, once.
    """
    editor = Editor.of(graph)
    for op in preprocessing_operators(graph):
        editor.change_operator(op.name, device="cpu")
    return editor.finish()


def _note(graph: Graph) -> str | None:
    """Say how much of the preprocessing that is offered to the CPU runs there."""
    offered = [op for op in preprocessing_operators(graph) if op.family is not Family.VIEW]
    if not offered:
        return None
    moved = sum(op.device == "cpu" for op in offered)
    why = "the rest costs less where it is" if moved else "calling the CPU costs more than it saves"
    why = "all of it costs less there" if moved == len(offered) else why
    return f"graphsplit: {moved} of {len(offered)} operators of the preprocessing run on the CPU; {why}"


GRAPHSPLIT = Technique(
    name="graphsplit",
    numerics="The same.",
    rewrite=_graphsplit,
    stage=Stage.PREPROCESSING,
    needs="preprocessing in the graph",
    finds=lambda graph, _: preprocessing_operators(graph),
    annotation=Annotation.DEVICE,
    note=_note,
    source="GraNNite, section IV-A",
)


_STAGR_OR_GRAD = "stagr or grad makes one"


class GraspParameters(Parameters):
    """Which tensors are compressed."""

    matrix: bool = True
    """The norm matrix, adjacency or mask."""
    features: bool = True
    """The input features."""
    constants: bool = True
    """Weights and every other constant."""


def _annotated(graph: Graph, tensors: list[Tensor], **annotation: Any) -> Graph:
    editor = Editor.of(graph)
    for tensor in tensors:
        editor.change_tensor(tensor.name, **annotation)
    return editor.finish()


def _compressible(graph: Graph, parameters: GraspParameters) -> list[Tensor]:
    """Return stored tensors that zero-value compression makes smaller."""
    chosen = [tensor for tensor in stored_tensors(graph) if _is_selected(tensor, parameters)]
    return [t for t in chosen if t.with_(storage=Storage.ZVC).stored_bytes < t.stored_bytes]


def _is_selected(tensor: Tensor, parameters: GraspParameters) -> bool:
    if tensor.role in MATRIX_ROLES:
        return parameters.matrix
    if tensor.role is Role.FEATURES:
        return parameters.features
    return tensor.kind is TensorKind.CONSTANT and parameters.constants


def _symmetric(graph: Graph, _: Any = None) -> list[Tensor]:
    norms = [t for t in stored_tensors(graph) if t.role is Role.NORM and t.symmetric]
    return [t for t in norms if t.shape[-1] == t.shape[-2]]


def _hint_of_symmetric(graph: Graph) -> str:
    return _STAGR_OR_GRAD if graph.meta.model == "gcn" and preprocessing_results(graph) else ""


def _shared(graph: Graph, _: Any = None) -> list[Tensor]:
    return [t for t in stored_tensors(graph) if is_node_matrix(graph, t) and len(graph.readers(t.name)) >= 2]


def _hint_of_shared(graph: Graph) -> str:
    in_graph = any(is_node_matrix(graph, t) for t in preprocessing_results(graph))
    return _STAGR_OR_GRAD if in_graph or find_aggregations(graph) or find_edge_attentions(graph) else ""


def _grasp(graph: Graph, parameters: GraspParameters) -> Graph:
    """Store sparse tensors with zero-value compression.

    Cora's norm matrix is 99.8 % zeros: 0.94 MB instead of 14.7 MB, nearly all of it the bitmap. The machine
    decides what that saves: traffic if its DMA can decompress the operand, multiplications by the granules
    and balance of its grid.
    """
    return _annotated(graph, _compressible(graph, parameters), storage=Storage.ZVC)


GRASP = Technique(
    name="grasp",
    summary=(
        "Sparse constants and inputs are stored with zero-value compression: one bit per element, then "
        "non-zeros."
    ),
    numerics="The same.",
    rewrite=_grasp,
    stage=Stage.STORAGE,
    needs="a constant or input that zero-value compression makes smaller",
    finds=_compressible,
    parameters=GraspParameters,
    annotation=Annotation.COMPRESSED,
    host_note=(
        "products are costed along the non-zeros, as libraries for sparse matrices work; OpenVINO "
        "multiplies them dense"
    ),
    source="GraNNite, section IV-B",
)


def _symg(graph: Graph, _: NoParameters) -> Graph:
    """Store symmetric norm matrices as triangles.

    GCN's norm is symmetric, so half of it suffices and half of the traffic is saved. The grid uses each block
    twice, straight and transposed. If the DMA can decompress the operand, zero-value compression of so sparse
    a matrix saves more. After GraSp, the norm is a triangle and all else is compressed.
    """
    return _annotated(graph, _symmetric(graph), storage=Storage.TRIANGLE)


SYMG = Technique(
    name="symg",
    summary=(
        "The symmetric norm matrix is stored and moved as a triangle with its diagonal: n (n + 1) / 2 "
        "elements."
    ),
    numerics="The same.",
    rewrite=_symg,
    stage=Stage.STORAGE,
    needs="a symmetric constant or input norm matrix",
    finds=_symmetric,
    hint=_hint_of_symmetric,
    annotation=Annotation.TRIANGLE,
    what_if="no hardware reads a stored triangle today",
    host_note=NPU_MEMORY_ONLY,
    source="GraNNite, section IV-B",
)


def _cacheg(graph: Graph, _: NoParameters) -> Graph:
    """A node matrix (constant or input) that two or more operators read is marked to stay in SRAM.

    Both layers multiply by the same norm matrix. In SRAM it is fetched once; as much as fits stays, the rest
    is streamed again. Tiles of all other tensors lose the SRAM that it takes.
    """
    return _annotated(graph, _shared(graph), cached=True)


CACHEG = Technique(
    name="cacheg",
    numerics="The same.",
    rewrite=_cacheg,
    stage=Stage.STORAGE,
    needs="a constant or input matrix over the nodes that two or more operators read",
    finds=_shared,
    hint=_hint_of_shared,
    annotation=Annotation.RESIDENT,
    what_if="no compiler offers it today",
    host_note=NPU_MEMORY_ONLY,
    source="GraNNite, section IV-B",
)
