"""Translation of an `openvino.Model` to an operator graph, with constant folding."""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.errors import EmptyGraphError, ShapeError, shown
from npusim.frontends.composites import BODIES, DECOMPOSITIONS, shape_of
from npusim.frontends.openvino_nodes import DTYPES
from npusim.graph import Editor, Graph, GraphMeta
from npusim.graph.regions import module_path
from npusim.ops import DType, Family, Int8Use, Operator, Role, Settings, Tensor, TensorKind, op_type
from npusim.ops.operator import GRANULE


def attributes_of(
    settings: Settings,
    kind: str,
    raw: Mapping[str, Any],
    rank: int,
    constants: Sequence[list[int] | None],
) -> dict[str, Any]:
    """Return an operator's settings as `Operator.attrs` names them.

    Parameters
    ----------
    rank : int
        Dimensions of the first input, to count negative axes from.
    constants : sequence of list of int
        Values of each operand that is a known constant; None for others.
    """
    attrs = {key: _plain(raw[key]) for key in settings.attributes if key in raw}
    axes: Any = None
    if isinstance(settings.axes, int):
        axes = constants[settings.axes] if settings.axes < len(constants) else None
    elif settings.axes is not None and settings.axes in raw:
        axes = [raw[settings.axes]]
    if axes is not None:
        attrs["axes"] = tuple(sorted(int(axis) % rank if rank else 0 for axis in axes))
    if kind == "Transpose":
        attrs["order"] = tuple(constants[1] or range(rank)[::-1])
    return attrs


def _plain(value: Any) -> Any:
    """Return an attribute in plain Python; OpenVINO hands lists of numbers over in types of its own."""
    return value if isinstance(value, bool | int | float | str) else tuple(int(v) for v in value)


_COUNTED = 1 << 25  # elements that are counted one by one (some 20 ms); of more, evenly spaced ones
_SPARSE = 0.25  # density below which blocks of a matrix may be empty


_NAMES = {
    Role.FEATURES: ("x", "features"),
    Role.EDGES: ("edge_index", "neighbours", "neighbors"),
    Role.ADJACENCY: ("adj", "adj_t", "adjacency"),
    Role.NORM: ("norm",),
    Role.MASK: ("attention_mask",),
}
"""Names of inputs by their role; a name that begins with "mask" is a mask too."""
STRUCTURAL = frozenset({Role.EDGES, Role.ADJACENCY, Role.NORM, Role.MASK})
"""Roles of inputs that depend on the data graph's edges alone."""


def role_of_name(name: str) -> Role:
    """Return the role that an input's name stands for; `Role.NONE` where it says nothing."""
    if name.lower().startswith("mask"):
        return Role.MASK
    return next((role for role, names in _NAMES.items() if name.lower() in names), Role.NONE)


def assign_roles(editor: Editor) -> None:
    """Give constants their role by the operators that read them."""
    readers: dict[str, list[tuple[Operator, int]]] = {}
    for op in editor.operators.values():
        for port, name in enumerate(op.inputs):
            readers.setdefault(name, []).append((op, port))
    for name, tensor in list(editor.tensors.items()):
        if tensor.kind is TensorKind.CONSTANT and tensor.role is Role.NONE:
            role = _role_by_use(tensor.shape, readers.get(name, ()))
            if role is not Role.NONE:
                editor.change_tensor(name, role=role)


_SUMMING = frozenset({"sum", "mean", "max", "min"})


def assign_edges(editor: Editor, roles: Mapping[str, Role]) -> None:
    """Find the inputs of whole numbers that say which row a scatter adds to: edges, batches, relations.

    Whole numbers may be selected, compared and joined before. Numbers that are only gathered by, such as
    types of atoms and pairs of nodes to score, are features.
    """
    written: dict[str, Operator] = {t: op for op in editor.operators.values() for t in op.outputs}
    inputs: set[str] = set()
    for op in editor.operators.values():
        if op.family is Family.SCATTER and op.attrs.get("reduction") in _SUMMING:
            waiting, seen = [op.inputs[1]], set[str]()
            while waiting:
                name = waiting.pop()
                if name not in seen and not editor.tensors[name].dtype.is_float:
                    seen.add(name)
                    waiting.extend(written[name].inputs if name in written else ())
            inputs.update(name for name in seen if name not in written)
    for name in inputs:
        tensor = editor.tensors[name]
        if tensor.kind is TensorKind.INPUT and tensor.role is Role.NONE and name not in roles:
            editor.change_tensor(name, role=Role.EDGES, structural=True)


