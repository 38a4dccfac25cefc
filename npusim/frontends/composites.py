"""Composite operators that an import splits as compilers do: attention, einsum, recurrent layers, bodies.

Of an If the costlier branch is costed; the body of a loop is costed once, with its number of iterations.
Recurrent layers become products on the grid and gates. The product with the input is one over all steps; the
product with the state waits for the step before. Weights of that product stay in SRAM where they fit, and are
read again at each step otherwise, so the first step, which fetches them, stands apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from npusim.errors import ShapeError, UnfixedSizeError, shown
from npusim.graph import Editor
from npusim.ops import DType, Operator, Tensor, TensorKind

if TYPE_CHECKING:
    from npusim.frontends.translation import Translation

_MOST_ITERATIONS = 1 << 31
"""ONNX gives a loop that ends by its condition alone the largest integer as its trip count."""


def shape_of(output: Any) -> tuple[int, ...]:
    """Fixed shape of an output; a dimension bounded by an interval is taken at its upper end."""
    partial = output.get_partial_shape()
    node = output.get_node()
    if partial.rank.is_static:
        longest = tuple(d.get_max_length() for d in partial)
        if all(d >= 0 for d in longest):
            return tuple(int(d) for d in longest)
    raise UnfixedSizeError(node.get_friendly_name(), node.get_type_name(), str(partial))


def _add_if(translation: Translation, node: Any) -> None:
    """Add the branch with more multiply-accumulates, of equal ones the one with more elements."""
    editor, best = translation.editor, (-1.0, -1.0, 0)
    for branch in (0, 1):
        before = set(editor.operators)
        _branch(translation, node, branch)
        made = editor.operators.keys() - before
        best = max(best, (*_amount(editor, made), -branch))
        editor.remove(made)
    results = _branch(translation, node, -int(best[2]))
    for description in node.get_output_descriptions(-int(best[2])):
        translation.set_result(node, description.output_index, results[description.body_value_index])


def _branch(translation: Translation, node: Any, branch: int) -> list[str]:
    bound = {
        description.body_parameter_index: translation.operand(node, description.input_index)
        for description in node.get_input_descriptions(branch)
    }
    return translation.inline(node.get_function(branch), bound)


def _amount(editor: Editor, names: set[str]) -> tuple[float, float]:
    """Return the multiply-accumulates and the elements of operators."""
    macs = elements = 0.0
    for op in map(editor.operators.__getitem__, names):
        tensors = editor.tensors
        work = op.traits.work(op, [tensors[t] for t in op.inputs], [tensors[t] for t in op.outputs])
        macs += op.repeats * work.macs
        elements += op.repeats * work.elements
    return macs, elements


def _add_loop(translation: Translation, node: Any) -> None:
    """Add the first iteration, and the second with how many times it and all others run."""
    times = _iterations(translation, node)
    editor, results = translation.editor, list[list[str]]()
    for count in (1, times - 1):
        if count:
            before = set(editor.operators)
            results.append(
                translation.inline(
                    node.get_function(), _bound(translation, node, results[-1] if results else [])
                )
            )
            repeat(editor, editor.operators.keys() - before, count)
    for description in node.get_output_descriptions():
        made = [each[description.body_value_index] for each in results]
        port = description.output_index
        if type(description).__name__.startswith("Concat"):
            shape = shape_of(node.output(port))
            name = translation.unused(f"{node.get_friendly_name()}/sequence{port}")
            axis = description.axis % len(shape)
            dtype = editor.tensors[made[0]].dtype
            translation.set_result(node, port, editor.op("Concat", made, shape, dtype, name, axes=(axis,)))
        else:
            translation.set_result(node, port, made[0] if description.iteration == 0 else made[-1])


def _iterations(translation: Translation, node: Any) -> int:
    """Return how often a body runs: the trip count, as far as it is a constant."""
    times = int(node.get_num_iterations())
    if times < 0 and node.get_type_name() == "Loop":
        trip_count = translation.values.get(translation.operand(node, 0), [-1])
        times = trip_count[0]
    if not 0 < times < _MOST_ITERATIONS:
        raise ShapeError(
            f"operator {shown(node.get_friendly_name())} ({node.get_type_name()}): how often its body runs "
            "depends on values; export the model with a constant number of iterations, at least 1"
        )
    return times


def _bound(translation: Translation, node: Any, before: list[str]) -> dict[int, str]:
    """Return the tensors of a body's parameters, given the results of the iteration before."""
    editor, name = translation.editor, node.get_friendly_name()
    parameters = node.get_function().get_parameters()
    bound: dict[int, str] = {}
    if node.get_type_name() == "Loop":
        iteration = node.get_special_body_ports()[0]
        if iteration >= 0:
            bound[iteration] = editor.constant(translation.unused(f"{name}/iteration"), (), DType.INT64)
    for description in node.get_input_descriptions():
        index = description.body_parameter_index
        tensor = translation.operand(node, description.input_index)
        if type(description).__name__.startswith("Merged") and before:
            tensor = before[description.body_value_index]
        elif type(description).__name__.startswith("Slice"):
            shape = shape_of(parameters[index].output(0))
            if math.prod(shape) != editor.tensors[tensor].elements:
                part = translation.unused(f"{name}/part{index}")
                tensor = editor.op("View", (tensor,), shape, editor.tensors[tensor].dtype, part)
        bound[index] = tensor
    return bound


