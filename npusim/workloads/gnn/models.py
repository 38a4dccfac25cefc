"""GCN (Kipf and Welling, 2017), GraphSAGE (Hamilton et al., 2017) and GAT (Velickovic et al., 2018)."""

from __future__ import annotations

from collections.abc import Callable

from npusim.graph import Editor, Graph, GraphStructure
from npusim.ops import DType, Role
from npusim.workloads.gnn.layers import (
    PREPROCESS,
    EdgeList,
    add_bias,
    edge_list,
    finish_layer,
    linear,
    sparse_product,
    start,
    weight,
)
from npusim.workloads.gnn.spec import GnnSpec
from npusim.workloads.gnn.statistics import sampled_edges

Aggregate = Callable[[str, str], str]
"""Takes features [N, F] and a region, and returns their aggregate over neighbours."""


def build_gcn(spec: GnnSpec, structure: GraphStructure) -> Graph:
    """Build a GCN with in-graph normalisation d^-1/2 (A + I) d^-1/2.

    Form `edges`: Gather, Multiply, Scatter in each layer; `dense`: one matrix [N, N], a product in each
    layer; `csr`: the matrix in compressed rows. Each layer is a Linear with its bias, then the aggregation
    (as GraNNite's authors have it), with ReLU between layers.
    """
    editor, x = start(spec, structure)
    edges = edge_list(editor, structure.edges, (structure.nodes,) * 2, spec.dtype, loops=True)
    aggregate = normalised_sum(edges, spec.form)
    for layer, (_, width) in enumerate(spec.widths(structure.features, structure.classes)):
        combine, place = f"layer{layer}/combine", f"layer{layer}/aggregate"
        if spec.order == "transform_first":
            x = aggregate(linear(editor, x, width, combine), place)
        else:
            x = linear(editor, aggregate(x, place), width, combine)
        x = finish_layer(editor, x, layer, spec.layers, "Relu")
    return editor.finish()


def _degree_factor(editor: Editor, degree: str) -> str:
    """Add d^-1/2."""
    exponent = editor.constant(f"{PREPROCESS}/exponent", (1,), editor.tensors[degree].dtype)
    return editor.eltwise("Power", degree, exponent, f"{PREPROCESS}/degree_factor")


def _edge_weights(edges: EdgeList) -> str:
    """Return the weight of each edge, [E, 1]: the product of the factors of its two ends."""
    editor = edges.editor
    degree = edges.scatter(edges.ones(f"{PREPROCESS}/ones"), PREPROCESS, f"{PREPROCESS}/degree")
    factor = _degree_factor(editor, degree)
    left = edges.gather(factor, f"{PREPROCESS}/source_factor")
    right = edges.gather(factor, f"{PREPROCESS}/target_factor", edges.target)
    weights = editor.eltwise("Multiply", left, right, f"{PREPROCESS}/edge_weight")
    return editor.reshape(weights, (edges.count, 1), f"{PREPROCESS}/edge_weight_column", "Unsqueeze")


def _norm_matrix(edges: EdgeList) -> str:
    """Return the dense norm matrix [N, N]."""
    editor, nodes, adjacency = edges.editor, edges.nodes, edges.matrix()
    known = editor.tensors[adjacency]
    fields = {"density": known.density, "block_density": known.block_density}
    norm = {**fields, "role": Role.NORM, "symmetric": True}
    factor = _degree_factor(editor, editor.reduce("ReduceSum", adjacency, (1,), f"{PREPROCESS}/degree"))
    column = editor.reshape(factor, (nodes, 1), f"{PREPROCESS}/factor_column", "Unsqueeze")
    row = editor.reshape(factor, (1, nodes), f"{PREPROCESS}/factor_row", "Unsqueeze")
    half = editor.eltwise("Multiply", adjacency, column, f"{PREPROCESS}/half_norm", tensor=fields)
    return editor.eltwise("Multiply", half, row, f"{PREPROCESS}/norm", tensor=norm)


