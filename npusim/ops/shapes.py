"""Shape rules of operators: the shape of a result from settings and operand shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npusim.errors import ShapeError

Shape = tuple[int, ...]
Shapes = Sequence[Shape]


def broadcast(attrs: dict[str, Any], shapes: Shapes) -> Shape:
    """NumPy's broadcasting of all operands."""
    rank = max(len(s) for s in shapes)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    result = []
    for dims in zip(*padded, strict=True):
        wide = {d for d in dims if d != 1}
        if len(wide) > 1:
            raise ShapeError(f"shapes {', '.join(map(str, map(tuple, shapes)))} do not broadcast")
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def unchanged(attrs: dict[str, Any], shapes: Shapes) -> Shape:
    """Shape of the first operand."""
    return shapes[0]


def product(attrs: dict[str, Any], shapes: Shapes) -> Shape:
    """Rows of the left and columns of the right operand, their batches broadcast."""
    left, right = shapes[:2]
    rows = left[-1] if attrs.get("transpose_a") else left[-2]
    columns = right[-2] if attrs.get("transpose_b") else right[-1]
    return (*broadcast(attrs, [left[:-2], right[:-2]]), rows, columns)


def reduced(attrs: dict[str, Any], shapes: Shapes) -> Shape:
    """The operand without its `axes`, or with ones in their place (`keep_dims`)."""
    axes, keep = attrs["axes"], attrs.get("keep_dims")
    return tuple((1 if i in axes else d) for i, d in enumerate(shapes[0]) if keep or i not in axes)


def gathered(attrs: dict[str, Any], shapes: Shapes) -> Shape:
    """The table with the indices in place of the axis."""
    (axis,) = attrs.get("axes", (0,))
    table, indices = shapes[:2]
    return (*table[:axis], *indices, *table[axis + 1 :])
