"""GrAx2: the sum of score vectors before their broadcast, one of them, or a rank-2 product."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from npusim.graph import Editor, Graph
from npusim.ops import Family, Operator
from npusim.techniques.preprocessing import unique_name
from npusim.techniques.technique import Parameters, Stage, Technique

_LAID_OUT = frozenset({"Broadcast", "Tile"})


class ScoreForm(StrEnum):
    """Ways to write the scores."""

    LITERAL = "literal"
    """Add the two vectors, then broadcast along rows, as the paper words it: constant within a row of the
    softmax.
    """
    SOURCE = "source"
    """The source's score alone, broadcast along columns: the target's shifts a row as a whole, but for the
    kink of LeakyReLU.
    """
    RANK2 = "rank2"
    """[d, 1] [1, s]^T as a product with an inner dimension of 2: exact."""


class Grax2Parameters(Parameters):
    """How the scores are written."""

    form: ScoreForm = ScoreForm.LITERAL
    """`literal` (add, then broadcast), `source` (source term only) or `rank2` (a product of two thin
    matrices, exact).
    """


@dataclass(frozen=True, slots=True)
class ScoreSum:
    """One addition of scores [.., N, 1] and [.., 1, N]."""

    column: str
    """Tensor [.., N, 1]: a score of each node as a target, the row of the softmax."""
    row: str
    """Tensor [.., 1, N]: a score of each node as a source, the column of the softmax."""
    row_as_column: str | None
    """The same scores as [.., N, 1], before they were laid across; None where they never lay so."""
    operator: Operator
    """The addition; its result is [.., N, N]."""


def find_score_sums(graph: Graph) -> tuple[ScoreSum, ...]:
    """Find additions that make a square of two vectors which depend on the features."""
    found = (_score_sum(graph, op) for op in graph if op.type == "Add" and len(op.inputs) == 2)
    return tuple(s for s in found if s is not None)


def _score_sum(graph: Graph, op: Operator) -> ScoreSum | None:
    shape = graph.tensors[op.outputs[0]].shape
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 2:
        return None
    margins = [_before_broadcast(graph, t, shape) for t in op.inputs]
    for column, row in (margins, margins[::-1]):
        if graph.tensors[column].shape[-2:] == (shape[-1], 1) and graph.tensors[row].shape[-2:] == (
            1,
            shape[-1],
        ):
            return ScoreSum(column, row, _as_column(graph, row), op)
    return None


def _before_broadcast(graph: Graph, name: str, shape: tuple[int, ...]) -> str:
    writer = graph.writer(name)
    if writer is not None and writer.type in _LAID_OUT and graph.tensors[name].shape[-2:] == shape[-2:]:
        return writer.inputs[0]
    return name


def _as_column(graph: Graph, name: str) -> str | None:
    """The column [.., N, 1] that a row [.., 1, N] was made of by views and transposes."""
    wanted = (graph.tensors[name].shape[-1], 1)
    writer = graph.writer(name)
    while writer is not None and (writer.family is Family.VIEW or writer.type == "Transpose"):
        source = writer.inputs[0]
        if graph.tensors[source].shape[-2:] == wanted:
            return source
        writer = graph.writer(source)
    return None


def _rewrite(graph: Graph, parameters: Grax2Parameters) -> Graph:
    editor = Editor.of(graph)
    for scores in find_score_sums(graph):
        editor.region = scores.operator.region
        if parameters.form is ScoreForm.RANK2:
            editor.rewire(scores.operator.outputs[0], _rank2(editor, scores))
        else:
            vector = scores.row if parameters.form is ScoreForm.SOURCE else _sum(editor, scores)
            _broadcast_after_activations(editor, graph, scores.operator, vector)
    return editor.finish()


def _named(editor: Editor, scores: ScoreSum, name: str) -> str:
    return unique_name(editor, f"{scores.operator.region}/{name}")


def _rank2(editor: Editor, scores: ScoreSum) -> str:
    column, row = editor.tensors[scores.column], editor.tensors[scores.row]
    rank = len(column.shape)
    ones_right = editor.constant(
        _named(editor, scores, "rank2/ones_right"), column.shape, column.dtype, fill=1.0
    )
    ones_below = editor.constant(_named(editor, scores, "rank2/ones_below"), row.shape, row.dtype, fill=1.0)
    left_shape, right_shape = (*column.shape[:-1], 2), (*row.shape[:-2], 2, row.shape[-1])
    left = editor.op(
        "Concat",
        (column.name, ones_right),
        left_shape,
        column.dtype,
        _named(editor, scores, "rank2/left"),
        axes=(rank - 1,),
    )
    right = editor.op(
        "Concat",
        (ones_below, row.name),
        right_shape,
        row.dtype,
        _named(editor, scores, "rank2/right"),
        axes=(rank - 2,),
    )
    return editor.matmul(left, right, _named(editor, scores, "rank2/matmul"), keep_float=True)


def _sum(editor: Editor, scores: ScoreSum) -> str:
    upright = scores.row_as_column
    if upright is None:
        column = editor.tensors[scores.column]
        upright = editor.reshape(scores.row, column.shape, _named(editor, scores, "grax2/upright"))
    return editor.eltwise("Add", scores.column, upright, _named(editor, scores, "grax2/add"))


def _broadcast_after_activations(editor: Editor, graph: Graph, addition: Operator, vector: str) -> None:
    """Let following activations work on the vector; the mask's operator or a Broadcast expands it.

    What acts on each element alone may act before the elements are copied: N instead of N x N of them.
    """
    full_size = addition.outputs[0]
    small = editor.tensors[vector].shape
    editor.rewire(full_size, vector)
    readers = graph.readers(full_size)
    while len(readers) == 1 and readers[0].family is Family.ACTIVATION and full_size not in graph.outputs:
        full_size = vector = readers[0].outputs[0]
        editor.change_tensor(full_size, shape=small)
        readers = graph.readers(full_size)
    full = graph.tensors[addition.outputs[0]].shape
    bare = [
        op
        for op in readers
        if not any(graph.tensors[t].shape[-2:] == full[-2:] for t in op.inputs if t != full_size)
    ]
    if bare or full_size in graph.outputs:
        copy = editor.op(
            "Broadcast",
            (vector,),
            full,
            editor.tensors[vector].dtype,
            unique_name(editor, f"{addition.region}/grax2/broadcast"),
        )
        editor.rewire(vector, copy, only=[op.name for op in bare])


GRAX2 = Technique(
    name="grax2",
    summary=(
        "Scores of all pairs come from vectors: added and then broadcast, the source's alone, or a product "
        "of rank 2."
    ),
    rationale=(
        "GAT adds a column and a row of scores to a square, which takes a transpose, a broadcast and a "
        "LeakyReLU on N x N elements. Added first and broadcast afterwards, all of that shrinks to vectors "
        "(`literal`); but then each row of the softmax is constant and attention becomes a plain mean. "
        "`source` keeps the term that the softmax does not cancel, `rank2` keeps both and gives the square "
        "to the grid as a product."
    ),
    numerics=(
        "literal: attention is a uniform mean (+0.3 points on Cora, within noise); source: 0.0; rank2: exact."
    ),
    rewrite=_rewrite,
    stage=Stage.OPERATORS,
    needs="a broadcast addition of attention scores",
    finds=lambda graph, _: find_score_sums(graph),
    parameters=Grax2Parameters,
    exact=False,
    forms=lambda parameters: {"scores": parameters.form.value},
    source="GraNNite, section IV-C",
)
