"""Message passing: sums over neighbours and attention along edges, rewritten as matrix products.

`rewritings` reports patterns that no technique can rewrite, and how to write the model instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from npusim.graph import Editor, Graph
from npusim.ops import DType, Family, Operator, Role
from npusim.ops.tensor import GRANULE
from npusim.techniques.preprocessing import feature_independent, fresh_name, nodes_of, value_numbers


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A weighted sum (or mean) over neighbours, with weights that follow from the edges alone."""

    features: str
    """Tensor [N, F] whose rows are gathered."""
    result: str
    """Tensor [N, F] of scaled sums."""
    sources: str
    """Node numbers that are gathered, [E] or [N, K]."""
    targets: str | None
    """Node numbers that are scattered to. None: row i of `sources` belongs to node i."""
    weights: tuple[str, ...]
    """Factors of the gathered rows."""
    counts: tuple[tuple[str, str], ...]
    """Factors and divisors of the sums [N, 1], each as (operator type, tensor)."""
    mean: bool
    """Whether the sum is divided by the number of rows."""
    region: str

    @property
    def key(self) -> tuple[str, ...]:
        """Tensors that determine the matrix; layers with equal keys share it."""
        return (self.sources, self.targets or "", *self.weights, *(t for _, t in self.counts))

    @property
    def scaled(self) -> bool:
        """Whether the matrix is a norm, not an adjacency."""
        return bool(self.mean or self.weights or self.counts)


def find_aggregations(graph: Graph) -> tuple[Aggregation, ...]:
    """Return every linear aggregation over gathered rows."""
    constant = feature_independent(graph)
    reducing = [op for op in graph if op.family in (Family.SCATTER, Family.REDUCE)]
    return tuple(a for op in reducing if (a := _aggregation(graph, op, constant)) is not None)


def _aggregation(graph: Graph, op: Operator, constant: frozenset[str]) -> Aggregation | None:
    start = _scattered(graph, op, constant) if op.family is Family.SCATTER else _reduced(graph, op)
    if start is None:
        return None
    summed, targets, mean = start
    weights: list[str] = []
    writer = graph.writer(summed)
    while writer is not None and writer.family is not Family.GATHER:
        step = _scaling(graph, writer, constant)
        if step is None or len(graph.readers(writer.outputs[0])) != 1:
            return None
        weights.extend(t for _, t in step[1])
        writer = graph.writer(step[0])
    if writer is None or tuple(writer.attrs.get("axes", (0,))) not in ((0,), (-2,)):
        return None
    features, sources = writer.inputs[:2]
    ranks = len(graph.tensors[features].shape), len(graph.tensors[sources].shape)
    if (
        features in constant
        or sources not in constant
        or ranks[0] != 2
        or (targets is None and ranks[1] != 2)
        or (targets is not None and graph.tensors[targets].elements != graph.tensors[sources].elements)
    ):
        return None
    aggregation = Aggregation(features, op.outputs[0], sources, targets, tuple(weights), (), mean, op.region)
    return _with_counts(graph, aggregation, constant)


def _scattered(graph: Graph, op: Operator, constant: frozenset[str]) -> tuple[str, str, bool] | None:
    reduction = op.attrs.get("reduction")
    if reduction not in ("sum", "mean") or len(op.inputs) < 3:
        return None
    blank, targets, updates = op.inputs[:3]
    if updates in constant or targets not in constant or blank not in constant:
        return None
    return updates, before_broadcast(graph, targets), reduction == "mean"


def before_broadcast(graph: Graph, index: str) -> str:
    """Return node numbers before they were repeated over the width of the features."""
    writer = graph.writer(index)
    while writer is not None and (
        writer.family in (Family.VIEW, Family.CONVERT) or writer.type in ("Broadcast", "Tile")
    ):
        index = writer.inputs[0]
        writer = graph.writer(index)
    return index


def _reduced(graph: Graph, op: Operator) -> tuple[str, None, bool] | None:
    """Return (rows, None, is a mean) of a reduction over K gathered neighbours."""
    sums = op.type in ("ReduceSum", "ReduceMean") and op.attrs.get("axes") == (1,)
    if not sums or op.attrs.get("keep_dims") or len(graph.tensors[op.inputs[0]].shape) != 3:
        return None
    return op.inputs[0], None, op.type == "ReduceMean"


