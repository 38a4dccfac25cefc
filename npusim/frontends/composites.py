"""Composite operators that an import splits: attention, einsum, recurrent layers, bodies.

Of an If the costlier branch is costed; the body of a loop is costed once, with its number of iterations.
Recurrent layers become products on the grid and gates. The product with the input is one over all steps; the
product with the state waits for the step before. Weights of that product stay in SRAM where they fit, and are
read again at each step otherwise, so the first step, which fetches them, stands apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from npusim.errors import ShapeError, UnfixedSizeError, shown
from npusim.graph import Editor
from npusim.ops import DType, Operator, Tensor, TensorKind

if TYPE_CHECKING:
    from npusim.frontends.translation import Translation

_MOST_ITERATIONS = 1 << 31  # ONNX's trip count of a loop that ends by its condition alone


def shape_of(output: Any) -> tuple[int, ...]:
    """Return the fixed shape of an output, with the upper end of a dimension that has bounds."""
    partial = output.get_partial_shape()
    node = output.get_node()
    if partial.rank.is_static:
        longest = tuple(d.get_max_length() for d in partial)
        if all(d >= 0 for d in longest):
            return tuple(int(d) for d in longest)
    raise UnfixedSizeError(node.get_friendly_name(), node.get_type_name(), str(partial))


def _add_if(translation: Translation, node: Any) -> None:
    """Add the branch with more multiply-accumulates, or with more elements if both have equally many."""
    editor, amounts = translation.editor, list[tuple[float, float]]()
    for branch in (0, 1):
        before = set(editor.operators)
        _branch(translation, node, branch)
        added = editor.operators.keys() - before
        amounts.append(_amount(editor, added))
        editor.remove(added)
    costlier = int(amounts[1] > amounts[0])
    results = _branch(translation, node, costlier)
    for description in node.get_output_descriptions(costlier):
        translation.set_result(node, description.output_index, results[description.body_value_index])


def _branch(translation: Translation, node: Any, branch: int) -> list[str]:
    """Translate a branch and return its results."""
    operands = {
        description.body_parameter_index: translation.operand(node, description.input_index)
        for description in node.get_input_descriptions(branch)
    }
    return translation.inline(node.get_function(branch), operands)


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
            with _repeated(editor, count):
                operands = _body_operands(translation, node, results[-1] if results else [])
                results.append(translation.inline(node.get_function(), operands))
    for description in node.get_output_descriptions():
        values = [each[description.body_value_index] for each in results]
        port = description.output_index
        if type(description).__name__.startswith("Concat"):
            shape = shape_of(node.output(port))
            name = translation.unused(f"{node.get_friendly_name()}/sequence{port}")
            dtype, axes = editor.tensors[values[0]].dtype, (description.axis % len(shape),)
            result = editor.op("Concat", values, shape, dtype, name, axes=axes)  # its parts run repeatedly
        else:
            result = values[0] if description.iteration == 0 else values[-1]
        translation.set_result(node, port, result)


def _iterations(translation: Translation, node: Any) -> int:
    """Return the number of iterations of a body; a ShapeError refuses one that depends on values."""
    times = int(node.get_num_iterations())
    if times < 0 and node.get_type_name() == "Loop":
        times = translation.values.get(translation.operand(node, 0), [-1])[0]
    if not 0 < times < _MOST_ITERATIONS:
        raise ShapeError(
            f"operator {shown(node.get_friendly_name())} ({node.get_type_name()}): how often its body runs "
            "depends on values; export the model with a constant number of iterations, at least 1"
        )
    return times


def _body_operands(translation: Translation, node: Any, before: list[str]) -> dict[int, str]:
    """Return the tensor of each parameter of a body, given the results of the iteration before."""
    editor, name = translation.editor, node.get_friendly_name()
    parameters = node.get_function().get_parameters()
    operands: dict[int, str] = {}
    if node.get_type_name() == "Loop":
        iteration = node.get_special_body_ports()[0]
        if iteration >= 0:
            operands[iteration] = editor.constant(translation.unused(f"{name}/iteration"), (), DType.INT64)
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
        operands[index] = tensor
    return operands


BODIES = {"If": _add_if, "Loop": _add_loop, "TensorIterator": _add_loop}

_STATES = {"LSTMSequence": 2, "GRUSequence": 1, "RNNSequence": 1}
"""States that each layer carries from step to step: LSTM has a cell beside the hidden state."""


@contextmanager
def _repeated(editor: Editor, times: int) -> Iterator[None]:
    """Multiply the repeats of operators that are added; constants that they read may stay in SRAM."""
    before = set(editor.operators)
    yield
    for name in editor.operators.keys() - before:
        op = editor.operators[name]
        editor.change_operator(name, repeats=op.repeats * times)
        for tensor in op.inputs:
            if editor.tensors[tensor].kind is TensorKind.CONSTANT:
                editor.change_tensor(tensor, cached=True)


def decompose_recurrence(
    kind: str, editor: Editor, name: str, inputs: Sequence[str], attrs: Mapping[str, Any]
) -> list[str]:
    """Split an LSTM, GRU or RNN over a sequence into its products and gates.

    Inputs: data [batch, steps, size], states [batch, directions, hidden], lengths, weights of the input
    [directions, gates x hidden, size] and of the state [directions, gates x hidden, hidden], bias. Returns
    all hidden states [batch, directions, steps, hidden] and each state after the last step.
    """
    states, tensors = _STATES[kind], editor.tensors
    x, weights, recurrent, bias = inputs[0], *inputs[states + 2 : states + 5]
    batch, steps = tensors[x].shape[:2]
    directions, width, hidden = tensors[recurrent].shape
    ends: list[list[str]] = [[] for _ in range(states)]
    sequences: list[str] = []
    resets_first = kind == "GRUSequence" and not attrs.get("linear_before_reset")
    widths = (width // 3 * 2, width // 3) if resets_first else (width,)
    for d in range(directions):
        own = f"{name}/{d}" if directions > 1 else name
        own_weights = _part(editor, weights, f"{own}/weights", tensors[weights].shape[1:])
        own_bias = _part(editor, bias, f"{own}/bias", (width,))
        product = editor.matmul(x, own_weights, f"{own}/input_product", transpose_b=True)
        own_recurrent = [
            _part(editor, recurrent, f"{own}/recurrent{i}", (n, hidden)) for i, n in enumerate(widths)
        ]
        projected = editor.eltwise("Add", product, own_bias, f"{own}/input_bias")
        last = [
            _part(editor, state, f"{own}/state{i}", (batch, hidden))
            for i, state in enumerate(inputs[1 : states + 1])
        ]
        for label, times in (("first", 1), ("others", steps - 1)):
            if times:
                with _repeated(editor, times):
                    last = _step(editor, kind, f"{own}/{label}", own_recurrent, projected, last)
                sequences.append(last[0])
        for end, state in zip(ends, last, strict=True):
            end.append(state)
    dtype = tensors[x].dtype
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
    """Return one direction's part of a tensor: a constant, or a view of a computed tensor."""
    source = editor.tensors[tensor]
    if source.kind is TensorKind.CONSTANT:
        return editor.constant(name, tuple(shape), source.dtype, density=source.density)
    return editor.op("View", (tensor,), shape, source.dtype, name)