def normalised_sum(edges: EdgeList, form: str) -> Aggregate:
    """Return GCN's aggregation in a form: along the edges, or as a product with a matrix of them."""
    if form == "edges":
        return along_edges(edges, weights=_edge_weights(edges))
    if form == "dense":
        return matrix_product(edges.editor, _norm_matrix(edges))
    return matrix_product(edges.editor, edges.compressed_rows(_edge_weights(edges)), compressed=True)


def build_sage(spec: GnnSpec, structure: GraphStructure) -> Graph:
    """Build a GraphSAGE network with mean or maximum.

    Form `gathered`: inputs `neighbours` [N, K] and `mask` [N, K] (0 where a node has fewer than K); `edges`:
    sampled `edge_index` [2, E]; `dense`, `csr` (mean): a matrix [N, N] made of it. Each layer is
    (aggregate(x) W^T + b) + x W_root^T, with ReLU between layers; `transform_first` aggregates x W^T + b,
    which is the same for a mean.
    """
    edges = sampled_edges(structure, spec.neighbours)
    editor, x = start(spec, structure, sampled_edges=edges)
    aggregate = _sage_aggregation(editor, spec, structure.nodes, edges)
    for layer, (_, width) in enumerate(spec.widths(structure.features, structure.classes)):
        combine, place = f"layer{layer}/combine", f"layer{layer}/aggregate"
        if spec.order == "transform_first":
            neighbours = aggregate(linear(editor, x, width, combine, "neighbours"), place)
        else:
            neighbours = linear(editor, aggregate(x, place), width, combine, "neighbours")
        root = linear(editor, x, width, combine, "root", bias=False)
        editor.region = combine
        x = editor.eltwise("Add", neighbours, root, f"{combine}/sum")
        x = finish_layer(editor, x, layer, spec.layers, "Relu")
    return editor.finish()


def _sage_aggregation(editor: Editor, spec: GnnSpec, nodes: int, edges: int) -> Aggregate:
    if spec.form == "gathered":
        return _gathered(editor, spec, nodes, edges)
    listed = edge_list(editor, edges, (nodes, nodes), spec.dtype, loops=False)
    return along_edges(listed, reduction="max") if spec.model == "sage-max" else mean_along(listed, spec.form)


def mean_along(edges: EdgeList, form: str) -> Aggregate:
    """Return the mean over neighbours in a form: along the edges, or as a product with a matrix of them."""
    if form == "edges":
        return along_edges(edges, count=_counts(edges))
    if form == "dense":
        return matrix_product(edges.editor, _mean_matrix(edges))
    return matrix_product(edges.editor, edges.compressed_rows(mean=True), compressed=True)


def _gathered(editor: Editor, spec: GnnSpec, nodes: int, edges: int) -> Aggregate:
    """Return the aggregation of neighbours that lie side by side, [N, K, F]."""
    shape, dtype = (nodes, spec.neighbours), spec.dtype
    editor.region = PREPROCESS
    chosen = editor.input("neighbours", shape, DType.INT64, role=Role.EDGES, structural=True)
    density = min(1.0, edges / (nodes * spec.neighbours))
    mask = editor.input("mask", shape, dtype, role=Role.MASK, structural=True, density=density)
    index = editor.add("Convert", (chosen,), f"{PREPROCESS}/neighbours", DType.INT32)
    fields = {"role": Role.MASK, "density": density}
    deep = editor.reshape(mask, (*shape, 1), f"{PREPROCESS}/mask_column", "Unsqueeze", tensor=fields)
    if spec.model == "sage-mean":
        count = editor.reduce("ReduceSum", mask, (1,), f"{PREPROCESS}/count", keep_dims=True)
    else:
        zero = editor.constant(f"{PREPROCESS}/zero", (1, 1, 1), dtype, density=0.0)
        deep, count = editor.eltwise("Greater", deep, zero, f"{PREPROCESS}/greater"), ""

    def aggregate(x: str, region: str) -> str:
        editor.region = region
        rows = editor.gather(x, index, f"{region}/gather")
        if not count:
            low = editor.constant(f"{region}/low", (), editor.tensors[x].dtype)
            rows = editor.select(deep, rows, low, f"{region}/select")
            return editor.reduce("ReduceMax", rows, (1,), f"{region}/reduce")
        rows = editor.eltwise("Multiply", rows, deep, f"{region}/multiply")
        total = editor.reduce("ReduceSum", rows, (1,), f"{region}/reduce")
        return editor.eltwise("Divide", total, count, f"{region}/divide")

    return aggregate


