"""Networks by Eq. 1 of GCNP: branches of powers of the normalised adjacency, side by side, then ReLU.

GraphSAGE with concatenation (own features and the neighbours' mean), MixHop, jumping knowledge, SIGN and SGC.
A dense layer gives the classes, except in SGC. In a batch, each layer works on the nodes that the next layer
needs, and hidden features of visited nodes are read from a store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from npusim.graph import Editor, Graph, GraphStructure
from npusim.ops import DType, Role
from npusim.workloads.gnn.layers import activation, edge_list, finish_layer, linear, start
from npusim.workloads.gnn.models import mean_along, normalised_sum
from npusim.workloads.gnn.spec import (
    Batch,
    BranchChannels,
    GnnSpec,
    Layer,
    Support,
    overflow_share,
    support_of,
)

Aggregate = Callable[[str, str], str]
"""(features, region) -> their aggregate over neighbours."""


@dataclass(frozen=True, slots=True)
class _Place:
    """What a layer works on."""

    aggregate: Aggregate
    nodes: int
    """Rows of its result."""


def build_propagation(spec: GnnSpec, structure: GraphStructure) -> Graph:
    """Build a network by Eq. 1.

    Parameters
    ----------
    spec : GnnSpec
        Form `edges`: Gather and Scatter; `dense`: a matrix [N, N] of the edges; `csr`: compressed rows.
        `aggregate_first` aggregates the input width of a layer, `transform_first` the output width.

    Returns
    -------
    Graph
        Regions layerI/aggregate, layerI/combine (the dense classifier: `classify`), readout.
    """
    layers = spec.equation_layers(structure.features, structure.classes)
    editor, x = start(spec, structure)
    if spec.batch is not None:
        places, x, support = _batch_places(editor, x, spec, structure, sum(_propagates(la) for la in layers))
    else:
        aggregate = _aggregation(editor, spec, structure.edges, structure.nodes, structure.nodes, "")
        places, support = [_Place(aggregate, structure.nodes)] * len(layers), None
    results: list[str] = []
    for i, layer in enumerate(layers):
        dense = not _propagates(layer)
        if dense:
            x = _classifier(editor, spec, results if spec.model == "jk" else results[-1:], layer)
        else:
            if support is not None and support.stored and i + 1 == len(support.edges):
                x = _with_stored(editor, x, support, structure.nodes, spec.dtype)
            x = _layer(editor, spec, layer, x, places[i], i)
        last = i + 1 == len(layers)
        if not last:
            x = activation(editor, "Relu", x, f"layer{i}/activation")
        results.append(x)
    finish_layer(editor, x, len(layers) - 1, len(layers), "Relu")
    return editor.finish()


def _propagates(layer: Layer) -> bool:
    return any(branch.order for branch in layer.branches)


def _classifier(editor: Editor, spec: GnnSpec, results: Sequence[str], layer: Layer) -> str:
    editor.region = "classify"
    x = results[0]
    if len(results) > 1:
        x = editor.concat(results, 1, "classify/concat")
    if spec.normalise:
        x = editor.unary("NormalizeL2", x, "classify/normalise", axes=(1,))
    return linear(editor, x, layer.outputs, "classify")


def _layer(editor: Editor, spec: GnnSpec, layer: Layer, x: str, place: _Place, index: int) -> str:
    """Add a layer: the branches' results side by side, or averaged."""
    first = spec.order == "aggregate_first"
    powers: dict[tuple[int, int], str] = {}
    parts = []
    for branch in layer.branches:
        region = f"layer{index}/combine"
        if spec.preprocessed:
            h = x if not branch.order else _ready(editor, x, branch.order)
            parts.append(linear(editor, h, branch.outputs, region, f"order{branch.order}", bias=False))
        elif not branch.order:
            h = _first_rows(editor, x, place.nodes, f"layer{index}/combine")
            parts.append(linear(editor, h, branch.outputs, region, "order0", bias=False))
        elif first:
            h = _power(editor, x, branch, place, powers, index)
            parts.append(linear(editor, h, branch.outputs, region, f"order{branch.order}", bias=False))
        else:
            h = _columns(editor, x, branch.inputs, f"layer{index}/combine")
            h = linear(editor, h, branch.outputs, region, f"order{branch.order}", bias=False)
            for step in range(branch.order):
                h = place.aggregate(h, f"layer{index}/aggregate{branch.order}_{step}")
            parts.append(h)
    editor.region = f"layer{index}/combine"
    if len(parts) == 1:
        return parts[0]
    if not layer.average:
        return editor.concat(parts, 1, f"layer{index}/combine/concat")
    total = parts[0]
    for number, part in enumerate(parts[1:]):
        total = editor.eltwise("Add", total, part, f"layer{index}/combine/sum{number}")
    share = editor.constant(f"layer{index}/combine/share", (1,), editor.tensors[total].dtype)
    return editor.eltwise("Multiply", total, share, f"layer{index}/combine/mean")