def _step(
    editor: Editor, kind: str, name: str, recurrent: Sequence[str], projected: str, states: Sequence[str]
) -> list[str]:
    """Add one step and return the states after it.

    `recurrent` are the weights of each product with the state, `projected` the product with the input of all
    steps, [batch, steps, gates x hidden].
    """
    hidden = editor.tensors[states[0]]
    width, dtype = editor.tensors[projected].shape[-1], hidden.dtype
    own = editor.op("View", (projected,), (hidden.shape[0], width), dtype, f"{name}/input")
    state = hidden.name
    if len(recurrent) > 1:  # a GRU that resets the state before its product
        product = editor.matmul(state, recurrent[0], f"{name}/reset_product", transpose_b=True)
        state = editor.op("GRUGates", (product, own, state), hidden.shape, dtype, f"{name}/reset")
    product = editor.matmul(state, recurrent[-1], f"{name}/product", transpose_b=True)
    if kind == "GRUSequence":
        inputs = (product, own, hidden.name)
        return [editor.op("GRUGates", inputs, hidden.shape, dtype, f"{name}/state")]
    gates = editor.eltwise("Add", product, own, f"{name}/gates")
    if kind == "RNNSequence":
        return [editor.unary("Tanh", gates, f"{name}/state")]
    results = [Tensor(f"{name}/{result}", hidden.shape, dtype) for result in ("state", "cell")]
    outputs = [tensor.name for tensor in results]
    editor.add_operator(Operator(f"{name}/state", "LSTMGates", (gates, states[1]), tuple(outputs)), results)
    return outputs


_ELLIPSIS = "..."
_FIRST_PRIVATE = 0x100  # labels from here on stand for the dimensions of an ellipsis


class _Operand(NamedTuple):
    tensor: str
    term: str  # a label for each dimension


