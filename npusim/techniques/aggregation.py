"""Message passing: sums over neighbours and attention along edges, rewritten as matrix products.

`rewritings` reports patterns that no technique can rewrite, and how to write the model instead.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npusim.graph import Editor, Graph
from npusim.graph.editor import Rewriter
from npusim.ops import DType, Family, Operator, Role, TensorKind
from npusim.ops.operator import GRANULE
from npusim.techniques.preprocessing import nodes_of, value_numbers


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A weighted sum (or mean) over neighbours, with weights that follow from the edges alone."""

    features: str  # tensor [N, F] whose rows are gathered
    result: str  # tensor [N, F] of scaled sums
    sources: str  # node numbers that are gathered, [E] or [N, K]
    targets: str | None
    """Node numbers that are scattered to. None: row i of `sources` belongs to node i."""
    scales: tuple[tuple[str, str], ...] = ()
    """Factors, then divisors of the gathered rows, each as (operator type, tensor)."""
    counts: tuple[tuple[str, str], ...] = ()
    """Factors and divisors of the sums [N, 1]."""
    mean: bool = False  # whether the sum is divided by the number of rows
    region: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """Tensors that determine the matrix; layers with equal keys share it."""
        return (self.sources, self.targets or "", *(t for _, t in (*self.scales, *self.counts)))

    @property
    def form(self) -> tuple[object, ...]:
        """What is done with the tensors of `key`."""
        return tuple(kind for kind, _ in self.scales), tuple(kind for kind, _ in self.counts), self.mean

    @property
    def role(self) -> Role:
        """Role of its matrix: a norm if it is scaled, else an adjacency."""
        scaled = self.mean or self.scales or self.counts
        return Role.NORM if scaled else Role.ADJACENCY


def find_aggregations(graph: Graph) -> tuple[Aggregation, ...]:
    """Return every linear aggregation over gathered rows."""
    reducing = [op for op in graph if op.family in (Family.SCATTER, Family.REDUCE)]
    return tuple(a for op in reducing if (a := aggregation_of(graph, op)) is not None)


def aggregation_of(graph: Graph, op: Operator) -> Aggregation | None:
    """Return the linear aggregation that an operator ends; None where it is none."""
    start = scattered(graph, op) if op.family is Family.SCATTER else _reduced(graph, op)
    if start is None:
        return None
    summed, targets, mean = start
    scales: list[tuple[str, str]] = []
    writer = graph.writer(summed)
    while writer is not None and writer.family is not Family.GATHER:
        step = _scaling(graph, writer)
        if step is None or len(graph.readers(writer.outputs[0])) != 1:
            return None
        scales.extend(step[1])
        writer = graph.writer(step[0])
    if writer is None or tuple(writer.attrs.get("axes", (0,))) not in ((0,), (-2,)):
        return None
    features, sources = (graph.tensors[name] for name in writer.inputs[:2])
    constant = graph.feature_independent
    if sources.name in graph.prepared:  # slots that a technique laid out
        return None
    if features.name in constant or sources.name not in constant or len(features.shape) != 2:
        return None
    if len(sources.shape) != 2 if targets is None else _count(graph, targets) != _count(graph, sources.name):
        return None
    ends = features.name, op.outputs[0], sources.name, targets
    ordered = tuple(sorted(scales, key=lambda scale: scale[0] == "Divide"))
    return with_counts(graph, Aggregation(*ends, ordered, mean=mean, region=op.region))


def _count(graph: Graph, name: str) -> int:
    """Return how many node numbers a tensor holds, repeated ones of a constant once."""
    known = graph.known(name) if graph.tensors[name].kind is TensorKind.CONSTANT else None
    return graph.tensors[name].elements if known is None else len(known)


def scattered(graph: Graph, op: Operator) -> tuple[str, str, bool] | None:
    """Return (rows, targets, is a mean) of a scatter of rows to nodes."""
    reduction, constant = op.attrs.get("reduction"), graph.feature_independent
    if reduction not in ("sum", "mean") or len(op.inputs) < 3:
        return None
    blank, targets, updates = op.inputs[:3]
    if updates in constant or targets not in constant or blank not in constant:
        return None
    return updates, graph.before_broadcast(targets), reduction == "mean"


def _reduced(graph: Graph, op: Operator) -> tuple[str, None, bool] | None:
    """Return (rows, None, is a mean) of a reduction over K gathered neighbours."""
    sums = op.type in ("ReduceSum", "ReduceMean") and op.attrs.get("axes") == (1,)
    if not sums or op.attrs.get("keep_dims") or len(graph.tensors[op.inputs[0]].shape) != 3:
        return None
    return op.inputs[0], None, op.type == "ReduceMean"


