"""NodePad: the model is compiled for more nodes than the graph has, so that the graph may grow without a new compilation.

Like a ring binder with spare pages: the empty ones are carried along, but a new chapter needs no new binding.
"""

from __future__ import annotations

from typing import Any

from pydantic import PositiveInt

from npusim.graph import Graph
from npusim.ops import Role, Tensor, TensorKind
from npusim.techniques.freeze import GRANULE
from npusim.techniques.frontier import is_node_matrix, nodes_of
from npusim.techniques.technique import Parameters, Technique, lacks

__all__ = ["NODEPAD", "NodepadParameters", "capacity_of"]

NEEDS = "the number of nodes of a data graph"
ROUND = 1000
"""Without a capacity, the nodes are rounded up to whole thousands: GraNNite's 292 spare nodes for Cora's 2708."""


class NodepadParameters(Parameters):
    """How many nodes the model is compiled for."""

    capacity: PositiveInt | None = None
    """Nodes; at least those of the graph. Left out: the workload's capacity, else the nodes rounded up to whole thousands."""


def capacity_of(graph: Graph, parameters: NodepadParameters) -> int:
    """Return the capacity in nodes that the parameters mean for a graph."""
    if parameters.capacity is not None:
        return parameters.capacity
    given = graph.meta.get("capacity")
    if isinstance(given, int) and given > 0:
        return given
    nodes = nodes_of(graph) or 0
    return -(-nodes // ROUND) * ROUND


def _check(graph: Graph, parameters: NodepadParameters) -> str | None:
    nodes = nodes_of(graph)
    if graph.structure is None or nodes is None:
        return lacks("nodepad", NEEDS, graph)
    capacity = capacity_of(graph, parameters)
    if capacity < nodes:
        return f"nodepad:capacity={capacity} is too small; {graph.name} has {nodes} nodes"
    if not any(nodes in t.shape for t in graph.tensors.values()):
        return f"nodepad needs a dimension of {nodes} nodes; {graph.name} has none"
    for tensor in graph.tensors.values():
        if nodes in tensor.shape and tensor.role in (Role.WEIGHT, Role.BIAS):
            return (
                f"nodepad cannot tell nodes from channels; {graph.name} has {nodes} of both ({tensor.name})"
            )
    return None


def _padded(tensor: Tensor, nodes: int, capacity: int) -> tuple[int, ...]:
    """Shape with the node dimensions padded; rows of several entries a node (sampled neighbours) grow with the nodes."""
    if tensor.role is Role.FEATURES:
        return (*(capacity if d == nodes else d for d in tensor.shape[:-1]), tensor.shape[-1])
    if tensor.role is Role.EDGES:
        return tensor.shape
    return tuple(capacity if d == nodes else d for d in tensor.shape)


def _fields(graph: Graph, tensor: Tensor, nodes: int, capacity: int) -> dict[str, Any]:
    shape = _padded(tensor, nodes, capacity)
    fields: dict[str, Any] = {"shape": shape}
    grown = sum(a != b for a, b in zip(tensor.shape, shape, strict=True))
    known = tensor.kind is not TensorKind.ACTIVATION or tensor.name in graph.structural
    if grown and known:  # the added rows are zeros; elsewhere a bias fills them
        fields["density"] = tensor.density * (nodes / capacity) ** grown
        if tensor.block_density is not None:
            fields["block_density"] = (
                tensor.block_density * (-(-nodes // GRANULE) / -(-capacity // GRANULE)) ** grown
            )
    if grown and is_node_matrix(graph, tensor) and tensor.role is Role.MASK and tensor.density > 0.5:
        fields["density"] = 1.0 - (1.0 - tensor.density) * (nodes / capacity) ** grown
    return fields


def _rewrite(graph: Graph, parameters: NodepadParameters) -> Graph:
    nodes, capacity = nodes_of(graph) or 0, capacity_of(graph, parameters)
    editor = graph.edit()
    for tensor in graph.tensors.values():
        editor.change_tensor(tensor.name, **_fields(graph, tensor, nodes, capacity))
    for op in graph:
        padded = {key: _attribute(value, nodes, capacity) for key, value in op.attrs.items()}
        if padded != dict(op.attrs):
            editor.change_operator(op.name, attrs=padded)
    editor.meta["compiled_nodes"] = capacity
    return editor.finish()


def _attribute(value: Any, nodes: int, capacity: int) -> Any:
    """A setting that holds a shape grows with it."""
    if isinstance(value, tuple):
        return tuple(
            capacity if isinstance(d, int) and not isinstance(d, bool) and d == nodes else d for d in value
        )
    return value


NODEPAD = Technique(
    name="nodepad",
    summary="Every dimension that counts nodes becomes the capacity; the added rows are zeros.",
    words=(
        "An NPU runs compiled shapes only. Compiled for a capacity, one binary serves every graph up to that size: no waiting for the compiler, "
        "no shelf of versions. The padding is computed and moved like everything else: (3000 / 2708)^2 is 23 % more norm matrix."
    ),
    numerics="The same for the real nodes.",
    rewrite=_rewrite,
    check=_check,
    needs=NEEDS,
    parameters=NodepadParameters,
    source="GraNNite, section IV-A",
)