BODIES = {"If": _add_if, "Loop": _add_loop, "TensorIterator": _add_loop}
"""By OpenVINO's name of the operation."""


_STATES = {"LSTMSequence": 2, "GRUSequence": 1, "RNNSequence": 1}
"""States that each layer carries from step to step: LSTM has a cell beside the hidden state."""


@dataclass(frozen=True, slots=True)
class _Direction:
    """What one direction of a layer works with; names of tensors."""

    name: str
    recurrent: tuple[str, ...]
    """Weights of the products with the state, one a product."""
    projected: str
    """The product with the input, of all steps, [batch, steps, gates x hidden]."""
    states: tuple[str, ...]


def repeat(editor: Editor, made: set[str], times: int) -> None:
    """Let operators run so many times as often; constants that they read may stay in SRAM meanwhile."""
    for name in made:
        op = editor.operators[name]
        if times > 1:
            editor.change_operator(name, repeats=op.repeats * times)
        for tensor in op.inputs:
            if editor.tensors[tensor].kind is TensorKind.CONSTANT:
                editor.change_tensor(tensor, cached=True)


def decompose_recurrence(
    editor: Editor, name: str, kind: str, inputs: Sequence[str], attrs: Mapping[str, Any]
) -> list[str]:
    """Split an LSTM, GRU or RNN over a sequence into its products and gates.

    Parameters
    ----------
    inputs : sequence of str
        Input [batch, steps, size], states [batch, directions, hidden], lengths, weights of the input
        [directions, gates x hidden, size] and of the state [directions, gates x hidden, hidden], bias.
    attrs : mapping
        OpenVINO's attributes; `linear_before_reset` of a GRU.

    Returns
    -------
    list of str
        All hidden states [batch, directions, steps, hidden], and each state after the last step.
    """
    states = _STATES[kind]
    x, weights, recurrent, bias = inputs[0], *inputs[states + 2 : states + 5]
    batch, steps = editor.tensors[x].shape[:2]
    directions, width, hidden = editor.tensors[recurrent].shape
    ends: list[list[str]] = [[] for _ in range(states)]
    sequences: list[str] = []
    for d in range(directions):
        own = f"{name}/{d}" if directions > 1 else name
        one_by_one = kind == "GRUSequence" and not attrs.get("linear_before_reset")
        parts = (width // 3 * 2, width // 3) if one_by_one else (width,)
        own_weights = _part(editor, weights, f"{own}/weights", editor.tensors[weights].shape[1:])
        own_bias = _part(editor, bias, f"{own}/bias", (width,))
        product = editor.matmul(x, own_weights, f"{own}/input_product", transpose_b=True)
        direction = _Direction(
            own,
            tuple(_part(editor, recurrent, f"{own}/recurrent{i}", (n, hidden)) for i, n in enumerate(parts)),
            editor.eltwise("Add", product, own_bias, f"{own}/input_bias"),
            tuple(
                _part(editor, s, f"{own}/state{i}", (batch, hidden))
                for i, s in enumerate(inputs[1 : states + 1])
            ),
        )
        last, hiddens = direction.states, []
        for label, times in (("first", 1), ("others", steps - 1)):
            if times:
                before = set(editor.operators)
                last = _step(editor, kind, direction, last, label)
                repeat(editor, editor.operators.keys() - before, times)
                hiddens.append(last[0])
        sequences += hiddens
        for end, state in zip(ends, last, strict=True):
            end.append(state)
    dtype = editor.tensors[x].dtype
    shape = (batch, directions, steps, hidden)
    whole = editor.op("Concat", sequences, shape, dtype, f"{name}/sequence", axes=(2,))
    finals = [
        editor.op("Concat", end, (batch, directions, hidden), dtype, f"{name}/end{i}", axes=(1,))
        if directions > 1
        else editor.reshape(end[0], (batch, 1, hidden), f"{name}/end{i}")
        for i, end in enumerate(ends)
    ]
    return [whole, *finals]


def _part(editor: Editor, tensor: str, name: str, shape: Sequence[int]) -> str:
    """Return one direction's part of a tensor: a constant of its own, or a view of what is computed."""
    source = editor.tensors[tensor]
    if source.kind is TensorKind.CONSTANT:
        return editor.constant(name, tuple(shape), source.dtype, density=source.density)
    return editor.op("View", (tensor,), shape, source.dtype, name)


def _step(
    editor: Editor, kind: str, direction: _Direction, states: Sequence[str], label: str
) -> tuple[str, ...]:
    """Add one step and return the states after it."""
    name, hidden = f"{direction.name}/{label}", states[0]
    batch, size = editor.tensors[hidden].shape
    dtype = editor.tensors[hidden].dtype
    width = editor.tensors[direction.projected].shape[-1]
    shown = editor.op("View", (direction.projected,), (batch, width), dtype, f"{name}/input")
    if len(direction.recurrent) > 1:  # a GRU that resets the state before its product
        reset, new = direction.recurrent
        product = editor.matmul(hidden, reset, f"{name}/reset_product", transpose_b=True)
        gated = editor.op("GRUGates", (product, shown, hidden), (batch, size), dtype, f"{name}/reset")
        product = editor.matmul(gated, new, f"{name}/product", transpose_b=True)
        return (editor.op("GRUGates", (product, shown, hidden), (batch, size), dtype, f"{name}/state"),)
    product = editor.matmul(hidden, direction.recurrent[0], f"{name}/product", transpose_b=True)
    if kind == "GRUSequence":
        return (editor.op("GRUGates", (product, shown, hidden), (batch, size), dtype, f"{name}/state"),)
    gates = editor.eltwise("Add", product, shown, f"{name}/gates")
    if kind == "RNNSequence":
        return (editor.unary("Tanh", gates, f"{name}/state"),)
    made = [Tensor(f"{name}/{state}", (batch, size), dtype) for state in ("state", "cell")]
    outputs = tuple(tensor.name for tensor in made)
    editor.add_operator(Operator(f"{name}/state", "LSTMGates", (gates, states[1]), outputs), made)
    return outputs


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


Decomposition = Callable[[Editor, str, Sequence[str], Mapping[str, Any]], list[str]]
"""(editor, operator's name, operands, attributes) -> names of the results."""


def _attention(editor: Editor, name: str, inputs: Sequence[str], attrs: Mapping[str, Any]) -> list[str]:
    """Softmax(query x key^T x scale + mask) x value; the scale rides along on the product."""
    query, key, value = inputs[:3]
    dtype = editor.tensors[query].dtype
    scale = inputs[4] if len(inputs) > 4 else editor.constant(f"{name}/scale", (), dtype)
    scores = editor.matmul(query, key, f"{name}/product", transpose_b=True)
    scores = editor.eltwise("Multiply", scores, scale, f"{name}/scores")
    shape = editor.tensors[scores].shape
    mask = inputs[3] if len(inputs) > 3 and editor.tensors[inputs[3]].shape else None
    if attrs.get("causal"):
        mask = editor.constant(f"{name}/causal_mask", shape[-2:], dtype, density=0.5)
    if mask is not None:
        scores = editor.eltwise("Add", scores, mask, f"{name}/masked_scores")
    weights = editor.unary("Softmax", scores, f"{name}/weights", axes=(len(shape) - 1,))
    return [editor.matmul(weights, value, name)]


def _recurrence(kind: str) -> Decomposition:
    return lambda editor, name, inputs, attrs: decompose_recurrence(editor, name, kind, inputs, attrs)


DECOMPOSITIONS: Mapping[str, Decomposition] = {
    "ScaledDotProductAttention": _attention,
    "Einsum": decompose_einsum,
    **{kind: _recurrence(kind) for kind in ("LSTMSequence", "GRUSequence", "RNNSequence")},
}
"""By OpenVINO's name of the operation."""