def _with_counts(graph: Graph, aggregation: Aggregation, constant: frozenset[str]) -> Aggregation:
    """Add operators that scale the sums by the edges alone, such as the division of a mean."""
    while aggregation.result not in graph.outputs:
        readers = graph.readers(aggregation.result)
        step = _scaling(graph, readers[0], constant) if len(readers) == 1 else None
        if step is None or not step[1]:
            return aggregation
        aggregation = replace(
            aggregation, result=readers[0].outputs[0], counts=(*aggregation.counts, *step[1])
        )
    return aggregation


def _scaling(
    graph: Graph, op: Operator, constant: frozenset[str]
) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """Return (tensor, scales) if `op` is a view of rows or scales them by the edges alone; else None."""
    if op.family is Family.VIEW and op.type != "Result":
        shape, source = graph.tensors[op.outputs[0]].shape, graph.tensors[op.inputs[0]].shape
        same = tuple(d for d in shape if d > 1) == tuple(d for d in source if d > 1)
        return (op.inputs[0], ()) if same else None
    if op.type not in ("Multiply", "Divide"):
        return None
    scales = [t for t in op.inputs if t in constant and graph.tensors[t].shape[-1:] in ((1,), ())]
    scaled = [t for t in op.inputs if t not in constant]
    if len(scales) != 1 or len(scaled) != 1 or (op.type == "Divide" and op.inputs[1] != scales[0]):
        return None
    return scaled[0], ((op.type, scales[0]),)


def write_products(
    editor: Editor,
    graph: Graph,
    aggregations: Iterable[Aggregation],
    matrix_of: Callable[[Editor, Graph, Aggregation], str],
) -> None:
    """Replace each aggregation by MatMul(matrix, features); aggregations with equal keys share the matrix."""
    same = value_numbers(graph)
    matrices: dict[tuple[object, ...], str] = {}
    written: dict[str, str] = {}  # an aggregation may read the result of another one
    for aggregation in aggregations:
        key = (*(same.get(t) for t in aggregation.key), aggregation.mean)
        if key not in matrices:
            matrices[key] = matrix_of(editor, graph, aggregation)
        editor.region = aggregation.region
        name = fresh_name(editor, "matmul")
        features = written.get(aggregation.features, aggregation.features)
        written[aggregation.result] = editor.matmul(matrices[key], features, name)
        editor.rewire(aggregation.result, written[aggregation.result])


REGION = "preprocess"


def build_matrix(editor: Editor, graph: Graph, aggregation: Aggregation) -> str:
    """Add the operators that compute the matrix [N, N] of an aggregation from the edges; return its name.

    They prefer the device of the other preprocessing.
    """
    producers = [graph.writer(t) for t in aggregation.key if t in graph.tensors]
    device = next((op.device for op in producers if op is not None and op.device), None)
    nodes, sources = graph.tensors[aggregation.result].shape[0], graph.tensors[aggregation.sources]
    dtype = graph.tensors[aggregation.features].dtype
    role = Role.NORM if aggregation.scaled else Role.ADJACENCY
    fields = matrix_fields(graph, role, aggregation_density(editor, aggregation))
    more: dict[str, Any] = {"device": device, "tensor": fields}
    editor.region = REGION
    matrix = editor.constant(fresh_name(editor, "blank"), (nodes, nodes), dtype, density=0.0)
    axes: dict[str, Any] = {"axes": (1,)}
    index, type_ = aggregation.sources, "ScatterElementsUpdate"
    if aggregation.targets is not None:  # a weight per edge at (target, source), else K weights in each row
        index, type_, axes = _pairs(editor, graph, aggregation, device), "ScatterNDUpdate", {}
    inputs = (matrix, index, _weights(editor, aggregation, sources.shape, dtype))
    name = fresh_name(editor, "matrix")
    matrix = editor.op(type_, inputs, (nodes, nodes), dtype, name, reduction="sum", **axes, **more)
    if aggregation.mean:
        name = fresh_name(editor, "count")
        count = editor.reduce("ReduceSum", matrix, (1,), name, keep_dims=True, device=device)
        matrix = editor.eltwise("Divide", matrix, count, fresh_name(editor, "mean"), **more)
    for operation, scale in aggregation.counts:
        matrix = editor.eltwise(operation, matrix, scale, fresh_name(editor, "scaled"), **more)
    return matrix


