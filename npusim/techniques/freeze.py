"""Putting a finished tensor where preprocessing used to be: what StaGr and GrAd have in common.

Like handing a cook a bowl of chopped onions in place of onions, board and knife. StaGr's bowl is part of the
kitchen (a constant), GrAd's is brought in with each order (an input); what the cook does with it is the same.
"""

from __future__ import annotations

from npusim.graph import Editor, Graph
from npusim.ops import DType, Family, Role, Tensor, TensorKind
from npusim.techniques.aggregation import (
    Aggregation,
    before_spreading,
    find_aggregations,
    write_product,
)
from npusim.techniques.edge_attention import EdgeAttention, find_edge_attentions, write_dense
from npusim.techniques.frontier import free_name, frontier, is_node_matrix, nodes_of, signatures

__all__ = ["GRANULE", "aggregation_density", "can_freeze", "freeze", "freeze_aggregations", "matrix_fields"]

GRANULE = 16
"""Edge of the blocks that `Tensor.block_density` counts."""


def can_freeze(graph: Graph, kind: TensorKind) -> bool:
    """Whether there is anything for `freeze` to do."""
    return bool(find_aggregations(graph) or find_edge_attentions(graph) or _targets(graph, kind))


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
    A constant may be folded as far as it goes, so StaGr freezes the result of a comparison; an input arrives
    as the matrix of numbers that the host keeps, so GrAd leaves the comparison in the graph. What is computed
    alike is frozen once, so that layers share it (visible to CacheG). An input keeps its name.
    """
    return _freeze_frontier(_freeze_attentions(freeze_aggregations(graph, kind), kind), kind)


def freeze_aggregations(graph: Graph, kind: TensorKind) -> Graph:
    """Return the graph with each sum over gathered neighbours as a product with a constant or an input."""
    editor, same = Editor.of(graph), signatures(graph)
    frozen: dict[tuple[object, ...], str] = {}
    for aggregation in find_aggregations(graph):
        key = (*(same.get(t) for t in aggregation.key), aggregation.mean)
        if key not in frozen:
            frozen[key] = _matrix_of(editor, graph, aggregation, kind)
        write_product(editor, aggregation, frozen[key])
    return editor.finish()


def _freeze_attentions(graph: Graph, kind: TensorKind) -> Graph:
    editor, same = Editor.of(graph), signatures(graph)
    frozen: dict[tuple[int, int], str] = {}
    for attention in find_edge_attentions(graph):
        key = (same[attention.sources], same[attention.targets])
        if key not in frozen:
            frozen[key] = _mask_of(editor, graph, attention, kind)
        write_dense(editor, attention, frozen[key])
    return editor.finish()


def _freeze_frontier(graph: Graph, kind: TensorKind) -> Graph:
    editor, same = Editor.of(graph), signatures(graph)
    frozen: dict[int, str] = {}
    wanted: dict[str, str] = {}
    for tensor in _targets(graph, kind):
        key = same[tensor.name]
        if key not in frozen:
            replacement = _frozen(graph, tensor, kind)
            frozen[key] = free_name(editor, f"{replacement.name}/frozen")
            wanted[frozen[key]] = replacement.name
            editor.tensors[frozen[key]] = replacement.with_(name=frozen[key])
        editor.rewire(tensor.name, frozen[key])
    editor = Editor.of(editor.finish())  # now the names of what was replaced are free again
    for name, good in wanted.items():
        better = free_name(editor, good)
        editor.tensors[better] = editor.tensors[name].with_(name=better)
        editor.rewire(name, better)
    return editor.finish()


def _targets(graph: Graph, kind: TensorKind) -> tuple[Tensor, ...]:
    found = frontier(graph, behind_guards=kind is TensorKind.INPUT)
    return tuple(t for t in found if t.kind is not kind)


def _matrix_of(editor: Editor, graph: Graph, aggregation: Aggregation, kind: TensorKind) -> str:
    role = Role.NORM if aggregation.scaled else Role.ADJACENCY
    nodes = graph.tensors[aggregation.result].shape[0]
    dtype = graph.tensors[aggregation.features].dtype
    fields = matrix_fields(graph, role, aggregation_density(graph, aggregation))
    return _place(editor, role.value, (nodes, nodes), dtype, kind, fields)


def _mask_of(editor: Editor, graph: Graph, attention: EdgeAttention, kind: TensorKind) -> str:
    """The boolean mask: a constant, or compared in the graph with an input that the host keeps as numbers."""
    nodes = graph.tensors[attention.result].shape[0]
    fields = matrix_fields(graph, Role.MASK, min(1.0, graph.tensors[attention.sources].elements / nodes**2))
    if kind is TensorKind.CONSTANT:
        return _place(editor, Role.MASK.value, (nodes, nodes), DType.BOOL, kind, fields)
    dtype = graph.tensors[attention.features].dtype
    mask = _place(editor, Role.MASK.value, (nodes, nodes), dtype, kind, fields)
    editor.region = attention.score_region
    zero = editor.constant(free_name(editor, f"{editor.region}/zero"), (1, 1), dtype, density=0.0)
    return editor.eltwise("Greater", mask, zero, free_name(editor, f"{editor.region}/greater"))


def _frozen(graph: Graph, tensor: Tensor, kind: TensorKind) -> Tensor:
    """Return the constant or input that is put in the place of a tensor, under the name it should have."""
    counted = _counted(graph, tensor)
    role = next(
        (r for r in (tensor.role, counted.role, _told_role(graph, tensor)) if r is not Role.NONE), Role.NONE
    )
    if tensor.dtype is DType.BOOL or _told_role(graph, tensor) is Role.MASK:
        role = Role.MASK  # an adjacency that no product reads is there to mask
    fields: dict[str, object] = {"density": counted.density, "block_density": counted.block_density}
    if is_node_matrix(graph, tensor):
        density = counted.density if counted.density < 1.0 else None
        fields = matrix_fields(graph, role, density, counted.block_density)
        fields["symmetric"] = bool(fields["symmetric"]) or counted.symmetric
    made = tensor.kind is TensorKind.ACTIVATION
    plain = before_spreading(graph, tensor.name).rsplit("/", 1)[-1]
    name = (role.value or plain) if made else tensor.name
    return tensor.with_(
        **{**fields, "role": role, "name": name, "kind": kind, "structural": kind is TensorKind.INPUT}
    )


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


def _counted(graph: Graph, tensor: Tensor) -> Tensor:
    """The tensor whose zeros were counted: a comparison with zero has those of what is compared."""
    writer = graph.writer(tensor.name)
    if writer is not None and writer.family is Family.COMPARE:
        for operand in graph.inputs_of(writer):
            if operand.shape == tensor.shape:
                return operand
    return tensor


def _told_role(graph: Graph, tensor: Tensor) -> Role:
    """What a matrix over the nodes means, told from who reads it: a product aggregates, everything else
    masks.
    """
    if not is_node_matrix(graph, tensor):
        return Role.NONE
    readers = [op for op in graph.readers(tensor.name) if not graph.structural.issuperset(op.outputs)]
    return Role.NORM if any(op.family is Family.MATMUL for op in readers) else Role.MASK


def aggregation_density(graph: Graph | Editor, aggregation: Aggregation) -> float:
    """Share of non-zeros of the matrix that an aggregation becomes: as many as rows are gathered, but for
    masked ones.
    """
    nodes, edges = graph.tensors[aggregation.result].shape[0], graph.tensors[aggregation.sources].elements
    present = min((graph.tensors[t].density for t in aggregation.weights), default=1.0)
    return min(1.0, present * edges / (nodes * nodes))


def matrix_fields(
    graph: Graph, role: Role, density: float | None = None, block_density: float | None = None
) -> dict[str, object]:
    """Return density, block density and symmetry of a matrix over the nodes; what is not given comes from the
    data graph's statistics.

    GCN's norm, d^-1/2 (A + I) d^-1/2, is the one that is symmetric by construction; a mean divides rows only,
    and a sample of neighbours is one-sided.
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