class _Einsum:
    """Splits an Einsum: each product sums over the labels that no later operand and no result needs.

    Labels of an equation, such as "bqhd,bkhd->bhqk", may repeat, and an ellipsis stands for any dimensions.
    """

    def __init__(self, editor: Editor, name: str) -> None:
        self.editor, self.name, self.count = editor, name, 0

    def run(self, equation: str, inputs: Sequence[str]) -> str:
        """Contract the operands from left to right and return the result."""
        written, arrow, result = equation.replace(" ", "").partition("->")
        if not arrow:
            once = [label for label in sorted(set(written) - set(",.")) if written.count(label) == 1]
            result = (_ELLIPSIS if _ELLIPSIS in written else "") + "".join(once)
        terms = list(zip(inputs, written.split(","), strict=True))
        hidden = [
            len(self.editor.tensors[tensor].shape) - len(term.replace(_ELLIPSIS, ""))
            for tensor, term in terms
        ]
        private = "".join(chr(_FIRST_PRIVATE + i) for i in range(max(hidden)))
        operands = [
            self._diagonal(_Operand(tensor, term.replace(_ELLIPSIS, private[len(private) - count :])))
            for (tensor, term), count in zip(terms, hidden, strict=True)
        ]
        result = result.replace(_ELLIPSIS, private)
        left = operands[0]
        for index, right in enumerate(operands[1:], start=2):
            left = self._contract(left, right, set(result).union(*(o.term for o in operands[index:])))
        return self._transposed(self._summed(left, set(result)), result).tensor

    def _next(self, what: str) -> str:
        self.count += 1
        return f"{self.name}/{what}{self.count}"

    def _sizes(self, operand: _Operand) -> dict[str, int]:
        return dict(zip(operand.term, self.editor.tensors[operand.tensor].shape, strict=True))

    def _diagonal(self, operand: _Operand) -> _Operand:
        """Take the diagonal of dimensions with the same label."""
        labels = "".join(dict.fromkeys(operand.term))
        if labels == operand.term:
            return operand
        shape, dtype = [self._sizes(operand)[x] for x in labels], self.editor.tensors[operand.tensor].dtype
        index = self.editor.constant(self._next("places"), (math.prod(shape),), DType.INT32)
        inputs, name = (operand.tensor, index), self._next("diagonal")
        return _Operand(self.editor.op("Gather", inputs, shape, dtype, name, axes=(0,)), labels)

    def _summed(self, operand: _Operand, needed: set[str]) -> _Operand:
        """Sum over the labels that are not needed."""
        axes = tuple(i for i, label in enumerate(operand.term) if label not in needed)
        if not axes:
            return operand
        total = self.editor.reduce("ReduceSum", operand.tensor, axes, self._next("sum"), keep_dims=False)
        return _Operand(total, "".join(label for label in operand.term if label in needed))

    def _transposed(self, operand: _Operand, order: str) -> _Operand:
        if operand.term == order:
            return operand
        axes = [operand.term.index(label) for label in order]
        return _Operand(self.editor.transpose(operand.tensor, axes, self._next("transposed")), order)

    def _squeezed(self, operand: _Operand, other: _Operand) -> _Operand:
        """Drop dimensions of one element that the other operand has more of (broadcast)."""
        sizes, larger = self._sizes(operand), self._sizes(other)
        kept = "".join(x for x in operand.term if sizes[x] > 1 or larger.get(x, 1) == 1)
        if kept == operand.term:
            return operand
        shape = [sizes[label] for label in kept]
        return _Operand(self.editor.reshape(operand.tensor, shape, self._next("squeezed")), kept)

    def _contract(self, left: _Operand, right: _Operand, needed: set[str]) -> _Operand:
        """Multiply two operands and sum over the labels that are not needed."""
        left, right = self._squeezed(left, right), self._squeezed(right, left)
        left = self._summed(left, needed | set(right.term))
        right = self._summed(right, needed | set(left.term))
        both = [label for label in left.term if label in right.term]
        batch = "".join(label for label in both if label in needed)
        depth = "".join(label for label in both if label not in needed)
        rows = "".join(label for label in left.term if label not in both)
        columns = "".join(label for label in right.term if label not in both)
        result, sizes = batch + rows + columns, self._sizes(left) | self._sizes(right)
        if not depth:
            a, b = (self._grouped(operand, *result) for operand in (left, right))
            return _Operand(self.editor.eltwise("Multiply", a, b, self._next("result")), result)
        a, transpose_a = self._laid_out(left, batch, rows, depth)
        b, transpose_b = self._laid_out(right, batch, depth, columns)
        product = self.editor.matmul(a, b, self._next("product"), transpose_a, transpose_b)
        shape = [sizes[label] for label in result]
        return _Operand(self.editor.reshape(product, shape, self._next("result")), result)

    def _laid_out(self, operand: _Operand, batch: str, first: str, second: str) -> tuple[str, bool]:
        """Return an operand as [batch, first, second], and whether these two lie exchanged."""
        exchanged = bool(first) and operand.term == batch + second + first
        parts = (second, first) if exchanged else (first, second)
        return self._grouped(operand, batch, *parts), exchanged

    def _grouped(self, operand: _Operand, *parts: str) -> str:
        """Return an operand with a dimension for each group of labels, 1 for labels that it has not."""
        operand = self._transposed(operand, "".join(x for part in parts for x in part if x in operand.term))
        sizes = self._sizes(operand)
        shape = [math.prod(sizes.get(label, 1) for label in part) for part in parts]
        return self.editor.reshape(operand.tensor, shape, self._next("operand"))


def _attention(editor: Editor, name: str, inputs: Sequence[str], attrs: Mapping[str, Any]) -> list[str]:
    """Add softmax(query x key^T x scale + mask) x value; the scale is fused into the product."""
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


DECOMPOSITIONS: Mapping[str, Callable[[Editor, str, Sequence[str], Mapping[str, Any]], list[str]]] = {
    "ScaledDotProductAttention": _attention,
    "Einsum": lambda editor, name, inputs, attrs: [_Einsum(editor, name).run(str(attrs["equation"]), inputs)],
    **{kind: partial(decompose_recurrence, kind) for kind in _STATES},
}
