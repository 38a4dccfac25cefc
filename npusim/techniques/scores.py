"""Finding the broadcast addition of an attention: a column of scores and a row of scores make a square of
them.

Like a multiplication table's two margins: each cell of the square belongs to one number on the left and one
on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from npusim.graph import Graph
from npusim.ops import Family, Operator

__all__ = ["ScoreSum", "find_score_sums"]

_LAID_OUT = frozenset({"Broadcast", "Tile"})


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
            return ScoreSum(column, row, _upright(graph, row), op)
    return None


def _before_broadcast(graph: Graph, name: str, shape: tuple[int, ...]) -> str:
    writer = graph.writer(name)
    if writer is not None and writer.type in _LAID_OUT and graph.tensors[name].shape[-2:] == shape[-2:]:
        return writer.inputs[0]
    return name


def _upright(graph: Graph, name: str) -> str | None:
    """The column [.., N, 1] that a row [.., 1, N] was made of by views and transposes."""
    wanted = (graph.tensors[name].shape[-1], 1)
    writer = graph.writer(name)
    while writer is not None and (writer.family is Family.VIEW or writer.type == "Transpose"):
        source = writer.inputs[0]
        if graph.tensors[source].shape[-2:] == wanted:
            return source
        writer = graph.writer(source)
    return None
