"""StaGr and GrAd: precomputed masks and matrices, as constants or as inputs, replace preprocessing."""

from __future__ import annotations

from functools import partial

from npusim.graph import Graph
from npusim.ops import DType, Family, Role, Tensor, TensorKind
from npusim.techniques.aggregation import (
    Aggregation,
    EdgeAttention,
    aggregation_density,
    before_broadcast,
    build_matrix,
    find_aggregations,
    find_edge_attentions,
    matrix_fields,
    write_dense,
    write_products,
)
from npusim.techniques.preprocessing import (
    Rewriter,
    is_node_matrix,
    preprocessing_results,
    unique_name,
    value_numbers,
)
from npusim.techniques.technique import EdgeData, Stage, Technique


def can_precompute(graph: Graph, kind: TensorKind) -> bool:
    """Return whether `precompute` changes the graph."""
    return bool(find_aggregations(graph) or find_edge_attentions(graph) or _targets(graph, kind))


def precompute(graph: Graph, kind: TensorKind) -> Graph:
    """Return the graph with matrix products for aggregations, and preprocessing as constants or inputs.

    StaGr (CONSTANT) precomputes the result of a comparison too. GrAd (INPUT) leaves the comparison in the
    graph, because its input is the matrix of numbers that the host keeps. Equal computations are precomputed
    once, so that layers share the result (CacheG needs that). An input keeps its name.
    """
    return _precompute_results(_precompute_attentions(precompute_aggregations(graph, kind), kind), kind)


def precompute_aggregations(graph: Graph, kind: TensorKind) -> Graph:
    """Return the graph with sums over gathered neighbours as products with constants or inputs."""
    editor = Rewriter.of(graph)
    write_products(editor, graph, find_aggregations(graph), partial(_matrix_of, kind))
    return editor.finish()


def _precompute_attentions(graph: Graph, kind: TensorKind) -> Graph:
    editor, same = Rewriter.of(graph), value_numbers(graph)
    masks: dict[tuple[int, int], str] = {}
    for attention in find_edge_attentions(graph):
        key = (same[attention.sources], same[attention.targets])
        if key not in masks:
            masks[key] = _mask_of(editor, graph, attention, kind)
        write_dense(editor, attention, masks[key])
    return editor.finish()


def _precompute_results(graph: Graph, kind: TensorKind) -> Graph:
    editor, same = Rewriter.of(graph), value_numbers(graph)
    replacements: dict[int, str] = {}
    final_names: dict[str, str] = {}
    for tensor in _targets(graph, kind):
        key = same[tensor.name]
        if key not in replacements:
            replacement = _precomputed(graph, tensor, kind)
            replacements[key] = unique_name(editor, f"{replacement.name}/precomputed")
            final_names[replacements[key]] = replacement.name
            editor.tensors[replacements[key]] = replacement.with_(name=replacements[key])
            editor.prepared[replacements[key]] = Rewriter.of(graph).part(tensor.name)
        editor.rewire(tensor.name, replacements[key])
    editor = Rewriter.of(editor.finish())  # it releases the names of replaced tensors
    for name, final_name in final_names.items():
        better = unique_name(editor, final_name)
        editor.tensors[better] = editor.tensors[name].with_(name=better)
        editor.prepared[better] = editor.prepared[name]
        editor.rewire(name, better)
    return editor.finish()


def _targets(graph: Graph, kind: TensorKind) -> tuple[Tensor, ...]:
    results = preprocessing_results(graph, before_comparison=kind is TensorKind.INPUT)
    return tuple(t for t in results if t.kind is not kind)


def _matrix_of(kind: TensorKind, editor: Rewriter, graph: Graph, aggregation: Aggregation) -> str:
    preparing, density = Rewriter.of(graph), aggregation_density(graph, aggregation)
    dtype = graph.tensors[aggregation.features].dtype
    part = preparing.part(build_matrix(preparing, graph, aggregation))
    return _add_matrix(editor, part, dtype, kind, matrix_fields(graph, aggregation.role, density))


def _mask_of(editor: Rewriter, graph: Graph, attention: EdgeAttention, kind: TensorKind) -> str:
    """Return the boolean mask: a constant, or a comparison with an input that the host keeps as numbers."""
    edges = Aggregation(attention.features, attention.result, attention.sources, attention.targets)
    fields = matrix_fields(graph, Role.MASK, aggregation_density(graph, edges))
    dtype, preparing = graph.tensors[attention.features].dtype, Rewriter.of(graph)
    counts = build_matrix(preparing, graph, edges)
    if kind is TensorKind.CONSTANT:
        present = preparing.part(_positive(preparing, counts, dtype, ""))
        return _add_matrix(editor, present, DType.BOOL, kind, fields)
    mask = _add_matrix(editor, preparing.part(counts), dtype, kind, fields)
    return _positive(editor, mask, dtype, attention.score_region)


