"""NodePad: the model is compiled for more nodes than the graph has, so that the graph can grow."""

from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from npusim.errors import ShapeError
from npusim.graph import Editor, Graph
from npusim.ops import Role, Tensor, TensorKind
from npusim.ops.operator import GRANULE
from npusim.techniques.precompute import normalised_matrices
from npusim.techniques.preprocessing import nodes_of
from npusim.techniques.technique import EdgeData, Parameters, Stage, Technique

ROUND = 1000
"""Default capacities are multiples of this, as GraNNite's 292 spare nodes for Cora's 2708."""


class NodepadParameters(Parameters):
    """How many nodes the model is compiled for."""

    capacity: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """Nodes; at least those of the graph. Absent: rounded up to whole thousands."""


def capacity_of(graph: Graph, parameters: NodepadParameters) -> int:
    """Return the capacity of a graph in nodes."""
    return parameters.capacity or -(-(nodes_of(graph) or 0) // ROUND) * ROUND


def _check(graph: Graph, parameters: NodepadParameters) -> str | None:
    nodes = nodes_of(graph) or 0
    capacity = capacity_of(graph, parameters)
    if capacity < nodes:
        return f"nodepad:capacity={capacity} is too small; {graph.name} has {nodes} nodes"
    if not any(nodes in t.shape for t in graph.tensors.values()):
        return f"nodepad needs a dimension of {nodes} nodes; {graph.name} has none"
    unready = normalised_matrices(graph)
    if unready:
        return (
            f"nodepad needs {unready[0].name} ready: an added node has degree 0, and {graph.name} "
            "would divide by its root (preg, stagr or grad makes it)"
        )
    for tensor in graph.tensors.values():
        if nodes in tensor.shape and tensor.role in (Role.WEIGHT, Role.BIAS):
            both = f"{graph.name} has {nodes} of both ({tensor.name})"
            return f"nodepad cannot tell nodes from channels; {both}"
    return _fixed_size(graph, _rewrite(graph, parameters))


def _fixed_size(graph: Graph, padded: Graph) -> str | None:
    """Return which operator does not grow with its operands, if one does not."""
    for op in padded:
        before, after = (
            (each.outputs_of(op)[0].shape, [t.shape for t in each.inputs_of(op)]) for each in (graph, padded)
        )
        if op.traits.shape is None or before == after:
            continue
        with suppress(ShapeError):
            if op.traits.shape(dict(op.attrs), before[1]) != before[0]:
                continue
            try:
                if op.traits.shape(dict(op.attrs), after[1]) == after[0]:
                    continue
            except ShapeError:
                pass
            return f"nodepad cannot pad {op.name} ({op.type}), whose sizes do not follow from the nodes"
    return None


def _lists(graph: Graph, nodes: int) -> set[tuple[str, int]]:
    """Return (tensor, axis) of lists as long as the nodes, such as self-loops: padding adds no edges."""
    lists = set()
    for op in graph:
        if op.type == "Concat":
            axis = op.attrs.get("axes", (0,))[0]
            if graph.tensors[op.outputs[0]].shape[axis] != nodes:
                lists |= {(t, axis) for t in op.inputs if graph.tensors[t].shape[axis:][:1] == (nodes,)}
    lists |= {(t.name, 1) for t in graph.with_role(Role.EDGES) if t.shape == (2, nodes)}
    lists |= {(t.name, len(t.shape) - 1) for t in graph.with_role(Role.FEATURES)}
    return lists


def _fields(
    graph: Graph, tensor: Tensor, nodes: int, capacity: int, lists: set[tuple[str, int]]
) -> dict[str, Any]:
    """Return the changed shape of a tensor and, unless it holds features, its densities."""
    grown, shape = 0, list(tensor.shape)
    for axis, size in enumerate(tensor.shape):
        power = {nodes: 1, nodes * nodes: 2}.get(size, 0)
        if power and (tensor.name, axis) not in lists:
            shape[axis] = capacity**power
            grown += power
    fields: dict[str, Any] = {"shape": tuple(shape)}
    # Added rows are zeros until a bias fills them.
    if grown and (tensor.kind is not TensorKind.ACTIVATION or tensor.name in graph.structural):
        fields["density"] = tensor.density * (nodes / capacity) ** grown
        if tensor.block_density is not None:
            blocks = -(-nodes // GRANULE) / -(-capacity // GRANULE)
            fields["block_density"] = tensor.block_density * blocks**grown
    return fields


def _rewrite(graph: Graph, parameters: NodepadParameters) -> Graph:
    """Every dimension that counts nodes becomes the capacity; the added rows are zeros.

    An NPU runs compiled shapes only. Compiled for a capacity, one binary serves every graph up to that size,
    without waiting for the compiler. The padding is computed and moved too: (3000 / 2708)^2 is 23 % more norm
    matrix.
    """
    nodes, capacity = nodes_of(graph) or 0, capacity_of(graph, parameters)
    editor, lists = Editor.of(graph), _lists(graph, nodes)
    for tensor in graph.tensors.values():
        editor.change_tensor(tensor.name, **_fields(graph, tensor, nodes, capacity, lists))
    editor.meta = replace(editor.meta, capacity=capacity)
    return editor.finish()


NODEPAD = Technique(
    name="nodepad",
    numerics="The same for the real nodes.",
    rewrite=_rewrite,
    check=_check,
    stage=Stage.SHAPES,
    needs="the number of nodes of a data graph",
    finds=lambda graph, _: graph.structure is not None and nodes_of(graph) is not None,
    parameters=NodepadParameters,
    edges=EdgeData.CAPACITY,
    source="GraNNite, section IV-A",
)