def _role_by_use(shape: tuple[int, ...], readers: Iterable[tuple[Operator, int]]) -> Role:
    square = len(shape) == 2 and shape[0] == shape[1] > 1
    for op, port in readers:
        if op.family is Family.MATMUL:
            # A weight stands on the right of a product of GNN layers, an aggregation matrix on the left.
            return Role.NORM if square and port == 0 else Role.WEIGHT
        if op.family in (Family.CONVOLUTION, Family.DEPTHWISE) and port == 1:
            return Role.WEIGHT
        if square and op.family in (Family.ELTWISE, Family.SELECT, Family.COMPARE):
            return Role.MASK
        if op.type == "Add" and max(shape, default=1) == math.prod(shape) > 1:
            return Role.BIAS
    return Role.NONE


def value_statistics(values: npt.NDArray[Any]) -> dict[str, Any]:
    """Return the fields of `Tensor` that follow from the values: density, block_density, symmetric.

    Returns
    -------
    dict
        Fields for `Tensor`; block density and symmetry of sparse matrices only.
    """
    if values.size == 0:
        return {}
    flat = values.reshape(-1)
    counted = flat[:: -(-flat.size // _COUNTED)]
    density = float(np.count_nonzero(counted)) / counted.size
    fields: dict[str, Any] = {"density": density}
    has_pattern = values.ndim == 2 and min(values.shape) > GRANULE and 0.0 < density < _SPARSE
    if has_pattern and len(counted) == len(flat):
        rows, columns = np.nonzero(values)
        across = -(-values.shape[1] // GRANULE)
        touched = np.unique(rows // GRANULE * across + columns // GRANULE)
        fields["block_density"] = len(touched) / (-(-values.shape[0] // GRANULE) * across)
        if values.shape[0] == values.shape[1]:
            fields["symmetric"] = bool(np.array_equal(values[rows, columns], values[columns, rows]))
    return fields


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


_FOLDED_SHAPE_ARITHMETIC = 64  # elements up to which a constant subgraph counts as shape arithmetic
_FOLDED_ELEMENTS = 1 << 20  # elements up to which what follows from constants is folded
_SPREADING = ("Broadcast", "Tile")
_LEVELS_OF_A_BYTE = 256
_ONE_SCALE = 4.0  # bytes of a scale of a whole tensor
_UNPACKING = ("Subtract", "Multiply")  # what applies zero points and scales to packed numbers
_MOVING = (Family.VIEW, Family.MOVE, Family.GATHER, Family.POOLING)
"""Families whose operators hand on the numbers that they read, where they take bytes at all."""


@dataclass
class Origin:
    """The nodes of an `openvino.Model` that a graph was translated from."""

    model: Any = None
    tensors: dict[tuple[str, int], str] = field(default_factory=dict)
    """Tensor that each output became, by the unique name of its node and its port; defining outputs first."""
    operators: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Operators that each node became, by its unique name."""
    absorbed: set[str] = field(default_factory=set)
    """Transposes that the matrix products behind them take in (`transpose_a`, `transpose_b`)."""


def translate(
    model: Any,
    name: str,
    roles: Mapping[str, Role],
    precision: DType | None,
    origin: Origin | None = None,
    notes: Sequence[str] = (),
) -> Graph:
    """Translate a model whose inputs have fixed shapes.

    Parameters
    ----------
    precision : DType, optional
        Widest floating-point format kept.
    origin : Origin, optional
        Filled with the nodes that the graph was translated from.
    notes : sequence of str
        Notes of the graph, listed before the notes of the translation.

    Raises
    ------
    ShapeError, EmptyGraphError
        When a tensor's size is not known although the inputs' are, or the model has no operator.
    """
    origin = Origin() if origin is None else origin
    origin.model, translation = model, Translation(name, roles, precision, origin)
    editor = translation.editor
    # Assigns last: a model's order promises nothing about them.
    for node in sorted(model.get_ordered_ops(), key=lambda node: node.get_type_name() == "Assign"):
        before = len(editor.operators)
        translation.add(node)
        added = islice(reversed(editor.operators), len(editor.operators) - before)
        origin.operators[node.get_name()] = tuple(added)
    states, editor.outputs = editor.outputs, []
    notes = (*notes, *translation.notes)
    editor.meta = replace(editor.meta, source_precision=translation.widest, notes=notes)
    for result in model.get_results():
        source = result.input(0).get_source_output()
        output = translation.tensor_at(source)
        if not editor.tensors[output].elements:
            node = source.get_node()
            raise ShapeError(
                f"operator {shown(node.get_friendly_name())} ({node.get_type_name()}): the model's result "
                f"{list(shape_of(source))} holds nothing; sizes are at least 1"
            )
        if output not in editor.outputs:
            editor.outputs.append(output)
    editor.outputs += states
    if not editor.operators:
        raise EmptyGraphError(name)
    assign_roles(editor)
    assign_edges(editor, roles)
    for op in [op for op in editor.operators.values() if not op.region]:
        editor.change_operator(op.name, region=module_path(op.name))
    return editor.finish()


class Translation:
    """The state of one translation: which of the model's outputs became which tensor."""

    def __init__(self, name: str, roles: Mapping[str, Role], precision: DType | None, origin: Origin) -> None:
        self.editor = Editor(name, meta=GraphMeta(model=name, form="imported"))
        self.roles = roles
        self.precision = precision
        self.origin = origin
        self.values: dict[str, list[int]] = {}
        """Values of small integer constants: axes, orders."""
        self.widest: DType | None = None
        self.known: set[str] = set()
        """Results that follow from constants alone, and are spread out at run time all the same."""
        self.notes: list[str] = []
        self.states: dict[str, str] = {}
        """Tensor of each state, by the file's name of the variable."""

    def tensor_at(self, output: Any) -> str:
        """Return the tensor that an output of the model became."""
        return self.origin.tensors[output.get_node().get_name(), output.get_index()]

    def operand(self, node: Any, port: int) -> str:
        """Return the tensor that a node reads at a port."""
        return self.tensor_at(node.input_value(port))

    def _operands(self, node: Any) -> list[str]:
        return [self.operand(node, port) for port in range(node.get_input_size())]

    def set_result(self, node: Any, port: int, tensor: str) -> None:
        """Say which tensor an output became."""
        self.origin.tensors[node.get_name(), port] = tensor

    def unused(self, name: str) -> str:
        """Return the name, numbered where it is taken: the IR does not promise that friendly names differ."""
        tensors, number, free = self.editor.tensors, 1, name
        while free in tensors or free in self.editor.operators:
            free, number = f"{name}#{number}", number + 1
        return free

    def inline(self, body: Any, bound: Mapping[int, str]) -> list[str]:
        """Translate a body whose parameters are given, and return its results.

        A body is translated more than once; its constants remain the same.
        """
        for index, parameter in enumerate(body.get_parameters()):
            self.set_result(parameter, 0, bound[index])
        for node in body.get_ordered_ops():
            known = self.editor.tensors.get(self.origin.tensors.get((node.get_name(), 0), ""))
            is_constant = known is not None and known.kind is TensorKind.CONSTANT
            if node.get_type_name() != "Parameter" and not is_constant:
                self.add(node)
        return [self.operand(result, 0) for result in body.get_results()]

    def dtype(self, output: Any) -> DType:
        """Return the format that an output has at run time."""
        element = output.get_element_type().get_type_name()
        if element not in DTYPES:
            node = output.get_node()
            raise ShapeError(
                f"operator {node.get_friendly_name()!r} ({node.get_type_name()}): "
                f"tensors of {element} have no known size"
            )
        dtype = DTYPES[element]
        if dtype.is_float and (self.widest is None or dtype.bits > self.widest.bits):
            self.widest = dtype
        narrows = self.precision is not None and dtype.is_float and dtype.bits > self.precision.bits
        return self.precision if narrows and self.precision is not None else dtype

    def add(self, node: Any) -> None:
        """Translate one node."""
        kind = node.get_type_name()
        shortcuts = (self._folds, self._is_identity, self._is_rounded, self._is_absorbed, self._decomposes)
        if kind in _SPECIAL:
            _SPECIAL[kind](self, node)
        elif kind != "Result" and not any(applies(node, kind) for applies in shortcuts):
            self._note_bound(node, kind)
            self._add_operator(node, kind)

    def _note_bound(self, node: Any, kind: str) -> None:
        """Note where a size first follows from values, and is taken at its upper end."""
        if any(port.get_partial_shape().is_dynamic for port in node.inputs()):
            return
        for output in node.outputs():
            if output.get_partial_shape().is_dynamic:
                self.notes.append(
                    f"the result of {node.get_friendly_name()} ({kind}) has a size that depends on values: "
                    f"{list(shape_of(output))}, its upper bound, is costed"
                )

    def _decomposes(self, node: Any, kind: str) -> bool:
        """Split a composite operator as compilers do, where that is known."""
        if kind not in DECOMPOSITIONS:
            return False
        inputs = self._operands(node)
        name = self.unused(str(node.get_friendly_name()))
        for port, result in enumerate(DECOMPOSITIONS[kind](self.editor, name, inputs, node.get_attributes())):
            self.set_result(node, port, result)
        return True

    def _add_input(self, node: Any) -> None:
        output = node.output(0)
        name = str(output.get_any_name()) if output.get_names() else str(node.get_friendly_name())
        role = self.roles.get(name, role_of_name(name))
        shape, dtype = shape_of(output), self.dtype(output)
        name = self.editor.input(self.unused(name), shape, dtype, role=role, structural=role in STRUCTURAL)
        self.set_result(node, 0, name)

    def _add_constant(self, node: Any) -> None:
        output = node.output(0)
        name = self.unused(str(node.get_friendly_name()).removesuffix("_compressed"))
        dtype, shape, fields = self.dtype(output), shape_of(output), {}
        try:
            values = node.get_data()
        except RuntimeError:  # packed formats that NumPy has no type for
            values = None
        fields["value"] = name
        if values is not None and values.shape == shape:
            fields |= value_statistics(values)
            if values.size <= _FOLDED_ELEMENTS:
                fields["value"] = _digest(values.dtype.str, shape, values.tobytes())
            if not dtype.is_float and values.size <= _FOLDED_SHAPE_ARITHMETIC:
                self.values[name] = [int(v) for v in values.reshape(-1)]
        self.set_result(node, 0, self.editor.constant(name, shape, dtype, **fields))

    def _add_read(self, node: Any) -> None:
        """Add a state, in the format of the file, and its reading; its initial value does not matter."""
        name, output = str(node.get_friendly_name()), node.output(0)
        variable, shape = str(node.get_attributes()["variable_id"]), shape_of(output)
        if not node.get_input_size():
            raise ShapeError(
                f"operator {shown(name)} (ReadValue): the state {shown(variable)} has no initial value; "
                "allowed: a constant of its shape as the operand of ReadValue, such as zeros"
            )
        if variable not in self.states:
            held = DTYPES[output.get_element_type().get_type_name()]
            self.states[variable] = self.editor.state(self.unused(variable), shape, held)
        state, dtype, name = self.states[variable], self.dtype(output), self.unused(name)
        self.set_result(node, 0, self.editor.op("ReadValue", (state,), shape, dtype, name))

    def _add_assign(self, node: Any) -> None:
        """Add the writing of a state; one that is never read is no state."""
        state = self.states.get(str(node.get_attributes()["variable_id"]))
        if state is not None:
            name = self.unused(str(node.get_friendly_name()))
            self.editor.assign(state, self.operand(node, 0), name)

    def _folds(self, node: Any, kind: str) -> bool:
        """Fold shape arithmetic and constant subgraphs unless the result would be larger.

        A Broadcast of one number to a whole matrix is such a larger one: it stays an operator.
        """
        if kind == "ShapeOf":
            self._fold_to(node, None, values=list(shape_of(node.input(0).get_source_output())))
            return True
        sources = [self.editor.tensors[name] for name in self._operands(node)]
        if not sources or not all(self._is_known(t.name) for t in sources):
            return False
        largest = max(sources, key=lambda t: t.elements)
        size = sum(math.prod(shape_of(output)) for output in node.outputs())
        most = _FOLDED_SHAPE_ARITHMETIC if kind in _SPREADING else _FOLDED_ELEMENTS
        if not op_type(kind).known or size > max(largest.elements, most):
            return False
        if kind in _UNPACKING and largest.dtype.bits < self.dtype(node.output(0)).bits:
            largest = largest.with_(
                scales_bytes=largest.scales_bytes + sum(t.bytes for t in sources if t.name != largest.name)
            )
        self._fold_to(node, largest)
        return True

    def _is_known(self, tensor: str) -> bool:
        """Whether a tensor follows from constants alone."""
        return self.editor.tensors[tensor].kind is TensorKind.CONSTANT or tensor in self.known

    def _fold_to(self, node: Any, like: Tensor | None, values: list[int] | None = None) -> None:
        """Stand a constant in a node's place; stored in the narrower of its own format and its source's."""
        for port, output in enumerate(node.outputs()):
            fields: dict[str, Any] = {}
            dtype = self.dtype(output)
            if like is not None:
                dtype = like.dtype if like.dtype.bits < dtype.bits else dtype
                fields = {"density": like.density, "scales_bytes": like.scales_bytes}
                if like.shape == shape_of(output):
                    fields |= {"block_density": like.block_density, "symmetric": like.symmetric}
            dtype = DType.INT8 if _rounds_to_bytes(node) else dtype
            sources = [] if values is not None else self._operands(node)
            settings = node.get_type_name(), port, str(values or node.get_attributes())
            fields["value"] = _digest(*settings, *(self.editor.tensors[t].value for t in sources))
            name = self.unused(str(node.get_friendly_name()))
            self.set_result(node, port, self.editor.constant(name, shape_of(output), dtype, **fields))
            if values is not None:
                self.values[name] = values

    def _is_rounded(self, node: Any, _: str) -> bool:
        """Skip a FakeQuantize of bytes that were only scaled to real numbers: compilers keep the bytes."""
        if not _rounds_to_bytes(node):
            return False
        source, converted = node.input_value(0), False
        while source.get_node().get_type_name() in ("Multiply", "Subtract", "Convert"):
            converted = source.get_node().get_type_name() == "Convert"
            others = self._operands(source.get_node())[1:]
            if any(self.editor.tensors[t].kind is not TensorKind.CONSTANT for t in others):
                return False
            source = source.get_node().input_value(0)
        tensor = self.editor.tensors[self.tensor_at(source)]
        if not converted or tensor.dtype is not DType.INT8:
            return False
        self.set_result(node, 0, tensor.name)
        return True

    def _is_identity(self, node: Any, kind: str) -> bool:
        """Skip an operator whose result is its operand: a full slice, a conversion to the same format."""
        if not op_type(kind).is_identity or not node.inputs():
            return False
        tensor, output = self.editor.tensors[self.operand(node, 0)], node.output(0)
        if tensor.shape != shape_of(output) or tensor.dtype is not self.dtype(output):
            return False
        steps = self.values.get(self.operand(node, 3), [0]) if kind == "Slice" else []
        if any(step != 1 for step in steps):
            return False
        self.set_result(node, 0, tensor.name)
        return True

    def _is_absorbed(self, node: Any, kind: str) -> bool:
        """Pass over a Transpose of the last two axes that only matrix products read, as they can."""
        if kind != "Transpose":
            return False
        order = self.values.get(self.operand(node, 1), [])
        swapped = [*range(len(order) - 2), len(order) - 1, len(order) - 2]
        readers = [port.get_node() for port in node.output(0).get_target_inputs()]
        if len(order) < 2 or order != swapped or any(r.get_type_name() != "MatMul" for r in readers):
            return False
        self.origin.absorbed.add(node.get_name())
        self.set_result(node, 0, self.operand(node, 0))
        return True

    def _simplified(self, node: Any, kind: str, inputs: list[str]) -> tuple[str, list[str]]:
        """Return what every plugin makes of an operator: division by a constant, a square: multiplication."""
        if kind not in ("Divide", "Power") or len(inputs) != 2:
            return kind, inputs
        other = self.editor.tensors[inputs[1]]
        if other.kind is not TensorKind.CONSTANT or not other.dtype.is_float:
            return kind, inputs
        if kind == "Divide":
            return "Multiply", inputs
        exponent = node.input_value(1).get_node()
        values = exponent.get_data() if exponent.get_type_name() == "Constant" else np.empty(0)
        value = float(values.reshape(-1)[0]) if values.size == 1 else math.nan
        simpler = {2.0: ("Multiply", [inputs[0], inputs[0]]), 0.5: ("Sqrt", inputs[:1])}
        return simpler.get(value, (kind, inputs))

    def _add_operator(self, node: Any, kind: str) -> None:
        sources, settings, tensors = self._operands(node), op_type(kind).settings, self.editor.tensors
        inputs = [
            t
            for port, t in enumerate(sources)
            if port not in settings.ports or tensors[t].kind is not TensorKind.CONSTANT
        ]
        rank = len(tensors[sources[0]].shape) if sources else 0
        constants = [self.values.get(t) for t in sources]
        attrs = attributes_of(settings, kind, node.get_attributes(), rank, constants)
        if kind == "MatMul":
            for port, flag in enumerate(("transpose_a", "transpose_b")):
                if node.input_value(port).get_node().get_name() in self.origin.absorbed:
                    attrs[flag] = not attrs[flag]
        kind, inputs = self._simplified(node, kind, inputs)
        if kind == "VariadicSplit":
            attrs["lengths"] = tuple(shape_of(output)[attrs["axes"][0]] for output in node.outputs())
        name = self.unused(str(node.get_friendly_name()))
        # An output that nobody reads (the indices of a MaxPool) is not written.
        used = [o for o in node.outputs() if o.get_target_inputs()] or node.outputs()[:1]
        # What FakeQuantize returns is held in the format of its levels.
        in_bytes = self._moves_bytes(kind, attrs, inputs) or _rounds_to_bytes(node)
        constant = [t for t in sources if tensors[t].kind is TensorKind.CONSTANT]
        value = _digest(str(node.get_attributes()), *(tensors[t].value for t in constant))
        results = []
        for output in used:
            index = output.get_index()
            tensor = self.unused(name if index == used[0].get_index() else f"{name}:{index}")
            dtype = DType.INT8 if in_bytes else self.dtype(output)
            results.append(Tensor(tensor, shape_of(output), dtype, value=value))
            self.set_result(node, index, tensor)
        operator = Operator(name, kind, tuple(inputs), tuple(t.name for t in results), attrs)
        self.editor.add_operator(operator, results)
        if sources and all(map(self._is_known, sources)):
            self.known.update(operator.outputs)

    def _moves_bytes(self, kind: str, attrs: Mapping[str, Any], inputs: list[str]) -> bool:
        """Whether a result is made of rounded numbers as they are: compilers keep it in bytes."""
        traits, tensors = op_type(kind), [self.editor.tensors[t] for t in inputs]
        moves = traits.family in _MOVING and traits.int8 is Int8Use.PASSES
        data = {t.dtype for t in tensors if t.dtype.is_float or t.dtype is DType.INT8}
        picks = moves or (kind == "Interpolate" and attrs.get("mode") == "nearest")
        return picks and data == {DType.INT8} and all(t.scales_bytes <= _ONE_SCALE for t in tensors)


def _rounds_to_bytes(node: Any) -> bool:
    """Whether a node is a FakeQuantize to at most 256 levels."""
    levels = node.get_attributes().get("levels", 0) if node.get_type_name() == "FakeQuantize" else 0
    return 0 < int(levels) <= _LEVELS_OF_A_BYTE


_SPECIAL: Mapping[str, Callable[[Translation, Any], None]] = {
    **BODIES,
    "Parameter": Translation._add_input,
    "Constant": Translation._add_constant,
    "ReadValue": Translation._add_read,
    "Assign": Translation._add_assign,
}
