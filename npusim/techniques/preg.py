"""PreG: the CPU computes normalised edge weights; degrees, roots and divisions leave the graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from npusim.graph import Graph
from npusim.ops import Family, Operator, Role, Tensor, TensorKind
from npusim.techniques.aggregation import (
    Aggregation,
    build_matrix,
    edge_values,
    find_aggregations,
    write_products,
)
from npusim.techniques.preprocessing import (
    Rewriter,
    is_node_matrix,
    preprocessing_results,
    unique_name,
    value_numbers,
)
from npusim.techniques.technique import EdgeData, NoParameters, Stage, Technique

_NORMALISING = frozenset({"Power", "Sqrt", "Divide"})


def _normalised(graph: Graph) -> list[Aggregation]:
    """Return aggregations along edges with normalised weights or sums."""
    aggregations = find_aggregations(graph)
    return [a for a in aggregations if a.mean or a.counts or any(_is_normalised(graph, t) for t in a.weights)]


def normalised_matrices(graph: Graph) -> list[Tensor]:
    """Return matrices over the nodes that are normalised in the graph and read by its products."""
    return [
        t for t in preprocessing_results(graph) if is_node_matrix(graph, t) and _is_normalised(graph, t.name)
    ]


def _is_normalised(graph: Graph, name: str) -> bool:
    normalises = any(op.type in _NORMALISING for op in _producers(graph, name))
    return normalises and graph.tensors[name].dtype.is_float


def _producers(graph: Graph, name: str) -> list[Operator]:
    """Return the operators that a tensor depends on."""
    seen: dict[str, Operator] = {}
    waiting = [name]
    while waiting:
        op = graph.writer(waiting.pop())
        if op is not None and op.name not in seen:
            seen[op.name] = op
            waiting.extend(op.inputs)
    return list(seen.values())


def _rewrite(graph: Graph, _: NoParameters) -> Graph:
    editor, same = Rewriter.of(graph), value_numbers(graph)
    ready: dict[int, str] = {}
    write_products(editor, graph, _normalised(graph), _matrix_of_ready)
    for tensor in normalised_matrices(graph):
        key = same[tensor.name]
        if key not in ready:
            scatter = _matrix_scatter(graph, tensor)
            if scatter is None:
                ready[key] = _arrive(editor, graph, tensor)
            else:
                ready[key] = _scatter_ready(editor, graph, tensor, scatter)
        editor.rewire(tensor.name, ready[key])
    return editor.finish()


def _matrix_of_ready(editor: Rewriter, graph: Graph, aggregation: Aggregation) -> str:
    """Add the matrix of normalised edge weights, an input."""
    sources, dtype = graph.tensors[aggregation.sources], graph.tensors[aggregation.features].dtype
    present = min((graph.tensors[t].density for t in aggregation.weights), default=1.0)
    values = editor.input("/edge_norm", sources.shape, dtype, structural=True, density=present)
    preparing = Rewriter.of(graph)
    editor.prepared[values] = preparing.part(edge_values(preparing, graph, aggregation))
    return build_matrix(editor, graph, replace(aggregation, weights=(values,), counts=(), mean=False))


def _matrix_scatter(graph: Graph, matrix: Tensor) -> Operator | None:
    """Return the scatter that writes the edges into a matrix of that shape; None if there is none."""
    scatters = [op for op in _producers(graph, matrix.name) if op.family is Family.SCATTER]
    return next((op for op in scatters if graph.tensors[op.outputs[0]].elements == matrix.elements), None)


def _arrive(editor: Rewriter, graph: Graph, tensor: Tensor) -> str:
    """Replace the tensor by an input that the CPU computes."""
    name = unique_name(editor, tensor.role.value or tensor.name.rsplit("/", 1)[-1])
    editor.prepared[name] = Rewriter.of(graph).part(tensor.name)
    editor.tensors[name] = tensor.with_(name=name, kind=TensorKind.INPUT, structural=True)
    return name


def _scatter_ready(editor: Rewriter, graph: Graph, matrix: Tensor, scatter: Operator) -> str:
    """Scatter normalised weights instead of ones; the result is the norm matrix."""
    updates, blank = graph.tensors[scatter.inputs[2]], graph.tensors[scatter.outputs[0]]
    values = editor.input("/edge_norm", updates.shape, matrix.dtype, structural=True)
    preparing = Rewriter.of(graph)
    editor.prepared[values] = preparing.part(_values_at(preparing, matrix, scatter, updates))
    name = unique_name(editor, f"{scatter.name}_norm")
    inputs = (*scatter.inputs[:2], values, *scatter.inputs[3:])
    role = matrix.role if matrix.role is not Role.NONE else Role.NORM
    result = matrix.with_(name=name, role=role, kind=TensorKind.ACTIVATION, shape=blank.shape)
    editor.add_operator(scatter.with_(name=name, inputs=inputs, outputs=(name,)), [result])
    if blank.shape == matrix.shape:
        return name
    editor.region = scatter.region
    fields = {"role": role, "density": matrix.density, "block_density": matrix.block_density}
    fields |= {"symmetric": matrix.symmetric}
    flat, name = name, f"/{scatter.name}_norm_matrix"
    return editor.reshape(flat, matrix.shape, name, device=scatter.device, tensor=fields)


def _values_at(editor: Rewriter, matrix: Tensor, scatter: Operator, updates: Tensor) -> str:
    """Gather the matrix where a scatter writes; several writes to one element share its value."""
    blank, index = scatter.inputs[:2]
    shape, dtype = editor.tensors[blank].shape, matrix.dtype
    ones = editor.constant("/ones", updates.shape, dtype, fill=1.0)
    count = unique_name(editor, f"{scatter.name}_count")
    tensor = editor.tensors[scatter.outputs[0]].with_(name=count)
    editor.add_operator(scatter.with_(name=count, inputs=(blank, index, ones), outputs=(count,)), [tensor])
    whole = matrix.name
    if matrix.shape != shape:
        whole = editor.reshape(matrix.name, shape, f"/{matrix.name}/flat")
    type_ = "GatherND" if scatter.type == "ScatterNDUpdate" else "GatherElements"
    axes: dict[str, Any] = {"axes": scatter.attrs["axes"]} if "axes" in scatter.attrs else {}
    name = f"/{scatter.name}_at"
    sums, counts = (
        editor.op(type_, (dense, index), updates.shape, dtype, name, **axes) for dense in (whole, count)
    )
    return editor.eltwise("Divide", sums, counts, "/edge_norm_value")


PREG = Technique(
    name="preg",
    summary="Normalised edge weights come from the CPU: degrees, roots and divisions leave the graph.",
    rationale=(
        "GCN divides each edge's weight by the roots of two degrees. They depend on the edges only, so "
        "the CPU can compute them once; in a dense matrix the weights replace the ones, and aggregation "
        "and normalisation are one product. StaGr and GrAd also take the finished matrix; after PreG they "
        "precompute what it leaves."
    ),
    numerics="The same.",
    rewrite=_rewrite,
    stage=Stage.PREPROCESSING,
    needs="a degree normalisation (root, power or quotient) that the model computes from the edges alone",
    finds=lambda graph, _: _normalised(graph) or normalised_matrices(graph),
    edges=EdgeData.WEIGHTS,
    source="GraNNite, section IV-B",
)
