"""GCN (Kipf and Welling, 2017), GraphSAGE (Hamilton et al., 2017) and GAT (Velickovic et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from npusim.graph import Editor, Graph, GraphStructure
from npusim.ops import DType, Role
from npusim.workloads.gnn.layers import (
    PREPROCESS,
    EdgeList,
    add_bias,
    compressed_rows,
    edge_list,
    finish_layer,
    linear,
    sparse_product,
    start,
    weight,
)
from npusim.workloads.gnn.spec import GnnSpec
from npusim.workloads.gnn.statistics import sampled_edges


def build_gcn(spec: GnnSpec, structure: GraphStructure) -> Graph:
    """Build a GCN with in-graph normalisation d^-1/2 (A + I) d^-1/2.

    Parameters
    ----------
    spec : GnnSpec
        Form `edges`: Gather, Multiply, Scatter in each layer; `dense`: one matrix [N, N], a product in each
        layer; `csr`: the matrix in compressed rows.

    Returns
    -------
    Graph
        Each layer a Linear with its bias, then the aggregation (as GraNNite's authors have it), ReLU between
        layers.
    """
    editor, x = start(spec, structure)
    edges = edge_list(editor, structure.edges, structure.nodes, spec.dtype, loops=True)
    aggregate = normalised_sum(edges, spec.form).add
    for layer, (_, width) in enumerate(spec.widths(structure.features, structure.classes)):
        if spec.order == "transform_first":
            x = linear(editor, x, width, f"layer{layer}/combine")
            x = aggregate(x, f"layer{layer}/aggregate")
        else:
            x = aggregate(x, f"layer{layer}/aggregate")
            x = linear(editor, x, width, f"layer{layer}/combine")
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
    editor, nodes = edges.editor, edges.nodes
    adjacency = edges.matrix()
    known = editor.tensors[adjacency]
    fields = {"density": known.density, "block_density": known.block_density}
    factor = _degree_factor(editor, editor.reduce("ReduceSum", adjacency, (1,), f"{PREPROCESS}/degree"))
    column = editor.reshape(factor, (nodes, 1), f"{PREPROCESS}/factor_column", "Unsqueeze")
    row = editor.reshape(factor, (1, nodes), f"{PREPROCESS}/factor_row", "Unsqueeze")
    half = editor.eltwise("Multiply", adjacency, column, f"{PREPROCESS}/half_norm", tensor=fields)
    return editor.eltwise(
        "Multiply", half, row, f"{PREPROCESS}/norm", tensor={**fields, "role": Role.NORM, "symmetric": True}
    )


def normalised_sum(edges: EdgeList, form: str) -> AlongEdges | Product:
    """Return GCN's aggregation in a form: along the edges, or as a product with a matrix of them."""
    if form == "edges":
        return AlongEdges(edges, weights=_edge_weights(edges))
    matrix = _norm_matrix(edges) if form == "dense" else compressed_rows(edges, _edge_weights(edges))
    return Product(edges.editor, matrix, form == "csr")


def build_sage(spec: GnnSpec, structure: GraphStructure) -> Graph:
    """Build a GraphSAGE network with mean or maximum.

    Parameters
    ----------
    spec : GnnSpec
        Form `gathered`: inputs `neighbours` [N, K] and `mask` [N, K] (0 where a node has fewer than K);
        `edges`: sampled `edge_index` [2, E]; `dense`, `csr` (mean): a matrix [N, N] made of it.

    Returns
    -------
    Graph
        Each layer is (aggregate(x) W^T + b) + x W_root^T, ReLU between layers; `transform_first` aggregates
        x W^T + b, which is the same for a mean.
    """
    edges = sampled_edges(structure, spec.neighbours)
    editor, x = start(spec, structure, sampled_edges=edges)
    aggregate = _aggregation(editor, spec, structure, edges)
    for layer, (_, width) in enumerate(spec.widths(structure.features, structure.classes)):
        combine = f"layer{layer}/combine"
        place = f"layer{layer}/aggregate"
        if spec.order == "transform_first":
            own = aggregate.add(linear(editor, x, width, combine, "neighbours"), place)
        else:
            own = linear(editor, aggregate.add(x, place), width, combine, "neighbours")
        root = linear(editor, x, width, combine, "root", bias=False)
        editor.region = combine
        x = editor.eltwise("Add", own, root, f"{combine}/sum")
        x = finish_layer(editor, x, layer, spec.layers, "Relu")
    return editor.finish()


def _aggregation(
    editor: Editor, spec: GnnSpec, structure: GraphStructure, edges: int
) -> Gathered | AlongEdges | Product:
    if spec.form == "gathered":
        return _gathered(editor, spec, structure.nodes, edges)
    listed = edge_list(editor, edges, structure.nodes, spec.dtype, loops=False)
    if spec.model == "sage-max":
        return AlongEdges(listed, reduction="max")
    return mean_along(listed, spec.form)


def mean_along(edges: EdgeList, form: str) -> AlongEdges | Product:
    """Return the mean over neighbours in a form: along the edges, or as a product with a matrix of them."""
    if form == "edges":
        return AlongEdges(edges, count=_counts(edges))
    matrix = _mean_matrix(edges) if form == "dense" else compressed_rows(edges, mean=True)
    return Product(edges.editor, matrix, form == "csr")


@dataclass(frozen=True, slots=True)
class Gathered:
    """Aggregation of neighbours that lie side by side."""

    editor: Editor
    index: str
    mask: str
    """[N, K, 1]."""
    count: str | None
    """[N, 1] for the mean; None for the maximum."""

    def add(self, x: str, region: str) -> str:
        """Aggregate `x` [N, F]."""
        editor = self.editor
        editor.region = region
        gathered = editor.gather(x, self.index, f"{region}/gather")
        if self.count is None:
            dtype = editor.tensors[x].dtype
            low = editor.constant(f"{region}/low", (), dtype)
            masked = editor.select(self.mask, gathered, low, f"{region}/select")
            return editor.reduce("ReduceMax", masked, (1,), f"{region}/reduce")
        masked = editor.eltwise("Multiply", gathered, self.mask, f"{region}/multiply")
        total = editor.reduce("ReduceSum", masked, (1,), f"{region}/reduce")
        return editor.eltwise("Divide", total, self.count, f"{region}/divide")


def _gathered(editor: Editor, spec: GnnSpec, nodes: int, edges: int) -> Gathered:
    shape, dtype = (nodes, spec.neighbours), spec.dtype
    editor.region = PREPROCESS
    chosen = editor.input("neighbours", shape, DType.INT64, role=Role.EDGES, structural=True)
    density = min(1.0, edges / (shape[0] * shape[1]))
    mask = editor.input("mask", shape, dtype, role=Role.MASK, structural=True, density=density)
    index = editor.op("Convert", (chosen,), shape, DType.INT32, f"{PREPROCESS}/neighbours")
    fields = {"role": Role.MASK, "density": density}
    deep = editor.reshape(mask, (*shape, 1), f"{PREPROCESS}/mask_column", "Unsqueeze", tensor=fields)
    if spec.model == "sage-mean":
        count = editor.reduce("ReduceSum", mask, (1,), f"{PREPROCESS}/count", keep_dims=True)
        return Gathered(editor, index, deep, count)
    zero = editor.constant(f"{PREPROCESS}/zero", (1, 1, 1), dtype, density=0.0)
    return Gathered(editor, index, editor.eltwise("Greater", deep, zero, f"{PREPROCESS}/greater"), None)


@dataclass(frozen=True, slots=True)
class AlongEdges:
    """Aggregation of messages along the edges."""

    edges: EdgeList
    weights: str | None = None
    """Factor of each message [E, 1]."""
    reduction: str = "sum"
    """sum or max."""
    count: str | None = None
    """Divisor of each sum [N, 1], for a mean."""

    def add(self, x: str, region: str) -> str:
        """Aggregate `x` [N, F]."""
        editor = self.edges.editor
        editor.region = region
        messages = self.edges.gather(x, f"{region}/gather")
        if self.weights is not None:
            messages = editor.eltwise("Multiply", messages, self.weights, f"{region}/multiply")
        total = self.edges.scatter(messages, region, f"{region}/scatter", self.reduction)
        return (
            total if self.count is None else editor.eltwise("Divide", total, self.count, f"{region}/divide")
        )


def _counts(edges: EdgeList) -> str:
    """Return the sampled neighbours of each node, at least 1, [N, 1]."""
    editor = edges.editor
    count = edges.scatter(edges.ones(f"{edges.place}/ones"), edges.place, f"{edges.place}/count")
    one = editor.constant(f"{edges.place}/one", (1,), edges.dtype)
    count = editor.eltwise("Maximum", count, one, f"{edges.place}/count_clamped")
    return editor.reshape(count, (edges.nodes, 1), f"{edges.place}/count_column")


@dataclass(frozen=True, slots=True)
class Product:
    """Aggregation as a product with a matrix, dense or in compressed rows."""

    editor: Editor
    matrix: str
    compressed: bool = False

    def add(self, x: str, region: str) -> str:
        """Aggregate `x` [N, F]."""
        if self.compressed:
            return sparse_product(self.editor, self.matrix, x, region)
        self.editor.region = region
        return self.editor.matmul(self.matrix, x, f"{region}/matmul")


def _mean_matrix(edges: EdgeList) -> str:
    """Return the sampled adjacency, each row divided by its sum."""
    editor = edges.editor
    adjacency = edges.matrix()
    count = editor.reduce("ReduceSum", adjacency, (1,), f"{edges.place}/count", keep_dims=True)
    fields = {"role": Role.NORM, "density": editor.tensors[adjacency].density}
    return editor.eltwise("Divide", adjacency, count, f"{edges.place}/norm", tensor=fields)


def build_gat(spec: GnnSpec, structure: GraphStructure) -> Graph:
    """Build a GAT.

    Parameters
    ----------
    spec : GnnSpec
        Form `dense`: scores of all pairs [heads, N, N], masked by the adjacency; `edges`: scores along the
        edges; `csr`: the scores as values of a matrix in compressed rows. Inner layers have `heads` heads
        that share `hidden`, the last layer has one.

    Returns
    -------
    Graph
        LeakyReLU (slope 0.2) on the scores, ELU between layers.
    """
    editor, x = start(spec, structure)
    edges = edge_list(editor, structure.edges, structure.nodes, spec.dtype, loops=True)
    present = _present(edges) if spec.form == "dense" else None
    rows = compressed_rows(edges) if spec.form == "csr" else None
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
    editor = edges.editor
    zero = editor.constant(f"{PREPROCESS}/zero", (1, 1), edges.dtype, density=0.0)
    return editor.eltwise("Greater", edges.matrix(), zero, f"{PREPROCESS}/greater")


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
    target = _score(editor, h, f"{region}/target_score", (*stack, 1, each))
    source = _score(editor, h, f"{region}/source_score", (*stack, 1, each))
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


def _score(editor: Editor, h: str, name: str, shape: tuple[int, ...]) -> str:
    vector = weight(editor, f"{name}/weight", shape, editor.tensors[h].dtype)
    return editor.matmul(h, vector, name, transpose_b=True)


def _leaky_relu(editor: Editor, scores: str, region: str) -> str:
    slope = editor.constant(f"{region}/slope", (), editor.tensors[scores].dtype)
    tensor = editor.tensors[scores]
    return editor.op("PRelu", (scores, slope), tensor.shape, tensor.dtype, f"{region}/prelu")


def _edge_layer(edges: EdgeList, flat: str, layer: int, heads: int, rows: str | None) -> str:
    """Add attention along the edges, [E, heads], as in PyTorch Geometric: a softmax of scatters.

    With compressed `rows` the weights are the values of the rows, and the messages one sparse product.
    """
    editor = edges.editor
    region = editor.region = f"layer{layer}/attention"
    nodes, width = editor.tensors[flat].shape
    each = width // heads
    h = editor.reshape(flat, (nodes, heads, each), f"{region}/split_heads")
    source = _head_score(editor, h, f"{region}/source_score", (1, heads, each))
    target = _head_score(editor, h, f"{region}/target_score", (1, heads, each))
    at_source = edges.gather(source, f"{region}/gather_source")
    at_target = edges.gather(target, f"{region}/gather_target", edges.target)
    scores = _leaky_relu(editor, editor.eltwise("Add", at_source, at_target, f"{region}/add"), region)
    most = edges.scatter(scores, region, f"{region}/scatter_max", "max")
    most = edges.gather(most, f"{region}/gather_max", edges.target)
    raised = editor.unary(
        "Exp", editor.eltwise("Subtract", scores, most, f"{region}/subtract"), f"{region}/exp"
    )
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


def _head_score(editor: Editor, h: str, name: str, shape: tuple[int, ...]) -> str:
    vector = weight(editor, f"{name}/weight", shape, editor.tensors[h].dtype)
    return editor.reduce("ReduceSum", editor.eltwise("Multiply", h, vector, f"{name}/multiply"), (2,), name)