def _positive(editor: Rewriter, matrix: str, dtype: DType, region: str) -> str:
    editor.region = region
    zero = editor.constant("zero", (1, 1), dtype, density=0.0)
    return editor.eltwise("Greater", matrix, zero, "greater")


def _precomputed(graph: Graph, tensor: Tensor, kind: TensorKind) -> Tensor:
    """Return the constant or input that replaces a tensor, with its final name."""
    counted = _density_source(graph, tensor)
    by_readers = _role_by_readers(graph, tensor)
    role = tensor.role or counted.role or by_readers  # `Role.NONE` is empty
    if tensor.dtype is DType.BOOL or by_readers is Role.MASK:
        role = Role.MASK  # an adjacency that no product reads is a mask
    fields: dict[str, object] = {"density": counted.density, "block_density": counted.block_density}
    if is_node_matrix(graph, tensor):
        density = counted.density if counted.density < 1.0 else None
        fields = matrix_fields(graph, role, density, counted.block_density)
        fields["symmetric"] = bool(fields["symmetric"]) or counted.symmetric
    name = tensor.name
    if tensor.kind is TensorKind.ACTIVATION:
        name = role.value or before_broadcast(graph, name).rsplit("/", 1)[-1]
    fields |= {"role": role, "name": name, "kind": kind, "structural": kind is TensorKind.INPUT}
    return tensor.with_(**fields)


def _add_matrix(
    editor: Rewriter, part: Graph, dtype: DType, kind: TensorKind, fields: dict[str, object]
) -> str:
    """Add a constant or input that is named by its role; `part` computes it."""
    add = partial(editor.input, structural=True) if kind is TensorKind.INPUT else editor.constant
    name = add(f"/{fields['role']}", part.tensors[part.outputs[0]].shape, dtype, **fields)
    editor.prepared[name] = part
    return name


def _density_source(graph: Graph, tensor: Tensor) -> Tensor:
    """Return the tensor whose zeros are counted: the operand of a comparison with zero, else the tensor."""
    writer = graph.writer(tensor.name)
    if writer is not None and writer.family is Family.COMPARE:
        for operand in graph.inputs_of(writer):
            if operand.shape == tensor.shape:
                return operand
    return tensor


def _role_by_readers(graph: Graph, tensor: Tensor) -> Role:
    """Return the role of a matrix over the nodes: products aggregate, other readers mask."""
    if not is_node_matrix(graph, tensor):
        return Role.NONE
    readers = [op for op in graph.readers(tensor.name) if not graph.structural.issuperset(op.outputs)]
    products = (Family.MATMUL, Family.AGGREGATE)
    return Role.NORM if any(op.family in products for op in readers) else Role.MASK


STAGR = Technique(
    name="stagr",
    summary=(
        "Aggregation becomes a product with a constant: the norm matrix, attention mask or sampled adjacency."
    ),
    rationale=(
        "In a static graph, everything that follows from the edges is computed once, before the model is "
        "compiled. Degrees, scatter and gather disappear; MatMul(norm, h) remains, which suits the MAC "
        "grid. The price is a dense N x N constant that each layer fetches, and a new compilation when an "
        "edge changes."
    ),
    numerics="The same sums in another order: equal up to rounding.",
    rewrite=lambda graph, _: precompute(graph, TensorKind.CONSTANT),
    stage=Stage.PRECOMPUTE,
    needs="tensors that the model computes from the edges alone",
    finds=lambda graph, _: can_precompute(graph, TensorKind.CONSTANT),
    excludes={"grad": "the mask is either a constant or an input"},
    edges=EdgeData.CONSTANT,
    source="GraNNite, section IV-A",
)


GRAD = Technique(
    name="grad",
    summary=(
        "The norm matrix, attention mask or sampled adjacency becomes an input, updated by the CPU at run "
        "time."
    ),
    rationale=(
        "Edges change without a new compilation: the host changes entries of the mask and passes it with "
        "the features. The NPU runs the same as under StaGr, but nothing about the mask can be prepared "
        "at compile time: a comparison on it stays in the graph, and it has to be passed."
    ),
    numerics="The same sums in another order: equal up to rounding.",
    rewrite=lambda graph, _: precompute(graph, TensorKind.INPUT),
    stage=Stage.PRECOMPUTE,
    needs="tensors that the model computes from the edges alone",
    finds=lambda graph, _: can_precompute(graph, TensorKind.INPUT),
    excludes={"stagr": "the mask is either a constant or an input"},
    edges=EdgeData.INPUT,
    source="GraNNite, section IV-A",
)
