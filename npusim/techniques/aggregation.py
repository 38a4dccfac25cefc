"""Sums over neighbours by Gather and Scatter: finding them, writing them as a matrix product."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from npusim.graph import Editor, Graph
from npusim.ops import Family, Operator
from npusim.techniques.preprocessing import feature_independent, unique_name, value_numbers


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One weighted sum (or mean) over neighbours whose weights follow from the edges alone."""

    features: str
    """Tensor [N, F] whose rows are gathered."""
    result: str
    """Tensor [N, F] of sums, after the scaling that is folded in."""
    sources: str
    """Node numbers that are gathered, [E] or [N, K]."""
    targets: str | None
    """Node numbers that are scattered to; None where each row of `sources` belongs to the node of its number.
    """
    weights: tuple[str, ...]
    """Factors of the gathered rows."""
    counts: tuple[tuple[str, str], ...]
    """Factors and divisors of the sums [N, 1], each as (operator type, tensor)."""
    mean: bool
    """Whether the sum is divided by how many rows there are."""
    region: str

    @property
    def key(self) -> tuple[str, ...]:
        """Tensors that the matrix follows from: layers with the same share it."""
        return (self.sources, self.targets or "", *self.weights, *(t for _, t in self.counts))

    @property
    def scaled(self) -> bool:
        """Whether the matrix is a norm, not an adjacency."""
        return bool(self.mean or self.weights or self.counts)


def find_aggregations(graph: Graph) -> tuple[Aggregation, ...]:
    """Find every linear aggregation over gathered rows."""
    constant = feature_independent(graph)
    found = (
        _aggregation(graph, op, constant) for op in graph if op.family in (Family.SCATTER, Family.REDUCE)
    )
    return tuple(a for a in found if a is not None)


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
    found = Aggregation(features, op.outputs[0], sources, targets, tuple(weights), (), mean, op.region)
    return _with_counts(graph, found, constant)


def _scattered(graph: Graph, op: Operator, constant: frozenset[str]) -> tuple[str, str, bool] | None:
    reduction = op.attrs.get("reduction")
    if reduction not in ("sum", "mean") or len(op.inputs) < 3:
        return None
    blank, targets, updates = op.inputs[:3]
    if updates in constant or targets not in constant or blank not in constant:
        return None
    return updates, before_broadcast(graph, targets), reduction == "mean"


def before_broadcast(graph: Graph, index: str) -> str:
    """Node numbers before they were repeated over the width of the features."""
    writer = graph.writer(index)
    while writer is not None and (
        writer.family in (Family.VIEW, Family.CONVERT) or writer.type in ("Broadcast", "Tile")
    ):
        index = writer.inputs[0]
        writer = graph.writer(index)
    return index


def _reduced(graph: Graph, op: Operator) -> tuple[str, None, bool] | None:
    """Rows of K neighbours each, summed over the K."""
    if (
        op.type not in ("ReduceSum", "ReduceMean")
        or op.attrs.get("axes") != (1,)
        or op.attrs.get("keep_dims")
    ):
        return None
    return (
        (op.inputs[0], None, op.type == "ReduceMean") if len(graph.tensors[op.inputs[0]].shape) == 3 else None
    )


def _with_counts(graph: Graph, found: Aggregation, constant: frozenset[str]) -> Aggregation:
    """Fold in operators that scale the sums by the edges alone, such as the division of a mean."""
    while found.result not in graph.outputs:
        readers = graph.readers(found.result)
        step = _scaling(graph, readers[0], constant) if len(readers) == 1 else None
        if step is None or not step[1]:
            return found
        found = replace(found, result=readers[0].outputs[0], counts=(*found.counts, *step[1]))
    return found


def _scaling(
    graph: Graph, op: Operator, constant: frozenset[str]
) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """Return (tensor, scale) where `op` views rows or scales them by the edges alone; else None."""
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
    """Let MatMul(matrix, features) stand in each aggregation's place; equal ones share their matrix."""
    same = value_numbers(graph)
    made: dict[tuple[object, ...], str] = {}
    written: dict[str, str] = {}  # an aggregation of what another one gives reads its product
    for aggregation in aggregations:
        key = (*(same.get(t) for t in aggregation.key), aggregation.mean)
        if key not in made:
            made[key] = matrix_of(editor, graph, aggregation)
        editor.region = aggregation.region
        name = unique_name(editor, f"{aggregation.region}/matmul")
        features = written.get(aggregation.features, aggregation.features)
        written[aggregation.result] = editor.matmul(made[key], features, name)
        editor.rewire(aggregation.result, written[aggregation.result])
