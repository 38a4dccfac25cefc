"""GrAx2: the sum of score vectors before their broadcast, one of them, or a rank-2 product."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from npusim.graph import Graph
from npusim.ops import Family, Operator
from npusim.techniques.preprocessing import Rewriter
from npusim.techniques.technique import Parameters, Stage, Technique

_LAID_OUT = frozenset({"Broadcast", "Tile"})


class ScoreForm(StrEnum):
    """Ways to write the scores."""

    LITERAL = "literal"  # add the vectors, then broadcast along rows, as in the paper
    SOURCE = "source"  # the source's score alone, broadcast along columns
    RANK2 = "rank2"  # [d, 1] [1, s]^T as a product with an inner dimension of 2: exact


class Grax2Parameters(Parameters):
    """How the scores are written."""

    form: ScoreForm = ScoreForm.LITERAL
    """`literal` (add, then broadcast), `source` (source term only) or `rank2` (exact, a thin product)."""


@dataclass(frozen=True, slots=True)
class ScoreSum:
    """One addition of scores [.., N, 1] and [.., 1, N]."""

    column: str  # tensor [.., N, 1]: scores of nodes as targets, the rows of the softmax
    row: str  # tensor [.., 1, N]: scores of nodes as sources, the columns of the softmax
    row_as_column: str | None  # the same scores as [.., N, 1], before the transpose; None if there is none
    operator: Operator  # the addition; its result is [.., N, N]


def find_score_sums(graph: Graph) -> tuple[ScoreSum, ...]:
    """Return additions of a column and a row of scores to a square."""
    sums = (_score_sum(graph, op) for op in graph if op.type == "Add" and len(op.inputs) == 2)
    return tuple(s for s in sums if s is not None)


def _score_sum(graph: Graph, op: Operator) -> ScoreSum | None:
    shape = graph.tensors[op.outputs[0]].shape
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 2:
        return None
    margins = [_before_broadcast(graph, t, shape) for t in op.inputs]
    for column, row in (margins, margins[::-1]):
        sizes = [graph.tensors[name].shape[-2:] for name in (column, row)]
        if sizes == [(shape[-1], 1), (1, shape[-1])]:
            return ScoreSum(column, row, _as_column(graph, row), op)
    return None


def _before_broadcast(graph: Graph, name: str, shape: tuple[int, ...]) -> str:
    writer = graph.writer(name)
    if writer is not None and writer.type in _LAID_OUT and graph.tensors[name].shape[-2:] == shape[-2:]:
        return writer.inputs[0]
    return name


def _as_column(graph: Graph, name: str) -> str | None:
    """Return the column [.., N, 1] that became a row [.., 1, N] by views and transposes."""
    shape = (graph.tensors[name].shape[-1], 1)
    writer = graph.writer(name)
    while writer is not None and (writer.family is Family.VIEW or writer.type == "Transpose"):
        source = writer.inputs[0]
        if graph.tensors[source].shape[-2:] == shape:
            return source
        writer = graph.writer(source)
    return None


def _rewrite(graph: Graph, parameters: Grax2Parameters) -> Graph:
    """Write sums of score vectors before their broadcast, or as a rank-2 product.

    GAT adds a column and a row of scores to a square: a transpose, a broadcast and a LeakyReLU on N x N
    elements. Added before the broadcast, all of that works on vectors (`literal`), but each row of the
    softmax is constant and attention a plain mean. `source` keeps the term that the softmax does not cancel;
    `rank2` keeps both and runs the square on the grid as a product.
    """
    editor = Rewriter.of(graph)
    for scores in find_score_sums(graph):
        editor.region = scores.operator.region
        if parameters.form is ScoreForm.RANK2:
            editor.rewire(scores.operator.outputs[0], _rank2(editor, scores))
        else:
            vector = scores.row if parameters.form is ScoreForm.SOURCE else _sum(editor, scores)
            _broadcast_after_activations(editor, graph, scores.operator, vector)
    return editor.finish()


def _rank2(editor: Rewriter, scores: ScoreSum) -> str:
    column, row = editor.tensors[scores.column], editor.tensors[scores.row]
    ones_right = editor.constant("rank2/ones_right", column.shape, column.dtype, fill=1.0)
    ones_below = editor.constant("rank2/ones_below", row.shape, row.dtype, fill=1.0)
    left = editor.concat((column.name, ones_right), len(column.shape) - 1, "rank2/left")
    right = editor.concat((ones_below, row.name), len(row.shape) - 2, "rank2/right")
    return editor.matmul(left, right, "rank2/matmul", keep_float=True)


def _sum(editor: Rewriter, scores: ScoreSum) -> str:
    upright = scores.row_as_column
    if upright is None:
        upright = editor.reshape(scores.row, editor.tensors[scores.column].shape, "grax2/upright")
    return editor.eltwise("Add", scores.column, upright, "grax2/add")


def _broadcast_after_activations(editor: Rewriter, graph: Graph, addition: Operator, vector: str) -> None:
    """Move activations before the broadcast: N elements instead of N x N."""
    full_size = addition.outputs[0]
    small = editor.tensors[vector].shape
    editor.rewire(full_size, vector)
    readers = graph.readers(full_size)
    while len(readers) == 1 and readers[0].family is Family.ACTIVATION and full_size not in graph.outputs:
        full_size = vector = readers[0].outputs[0]
        editor.change_tensor(full_size, shape=small)
        readers = graph.readers(full_size)
    full = graph.tensors[addition.outputs[0]].shape
    large = {name for name, tensor in graph.tensors.items() if tensor.shape[-2:] == full[-2:]}
    bare = [op for op in readers if not large.difference({full_size}).intersection(op.inputs)]
    if bare or full_size in graph.outputs:
        copy = editor.op("Broadcast", (vector,), full, editor.tensors[vector].dtype, "grax2/broadcast")
        editor.rewire(vector, copy, only=[op.name for op in bare])


GRAX2 = Technique(
    name="grax2",
    summary=(
        "Scores of all pairs from vectors: added before the broadcast, the source alone, or a rank-2 product."
    ),
    numerics="literal: attention is a uniform mean (+0.3 points on Cora, noise); source: 0.0; rank2: exact.",
    rewrite=_rewrite,
    stage=Stage.OPERATORS,
    needs="a broadcast addition of attention scores",
    finds=lambda graph, _: find_score_sums(graph),
    parameters=Grax2Parameters,
    exact=False,
    forms=lambda parameters: {"scores": parameters.form.value},
    source="GraNNite, section IV-C",
)