def along_edges(edges: EdgeList, weights: str = "", reduction: str = "sum", count: str = "") -> Aggregate:
    """Return the aggregation of messages along the edges.

    Parameters
    ----------
    weights : str
        Factor of each message [E, 1]; '': none.
    reduction : {"sum", "max"}
    count : str
        Divisor of each sum [N, 1], for a mean; '': none.
    """
    editor = edges.editor

    def aggregate(x: str, region: str) -> str:
        editor.region = region
        messages = edges.gather(x, f"{region}/gather")
        if weights:
            messages = editor.eltwise("Multiply", messages, weights, f"{region}/multiply")
        total = edges.scatter(messages, region, f"{region}/scatter", reduction)
        return editor.eltwise("Divide", total, count, f"{region}/divide") if count else total

    return aggregate


def _counts(edges: EdgeList) -> str:
    """Return the sampled neighbours of each node, at least 1, [N, 1]."""
    editor, place = edges.editor, edges.place
    count = edges.scatter(edges.ones(f"{place}/ones"), place, f"{place}/count")
    one = editor.constant(f"{place}/one", (1,), edges.dtype)
    count = editor.eltwise("Maximum", count, one, f"{place}/count_clamped")
    return editor.reshape(count, (edges.nodes, 1), f"{place}/count_column")


def matrix_product(editor: Editor, matrix: str, compressed: bool = False) -> Aggregate:
    """Return the aggregation as a product with a matrix, dense or in compressed rows."""

    def aggregate(x: str, region: str) -> str:
        if compressed:
            return sparse_product(editor, matrix, x, region)
        editor.region = region
        return editor.matmul(matrix, x, f"{region}/matmul")

    return aggregate


def _mean_matrix(edges: EdgeList) -> str:
    """Return the sampled adjacency, each row divided by its sum."""
    editor, adjacency = edges.editor, edges.matrix()
    count = editor.reduce("ReduceSum", adjacency, (1,), f"{edges.place}/count", keep_dims=True)
    fields = {"role": Role.NORM, "density": editor.tensors[adjacency].density}
    return editor.eltwise("Divide", adjacency, count, f"{edges.place}/norm", tensor=fields)


def build_gat(spec: GnnSpec, structure: GraphStructure) -> Graph:
    """Build a GAT.

    Form `dense`: scores of all pairs [heads, N, N], masked by the adjacency; `edges`: scores along the edges;
    `csr`: the scores as values of a matrix in compressed rows. Inner layers have `heads` heads that share
    `hidden`, the last layer has one. LeakyReLU (slope 0.2) on the scores, ELU between layers.
    """
    editor, x = start(spec, structure)
    edges = edge_list(editor, structure.edges, (structure.nodes,) * 2, spec.dtype, loops=True)
    present = _present(edges) if spec.form == "dense" else None
    rows = edges.compressed_rows() if spec.form == "csr" else None
    for layer, (_, width) in enumerate(spec.widths(structure.features, structure.classes)):
        heads = spec.heads if layer + 1 < spec.layers else 1
        h = linear(editor, x, width, f"layer{layer}/combine", bias=False)
        if present is not None:
            x = _dense_layer(editor, h, present, layer, heads)
        else:
            x = _edge_layer(edges, h, layer, heads, rows)
        x = add_bias(editor, x, f"layer{layer}/aggregate")
        x = finish_layer(editor, x, layer, spec.layers, "Elu", alpha=1.0)
    return editor.finish()


def _present(edges: EdgeList) -> str:
    """Compare the adjacency with zero, once: OpenVINO merges the layers' equal comparisons."""
    zero = edges.editor.constant(f"{PREPROCESS}/zero", (1, 1), edges.dtype, density=0.0)
    return edges.editor.eltwise("Greater", edges.matrix(), zero, f"{PREPROCESS}/greater")


