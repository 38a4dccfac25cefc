"""Putting a finished tensor where preprocessing used to be: what StaGr and GrAd have in common.

Like handing a cook a bowl of chopped onions in place of onions, board and knife. StaGr's bowl is part of the kitchen (a constant),
GrAd's is brought in with each order (an input); what the cook does with it is the same.
"""

from __future__ import annotations

from npusim.graph import Editor, Graph
from npusim.ops import DType, Family, Role, Tensor, TensorKind
from npusim.techniques.aggregation import Aggregation, find_aggregations, write_product
from npusim.techniques.frontier import free_name, frontier, is_node_matrix, nodes_of, signatures

__all__ = ["GRANULE", "can_freeze", "freeze", "matrix_fields"]

GRANULE = 16
"""Edge of the blocks that `Tensor.block_density` counts."""


def can_freeze(graph: Graph, kind: TensorKind) -> bool:
    """Whether there is anything for `freeze` to do."""
    return bool(find_aggregations(graph) or _targets(graph, kind))


def freeze(graph: Graph, kind: TensorKind) -> Graph:
    """Return the graph with aggregations as matrix products and with its frontier as constants or inputs.

    Parameters
    ----------
    graph : Graph
        The graph.
    kind : TensorKind
        CONSTANT (StaGr) or INPUT (GrAd).

    Notes
    -----
    A constant may be folded as far as it goes, so StaGr freezes the result of a comparison; an input arrives as the matrix of
    numbers that the host keeps, so GrAd leaves the comparison in the graph. What is computed alike is frozen once, so
    that layers share it (visible to CacheG). An input that is not a matrix over the nodes keeps its name.
    """
    editor, same = graph.edit(), signatures(graph)
    frozen: dict[tuple[object, ...], str] = {}
    for aggregation in find_aggregations(graph):
        key = (*(same[t] for t in aggregation.structure), aggregation.scaled)
        if key not in frozen:
            frozen[key] = _matrix_of(editor, graph, aggregation, kind)
        write_product(editor, aggregation, frozen[key])
    graph = editor.finish()
    editor, same = graph.edit(), signatures(graph)
    frozen = {}
    for tensor in _targets(graph, kind):
        key = (same[tensor.name],)
        if key not in frozen:
            frozen[key] = _frozen(editor, graph, tensor, kind)
        if frozen[key] != tensor.name:
            editor.rewire(tensor.name, frozen[key])
    return editor.finish()


def _targets(graph: Graph, kind: TensorKind) -> tuple[Tensor, ...]:
    found = frontier(graph, behind_guards=kind is TensorKind.INPUT)
    return tuple(t for t in found if t.kind is not kind)


def _matrix_of(editor: Editor, graph: Graph, aggregation: Aggregation, kind: TensorKind) -> str:
    role = Role.NORM if aggregation.scaled else Role.ADJACENCY
    nodes = aggregation.nodes
    dtype = graph.tensors[aggregation.features].dtype
    fields = matrix_fields(graph, role, aggregation.density)
    return _place(editor, role.value, (nodes, nodes), dtype, kind, fields)


def _frozen(editor: Editor, graph: Graph, tensor: Tensor, kind: TensorKind) -> str:
    if not is_node_matrix(graph, tensor):
        if tensor.kind is not TensorKind.ACTIVATION:
            editor.change_tensor(tensor.name, kind=kind, structural=kind is TensorKind.INPUT)
            return tensor.name
        fields = {"role": tensor.role, "density": tensor.density, "block_density": tensor.block_density}
        return _place(editor, f"{tensor.name}/frozen", tensor.shape, tensor.dtype, kind, fields)
    role = tensor.role if tensor.role is not Role.NONE else _role(graph, tensor)
    counted = graph.tensors[_source(graph, tensor)]
    fields = matrix_fields(
        graph, role, counted.density if counted.density < 1.0 else None, counted.block_density
    )
    fields["symmetric"] = bool(fields["symmetric"]) or tensor.symmetric
    if tensor.kind is not TensorKind.ACTIVATION:
        editor.change_tensor(tensor.name, kind=kind, structural=kind is TensorKind.INPUT, **fields)
        return tensor.name
    return _place(editor, role.value, tensor.shape, tensor.dtype, kind, fields)


def _place(
    editor: Editor,
    name: str,
    shape: tuple[int, ...],
    dtype: DType,
    kind: TensorKind,
    fields: dict[str, object],
) -> str:
    name = free_name(editor, name)
    if kind is TensorKind.CONSTANT:
        return editor.constant(name, shape, dtype, **fields)
    return editor.input(name, shape, dtype, structural=True, **fields)


def _source(graph: Graph, tensor: Tensor) -> str:
    """The matrix a comparison was made of: it has the same zeros."""
    writer = graph.writer(tensor.name)
    if writer is not None and writer.family is Family.COMPARE:
        for name in writer.inputs:
            if graph.tensors[name].shape == tensor.shape:
                return name
    return tensor.name


def _role(graph: Graph, tensor: Tensor) -> Role:
    """What a matrix over the nodes means, told from who reads it: a product aggregates, everything else masks."""
    readers = [op for op in graph.readers(tensor.name) if not graph.structural.issuperset(op.outputs)]
    return Role.NORM if any(op.family is Family.MATMUL for op in readers) else Role.MASK


def matrix_fields(
    graph: Graph, role: Role, density: float | None = None, block_density: float | None = None
) -> dict[str, object]:
    """Return density, block density and symmetry of a matrix over the nodes; what is not given comes from the data graph's statistics.

    GCN's norm, d^-1/2 (A + I) d^-1/2, is the one that is symmetric by construction; a mean divides rows only, and a sample of
    neighbours is one-sided.
    """
    structure, nodes = graph.structure, nodes_of(graph)
    if structure is not None:
        known = structure.adjacency_density(nodes)
        if density is None:
            density = known
        if block_density is None and abs(density - known) <= 1e-3 * known:
            block_density = structure.padded_block_density(GRANULE, nodes)
    symmetric = role is Role.NORM and graph.meta.get("model") == "gcn"
    return {
        "role": role,
        "density": 1.0 if density is None else density,
        "block_density": block_density,
        "symmetric": symmetric,
    }