def with_counts(graph: Graph, aggregation: Aggregation) -> Aggregation:
    """Add operators that scale the sums by the edges alone, such as the division of a mean."""
    while aggregation.result not in graph.outputs:
        readers = graph.readers(aggregation.result)
        step = _scaling(graph, readers[0]) if len(readers) == 1 else None
        if step is None or not step[1]:
            return aggregation
        counts = (*aggregation.counts, *step[1])
        aggregation = replace(aggregation, result=readers[0].outputs[0], counts=counts)
    return aggregation


def _scaling(graph: Graph, op: Operator) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """Return (tensor, scales) if `op` is a view of rows or scales them by the edges alone; else None."""
    if op.family is Family.VIEW and op.type != "Result":
        shape, source = graph.tensors[op.outputs[0]].shape, graph.tensors[op.inputs[0]].shape
        same = [d for d in shape if d > 1] == [d for d in source if d > 1]
        return (op.inputs[0], ()) if same else None
    if op.type not in ("Multiply", "Divide"):
        return None
    constant = graph.feature_independent
    scales = [t for t in op.inputs if t in constant and graph.tensors[t].shape[-1:] in ((1,), ())]
    scaled = [t for t in op.inputs if t not in constant]
    if len(scales) != 1 or len(scaled) != 1 or (op.type == "Divide" and op.inputs[1] != scales[0]):
        return None
    return scaled[0], ((op.type, scales[0]),)


def write_products(
    editor: Rewriter,
    graph: Graph,
    aggregations: Iterable[Aggregation],
    matrix_of: Callable[[Rewriter, Graph, Aggregation], str],
) -> None:
    """Replace each aggregation by MatMul(matrix, features); aggregations with equal keys share the matrix."""
    same = value_numbers(graph)
    matrices: dict[tuple[object, ...], str] = {}
    written: dict[str, str] = {}  # an aggregation may read the result of another one
    for aggregation in aggregations:
        key = (*(same.get(t) for t in aggregation.key), aggregation.form)
        if key not in matrices:
            matrices[key] = matrix_of(editor, graph, aggregation)
        editor.region = aggregation.region
        features = written.get(aggregation.features, aggregation.features)
        written[aggregation.result] = editor.matmul(matrices[key], features, "matmul")
        editor.rewire(aggregation.result, written[aggregation.result])


REGION = "preprocess"


def build_matrix(editor: Rewriter, graph: Graph, aggregation: Aggregation) -> str:
    """Add the operators that compute the matrix [N, M] of an aggregation from the edges; return its name.

    They prefer the device of the other preprocessing.
    """
    producers = [graph.writer(t) for t in aggregation.key if t in graph.tensors]
    device = next((op.device for op in producers if op is not None and op.device), None)
    shape, sources = _matrix_shape(graph, aggregation), graph.tensors[aggregation.sources]
    dtype = graph.tensors[aggregation.features].dtype
    fields = matrix_fields(graph, aggregation.role, aggregation_density(editor, aggregation))
    more: dict[str, Any] = {"device": device, "tensor": fields}
    editor.region = REGION
    matrix = editor.constant("blank", shape, dtype, density=0.0)
    kind, index, axes = _positions(editor, graph, aggregation, device)
    weights = _weights(editor, aggregation, sources.shape, dtype)
    axes |= {"reduction": "sum"}
    matrix = editor.op(
        f"Scatter{kind}Update", (matrix, index, weights), shape, dtype, "matrix", **axes, **more
    )
    if aggregation.mean:
        count = editor.reduce("ReduceSum", matrix, (1,), "count", keep_dims=True, device=device)
        matrix = editor.eltwise("Divide", matrix, count, "mean", **more)
    for operation, scale in aggregation.counts:
        matrix = editor.eltwise(operation, matrix, scale, "scaled", **more)
    return matrix


def edge_values(editor: Rewriter, graph: Graph, aggregation: Aggregation) -> str:
    """Add the operators that compute each edge's value of the matrix; repeated edges share the value."""
    plain = replace(aggregation, scales=(), counts=(), mean=False)
    matrices = [build_matrix(editor, graph, variant) for variant in (aggregation, plain)]
    shape, dtype = graph.tensors[aggregation.sources].shape, graph.tensors[aggregation.features].dtype
    suffix, index, axes = _positions(editor, graph, aggregation)
    values, counts = (
        editor.op(f"Gather{suffix}", (matrix, index), shape, dtype, "edge_value", **axes)
        for matrix in matrices
    )
    return editor.eltwise("Divide", values, counts, "edge_norm")