def edge_values(editor: Editor, graph: Graph, aggregation: Aggregation) -> str:
    """Add the operators that compute each edge's value of the matrix; repeated edges share the value."""
    plain = replace(aggregation, weights=(), counts=(), mean=False)
    matrices = [build_matrix(editor, graph, variant) for variant in (aggregation, plain)]
    shape, dtype = graph.tensors[aggregation.sources].shape, graph.tensors[aggregation.features].dtype
    settings: dict[str, Any] = {"axes": (1,)}
    index, type_ = aggregation.sources, "GatherElements"
    if aggregation.targets is not None:
        index, type_, settings = _pairs(editor, graph, aggregation, None), "GatherND", {}
    values, counts = (
        editor.op(type_, (matrix, index), shape, dtype, fresh_name(editor, "edge_value"), **settings)
        for matrix in matrices
    )
    return editor.eltwise("Divide", values, counts, fresh_name(editor, "edge_norm"))


def _pairs(editor: Editor, graph: Graph, aggregation: Aggregation, device: str | None) -> str:
    """Join the ends of each edge as (target, source), [E, 2]."""
    sources = graph.tensors[aggregation.sources]
    ends, edges = (aggregation.targets or "", aggregation.sources), sources.elements
    columns = [editor.reshape(t, (edges, 1), fresh_name(editor, "column")) for t in ends]
    name = fresh_name(editor, "pairs")
    return editor.op("Concat", columns, (edges, 2), sources.dtype, name, axes=(1,), device=device)


def _weights(editor: Editor, aggregation: Aggregation, shape: tuple[int, ...], dtype: DType) -> str:
    """Return the edge weights in the shape that the scatter takes; 1 for edges without a weight."""
    if not aggregation.weights:
        return editor.constant(fresh_name(editor, "ones"), shape, dtype)
    weight = aggregation.weights[0]
    for other in aggregation.weights[1:]:
        weight = editor.eltwise("Multiply", weight, other, fresh_name(editor, "weight"))
    if editor.tensors[weight].shape == shape:
        return weight
    return editor.reshape(weight, shape, fresh_name(editor, "weights"))


def aggregation_density(graph: Graph | Editor, aggregation: Aggregation) -> float:
    """Return the density of the matrix of an aggregation: gathered rows without masked ones."""
    nodes, edges = graph.tensors[aggregation.result].shape[0], graph.tensors[aggregation.sources].elements
    present = min((graph.tensors[t].density for t in aggregation.weights), default=1.0)
    return min(1.0, present * edges / (nodes * nodes))


