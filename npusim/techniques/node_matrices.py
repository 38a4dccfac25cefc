"""Matrices over the nodes: density, block density, symmetry; building one from edges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from npusim.graph import Editor, Graph
from npusim.ops import DType, Role
from npusim.techniques.aggregation import Aggregation
from npusim.techniques.preprocessing import nodes_of, unique_name

GRANULE = 16
"""Edge of the blocks that `Tensor.block_density` counts."""
REGION = "preprocess"


def build_matrix(editor: Editor, graph: Graph, aggregation: Aggregation) -> str:
    """Add the operators that make the aggregation matrix [N, N] of the edges and return its name.

    They run where the other preprocessing runs: their preferred device is passed on.
    """
    producers = [graph.writer(t) for t in aggregation.key if t in graph.tensors]
    device = next((op.device for op in producers if op is not None and op.device), None)
    nodes = graph.tensors[aggregation.result].shape[0]
    dtype = graph.tensors[aggregation.features].dtype
    fields = matrix_fields(
        graph, Role.NORM if aggregation.scaled else Role.ADJACENCY, aggregation_density(editor, aggregation)
    )
    editor.region = REGION
    blank = editor.constant(unique_name(editor, f"{REGION}/blank"), (nodes, nodes), dtype, density=0.0)
    place = _by_edges if aggregation.targets is not None else _by_rows
    matrix = place(editor, graph, aggregation, blank, dtype, {"device": device, "tensor": fields})
    if aggregation.mean:
        count = editor.reduce(
            "ReduceSum", matrix, (1,), unique_name(editor, f"{REGION}/count"), keep_dims=True, device=device
        )
        matrix = editor.eltwise(
            "Divide", matrix, count, unique_name(editor, f"{REGION}/mean"), device=device, tensor=fields
        )
    for type_, scale in aggregation.counts:
        matrix = editor.eltwise(
            type_, matrix, scale, unique_name(editor, f"{REGION}/scaled"), device=device, tensor=fields
        )
    return matrix


def edge_values(editor: Editor, graph: Graph, aggregation: Aggregation) -> str:
    """Add the operators that give each edge its value of the aggregation matrix, and return their name.

    Edges that stand there several times share the value, so that they add up to it.
    """
    plain = replace(aggregation, weights=(), counts=(), mean=False)
    matrices = [build_matrix(editor, graph, one) for one in (aggregation, plain)]
    sources, dtype = aggregation.sources, graph.tensors[aggregation.features].dtype
    settings: dict[str, Any] = {"axes": (1,)}
    index, type_ = sources, "GatherElements"
    if aggregation.targets is not None:
        index, type_, settings = _pairs(editor, graph, aggregation, None), "GatherND", {}
    values, counts = (
        editor.op(
            type_,
            (matrix, index),
            graph.tensors[sources].shape,
            dtype,
            unique_name(editor, f"{REGION}/edge_value"),
            **settings,
        )
        for matrix in matrices
    )
    return editor.eltwise("Divide", values, counts, unique_name(editor, f"{REGION}/edge_norm"))


def _by_edges(
    editor: Editor, graph: Graph, aggregation: Aggregation, blank: str, dtype: DType, more: dict[str, Any]
) -> str:
    """Scatter one weight per edge to (target, source)."""
    pairs = _pairs(editor, graph, aggregation, more["device"])
    updates = _weight(editor, aggregation, graph.tensors[aggregation.sources].shape, dtype)
    return _scatter(editor, "ScatterNDUpdate", (blank, pairs, updates), more, dtype)


def _pairs(editor: Editor, graph: Graph, aggregation: Aggregation, device: str | None) -> str:
    """Join the ends of each edge as (target, source), [E, 2]."""
    edges = graph.tensors[aggregation.sources].elements
    ends = (aggregation.targets or "", aggregation.sources)
    columns = [editor.reshape(t, (edges, 1), unique_name(editor, f"{REGION}/column")) for t in ends]
    kind = graph.tensors[aggregation.sources].dtype
    name = unique_name(editor, f"{REGION}/pairs")
    return editor.op("Concat", columns, (edges, 2), kind, name, axes=(1,), device=device)


def _by_rows(
    editor: Editor, graph: Graph, aggregation: Aggregation, blank: str, dtype: DType, more: dict[str, Any]
) -> str:
    """Scatter K weights along each node's row."""
    updates = _weight(editor, aggregation, graph.tensors[aggregation.sources].shape, dtype)
    return _scatter(
        editor, "ScatterElementsUpdate", (blank, aggregation.sources, updates), more, dtype, axes=(1,)
    )


def _scatter(
    editor: Editor,
    type_: str,
    inputs: tuple[str, ...],
    more: dict[str, Any],
    dtype: DType,
    **settings: Any,
) -> str:
    shape = editor.tensors[inputs[0]].shape
    return editor.op(
        type_,
        inputs,
        shape,
        dtype,
        unique_name(editor, f"{REGION}/matrix"),
        reduction="sum",
        **settings,
        **more,
    )


def _weight(editor: Editor, aggregation: Aggregation, shape: tuple[int, ...], dtype: DType) -> str:
    """Edge weights in the shape that the scatter takes; 1 where an edge has none."""
    if not aggregation.weights:
        return editor.constant(unique_name(editor, f"{REGION}/ones"), shape, dtype)
    weight = aggregation.weights[0]
    for other in aggregation.weights[1:]:
        weight = editor.eltwise("Multiply", weight, other, unique_name(editor, f"{REGION}/weight"))
    return (
        weight
        if editor.tensors[weight].shape == shape
        else editor.reshape(weight, shape, unique_name(editor, f"{REGION}/weights"))
    )


def aggregation_density(graph: Graph | Editor, aggregation: Aggregation) -> float:
    """Density of the matrix that an aggregation becomes: rows gathered, without masked ones."""
    nodes, edges = graph.tensors[aggregation.result].shape[0], graph.tensors[aggregation.sources].elements
    present = min((graph.tensors[t].density for t in aggregation.weights), default=1.0)
    return min(1.0, present * edges / (nodes * nodes))


def matrix_fields(
    graph: Graph, role: Role, density: float | None = None, block_density: float | None = None
) -> dict[str, object]:
    """Return density, block density and symmetry of a node matrix.

    What is not given comes from the data graph's statistics.

    GCN's norm, d^-1/2 (A + I) d^-1/2, is the one that is symmetric by construction; a mean divides rows only,
    and a sample of neighbours is one-sided.
    """
    structure, nodes = graph.structure, nodes_of(graph)
    if structure is not None:
        known = structure.adjacency_density(nodes)
        if density is None:
            density = known
        if block_density is None and abs(density - known) <= 1e-3 * known:
            block_density = structure.padded_block_density(GRANULE, nodes)
    symmetric = role is Role.NORM and graph.meta.model == "gcn"
    return {
        "role": role,
        "density": 1.0 if density is None else density,
        "block_density": block_density,
        "symmetric": symmetric,
    }