def _positions(
    editor: Rewriter, graph: Graph, aggregation: Aggregation, device: str | None = None
) -> tuple[str, str, dict[str, Any]]:
    """Return kind of index, indices and axes that address a matrix by edge, or by K columns of each row."""
    sources = graph.tensors[aggregation.sources]
    if aggregation.targets is None:
        return "Elements", sources.name, {"axes": (1,)}
    ends = (aggregation.targets, sources.name)
    columns, shape = list[str](), (sources.elements, 2)
    for end in ends:
        if graph.tensors[end].elements != sources.elements:  # a constant that repeats its numbers
            numbers = graph.known(end)
            assert numbers is not None
            end = editor.constant("numbers", numbers.shape, sources.dtype, role=Role.EDGES)
            editor.prepared[end] = numbers
        if editor.tensors[end].dtype is not sources.dtype:
            end = editor.op("Convert", (end,), editor.tensors[end].shape, sources.dtype, "numbers")
        columns.append(editor.reshape(end, (sources.elements, 1), "column"))
    pairs = editor.op("Concat", columns, shape, sources.dtype, "pairs", axes=(1,), device=device)
    return "ND", pairs, {}


def _weights(editor: Rewriter, aggregation: Aggregation, shape: tuple[int, ...], dtype: DType) -> str:
    """Return the edge weights in the shape that the scatter takes; 1 for edges without a weight."""
    scales = list(aggregation.scales)
    has_factor = bool(scales) and scales[0][0] == "Multiply"
    weight = scales.pop(0)[1] if has_factor else editor.constant("ones", shape, dtype, fill=1.0)
    for kind, other in scales:
        if kind == "Divide" and editor.tensors[other].shape != editor.tensors[weight].shape:
            other = editor.reshape(other, editor.tensors[weight].shape, "divisor")
        weight = editor.eltwise(kind, weight, other, "weight")
    return weight if editor.tensors[weight].shape == shape else editor.reshape(weight, shape, "weights")


def aggregation_density(graph: Graph | Editor, aggregation: Aggregation) -> float:
    """Return the density of the matrix of an aggregation: gathered rows without masked ones."""
    rows, columns = _matrix_shape(graph, aggregation)
    present = min(
        (graph.tensors[t].density for kind, t in aggregation.scales if kind == "Multiply"), default=1.0
    )
    return min(1.0, present * graph.tensors[aggregation.sources].elements / (rows * columns))


def _matrix_shape(graph: Graph | Editor, aggregation: Aggregation) -> tuple[int, int]:
    """Return the numbers of targets and sources, which differ between types of nodes."""
    return graph.tensors[aggregation.result].shape[0], graph.tensors[aggregation.features].shape[0]


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
        density = known if density is None else density
        if block_density is None and abs(density - known) <= 1e-3 * known:
            block_density = structure.padded_block_density(GRANULE, nodes)
    return {
        "role": role,
        "density": 1.0 if density is None else density,
        "block_density": block_density,
        "symmetric": role is Role.NORM and graph.meta.model == "gcn",
    }


@dataclass(frozen=True, slots=True)
class EdgeAttention:
    """One attention layer along the edges, of H heads.

    A score is the sum of a number of each end, or the inner product of a key and a query.
    """

    features: str  # tensor [N, H, F] whose rows are gathered and weighted
    source_scores: str  # tensor [N, H] of numbers, or [N, H, D] of keys
    target_scores: str  # tensor [N, H] of numbers, or [N, H, D] of queries
    activations: tuple[Operator, ...]  # what is done to the scores, in order: activations, scalings
    result: str  # tensor [N, H, F] of weighted sums
    sources: str
    targets: str
    score_region: str
    sum_region: str


def find_edge_attentions(graph: Graph) -> tuple[EdgeAttention, ...]:
    """Return sums over edges whose weights are a softmax of gathered scores."""
    scatters = [op for op in graph if op.family is Family.SCATTER]
    attentions = (_attention(graph, op) for op in scatters)
    return tuple(a for a in attentions if a is not None and _fits_all_pairs(graph, a))


def _fits_all_pairs(graph: Graph, attention: EdgeAttention) -> bool:
    """Whether sources are targets, and no pair of nodes has two edges, which a mask would count once."""
    nodes = graph.tensors[attention.result].shape[0]
    ends = [graph.known(name) for name in (attention.sources, attention.targets)]
    if nodes != graph.tensors[attention.features].shape[0]:
        return False
    if ends[0] is None or ends[1] is None:
        return True
    pairs = ends[1].astype(np.int64) * nodes + ends[0]
    return len(np.unique(pairs)) == len(pairs)


