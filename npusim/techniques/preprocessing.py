"""Preprocessing of a GNN: what follows from its edges alone, and tensors stored beforehand."""

from __future__ import annotations

from npusim.graph import Editor, Graph
from npusim.graph.regions import preprocessing
from npusim.ops import Family, Operator, Role, Tensor, TensorKind

MATRIX_ROLES = frozenset({Role.ADJACENCY, Role.NORM, Role.MASK})


def nodes_of(graph: Graph) -> int | None:
    """Return the compiled number of nodes (capacity after NodePad); None without a data graph."""
    if graph.meta.capacity is not None:
        return graph.meta.capacity
    return graph.structure.nodes if graph.structure is not None else None


def is_node_matrix(graph: Graph, tensor: Tensor) -> bool:
    """Tell whether a tensor is a square matrix over the nodes, other than a weight."""
    if len(tensor.shape) < 2 or tensor.shape[-1] != tensor.shape[-2] or tensor.role is Role.WEIGHT:
        return False
    if tensor.role in MATRIX_ROLES or tensor.name in graph.structural:
        return True
    return tensor.shape[-1] == nodes_of(graph)


def preprocessing_operators(graph: Graph) -> tuple[Operator, ...]:
    """Operators of the phase `preprocessing`."""
    found = preprocessing(graph)
    return tuple(op for op in graph if op.name in found)


def compute_operators(graph: Graph) -> tuple[Operator, ...]:
    """Operators that the features flow through (or that are made of constants)."""
    return tuple(op for op in graph if not graph.structural.issuperset(op.outputs))


def preprocessing_results(graph: Graph, *, before_comparison: bool = False) -> tuple[Tensor, ...]:
    """Tensors that follow from the edges alone and are read by an operator that the features flow through."""
    structural = graph.structural
    found: dict[str, Tensor] = {}
    for op in compute_operators(graph):
        for name in op.inputs:
            if name in structural:
                tensor = graph.tensors[_compared(graph, name)] if before_comparison else graph.tensors[name]
                found.setdefault(tensor.name, tensor)
    return tuple(found.values())


def feature_independent(graph: Graph) -> frozenset[str]:
    """Names of the tensors that no feature flows into: they follow from edges and constants."""
    found = {t.name for t in graph.tensors.values() if t.structural or t.kind is TensorKind.CONSTANT}
    for op in graph:
        if found.issuperset(op.inputs):
            found.update(op.outputs)
    return frozenset(found)


def _compared(graph: Graph, name: str) -> str:
    """Return the floating matrix whose comparison made a boolean one, or the tensor itself."""
    writer = graph.writer(name)
    if writer is None or writer.family is not Family.COMPARE:
        return name
    shape = graph.tensors[name].shape
    for operand in writer.inputs:
        if operand in graph.structural and graph.tensors[operand].shape == shape:
            return operand
    return name


def value_numbers(graph: Graph) -> dict[str, int]:
    """Return a value number per tensor: equal for tensors computed alike from the same inputs.

    Layers that repeat the preprocessing have equal results of it; constants count as equal where shape,
    dtype, role and density are.
    """
    numbers: dict[tuple[object, ...], int] = {}
    found: dict[str, int] = {}

    def number(*made: object) -> int:
        return numbers.setdefault(made, len(numbers))

    for tensor in graph.tensors.values():
        if tensor.kind is TensorKind.CONSTANT:
            kept = (tensor.shape, tensor.dtype, tensor.role, tensor.density)
            found[tensor.name] = number("constant", *kept)
        elif tensor.kind is TensorKind.INPUT:
            found[tensor.name] = number("input", tensor.name)
    for op in graph:
        settings = str(sorted(op.attrs.items()))
        for port, name in enumerate(op.outputs):
            found[name] = number(
                op.type, settings, port, graph.tensors[name].shape, *(found[t] for t in op.inputs)
            )
    return found


def unique_name(editor: Editor, wanted: str) -> str:
    """Return `wanted`, or the first of `wanted_1`, `wanted_2` ... that no tensor or operator bears."""
    wanted = wanted.lstrip("/")  # an operator without a region
    name, count = wanted, 0
    while name in editor.tensors or name in editor.operators:
        count += 1
        name = f"{wanted}_{count}"
    return name


def stored_tensors(graph: Graph) -> tuple[Tensor, ...]:
    """Return the tensors in DRAM before the first operator runs: constants, inputs, Converts of one."""
    found = []
    for tensor in graph.tensors.values():
        writer = graph.writer(tensor.name)
        source = tensor
        if writer is not None and writer.family is Family.CONVERT:
            source = graph.tensors[writer.inputs[0]]
        if source.kind in (TensorKind.CONSTANT, TensorKind.INPUT):
            found.append(tensor)
    return tuple(found)
