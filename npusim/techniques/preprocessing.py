"""Preprocessing of a GNN: what follows from its edges alone, value numbers, and stored tensors."""

from collections.abc import Container

from npusim.graph import Graph
from npusim.graph.regions import preprocessing
from npusim.ops import Family, Operator, Role, Tensor, TensorKind

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
                tensor = compared(graph, name, structural) if before_comparison else graph.tensors[name]
                results.setdefault(tensor.name, tensor)
    return tuple(results.values())


def compared(graph: Graph, name: str, among: Container[str] | None = None) -> Tensor:
    """Return the numbers (of some tensors) whose comparison a boolean tensor is, or the tensor itself."""
    writer, tensor = graph.writer(name), graph.tensors[name]
    if writer is None or writer.family is not Family.COMPARE:
        return tensor
    operands = (o for o in graph.inputs_of(writer) if among is None or o.name in among)
    return next((operand for operand in operands if operand.shape == tensor.shape), tensor)


def value_numbers(graph: Graph) -> dict[str, int]:
    """Return a value number per tensor: equal for tensors computed in the same way from the same inputs.

    Layers that repeat the preprocessing have equal results of it. Constants are equal if their shape, dtype,
    role, density and, where they are known, numbers are.
    """
    numbers: dict[tuple[object, ...], int] = {}
    value_of: dict[str, int] = {}

    def number(*computation: object) -> int:
        return numbers.setdefault(computation, len(numbers))

    for tensor in graph.tensors.values():
        if tensor.kind is TensorKind.CONSTANT and tensor.name in graph.meta.known:
            value_of[tensor.name] = number("known", id(graph.meta.known[tensor.name]))
        elif tensor.kind is TensorKind.CONSTANT:
            numbers_of = tensor.value, tensor.fill, id(graph.prepared.get(tensor.name))
            fields = (tensor.shape, tensor.dtype, tensor.role, tensor.density, numbers_of)
            value_of[tensor.name] = number("constant", *fields)
        elif tensor.kind is TensorKind.INPUT:
            value_of[tensor.name] = number("input", tensor.name)
    for op in graph:
        settings = str(sorted(op.attrs.items()))
        for port, name in enumerate(op.outputs):
            tensor = graph.tensors[name]
            operands = (value_of[t] for t in op.inputs)
            value_of[name] = number(op.type, settings, port, tensor.shape, tensor.value, *operands)
    return value_of


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