def _attention(graph: Graph, scatter: Operator) -> EdgeAttention | None:
    sums = scatter.attrs.get("reduction") == "sum" and len(scatter.inputs) >= 3
    if not sums or scatter.inputs[1] not in graph.feature_independent:
        return None
    scale = graph.made_by(scatter.inputs[2], "Multiply")
    for messages, weights in (scale.inputs, scale.inputs[::-1]) if scale is not None else ():
        gather, score = graph.made_by(messages, Family.GATHER), _score_of(graph, weights)
        if gather is not None and score is not None and len(graph.tensors[gather.inputs[0]].shape) == 3:
            return _scored(graph, score, gather, scatter)
    return None


def _score_of(graph: Graph, weights: str) -> str | None:
    """Return the scores whose softmax over edges, exp(e - max) / sum, is `weights`; None where it is none."""
    op = graph.writer(weights)
    while op is not None and op.family is Family.VIEW:
        op = graph.writer(op.inputs[0])
    if op is None or op.type != "Divide" or weights in graph.feature_independent:
        return None
    exponential = graph.made_by(op.inputs[0], "Exp")
    lowered = None if exponential is None else graph.made_by(exponential.inputs[0], "Subtract")
    return None if exponential is None else (lowered or exponential).inputs[0]


def _scored(graph: Graph, score: str, gather: Operator, scatter: Operator) -> EdgeAttention | None:
    """Return the attention of scores: activations of what two gathers give."""
    activations: list[Operator] = []
    while (op := graph.writer(score)) is not None and (op.family is Family.ACTIVATION or _scales(graph, op)):
        activations.insert(0, op)
        score = op.inputs[0]
    if op is not None and op.type == "ReduceSum":
        op = graph.made_by(op.inputs[0], "Multiply") if op.attrs.get("axes") == (2,) else None
    elif op is not None and op.type != "Add":
        op = None
    ends = [graph.made_by(name, Family.GATHER) for name in (() if op is None else op.inputs)]
    scores = {graph.before_broadcast(end.inputs[1]): end.inputs[0] for end in ends if end is not None}
    sources, targets = (graph.before_broadcast(end.inputs[1]) for end in (gather, scatter))
    if op is None or None in ends or set(scores) != {sources, targets}:
        return None
    return EdgeAttention(
        features=gather.inputs[0],
        source_scores=scores[sources],
        target_scores=scores[targets],
        activations=tuple(activations),
        result=scatter.outputs[0],
        sources=sources,
        targets=targets,
        score_region=op.region,
        sum_region=scatter.region,
    )


def _scales(graph: Graph, op: Operator) -> bool:
    """Whether an operator multiplies by a single constant."""
    tensors = graph.inputs_of(op)
    is_constant = len(tensors) == 2 and tensors[1].kind is TensorKind.CONSTANT and tensors[1].elements == 1
    return op.type == "Multiply" and is_constant


def write_dense(editor: Rewriter, attention: EdgeAttention, present: str, reached: str | None) -> None:
    """Replace an attention by scores of all pairs, [N, N] or [H, N, N], masked by `present` (boolean).

    `reached` [N, 1, 1] is 0 for nodes without an edge, whose rows are zeros; None where all have one.
    """
    nodes, heads, width = editor.tensors[attention.features].shape
    stack = (heads,) if heads > 1 else ()
    dtype = editor.tensors[attention.features].dtype
    editor.region = attention.score_region
    depth = editor.tensors[attention.source_scores].shape[2:]
    activations = list(attention.activations)
    if depth:
        queries = attention.target_scores
        if activations and activations[0].type == "Multiply":  # of N vectors, not of N x N scores
            factor = editor.reshape(activations.pop(0).inputs[1], (1, 1, 1), "scale")
            queries = editor.eltwise("Multiply", queries, factor, "queries")
        queries, keys = (
            _heads_first(editor, name, (*stack, nodes, *depth)) for name in (queries, attention.source_scores)
        )
        scores = editor.matmul(queries, keys, "scores", transpose_b=True)
    else:
        column = _heads_first(editor, attention.target_scores, (*stack, nodes, 1))
        row = _heads_first(editor, attention.source_scores, (*stack, 1, nodes))
        scores = editor.eltwise("Add", column, row, "add_scores")
    shape = editor.tensors[scores].shape
    for op in activations:
        inputs, name = (scores, *op.inputs[1:]), f"{op.type.lower()}_scores"
        scores = editor.op(op.type, inputs, shape, dtype, name, **op.attrs)
    low = editor.constant("minus_infinity", (), dtype)
    absent = editor.op("Broadcast", (low,), shape, dtype, "broadcast")
    masked = editor.select(present, scores, absent, "select")
    weights = editor.unary("Softmax", masked, "softmax", axes=(len(shape) - 1,))
    editor.region = attention.sum_region
    if heads > 1:
        rows = editor.transpose(attention.features, (1, 0, 2), "features_heads_first")
        summed = editor.transpose(editor.matmul(weights, rows, "matmul"), (1, 0, 2), "heads_last")
    else:
        rows = editor.reshape(attention.features, (nodes, width), "features")
        summed = editor.reshape(editor.matmul(weights, rows, "matmul"), (nodes, 1, width), "rows")
    if reached is not None:
        summed = editor.eltwise("Multiply", summed, reached, "kept")
    editor.rewire(attention.result, summed)