def matrix_fields(
    graph: Graph, role: Role, density: float | None = None, block_density: float | None = None
) -> dict[str, object]:
    """Return role, density, block density and symmetry of a node matrix, by default from graph statistics.

    GCN's norm, d^-1/2 (A + I) d^-1/2, is symmetric by construction. A mean divides rows only, and a sample of
    neighbours is one-sided.
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


@dataclass(frozen=True, slots=True)
class EdgeAttention:
    """One attention layer along the edges, of H heads."""

    features: str
    """Tensor [N, H, F] whose rows are gathered and weighted."""
    source_scores: str
    """Tensor [N, H]."""
    target_scores: str
    """Tensor [N, H]."""
    activations: tuple[Operator, ...]
    """Activations of the sum of the scores, in order."""
    result: str
    """Tensor [N, H, F] of weighted sums."""
    sources: str
    targets: str
    score_region: str
    sum_region: str


def find_edge_attentions(graph: Graph) -> tuple[EdgeAttention, ...]:
    """Return sums over edges whose weights are a softmax of gathered scores."""
    constant = feature_independent(graph)
    scatters = [op for op in graph if op.family is Family.SCATTER]
    return tuple(a for op in scatters if (a := _attention(graph, op, constant)) is not None)


def _attention(graph: Graph, scatter: Operator, constant: frozenset[str]) -> EdgeAttention | None:
    sums = scatter.attrs.get("reduction") == "sum" and len(scatter.inputs) >= 3
    if not sums or scatter.inputs[1] not in constant:
        return None
    scale = graph.writer(scatter.inputs[2])
    if scale is None or scale.type != "Multiply":
        return None
    for messages, weights in (scale.inputs, scale.inputs[::-1]):
        gather = graph.writer(messages)
        exponential = _exponential(graph, weights, constant)
        if gather is None or gather.family is not Family.GATHER or exponential is None:
            continue
        if len(graph.tensors[gather.inputs[0]].shape) != 3:
            continue
        targets = before_broadcast(graph, scatter.inputs[1])
        return _scored(graph, exponential, gather, scatter, targets)
    return None


def _exponential(graph: Graph, weights: str, constant: frozenset[str]) -> Operator | None:
    """Return the Exp of a softmax over edges, exp(e - max) / sum, whose quotient is `weights`."""
    op = graph.writer(weights)
    while op is not None and op.family is Family.VIEW:
        op = graph.writer(op.inputs[0])
    if op is None or op.type != "Divide" or weights in constant:
        return None
    top = graph.writer(op.inputs[0])
    return top if top is not None and top.type == "Exp" else None


def _scored(
    graph: Graph, exponential: Operator, gather: Operator, scatter: Operator, targets: str
) -> EdgeAttention | None:
    """Return the attention of a softmax: exponential, minus the maximum, activations, two gathers."""
    op = graph.writer(exponential.inputs[0])
    if op is not None and op.type == "Subtract":
        op = graph.writer(op.inputs[0])
    activations: list[Operator] = []
    while op is not None and op.family is Family.ACTIVATION:
        activations.insert(0, op)
        op = graph.writer(op.inputs[0])
    if op is None or op.type != "Add":
        return None
    ends = {}
    for name in op.inputs:
        end = graph.writer(name)
        if end is None or end.family is not Family.GATHER:
            return None
        ends[before_broadcast(graph, end.inputs[1])] = end.inputs[0]
    sources = before_broadcast(graph, gather.inputs[1])
    if set(ends) != {sources, targets}:
        return None
    scores, result = (ends[sources], ends[targets]), scatter.outputs[0]
    return EdgeAttention(
        gather.inputs[0], *scores, tuple(activations), result, sources, targets, op.region, scatter.region
    )


def write_dense(editor: Editor, attention: EdgeAttention, present: str) -> str:
    """Replace an attention by scores of all pairs, [N, N] or [H, N, N], masked by `present` (boolean)."""
    nodes, heads, width = editor.tensors[attention.features].shape
    stack = (heads,) if heads > 1 else ()
    dtype = editor.tensors[attention.features].dtype
    editor.region = attention.score_region
    column = _heads_first(editor, attention.target_scores, (*stack, nodes, 1))
    row = _heads_first(editor, attention.source_scores, (*stack, 1, nodes))
    scores = editor.eltwise("Add", column, row, fresh_name(editor, "add_scores"))
    for op in attention.activations:
        inputs = (scores, *op.inputs[1:])
        shape = editor.tensors[scores].shape
        name = fresh_name(editor, f"{op.type.lower()}_scores")
        scores = editor.op(op.type, inputs, shape, dtype, name, **op.attrs)
    shape = editor.tensors[scores].shape
    low = editor.constant(fresh_name(editor, "minus_infinity"), (), dtype)
    absent = editor.op("Broadcast", (low,), shape, dtype, fresh_name(editor, "broadcast"))
    masked = editor.select(present, scores, absent, fresh_name(editor, "select"))
    weights = editor.unary("Softmax", masked, fresh_name(editor, "softmax"), axes=(len(shape) - 1,))
    editor.region = attention.sum_region
    rows = _features(editor, attention.features, (*stack, nodes, width))
    summed = editor.matmul(weights, rows, fresh_name(editor, "matmul"))
    if heads > 1:
        shape, name = (nodes, heads, width), fresh_name(editor, "heads_last")
        summed = editor.op("Transpose", (summed,), shape, dtype, name, order=(1, 0, 2))
    else:
        summed = editor.reshape(summed, (nodes, 1, width), fresh_name(editor, "rows"))
    editor.rewire(attention.result, summed)
    return summed


def _heads_first(editor: Editor, scores: str, shape: tuple[int, ...]) -> str:
    nodes, heads = editor.tensors[scores].shape
    if heads > 1:
        name, dtype = fresh_name(editor, "heads_first"), editor.tensors[scores].dtype
        scores = editor.op("Transpose", (scores,), (heads, nodes), dtype, name, order=(1, 0))
    if editor.tensors[scores].shape == shape:
        return scores
    return editor.reshape(scores, shape, fresh_name(editor, "laid_out"))


def _features(editor: Editor, features: str, shape: tuple[int, ...]) -> str:
    if len(shape) == 2:
        return editor.reshape(features, shape, fresh_name(editor, "features"))
    name = fresh_name(editor, "features_heads_first")
    return editor.op("Transpose", (features,), shape, editor.tensors[features].dtype, name, order=(1, 0, 2))


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A change of the model by its author that makes techniques applicable."""

    operator: str
    """The operator that prevents them."""
    region: str
    """Part of the network that it belongs to."""
    what: str
    """The pattern, and what to write instead."""
    opens: tuple[str, ...]
    """Techniques that apply after the change."""