def _dense_layer(editor: Editor, h: str, present: str, layer: int, heads: int) -> str:
    """Add attention over all pairs of nodes."""
    region = editor.region = f"layer{layer}/attention"
    nodes, width = editor.tensors[h].shape
    dtype = editor.tensors[h].dtype
    stack = (heads,) if heads > 1 else ()
    each = width // heads
    if heads > 1:
        split = editor.reshape(h, (nodes, heads, each), f"{region}/split_heads")
        h = editor.transpose(split, (1, 0, 2), f"{region}/heads_first")

    def score(end: str) -> str:
        vector = weight(editor, f"{region}/{end}_score/weight", (*stack, 1, each), dtype)
        return editor.matmul(h, vector, f"{region}/{end}_score", transpose_b=True)

    target, source = score("target"), score("source")
    turned = editor.reshape(source, (*stack, 1, nodes), f"{region}/transpose")
    scores = _leaky_relu(editor, editor.eltwise("Add", target, turned, f"{region}/add"), region)
    shape = editor.tensors[scores].shape
    low = editor.constant(f"{region}/minus_infinity", (), dtype)
    absent = editor.op("Broadcast", (low,), shape, dtype, f"{region}/broadcast")
    masked = editor.select(present, scores, absent, f"{region}/select")
    weights = editor.unary("Softmax", masked, f"{region}/softmax", axes=(len(shape) - 1,))
    region = editor.region = f"layer{layer}/aggregate"
    result = editor.matmul(weights, h, f"{region}/matmul")
    if heads > 1:
        result = editor.transpose(result, (1, 0, 2), f"{region}/heads_last")
        result = editor.reshape(result, (nodes, width), f"{region}/join_heads")
    return result


def _leaky_relu(editor: Editor, scores: str, region: str) -> str:
    slope = editor.constant(f"{region}/slope", (), editor.tensors[scores].dtype)
    return editor.add("PRelu", (scores, slope), f"{region}/prelu")


def _edge_layer(edges: EdgeList, flat: str, layer: int, heads: int, rows: str | None) -> str:
    """Add attention along the edges, [E, heads], as in PyTorch Geometric: a softmax of scatters.

    With compressed `rows` the weights are the values of the rows, and the messages one sparse product.
    """
    editor = edges.editor
    region = editor.region = f"layer{layer}/attention"
    nodes, width = editor.tensors[flat].shape
    each, dtype = width // heads, editor.tensors[flat].dtype
    h = editor.reshape(flat, (nodes, heads, each), f"{region}/split_heads")

    def score(end: str) -> str:
        name = f"{region}/{end}_score"
        vector = weight(editor, f"{name}/weight", (1, heads, each), dtype)
        return editor.reduce(
            "ReduceSum", editor.eltwise("Multiply", h, vector, f"{name}/multiply"), (2,), name
        )

    source, target = score("source"), score("target")
    at_source = edges.gather(source, f"{region}/gather_source")
    at_target = edges.gather(target, f"{region}/gather_target", edges.target)
    scores = _leaky_relu(editor, editor.eltwise("Add", at_source, at_target, f"{region}/add"), region)
    most = edges.scatter(scores, region, f"{region}/scatter_max", "max")
    most = edges.gather(most, f"{region}/gather_max", edges.target)
    lowered = editor.eltwise("Subtract", scores, most, f"{region}/subtract")
    raised = editor.unary("Exp", lowered, f"{region}/exp")
    total = edges.scatter(raised, region, f"{region}/scatter_sum")
    total = edges.gather(total, f"{region}/gather_sum", edges.target)
    weights = editor.eltwise("Divide", raised, total, f"{region}/divide")
    region = editor.region = f"layer{layer}/aggregate"
    if rows is not None:
        return sparse_product(editor, rows, flat, region, weights)
    messages = edges.gather(h, f"{region}/gather")
    column = editor.reshape(weights, (edges.count, heads, 1), f"{region}/unsqueeze_weights", "Unsqueeze")
    scaled = editor.eltwise("Multiply", messages, column, f"{region}/multiply")
    summed = edges.scatter(scaled, region, f"{region}/scatter")
    return editor.reshape(summed, (nodes, width), f"{region}/join_heads")
