"""Attention along edges, its softmax made of scatters: finding it, writing it over all pairs."""

from __future__ import annotations

from dataclasses import dataclass

from npusim.graph import Editor, Graph
from npusim.ops import DType, Family, Operator
from npusim.techniques.aggregation import before_broadcast
from npusim.techniques.preprocessing import feature_independent, unique_name


@dataclass(frozen=True, slots=True)
class EdgeAttention:
    """One attention layer along the edges, of H heads."""

    features: str
    """Tensor [N, H, F] whose rows are gathered and weighed."""
    source_scores: str
    """Tensor [N, H]."""
    target_scores: str
    """Tensor [N, H]."""
    activations: tuple[Operator, ...]
    """What is applied to the sum of the scores, first to last."""
    result: str
    """Tensor [N, H, F] of weighted sums."""
    sources: str
    targets: str
    score_region: str
    sum_region: str


def find_edge_attentions(graph: Graph) -> tuple[EdgeAttention, ...]:
    """Find sums over edges whose weights are a softmax of gathered scores."""
    constant = feature_independent(graph)
    found = (_attention(graph, op, constant) for op in graph if op.family is Family.SCATTER)
    return tuple(a for a in found if a is not None)


def _attention(graph: Graph, scatter: Operator, constant: frozenset[str]) -> EdgeAttention | None:
    if (
        scatter.attrs.get("reduction") != "sum"
        or len(scatter.inputs) < 3
        or scatter.inputs[1] not in constant
    ):
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
    """The Exp of a softmax over edges, exp(e - max) / sum, whose quotient is `weights`."""
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
    """Read the scores backwards from the exponential: minus the maximum, activations, two gathers."""
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
    return EdgeAttention(
        gather.inputs[0],
        ends[sources],
        ends[targets],
        tuple(activations),
        scatter.outputs[0],
        sources,
        targets,
        op.region,
        scatter.region,
    )


def write_dense(editor: Editor, attention: EdgeAttention, present: str) -> str:
    """Let scores of all pairs, masked by `present` (boolean, [N, N]), stand in the attention's place.

    Heads come first, [H, N, N], where there are several.
    """
    nodes, heads, width = editor.tensors[attention.features].shape
    stack = (heads,) if heads > 1 else ()
    dtype = editor.tensors[attention.features].dtype
    editor.region = place = attention.score_region
    column = _heads_first(editor, attention.target_scores, place, (*stack, nodes, 1))
    row = _heads_first(editor, attention.source_scores, place, (*stack, 1, nodes))
    scores = editor.eltwise("Add", column, row, unique_name(editor, f"{place}/add_scores"))
    for op in attention.activations:
        inputs = (scores, *op.inputs[1:])
        shape = editor.tensors[scores].shape
        name = unique_name(editor, f"{place}/{op.type.lower()}_scores")
        scores = editor.op(op.type, inputs, shape, dtype, name, **op.attrs)
    weights = _masked_softmax(editor, scores, present, place, dtype)
    editor.region = place = attention.sum_region
    rows = _features(editor, attention.features, place, (*stack, nodes, width))
    summed = editor.matmul(weights, rows, unique_name(editor, f"{place}/matmul"))
    if heads > 1:
        shape = (nodes, heads, width)
        summed = editor.op(
            "Transpose", (summed,), shape, dtype, unique_name(editor, f"{place}/heads_last"), order=(1, 0, 2)
        )
    else:
        summed = editor.reshape(summed, (nodes, 1, width), unique_name(editor, f"{place}/rows"))
    editor.rewire(attention.result, summed)
    return summed


def _masked_softmax(editor: Editor, scores: str, present: str, place: str, dtype: DType) -> str:
    low = editor.constant(unique_name(editor, f"{place}/minus_infinity"), (), dtype)
    shape = editor.tensors[scores].shape
    absent = editor.op("Broadcast", (low,), shape, dtype, unique_name(editor, f"{place}/broadcast"))
    masked = editor.select(present, scores, absent, unique_name(editor, f"{place}/select"))
    return editor.unary("Softmax", masked, unique_name(editor, f"{place}/softmax"), axes=(len(shape) - 1,))


def _heads_first(editor: Editor, scores: str, place: str, shape: tuple[int, ...]) -> str:
    nodes, heads = editor.tensors[scores].shape
    if heads > 1:
        turned = unique_name(editor, f"{place}/heads_first")
        scores = editor.op(
            "Transpose", (scores,), (heads, nodes), editor.tensors[scores].dtype, turned, order=(1, 0)
        )
    if editor.tensors[scores].shape == shape:
        return scores
    return editor.reshape(scores, shape, unique_name(editor, f"{place}/laid_out"))


def _features(editor: Editor, features: str, place: str, shape: tuple[int, ...]) -> str:
    if len(shape) == 2:
        return editor.reshape(features, shape, unique_name(editor, f"{place}/features"))
    name = unique_name(editor, f"{place}/features_heads_first")
    return editor.op("Transpose", (features,), shape, editor.tensors[features].dtype, name, order=(1, 0, 2))
