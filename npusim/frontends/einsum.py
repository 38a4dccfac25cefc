"""Einsum of any operands as products, sums and transpositions, contracted from left to right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from npusim.graph import Editor
from npusim.ops import DType

_ELLIPSIS = "..."
_FIRST_PRIVATE = 0x100
"""Labels from here on stand for the dimensions of an ellipsis."""


class _Operand(NamedTuple):
    tensor: str
    term: str
    """A label for each dimension."""


def decompose_einsum(editor: Editor, name: str, inputs: Sequence[str], attrs: Mapping[str, Any]) -> list[str]:
    """Split an Einsum: each product has the labels that nobody else needs as its depth.

    Parameters
    ----------
    attrs : mapping
        `equation`, such as "bqhd,bkhd->bhqk"; labels may repeat, and an ellipsis stands for any dimensions.
    """
    return [_Einsum(editor, name).run(str(attrs["equation"]), inputs)]


class _Einsum:
    """One decomposition; operators are numbered."""

    def __init__(self, editor: Editor, name: str) -> None:
        self.editor, self.name, self.count = editor, name, 0

    def run(self, equation: str, inputs: Sequence[str]) -> str:
        terms, arrow, result = equation.replace(" ", "").partition("->")
        labels = terms.split(",")
        shapes = [self.editor.tensors[tensor].shape for tensor in inputs]
        hidden = [
            len(shape) - len(term.replace(_ELLIPSIS, "")) for term, shape in zip(labels, shapes, strict=True)
        ]
        private = "".join(chr(_FIRST_PRIVATE + i) for i in range(max(hidden)))
        if not arrow:
            once = [x for x in sorted(set(terms) - set(",.")) if terms.count(x) == 1]
            result = (_ELLIPSIS if _ELLIPSIS in terms else "") + "".join(once)
        labels = [
            term.replace(_ELLIPSIS, private[len(private) - count :])
            for term, count in zip(labels, hidden, strict=True)
        ]
        result = result.replace(_ELLIPSIS, private)
        operands = [self._without_repeats(_Operand(*pair)) for pair in zip(inputs, labels, strict=True)]
        left = operands[0]
        for place, right in enumerate(operands[1:], start=1):
            needed = set(result).union(*(o.term for o in operands[place + 1 :]))
            left = self._contract(left, right, needed)
        return self._transposed(self._summed(left, set(result)), result).tensor

    def _next(self, what: str) -> str:
        self.count += 1
        return f"{self.name}/{what}{self.count}"

    def _size(self, operand: _Operand, labels: Sequence[str]) -> list[int]:
        size = dict(zip(operand.term, self.editor.tensors[operand.tensor].shape, strict=True))
        return [size[label] for label in labels]

    def _without_repeats(self, operand: _Operand) -> _Operand:
        """Take the diagonal of dimensions with the same label."""
        labels = "".join(dict.fromkeys(operand.term))
        if labels == operand.term:
            return operand
        shape, dtype = self._size(operand, labels), self.editor.tensors[operand.tensor].dtype
        places = self.editor.constant(self._next("places"), (math.prod(shape),), DType.INT32)
        found = self.editor.op(
            "Gather", (operand.tensor, places), shape, dtype, self._next("diagonal"), axes=(0,)
        )
        return _Operand(found, labels)

    def _summed(self, operand: _Operand, needed: set[str]) -> _Operand:
        """Sum over the labels that nobody needs."""
        axes = tuple(i for i, label in enumerate(operand.term) if label not in needed)
        if not axes:
            return operand
        found = self.editor.reduce("ReduceSum", operand.tensor, axes, self._next("sum"), keep_dims=False)
        return _Operand(found, "".join(label for label in operand.term if label in needed))

    def _transposed(self, operand: _Operand, order: Sequence[str]) -> _Operand:
        if list(operand.term) == list(order):
            return operand
        axes = tuple(operand.term.index(label) for label in order)
        shape, dtype = self._size(operand, order), self.editor.tensors[operand.tensor].dtype
        made = self.editor.op(
            "Transpose", (operand.tensor,), shape, dtype, self._next("transposed"), order=axes
        )
        return _Operand(made, "".join(order))

    def _squeezed(self, operand: _Operand, other: _Operand) -> _Operand:
        """Drop dimensions of one element that the other operand has more of (broadcast)."""
        larger = dict(zip(other.term, self.editor.tensors[other.tensor].shape, strict=True))
        sizes = self.editor.tensors[operand.tensor].shape
        kept = [i for i, label in enumerate(operand.term) if sizes[i] > 1 or larger.get(label, 1) == 1]
        if len(kept) == len(sizes):
            return operand
        made = self.editor.reshape(operand.tensor, [sizes[i] for i in kept], self._next("squeezed"))
        return _Operand(made, "".join(operand.term[i] for i in kept))

    def _contract(self, left: _Operand, right: _Operand, needed: set[str]) -> _Operand:
        left, right = self._squeezed(left, right), self._squeezed(right, left)
        left = self._summed(left, needed | set(right.term))
        right = self._summed(right, needed | set(left.term))
        both = [x for x in left.term if x in right.term]
        batch, depth = [x for x in both if x in needed], [x for x in both if x not in needed]
        rows = [x for x in left.term if x not in both]
        columns = [x for x in right.term if x not in both]
        if not depth:
            return self._multiplied(left, right, [*batch, *rows, *columns])
        a, transpose_a = self._laid_out(left, batch, rows, depth)
        b, transpose_b = self._laid_out(right, batch, depth, columns)
        product = self.editor.matmul(
            a, b, self._next("product"), transpose_a=transpose_a, transpose_b=transpose_b
        )
        shape = [*self._size(left, [*batch, *rows]), *self._size(right, columns)]
        return _Operand(
            self.editor.reshape(product, shape, self._next("result")), "".join([*batch, *rows, *columns])
        )

    def _laid_out(
        self, operand: _Operand, batch: Sequence[str], first: Sequence[str], second: Sequence[str]
    ) -> tuple[str, bool]:
        """Return an operand as [batch, first, second], and whether these two are exchanged, as they lie."""
        turned = operand.term == "".join([*batch, *second, *first]) and bool(first)
        parts = (batch, second, first) if turned else (batch, first, second)
        order = [label for part in parts for label in part]
        operand = self._transposed(operand, order)
        shape = [math.prod(self._size(operand, part)) for part in parts]
        return self.editor.reshape(operand.tensor, shape, self._next("operand")), turned

    def _multiplied(self, left: _Operand, right: _Operand, result: Sequence[str]) -> _Operand:
        """Multiply element by element: no label is summed over."""
        spread: list[str] = []
        for operand in (left, right):
            order = [label for label in result if label in operand.term]
            operand = self._transposed(operand, order)
            size = dict(zip(order, self._size(operand, order), strict=True))
            shape = [size.get(label, 1) for label in result]
            spread.append(self.editor.reshape(operand.tensor, shape, self._next("operand")))
        return _Operand(
            self.editor.eltwise("Multiply", spread[0], spread[1], self._next("result")), "".join(result)
        )
