"""StaGr, GrAd and PreG: precomputed masks, matrices and edge weights replace preprocessing; NodePad.

NodePad compiles the model for more nodes than the graph has, so that the graph can grow.
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from npusim.errors import ShapeError
from npusim.graph import Editor, Graph
from npusim.graph.editor import Rewriter, unique_name
from npusim.ops import DType, Family, Operator, Role, Tensor, TensorKind
from npusim.ops.operator import GRANULE
from npusim.techniques.aggregation import (
    Aggregation,
    EdgeAttention,
    aggregation_density,
    build_matrix,
    edge_values,
    find_aggregations,
    find_edge_attentions,
    matrix_fields,
    write_dense,
    write_products,
)
from npusim.techniques.preprocessing import (
    compared,
    is_node_matrix,
    nodes_of,
    preprocessing_results,
    value_numbers,
)
from npusim.techniques.stack import EdgeData, NoParameters, Parameters, Stage, Technique

_NORMALISING = frozenset({"Power", "Sqrt", "Divide"})


def can_precompute(graph: Graph, kind: TensorKind) -> bool:
    """Return whether `precompute` changes the graph."""
    return bool(find_aggregations(graph) or find_edge_attentions(graph) or _targets(graph, kind))


def precompute(graph: Graph, kind: TensorKind) -> Graph:
    """Return the graph with matrix products for aggregations, and preprocessing as constants or inputs.

    StaGr (CONSTANT) precomputes the result of a comparison too. GrAd (INPUT) leaves the comparison in the
    graph, because its input is the matrix of numbers that the host keeps. Equal computations are precomputed
    once, so that layers share the result (CacheG needs that). An input keeps its name.
    """
    return _precompute_results(_precompute_attentions(precompute_aggregations(graph, kind), kind), kind)


def precompute_aggregations(graph: Graph, kind: TensorKind) -> Graph:
    """Return the graph with sums over gathered neighbours as products with constants or inputs."""
    editor = Rewriter.of(graph)
    write_products(editor, graph, find_aggregations(graph), partial(_matrix_of, kind))
    return editor.finish()


def _precompute_attentions(graph: Graph, kind: TensorKind) -> Graph:
    editor, same = Rewriter.of(graph), value_numbers(graph)
    masks: dict[tuple[int, int], str] = {}
    for attention in find_edge_attentions(graph):
        key = (same[attention.sources], same[attention.targets])
        if key not in masks:
            masks[key] = _mask_of(editor, graph, attention, kind)
        reached = _reached(editor, graph, attention, masks[key], kind)
        write_dense(editor, attention, masks[key], reached)
    return editor.finish()


def _precompute_results(graph: Graph, kind: TensorKind) -> Graph:
    editor, same = Rewriter.of(graph), value_numbers(graph)
    replacements: dict[int, str] = {}
    final_names: dict[str, str] = {}
    for tensor in _targets(graph, kind):
        key = same[tensor.name]
        if key not in replacements:
            replacement = _precomputed(graph, tensor, kind)
            replacements[key] = unique_name(editor, f"{replacement.name}/precomputed")
            final_names[replacements[key]] = replacement.name
            editor.tensors[replacements[key]] = replacement.with_(name=replacements[key])
            editor.prepared[replacements[key]] = Rewriter.of(graph).part(tensor.name)
        editor.rewire(tensor.name, replacements[key])
    editor = Rewriter.of(editor.finish())  # it releases the names of replaced tensors
    for name, final_name in final_names.items():
        better = unique_name(editor, final_name)
        editor.tensors[better] = editor.tensors[name].with_(name=better)
        editor.prepared[better] = editor.prepared[name]
        editor.rewire(name, better)
    return editor.finish()


def _targets(graph: Graph, kind: TensorKind) -> tuple[Tensor, ...]:
    results = preprocessing_results(graph, before_comparison=kind is TensorKind.INPUT)
    return tuple(t for t in results if t.kind is not kind)


def _matrix_of(kind: TensorKind, editor: Rewriter, graph: Graph, aggregation: Aggregation) -> str:
    preparing, density = Rewriter.of(graph), aggregation_density(graph, aggregation)
    dtype = graph.tensors[aggregation.features].dtype
    part = preparing.part(build_matrix(preparing, graph, aggregation))
    return _add_matrix(editor, part, dtype, kind, matrix_fields(graph, aggregation.role, density))


def _mask_of(editor: Rewriter, graph: Graph, attention: EdgeAttention, kind: TensorKind) -> str:
    """Return the boolean mask: a constant, or a comparison with an input that the host keeps as numbers."""
    edges = Aggregation(attention.features, attention.result, attention.sources, attention.targets)
    fields = matrix_fields(graph, Role.MASK, aggregation_density(graph, edges))
    dtype, preparing = graph.tensors[attention.features].dtype, Rewriter.of(graph)
    counts = build_matrix(preparing, graph, edges)
    if kind is TensorKind.CONSTANT:
        present = preparing.part(_positive(preparing, counts, dtype, ""))
        return _add_matrix(editor, present, DType.BOOL, kind, fields)
    mask = _add_matrix(editor, preparing.part(counts), dtype, kind, fields)
    return _positive(editor, mask, dtype, attention.score_region)


def _reached(
    editor: Rewriter, graph: Graph, attention: EdgeAttention, present: str, kind: TensorKind
) -> str | None:
    """Return 0 for nodes without an edge and 1 for others [N, 1, 1]; None where the example has none."""
    targets, nodes = graph.known(attention.targets), graph.tensors[attention.result].shape[0]
    if targets is None or len(np.unique(targets)) == nodes:
        return None
    dtype, editor.region = graph.tensors[attention.features].dtype, attention.score_region
    if kind is TensorKind.CONSTANT:
        reached = editor.constant("reached", (nodes, 1, 1), dtype)
        values = (np.bincount(targets, minlength=nodes) > 0).astype(np.float32)
        editor.prepared[reached] = values.reshape(nodes, 1, 1)
        return reached
    ones = editor.op("Convert", (present,), (nodes, nodes), dtype, "present")
    return editor.reshape(editor.reduce("ReduceMax", ones, (1,), "reached"), (nodes, 1, 1), "reached_rows")


def _positive(editor: Rewriter, matrix: str, dtype: DType, region: str) -> str:
    editor.region = region
    zero = editor.constant("zero", (1, 1), dtype, density=0.0)
    return editor.eltwise("Greater", matrix, zero, "greater")


def _precomputed(graph: Graph, tensor: Tensor, kind: TensorKind) -> Tensor:
    """Return the constant or input that replaces a tensor, with its final name."""
    counted = compared(graph, tensor.name)
    by_readers = _role_by_readers(graph, tensor)
    role = tensor.role or counted.role or by_readers  # `Role.NONE` is empty
    if tensor.dtype is DType.BOOL or by_readers is Role.MASK:
        role = Role.MASK  # an adjacency that no product reads is a mask
    fields: dict[str, object] = {"density": counted.density, "block_density": counted.block_density}
    if is_node_matrix(graph, tensor):
        density = counted.density if counted.density < 1.0 else None
        fields = matrix_fields(graph, role, density, counted.block_density)
        fields["symmetric"] = bool(fields["symmetric"]) or counted.symmetric
    name = tensor.name
    if tensor.kind is TensorKind.ACTIVATION:
        name = role.value or graph.before_broadcast(name).rsplit("/", 1)[-1]
    fields |= {"role": role, "name": name, "kind": kind, "structural": kind is TensorKind.INPUT}
    return tensor.with_(**fields)


def _add_matrix(
    editor: Rewriter, part: Graph, dtype: DType, kind: TensorKind, fields: dict[str, object]
) -> str:
    """Add a constant or input that is named by its role; `part` computes it."""
    add = partial(editor.input, structural=True) if kind is TensorKind.INPUT else editor.constant
    name = add(f"/{fields['role']}", part.tensors[part.outputs[0]].shape, dtype, **fields)
    editor.prepared[name] = part
    return name


def _role_by_readers(graph: Graph, tensor: Tensor) -> Role:
    """Return the role of a matrix over the nodes: products aggregate, other readers mask."""
    if not is_node_matrix(graph, tensor):
        return Role.NONE
    readers = [op for op in graph.readers(tensor.name) if not graph.structural.issuperset(op.outputs)]
    products = (Family.MATMUL, Family.AGGREGATE)
    return Role.NORM if any(op.family in products for op in readers) else Role.MASK


def _stagr(graph: Graph, _: NoParameters) -> Graph:
    """Aggregation becomes a product with a constant: the norm matrix, attention mask or sampled adjacency.

    In a static graph, everything that follows from the edges is computed once, before the model is compiled.
    Degrees, scatter and gather disappear; MatMul(norm, h) remains, which suits the MAC grid. The price is a
    dense N x N constant that each layer fetches, and a new compilation when an edge changes.
    """
    return precompute(graph, TensorKind.CONSTANT)


STAGR = Technique(
    name="stagr",
    numerics="The same sums in another order: equal up to rounding.",
    rewrite=_stagr,
    stage=Stage.PRECOMPUTE,
    needs="tensors that the model computes from the edges alone",
    finds=lambda graph, _: can_precompute(graph, TensorKind.CONSTANT),
    excludes={"grad": "the mask is either a constant or an input"},
    edges=EdgeData.CONSTANT,
    source="GraNNite, section IV-A",
)


def _grad(graph: Graph, _: NoParameters) -> Graph:
    """Replace preprocessing by inputs.

    Edges change without a new compilation: the host changes entries of the mask and passes it with the
    features. The NPU runs the same as under StaGr, but nothing about the mask can be prepared at compile
    time: a comparison on it stays in the graph, and it has to be passed.
    """
    return precompute(graph, TensorKind.INPUT)


GRAD = Technique(
    name="grad",
    summary=(
        "The norm matrix, attention mask or sampled adjacency becomes an input, updated by the CPU at run "
        "time."
    ),
    numerics="The same sums in another order: equal up to rounding.",
    rewrite=_grad,
    stage=Stage.PRECOMPUTE,
    needs="tensors that the model computes from the edges alone",
    finds=lambda graph, _: can_precompute(graph, TensorKind.INPUT),
    excludes={"stagr": "the mask is either a constant or an input"},
    edges=EdgeData.INPUT,
    source="GraNNite, section IV-A",
)


def _normalised(graph: Graph) -> list[Aggregation]:
    """Return aggregations along edges with normalised weights or sums."""
    aggregations = find_aggregations(graph)
    return [
        a for a in aggregations if a.mean or a.counts or any(_is_normalised(graph, t) for _, t in a.scales)
    ]


def normalised_matrices(graph: Graph) -> list[Tensor]:
    """Return matrices over the nodes that are normalised in the graph and read by its products."""
    return [
        t for t in preprocessing_results(graph) if is_node_matrix(graph, t) and _is_normalised(graph, t.name)
    ]


def _is_normalised(graph: Graph, name: str) -> bool:
    normalises = any(op.type in _NORMALISING for op in graph.behind(name).values())
    return normalises and graph.tensors[name].dtype.is_float


def _preg(graph: Graph, _: NoParameters) -> Graph:
    """Normalised edge weights come from the CPU: degrees, roots and divisions leave the graph.

    GCN divides each edge's weight by the roots of two degrees. They depend on the edges only, so the CPU can
    compute them once; in a dense matrix the weights replace the ones, and aggregation and normalisation are
    one product. StaGr and GrAd also take the finished matrix; after PreG they precompute what it leaves.
    """
    editor, same = Rewriter.of(graph), value_numbers(graph)
    ready: dict[int, str] = {}
    write_products(editor, graph, _normalised(graph), _matrix_of_ready)
    for tensor in normalised_matrices(graph):
        key = same[tensor.name]
        if key not in ready:
            scatters = [op for op in graph.behind(tensor.name).values() if op.family is Family.SCATTER]
            elements = {op.name: graph.tensors[op.outputs[0]].elements for op in scatters}
            scatter = next((op for op in scatters if elements[op.name] == tensor.elements), None)
            if scatter is None:
                name = unique_name(editor, tensor.role.value or tensor.name.rsplit("/", 1)[-1])
                editor.prepared[name] = Rewriter.of(graph).part(tensor.name)
                editor.tensors[name] = tensor.with_(name=name, kind=TensorKind.INPUT, structural=True)
                ready[key] = name
            else:
                ready[key] = _scatter_ready(editor, graph, tensor, scatter)
        editor.rewire(tensor.name, ready[key])
    return editor.finish()


def _matrix_of_ready(editor: Rewriter, graph: Graph, aggregation: Aggregation) -> str:
    """Add the matrix of normalised edge weights, an input."""
    sources, dtype = graph.tensors[aggregation.sources], graph.tensors[aggregation.features].dtype
    present = min(
        (graph.tensors[t].density for kind, t in aggregation.scales if kind == "Multiply"), default=1.0
    )
    values = editor.input("/edge_norm", sources.shape, dtype, structural=True, density=present)
    preparing = Rewriter.of(graph)
    editor.prepared[values] = preparing.part(edge_values(preparing, graph, aggregation))
    return build_matrix(
        editor, graph, replace(aggregation, scales=(("Multiply", values),), counts=(), mean=False)
    )


def _scatter_ready(editor: Rewriter, graph: Graph, matrix: Tensor, scatter: Operator) -> str:
    """Scatter normalised weights instead of ones; the result is the norm matrix."""
    updates, blank = graph.tensors[scatter.inputs[2]], graph.tensors[scatter.outputs[0]]
    values = editor.input("/edge_norm", updates.shape, matrix.dtype, structural=True)
    preparing = Rewriter.of(graph)
    editor.prepared[values] = preparing.part(_values_at(preparing, matrix, scatter, updates))
    name = unique_name(editor, f"{scatter.name}_norm")
    inputs = (*scatter.inputs[:2], values, *scatter.inputs[3:])
    role = matrix.role if matrix.role is not Role.NONE else Role.NORM
    result = matrix.with_(name=name, role=role, kind=TensorKind.ACTIVATION, shape=blank.shape)
    editor.add_operator(scatter.with_(name=name, inputs=inputs, outputs=(name,)), [result])
    if blank.shape == matrix.shape:
        return name
    editor.region = scatter.region
    fields = {"role": role, "density": matrix.density, "block_density": matrix.block_density}
    fields |= {"symmetric": matrix.symmetric}
    flat, name = name, f"/{scatter.name}_norm_matrix"
    return editor.reshape(flat, matrix.shape, name, device=scatter.device, tensor=fields)


def _values_at(editor: Rewriter, matrix: Tensor, scatter: Operator, updates: Tensor) -> str:
    """Gather the matrix where a scatter writes; several writes to one element share its value."""
    blank, index = scatter.inputs[:2]
    shape, dtype = editor.tensors[blank].shape, matrix.dtype
    ones = editor.constant("/ones", updates.shape, dtype, fill=1.0)
    count = unique_name(editor, f"{scatter.name}_count")
    tensor = editor.tensors[scatter.outputs[0]].with_(name=count)
    editor.add_operator(scatter.with_(name=count, inputs=(blank, index, ones), outputs=(count,)), [tensor])
    whole = matrix.name
    if matrix.shape != shape:
        whole = editor.reshape(matrix.name, shape, f"/{matrix.name}/flat")
    type_ = "GatherND" if scatter.type == "ScatterNDUpdate" else "GatherElements"
    axes: dict[str, Any] = {"axes": scatter.attrs["axes"]} if "axes" in scatter.attrs else {}
    name = f"/{scatter.name}_at"
    sums, counts = (
        editor.op(type_, (dense, index), updates.shape, dtype, name, **axes) for dense in (whole, count)
    )
    return editor.eltwise("Divide", sums, counts, "/edge_norm_value")


PREG = Technique(
    name="preg",
    numerics="The same.",
    rewrite=_preg,
    stage=Stage.PREPROCESSING,
    needs="a degree normalisation (root, power or quotient) that the model computes from the edges alone",
    finds=lambda graph, _: _normalised(graph) or normalised_matrices(graph),
    edges=EdgeData.WEIGHTS,
    source="GraNNite, section IV-B",
)


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
