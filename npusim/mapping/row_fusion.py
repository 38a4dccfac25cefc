"""Row-wise fusion: which intermediate tensors never exist as a whole.

Attention makes N x N scores, and masks, scales and normalises them row by row before a product uses them up.
Compilers run such operators a block of rows at a time (vertical fusion), so that only masks and results cross
DRAM. A tensor can be passed on in blocks of rows where its maker makes it by rows, its one reader uses it by
rows, nobody else asks for it, and no host works in between.
"""

from __future__ import annotations

from npusim.cost import Group, Unit
from npusim.graph import Graph
from npusim.ops import Operator, RowUse, Tensor


def row_fusable(graph: Graph, groups: tuple[Group, ...], root: dict[str, str]) -> frozenset[str]:
    """Return the tensors that the NPU's operators can pass on in blocks of rows.

    Parameters
    ----------
    groups : tuple of Group
        From `npusim.mapping.fusion.fuse`.
    root : dict
        The tensor whose bytes each tensor is, from `npusim.cost.liveness.roots`.
    """
    readers: dict[str, list[tuple[Group, str]]] = {}
    stretch: dict[str, int] = {}
    """Of each group: how often the NPU was interrupted before it."""
    interrupted = 0
    for group in groups:
        interrupted += group.unit.is_host
        stretch[group.main] = interrupted
        if group.unit is not Unit.VIEW:
            for name in dict.fromkeys(
                t for op in (group.main, *group.fused) for t in graph.operators[op].inputs
            ):
                readers.setdefault(root[name], []).append((group, name))
    leaving = {root[name] for name in graph.outputs}
    found = set()
    for group in groups:
        op = graph.operators[group.main]
        last = graph.operators[group.fused[-1]] if group.fused else op
        if group.unit.device != "npu" or len(last.outputs) != 1 or not _makes_rows(op, graph):
            continue
        if op.repeats > 1:  # its result exists as a whole each time
            continue
        name = root[last.outputs[0]]
        if (
            name not in leaving
            and len(readers.get(name, ())) == 1
            and _reads_rows(*readers[name][0], name, graph)
            and stretch[readers[name][0][0].main] == stretch[group.main]
        ):
            found.add(name)
    return frozenset(found)


def _makes_rows(op: Operator, graph: Graph) -> bool:
    """Whether an operator can make its result row after row, each from rows of its operands."""
    if op.traits.rows is RowUse.ALONG_AXES:
        return _spares_rows(op, graph.tensors[op.inputs[0]])
    return op.traits.rows is not RowUse.WHOLE


def _reads_rows(group: Group, name: str, stored: str, graph: Graph) -> bool:
    """Whether a group uses rows of a tensor in order, each for the same row of its result."""
    op, tensor = graph.operators[group.main], graph.tensors[name]
    if group.unit.device != "npu" or name not in op.inputs or not tensor.shape or op.repeats > 1:
        return False
    if _rows(tensor) != _rows(graph.tensors[stored]):  # seen under another shape
        return False
    rows = op.traits.rows
    if rows is RowUse.LEFT_OPERAND:
        whole = op.inputs[1] == name or op.attrs.get("transpose_a")
        return not whole and not group.swapped
    if rows is RowUse.ALONG_AXES:
        return _spares_rows(op, tensor)
    if rows is RowUse.IMAGE:  # [images, channels, ...]
        return _rows(tensor) in tensor.shape[:2]
    result = graph.tensors[op.outputs[0]]
    return rows is RowUse.SAME and result.shape[: len(tensor.shape) - 1] == tensor.shape[:-1]


def _rows(tensor: Tensor) -> int:
    """Length of the first axis that is longer than 1."""
    return next((length for length in tensor.shape if length > 1), 1)


def _spares_rows(op: Operator, tensor: Tensor) -> bool:
    """Whether an operator along axes leaves the first axis, that of the rows, alone."""
    rank = len(tensor.shape)
    axes = op.attrs.get("axes", (rank - 1,))
    return rank > 1 and all(axis % rank for axis in axes)
