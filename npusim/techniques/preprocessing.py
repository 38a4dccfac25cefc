"""Preprocessing of a GNN: what follows from its edges alone, stored tensors, and masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npusim.graph import Editor, Graph
from npusim.graph.regions import preprocessing
from npusim.ops import DType, Family, Operator, Role, Tensor, TensorKind

MATRIX_ROLES = frozenset({Role.ADJACENCY, Role.NORM, Role.MASK})


def nodes_of(graph: Graph) -> int | None:
    """Return the compiled number of nodes (capacity after NodePad); None without a data graph."""
    if graph.meta.capacity is not None:
        return graph.meta.capacity
    return graph.structure.nodes if graph.structure is not None else None


def is_node_matrix(graph: Graph, tensor: Tensor) -> bool:
    """Return whether a tensor is a square matrix over the nodes, other than a weight."""
    if len(tensor.shape) < 2 or tensor.shape[-1] != tensor.shape[-2] or tensor.role is Role.WEIGHT:
        return False
    if tensor.role in MATRIX_ROLES or tensor.name in graph.structural:
        return True
    return tensor.shape[-1] == nodes_of(graph)


def preprocessing_operators(graph: Graph) -> tuple[Operator, ...]:
    """Return the operators of the phase `preprocessing`."""
    names = preprocessing(graph)
    return tuple(op for op in graph if op.name in names)


def compute_operators(graph: Graph) -> tuple[Operator, ...]:
    """Return the operators that depend on features or constants."""
    return tuple(op for op in graph if not graph.structural.issuperset(op.outputs))


def preprocessing_results(graph: Graph, *, before_comparison: bool = False) -> tuple[Tensor, ...]:
    """Return the tensors of the edges alone that an operator of `compute_operators` reads."""
    structural = graph.structural
    results: dict[str, Tensor] = {}
    for op in compute_operators(graph):
        for name in op.inputs:
            if name in structural:
                tensor = graph.tensors[_compared(graph, name)] if before_comparison else graph.tensors[name]
                results.setdefault(tensor.name, tensor)
    return tuple(results.values())


def _compared(graph: Graph, name: str) -> str:
    """Return the floating matrix whose comparison a boolean one is, or the tensor itself."""
    writer = graph.writer(name)
    if writer is None or writer.family is not Family.COMPARE:
        return name
    shape = graph.tensors[name].shape
    for operand in writer.inputs:
        if operand in graph.structural and graph.tensors[operand].shape == shape:
            return operand
    return name


def value_numbers(graph: Graph) -> dict[str, int]:
    """Return a value number per tensor: equal for tensors computed in the same way from the same inputs.

    Layers that repeat the preprocessing have equal results of it. Constants are equal if their shape, dtype,
    role and density are.
    """
    numbers: dict[tuple[object, ...], int] = {}
    value_of: dict[str, int] = {}

    def number(*computation: object) -> int:
        return numbers.setdefault(computation, len(numbers))

    for tensor in graph.tensors.values():
        if tensor.kind is TensorKind.CONSTANT:
            fields = (tensor.shape, tensor.dtype, tensor.role, tensor.density)
            value_of[tensor.name] = number("constant", *fields)
        elif tensor.kind is TensorKind.INPUT:
            value_of[tensor.name] = number("input", tensor.name)
    for op in graph:
        settings = str(sorted(op.attrs.items()))
        for port, name in enumerate(op.outputs):
            value_of[name] = number(
                op.type, settings, port, graph.tensors[name].shape, *(value_of[t] for t in op.inputs)
            )
    return value_of


def unique_name(editor: Editor, wanted: str) -> str:
    """Return a name, or the first of `name_1`, `name_2` ... that no tensor or operator has."""
    wanted = wanted.lstrip("/")  # an operator without a region
    name, count = wanted, 0
    while name in editor.tensors or name in editor.operators:
        count += 1
        name = f"{wanted}_{count}"
    return name


class Rewriter(Editor):
    """An editor that makes names unique: relative to its region, or absolute with a slash in front."""

    def unused_name(self, name: str) -> str:
        """Return the first unused of `name`, `name_1` ... in the region."""
        return unique_name(self, name if name.startswith("/") else f"{self.region}/{name}")


def stored_tensors(graph: Graph) -> tuple[Tensor, ...]:
    """Return the tensors in DRAM before an inference: constants, inputs and conversions of them."""
    stored = []
    for tensor in graph.tensors.values():
        writer = graph.writer(tensor.name)
        source = tensor
        if writer is not None and writer.family is Family.CONVERT:
            source = graph.tensors[writer.inputs[0]]
        if source.kind in (TensorKind.CONSTANT, TensorKind.INPUT):
            stored.append(tensor)
    return tuple(stored)


@dataclass(frozen=True, slots=True)
class Masking:
    """A replacement of the values of absent edges by a large negative number."""

    values: str  # masked tensor: attention scores [N, N], or features of neighbours [N, K, F]
    result: str  # tensor of masked values
    mask: str  # the mask, boolean or 0/1
    negative: str | None  # the additive mask of a masking by Multiply and Add
    operator: Operator  # the operator that writes `result`: Select or Add
    first: Operator  # the operator that reads `values`: Select or Multiply

    @property
    def selects(self) -> bool:
        """Whether it is written as a Select."""
        return self.operator.family is Family.SELECT


def find_maskings(graph: Graph) -> tuple[Masking, ...]:
    """Return every masking: a choice between values and constants that depends on edges alone."""
    maskings = (_selecting(graph, op) or _multiplying(graph, op) for op in graph)
    return tuple(masking for masking in maskings if masking is not None)


def _selecting(graph: Graph, op: Operator) -> Masking | None:
    if op.family is not Family.SELECT:
        return None
    condition, values, otherwise = op.inputs[:3]
    is_constant = graph.feature_independent.issuperset((condition, otherwise))
    if values in graph.feature_independent or not is_constant or not _masks_nodes(graph, condition):
        return None
    return Masking(values, op.outputs[0], condition, None, op, op)


def _multiplying(graph: Graph, op: Operator) -> Masking | None:
    if op.type != "Add":
        return None
    constant = graph.feature_independent
    for product, negative in (op.inputs, op.inputs[::-1]):
        writer = graph.writer(product)
        if writer is None or writer.type != "Multiply" or len(graph.readers(product)) != 1:
            continue
        if negative not in constant or not _masks_nodes(graph, negative):
            continue
        for values, mask in (writer.inputs, writer.inputs[::-1]):
            if mask in constant and values not in constant and _masks_nodes(graph, mask):
                return Masking(values, op.outputs[0], mask, negative, op, writer)
    return None


def _masks_nodes(graph: Graph, name: str) -> bool:
    """Return whether a mask is about pairs of nodes: two dimensions are not 1."""
    return sum(d > 1 for d in graph.tensors[name].shape) >= 2


def mask_pair(
    editor: Rewriter, graph: Graph, masking: Masking, pairs: dict[str, tuple[str, str]]
) -> tuple[str, str]:
    """Return the names of the 0/1 mask and of the additive mask (0 and -1e4) that replace a condition.

    They are constants for a constant mask (StaGr), inputs for an input (GrAd), else computed in the graph.
    `pairs` holds the pair of each mask, which layers share.
    """
    mask, dtype = _numeric(graph, masking.mask), graph.tensors[masking.values].dtype
    if mask.name not in pairs:
        build = _computed if mask.kind is TensorKind.ACTIVATION else _prepared
        pairs[mask.name] = build(editor, graph, mask, dtype)
    return pairs[mask.name]


def _numeric(graph: Graph, mask: str) -> Tensor:
    """Return the 0/1 matrix of a comparison with a constant, or the mask itself."""
    writer = graph.writer(mask)
    if writer is not None and writer.family is Family.COMPARE:
        for name in writer.inputs:
            if graph.tensors[name].shape == graph.tensors[mask].shape:
                return graph.tensors[name]
    return graph.tensors[mask]


def _prepared(editor: Rewriter, graph: Graph, mask: Tensor, dtype: DType) -> tuple[str, str]:
    same = {"dtype": dtype, "role": Role.MASK}
    present, preparing = mask.name, Rewriter.of(graph)
    parts = [preparing.part(name) for name in _computed(preparing, graph, mask, dtype)]
    if not mask.dtype.is_float:
        present = unique_name(editor, f"{mask.name}_present")
        editor.tensors[present] = mask.with_(name=present, **same)
        editor.prepared[present] = parts[0]
    absent = unique_name(editor, f"{mask.name}_negative")
    editor.tensors[absent] = mask.with_(name=absent, density=1.0 - mask.density, block_density=None, **same)
    editor.prepared[absent] = parts[1]
    return present, absent


def _computed(editor: Rewriter, graph: Graph, mask: Tensor, dtype: DType) -> tuple[str, str]:
    """Add the additive mask as 1e4 mask - 1e4, OpenVINO's form of (mask - 1) 1e4."""
    writer = graph.writer(mask.name)
    editor.region = writer.region if writer is not None else ""
    device = writer.device if writer is not None else None
    kept = {"role": Role.MASK, "density": mask.density, "block_density": mask.block_density}
    kept |= {"symmetric": mask.symmetric}
    more: dict[str, Any] = {"device": device, "tensor": kept}
    present, scalar = mask.name, (1,) * len(mask.shape)
    if not mask.dtype.is_float:
        present = editor.op("Convert", (present,), mask.shape, dtype, "mask_present", **more)
    scale = editor.constant("lowering", scalar, dtype)
    offset = editor.constant("minus_lowering", scalar, dtype)
    scaled = editor.eltwise("Multiply", present, scale, "mask_scaled", **more)
    more["tensor"] = kept | {"density": 1.0 - mask.density, "block_density": None}
    return present, editor.eltwise("Add", scaled, offset, "mask_negative", **more)