def rewritings(graph: Graph) -> tuple[Rewriting, ...]:
    """Return changes of the model that make techniques applicable, one per operator."""
    constant = feature_independent(graph)
    attentions = {attention.result for attention in find_edge_attentions(graph)}
    changes: dict[str, Rewriting] = {}
    for detect, opens in _DETECTORS.items():
        for op in graph:
            what = detect(graph, op, constant, attentions)
            if what:
                changes[op.name] = Rewriting(op.name, op.region, what, opens)
    return tuple(changes.values())


def _joint_scores(graph: Graph, op: Operator, constant: frozenset[str], attentions: set[str]) -> str:
    """Return advice for an attention that mixes both ends of an edge before the sum, as GATv2's."""
    if op.family is not Family.ACTIVATION or not op.outputs or op.outputs[0] in attentions:
        return ""
    added = graph.writer(op.inputs[0])
    ends = [] if added is None or added.type != "Add" else [graph.writer(t) for t in added.inputs]
    gathered = [end for end in ends if end is not None and end.family is Family.GATHER]
    scores = graph.tensors[op.outputs[0]]
    shape = scores.shape
    if len(gathered) != 2 or len(shape) < 3 or shape[-1] == 1:
        return ""
    nodes = graph.tensors[gathered[0].inputs[0]].shape[0]
    size = float(nodes) ** 2 * shape[-2] * shape[-1] * scores.dtype.bytes
    return (
        f"scores mix both ends of an edge in {shape[-1]} features before they are summed (GATv2): over "
        f"all pairs that takes {size / 1e6:.3g} MB; a score that is one number of the source plus one of "
        "the target (GATConv) becomes a dense [N, N]"
    )


def _scattered_maximum(graph: Graph, op: Operator, constant: frozenset[str], attentions: set[str]) -> str:
    """Return advice for a scattered maximum over neighbours, which a DSP computes element by element."""
    if op.family is not Family.SCATTER or op.attrs.get("reduction") != "max":
        return ""
    readers = [reader for name in op.outputs for reader in graph.readers(name)]
    later = [second for first in readers for name in first.outputs for second in graph.readers(name)]
    in_softmax = any(reader.type == "Subtract" for reader in (*readers, *later))
    if in_softmax or constant.issuperset(op.outputs):
        return ""
    return (
        "a maximum over the edges is scattered; over K sampled neighbours a node, gathered to [N, K, F] and "
        "masked by a Select, it becomes a product and a pooling"
    )


def _edges_of_features(graph: Graph, op: Operator, constant: frozenset[str], attentions: set[str]) -> str:
    """Return advice for neighbours that follow from features, such as the k nearest."""
    indices = op.inputs[1] if op.family is Family.GATHER and len(op.inputs) > 1 else ""
    if not indices or indices in constant or graph.tensors[op.inputs[0]].shape[0] <= 1:
        return ""
    return (
        "neighbours follow from the features, so that no matrix can be ready before; edges as an input or a "
        "constant of the model can be"
    )


_DETECTORS = {
    _joint_scores: ("stagr", "grad", "effop", "grax1", "grax2"),
    _scattered_maximum: ("effop", "grax3"),
    _edges_of_features: ("stagr", "grad", "preg"),
}
"""Detectors of patterns, each with the techniques that apply after the change."""