def _power(
    editor: Editor,
    x: str,
    branch: BranchChannels,
    place: _Place,
    powers: dict[tuple[int, int], str],
    index: int,
) -> str:
    """Return A^k x of the columns that a branch reads; branches share lower powers."""
    h = _columns(editor, x, branch.inputs, f"layer{index}/aggregate")
    for k in range(1, branch.order + 1):
        key = (k, branch.inputs)
        if key not in powers:
            powers[key] = place.aggregate(h, f"layer{index}/aggregate{k}")
        h = powers[key]
    return h


def _columns(editor: Editor, x: str, width: int, region: str) -> str:
    """Return the kept columns of `x`; `x` itself if all are kept."""
    if editor.tensors[x].shape[1] == width:
        return x
    editor.region = region
    name = f"{region}/keep"
    if name in editor.operators:
        return name
    kept = editor.constant(f"{name}/channels", (width,), DType.INT32)
    return editor.gather(x, kept, name, axis=1)


def _first_rows(editor: Editor, x: str, nodes: int, region: str) -> str:
    """Return the first rows of `x`, which belong to the nodes themselves."""
    tensor = editor.tensors[x]
    if tensor.shape[0] == nodes:
        return x
    editor.region = region
    ends = [editor.constant(f"{region}/own/{end}", (1,), DType.INT64) for end in ("begin", "end", "step")]
    return editor.op("Slice", (x, *ends), (nodes, tensor.shape[1]), tensor.dtype, f"{region}/own")


def _ready(editor: Editor, x: str, order: int) -> str:
    """Return the aggregated features as an input."""
    name, tensor = f"x{order}", editor.tensors[x]
    return name if name in editor.tensors else editor.input(name, tensor.shape, tensor.dtype)


def _aggregation(editor: Editor, spec: GnnSpec, edges: int, nodes: int, sources: int, name: str) -> Aggregate:
    """Return how a layer aggregates: the mean over neighbours, or with GCN's weights and self-loops."""
    if spec.preprocessed:
        return lambda x, region: x
    mean = spec.model == "sage-concat"
    listed = edge_list(editor, edges, nodes, spec.dtype, loops=not mean, name=name)
    listed.source_nodes = sources
    return (mean_along if mean else normalised_sum)(listed, spec.form).add


def _batch_places(
    editor: Editor, x: str, spec: GnnSpec, structure: GraphStructure, count: int
) -> tuple[list[_Place], str, Support]:
    """Return where each layer works in a batch, and the features of the supporting nodes."""
    batch: Batch | None = spec.batch
    assert batch is not None
    support = support_of(batch, structure, count)
    tensor = editor.tensors.pop(x)
    x = editor.input(
        "x", (support.nodes[0], structure.features), spec.dtype, role=Role.FEATURES, density=tensor.density
    )
    places = []
    for i, edges in enumerate(support.edges):
        held = support.stored if i + 1 == count else 0
        nodes, sources = support.nodes[i + 1], support.nodes[i] + held
        places.append(_Place(_aggregation(editor, spec, edges, nodes, sources, f"layer{i}"), nodes))
    editor.meta = replace(editor.meta, notes=(*editor.meta.notes, *_notes(batch, support, structure, count)))
    return places, x, support


def _notes(batch: Batch, support: Support, structure: GraphStructure, layers: int) -> list[str]:
    """Return the notes of an estimate about a batch."""
    notes = [
        f"batch: {batch.roots} roots, {support.nodes[1]} rows of layer 1, {support.nodes[0]} supporting "
        f"nodes, {support.stored} hidden features from the store"
    ]
    if batch.capacity is not None:
        over = overflow_share(batch, structure, layers)
        known = "how often is not known without a degree histogram"
        known = known if over is None else f"{over:.2%} of batches"
        notes.append(
            f"batch: {support.padded} of {batch.capacity} supporting nodes are padding; beyond the capacity "
            f"and refused: {known}"
        )
    if structure.test_share is not None:
        batches = -(-round(structure.test_share * structure.nodes) // batch.roots)
        notes.append(f"batch: {batches} batches answer for all test nodes")
    return notes


def _with_stored(editor: Editor, x: str, support: Support, nodes: int, dtype: DType) -> str:
    """Append the rows of visited nodes, gathered from the store of all nodes, to the computed rows."""
    editor.region = "store"
    table = editor.input("stored", (nodes, editor.tensors[x].shape[1]), dtype)
    index = editor.input("stored_index", (support.stored,), DType.INT32)
    return editor.concat((x, editor.gather(table, index, "store/gather")), 0, "store/join")