def _heads_first(editor: Rewriter, scores: str, shape: tuple[int, ...]) -> str:
    """Return scores [N, H] or vectors [N, H, D] in a shape whose first axis is the heads."""
    if editor.tensors[scores].shape[1] > 1:
        order = (1, 0, 2)[: len(editor.tensors[scores].shape)]
        scores = editor.transpose(scores, order, "heads_first")
    return scores if editor.tensors[scores].shape == shape else editor.reshape(scores, shape, "laid_out")


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A change of the model by its author that makes techniques applicable."""

    operator: str  # the operator that prevents them
    region: str  # part of the network that it belongs to
    what: str  # the pattern, and what to write instead
    opens: tuple[str, ...]  # techniques that apply after the change


def rewritings(graph: Graph) -> tuple[Rewriting, ...]:
    """Return changes of the model that make techniques applicable, one per operator."""
    changes: dict[str, Rewriting] = {}
    for detect, opens in _DETECTORS.items():
        for op in graph:
            what = detect(graph, op)
            if what:
                changes[op.name] = Rewriting(op.name, op.region, what, opens)
    return tuple(changes.values())


def _joint_scores(graph: Graph, op: Operator) -> str:
    """Return advice for an attention that mixes both ends of an edge before the sum, as GATv2's."""
    if op.family is not Family.ACTIVATION or not op.outputs:
        return ""
    added, scores = graph.made_by(op.inputs[0], "Add"), graph.tensors[op.outputs[0]]
    ends = [graph.made_by(name, Family.GATHER) for name in (() if added is None else added.inputs)]
    gathered, shape = [end for end in ends if end is not None], scores.shape
    if len(gathered) != 2 or len(shape) < 3 or shape[-1] == 1:
        return ""
    nodes = graph.tensors[gathered[0].inputs[0]].shape[0]
    size = float(nodes) ** 2 * shape[-2] * shape[-1] * scores.dtype.bytes
    return (
        f"scores mix both ends of an edge in {shape[-1]} features before they are summed (GATv2): over "
        f"all pairs that takes {size / 1e6:.3g} MB; a score that is one number of the source plus one of "
        "the target (GATConv) becomes a dense [N, N]"
    )


def _scattered_maximum(graph: Graph, op: Operator) -> str:
    """Return advice for a scattered maximum over neighbours, which a DSP computes element by element."""
    if op.family is not Family.SCATTER or op.attrs.get("reduction") != "max":
        return ""
    readers = [reader for name in op.outputs for reader in graph.readers(name)]
    later = [second for first in readers for name in first.outputs for second in graph.readers(name)]
    in_softmax = any(reader.type == "Subtract" for reader in (*readers, *later))
    known = graph.known(op.inputs[1]) is not None  # and laid out in slots as they are
    if in_softmax or known or graph.feature_independent.issuperset(op.outputs):
        return ""
    return (
        "a maximum over the edges is scattered; over K sampled neighbours a node, gathered to [N, K, F] and "
        "masked by a Select, it becomes a product and a pooling"
    )


def _edges_of_features(graph: Graph, op: Operator) -> str:
    """Return advice for neighbours that follow from features, such as the k nearest."""
    indices = op.inputs[1] if op.family is Family.GATHER and len(op.inputs) > 1 else ""
    if not indices or indices in graph.feature_independent or graph.tensors[op.inputs[0]].shape[0] <= 1:
        return ""
    read = {indices, *(name for op in graph.behind(indices).values() for name in op.inputs)}
    tensors = [graph.tensors[name] for name in read]
    if not any(t.kind is TensorKind.INPUT and t.dtype.is_float for t in tensors):
        return ""  # an input of whole numbers, such as kinds of atoms
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
