"""Making the matrix of an aggregation in the graph itself: edge weights scattered into zeros, beside the
other preprocessing.

Like drawing the seating plan when the guests have arrived: later than in print, but still before dinner.
"""

from __future__ import annotations

from typing import Any

from npusim.graph import Editor, Graph
from npusim.ops import DType, Role
from npusim.techniques.aggregation import Aggregation
from npusim.techniques.freeze import aggregation_density, matrix_fields
from npusim.techniques.frontier import free_name

__all__ = ["matrix_in_graph"]

REGION = "preprocess"


def matrix_in_graph(editor: Editor, graph: Graph, aggregation: Aggregation) -> str:
    """Add the operators that make the aggregation matrix [N, N] of the edges and return its name.

    They run where the other preprocessing runs: a wish for a device is passed on.
    """
    makers = [graph.writer(t) for t in aggregation.key if t in graph.tensors]
    device = next((op.device for op in makers if op is not None and op.device), None)
    nodes = graph.tensors[aggregation.result].shape[0]
    dtype = graph.tensors[aggregation.features].dtype
    fields = matrix_fields(
        graph, Role.NORM if aggregation.scaled else Role.ADJACENCY, aggregation_density(editor, aggregation)
    )
    editor.region = REGION
    blank = editor.constant(free_name(editor, f"{REGION}/blank"), (nodes, nodes), dtype, density=0.0)
    place = _by_edges if aggregation.targets is not None else _by_rows
    matrix = place(editor, graph, aggregation, blank, dtype, {"device": device, "tensor": fields})
    if aggregation.mean:
        count = editor.reduce(
            "ReduceSum", matrix, (1,), free_name(editor, f"{REGION}/count"), keep_dims=True, device=device
        )
        matrix = editor.eltwise(
            "Divide", matrix, count, free_name(editor, f"{REGION}/mean"), device=device, tensor=fields
        )
    for type_, scale in aggregation.counts:
        matrix = editor.eltwise(
            type_, matrix, scale, free_name(editor, f"{REGION}/scaled"), device=device, tensor=fields
        )
    return matrix


def _by_edges(
    editor: Editor, graph: Graph, aggregation: Aggregation, blank: str, dtype: DType, more: dict[str, Any]
) -> str:
    """Scatter one weight an edge to (target, source)."""
    edges = graph.tensors[aggregation.sources].elements
    ends = (aggregation.targets or "", aggregation.sources)
    columns = [editor.reshape(t, (edges, 1), free_name(editor, f"{REGION}/column")) for t in ends]
    kind = graph.tensors[aggregation.sources].dtype
    pairs = editor.op(
        "Concat",
        columns,
        (edges, 2),
        kind,
        free_name(editor, f"{REGION}/pairs"),
        axes=(1,),
        device=more["device"],
    )
    updates = _weight(editor, aggregation, (edges,), dtype)
    return _scatter(editor, "ScatterNDUpdate", (blank, pairs, updates), more, dtype)


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
        free_name(editor, f"{REGION}/matrix"),
        reduction="sum",
        **settings,
        **more,
    )


def _weight(editor: Editor, aggregation: Aggregation, shape: tuple[int, ...], dtype: DType) -> str:
    """Edge weights in the shape that the scatter takes; 1 where an edge has none."""
    if not aggregation.weights:
        return editor.constant(free_name(editor, f"{REGION}/ones"), shape, dtype)
    weight = aggregation.weights[0]
    for other in aggregation.weights[1:]:
        weight = editor.eltwise("Multiply", weight, other, free_name(editor, f"{REGION}/weight"))
    return (
        weight
        if editor.tensors[weight].shape == shape
        else editor.reshape(weight, shape, free_name(editor, f"{REGION}/weights"))
    )
