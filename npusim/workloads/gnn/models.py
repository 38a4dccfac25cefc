"""GCN (Kipf and Welling, 2017), GraphSAGE (Hamilton et al., 2017) and GAT (Velickovic et al., 2018).

Each part adds the operators that OpenVINO's conversion of the equal PyTorch code gives, down to the shape of
a bias: tests compare exported and built graphs operator for operator. Along edges a message is fetched by a
Gather and delivered by a Scatter, both slow on an NPU; PyTorch Geometric models have that form. A matrix in
compressed rows is what a library for sparse matrices multiplies on a CPU or GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npusim.graph import Graph, GraphMeta, GraphStructure
from npusim.graph.editor import Rewriter
from npusim.ops import DType, Role, Storage
from npusim.workloads.gnn.spec import FORMS, GnnSpec
from npusim.workloads.gnn.statistics import sampled_edges

PREPROCESS = "preprocess"
"""Region of the operators that prepare the edges."""


class Builder(Rewriter):
    """A network on a data graph under construction; names are relative to the region."""

    def __init__(self, spec: GnnSpec, data: GraphStructure, sampled: int | None = None) -> None:
        forms = FORMS[spec.model] if spec.form == "csr" else ()
        meta = GraphMeta(
            model=spec.model,
            form=spec.form,
            dataset=data.name,
            precision=spec.dtype,
            neighbours=spec.neighbours,
            npu_forms=tuple(form for form in forms if form != "csr"),
            sampled_edges=sampled,
        )
        super().__init__(f"{spec.model}-{data.name}", data, meta=meta)
        self.spec, self.data, self.dtype = spec, data, spec.dtype

    def features(self, nodes: int, **fields: Any) -> str:
        """Add the features `x` [N, F]."""
        fields |= {"role": Role.FEATURES, "density": self.data.feature_density}
        return self.input("/x", (nodes, self.data.features), self.dtype, **fields)

    def all_features(self) -> str:
        """Add the features of all nodes."""
        return self.features(self.data.nodes, block_density=self.data.feature_block_density.get(16))

    def linear(self, x: str, width: int, region: str, name: str = "matmul", bias: bool = True) -> str:
        """Add `x W^T (+ b)` for `x` [N, inputs], the weight [width, inputs] as PyTorch stores it."""
        self.region = region
        tensor = self.tensors[x]
        shape = (width, tensor.shape[-1])
        matrix = self.constant(f"{name}/weight", shape, tensor.dtype, role=Role.WEIGHT)
        product = self.matmul(x, matrix, name, transpose_b=True)
        return self.biased(product, region) if bias else product

    def biased(self, x: str, region: str) -> str:
        """Add a bias [1, F] to `x` [N, F]."""
        self.region, tensor = region, self.tensors[x]
        bias = self.constant("add/bias", (1, tensor.shape[-1]), tensor.dtype, role=Role.BIAS)
        return self.eltwise("Add", x, bias, "add")

    def activation(self, type_: str, x: str, region: str, **attrs: Any) -> str:
        """Add an activation."""
        self.region = region
        return self.unary(type_, x, type_.lower(), **attrs)

    def finish_layer(self, x: str, layer: int, layers: int, type_: str, **attrs: Any) -> str:
        """Add what follows a layer: an activation, or after the last the LogSoftmax and the output."""
        if layer + 1 < layers:
            return self.activation(type_, x, f"layer{layer}/activation", **attrs)
        self.outputs = [self.activation("LogSoftmax", x, "readout", axes=(1,))]
        return self.outputs[0]

    def sparse_product(self, matrix: str, x: str, region: str, *values: str) -> str:
        """Multiply a matrix in compressed rows [N, M] by `x` [M, F].

        `values` [E, heads] replace those of the matrix, in the order of its rows; heads share the columns.
        """
        self.region = region
        return self.add("SparseMatMul", (matrix, x, *values), "spmm", self.tensors[x].dtype)


class EdgeList:
    """The input `edge_index` [2, E] as two vectors of node numbers, and tensors computed from them.

    Parameters
    ----------
    edges : int
        Edges without self-loops.
    nodes, sources : int
        Nodes that receive messages, and nodes that send them.
    layer : str
        Layer that alone uses this list; '': all do.
    """

    def __init__(
        self, editor: Builder, edges: int, nodes: int, sources: int, loops: bool, layer: str = ""
    ) -> None:
        self.editor, self.nodes, self.sources, self.dtype = editor, nodes, sources, editor.dtype
        self.place = editor.region = f"{layer}/{PREPROCESS}" if layer else PREPROCESS
        self.shared: dict[str, str] = {}
        """Results that layers share: OpenVINO merges equal subgraphs."""
        name = f"/edge_index_{layer}" if layer else "/edge_index"
        pairs = editor.input(name, (2, edges), DType.INT64, role=Role.EDGES, structural=True)
        if loops:
            own = editor.constant("loops", (2, nodes), DType.INT64)
            pairs = editor.concat((pairs, own), 1, "add_loops")
        self.count = edges + nodes * loops
        """Edges E, self-loops included."""
        self.source, self.target = (
            editor.gather(pairs, editor.constant(f"{end}/row", (), DType.INT64, density=float(row)), end)
            for row, end in enumerate(("source", "target"))
        )

    def target_spread(self, shape: tuple[int, ...]) -> str:
        """Return the targets repeated over a message's elements, int32 of `shape` [E, ...].

        This is preprocessing; a layer whose messages have a new width repeats it.
        """
        key, editor, here = f"target{shape}", self.editor, self.editor.region
        if key in self.shared:
            return self.shared[key]
        layer, index = here.split("/")[0], self.target
        editor.region = PREPROCESS if layer == PREPROCESS else f"{layer}/{PREPROCESS}"
        if len(shape) > 1:
            column = (self.count, *(1,) * (len(shape) - 1))
            if str(column) not in self.shared:
                self.shared[str(column)] = editor.reshape(self.target, column, "target_column")
            index = self.shared[str(column)]
        if shape != editor.tensors[index].shape:
            index = editor.op("Broadcast", (index,), shape, DType.INT64, "broadcast")
        self.shared[key] = editor.add("Convert", (index,), "convert", DType.INT32)
        editor.region = here
        return self.shared[key]

    def scatter(self, messages: str, name: str, reduction: str = "sum") -> str:
        """Combine messages [E, ...] at their targets to [N, ...]; a node without messages gets 0."""
        editor, shape = self.editor, self.editor.tensors[messages].shape
        index = self.target_spread(shape)
        blank = editor.constant(f"{name}/blank", (self.nodes, *shape[1:]), self.dtype, density=0.0)
        inputs = (blank, index, messages)
        return editor.add("ScatterElementsUpdate", inputs, name, axes=(0,), reduction=reduction)

    def ones(self, name: str = "ones") -> str:
        """Add a constant of one 1 per edge."""
        return self.editor.constant(name, (self.count,), self.dtype)

    def matrix(self) -> str:
        """Form the dense 0/1 matrix [targets, sources]: number each cell, scatter ones into zeros."""
        editor, nodes, size = self.editor, self.nodes, self.nodes * self.sources
        editor.region, place = self.place, "adjacency"
        width = editor.constant(f"{place}/nodes", (1,), DType.INT64)
        row = editor.eltwise("Multiply", self.target, width, f"{place}/row_start")
        cell = editor.eltwise("Add", row, self.source, f"{place}/cell")
        index = editor.add("Convert", (cell,), f"{place}/convert", DType.INT32)
        blank = editor.constant(f"{place}/blank", (size,), self.dtype, density=0.0)
        inputs, density = (blank, index, self.ones(f"{place}/ones")), min(1.0, self.count / size)
        options: dict[str, Any] = {"tensor": {"density": density}, "axes": (0,), "reduction": "none"}
        flat = editor.add("ScatterElementsUpdate", inputs, f"{place}/scatter", **options)
        fields = {"role": Role.ADJACENCY, "density": density}
        if self.count == editor.data.nonzeros and nodes == self.sources:
            fields |= {"block_density": editor.data.padded_block_density(16), "symmetric": True}
        return editor.reshape(flat, (nodes, self.sources), place, tensor=fields)

    def compressed_rows(self, *values: str, mean: bool = False) -> str:
        """Sort the edges by target into a matrix [targets, sources] in compressed rows and return its name.

        Parameters
        ----------
        values : str
            Weight of each edge, [E] or [E, 1]; without, ones.
        mean : bool
            Whether each row is divided by its length.
        """
        editor, shape = self.editor, (self.nodes, self.sources)
        editor.region, inputs = self.place, (self.source, self.target, *values)
        density = min(1.0, self.count / (self.nodes * self.sources))
        role = Role.NORM if mean or values else Role.ADJACENCY
        fields = {"role": role, "density": density, "storage": Storage.CSR}
        normalise = "mean" if mean else "none"
        return editor.op("EdgesToCsr", inputs, shape, self.dtype, "csr", tensor=fields, normalise=normalise)


Aggregate = Callable[[str, str], str]
"""Takes features [N, F] and a region, and returns their aggregate over neighbours."""


def build_gcn(spec: GnnSpec, structure: GraphStructure) -> Graph:
    """Build a GCN with in-graph normalisation d^-1/2 (A + I) d^-1/2.

    Form `edges`: Gather, Multiply, Scatter in each layer; `dense`: one matrix [N, N], a product in each
    layer; `csr`: the matrix in compressed rows. Each layer is a Linear with its bias, then the aggregation
    (as GraNNite's authors have it), with ReLU between layers.
    """
    editor = Builder(spec, structure)
    x = editor.all_features()
    edges = EdgeList(editor, structure.edges, structure.nodes, structure.nodes, loops=True)
    aggregate = normalised_sum(edges, spec.form)
    for layer, (_, width) in enumerate(spec.widths(structure.features, structure.classes)):
        combine, place = f"layer{layer}/combine", f"layer{layer}/aggregate"
        if spec.order == "transform_first":
            x = aggregate(editor.linear(x, width, combine), place)
        else:
            x = editor.linear(aggregate(x, place), width, combine)
        x = editor.finish_layer(x, layer, spec.layers, "Relu")
    return editor.finish()


def _degree_factor(editor: Builder, degree: str) -> str:
    """Add d^-1/2."""
    exponent = editor.constant("exponent", (1,), editor.tensors[degree].dtype)
    return editor.eltwise("Power", degree, exponent, "degree_factor")


def _edge_weights(edges: EdgeList) -> str:
    """Return the weight of each edge, [E, 1]: the product of the factors of its two ends."""
    editor = edges.editor
    factor = _degree_factor(editor, edges.scatter(edges.ones(), "degree"))
    left = editor.gather(factor, edges.source, "source_factor")
    right = editor.gather(factor, edges.target, "target_factor")
    weights = editor.eltwise("Multiply", left, right, "edge_weight")
    return editor.reshape(weights, (edges.count, 1), "edge_weight_column", "Unsqueeze")


def _norm_matrix(edges: EdgeList) -> str:
    """Return the dense norm matrix [N, N]."""
    editor, nodes, adjacency = edges.editor, edges.nodes, edges.matrix()
    known = editor.tensors[adjacency]
    fields = {"density": known.density, "block_density": known.block_density}
    norm = {**fields, "role": Role.NORM, "symmetric": True}
    factor = _degree_factor(editor, editor.reduce("ReduceSum", adjacency, (1,), "degree"))
    column = editor.reshape(factor, (nodes, 1), "factor_column", "Unsqueeze")
    row = editor.reshape(factor, (1, nodes), "factor_row", "Unsqueeze")
    half = editor.eltwise("Multiply", adjacency, column, "half_norm", tensor=fields)
    return editor.eltwise("Multiply", half, row, "norm", tensor=norm)


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
    editor = Builder(spec, structure, edges)
    x = editor.all_features()
    if spec.form == "gathered":
        aggregate = _gathered(editor, edges)
    else:
        listed = EdgeList(editor, edges, structure.nodes, structure.nodes, loops=False)
        is_maximum = spec.model == "sage-max"
        aggregate = along_edges(listed, reduction="max") if is_maximum else mean_along(listed, spec.form)
    for layer, (_, width) in enumerate(spec.widths(structure.features, structure.classes)):
        combine, place = f"layer{layer}/combine", f"layer{layer}/aggregate"
        if spec.order == "transform_first":
            neighbours = aggregate(editor.linear(x, width, combine, "neighbours"), place)
        else:
            neighbours = editor.linear(aggregate(x, place), width, combine, "neighbours")
        root = editor.linear(x, width, combine, "root", bias=False)
        x = editor.eltwise("Add", neighbours, root, "sum")
        x = editor.finish_layer(x, layer, spec.layers, "Relu")
    return editor.finish()


def mean_along(edges: EdgeList, form: str) -> Aggregate:
    """Return the mean over neighbours in a form: along the edges, or as a product with a matrix of them."""
    editor = edges.editor
    if form == "edges":
        return along_edges(edges, count=_counts(edges))
    if form == "csr":
        return matrix_product(editor, edges.compressed_rows(mean=True), compressed=True)
    adjacency = edges.matrix()
    count = editor.reduce("ReduceSum", adjacency, (1,), "count", keep_dims=True)
    fields = {"role": Role.NORM, "density": editor.tensors[adjacency].density}
    return matrix_product(editor, editor.eltwise("Divide", adjacency, count, "norm", tensor=fields))


def _gathered(editor: Builder, edges: int) -> Aggregate:
    """Return the aggregation of neighbours that lie side by side, [N, K, F]."""
    shape, dtype, editor.region = (editor.data.nodes, editor.spec.neighbours), editor.dtype, PREPROCESS
    chosen = editor.input("/neighbours", shape, DType.INT64, role=Role.EDGES, structural=True)
    fields = {"role": Role.MASK, "density": min(1.0, edges / (shape[0] * shape[1]))}
    mask = editor.input("/mask", shape, dtype, structural=True, **fields)
    index = editor.add("Convert", (chosen,), "neighbours", DType.INT32)
    deep, count = editor.reshape(mask, (*shape, 1), "mask_column", "Unsqueeze", tensor=fields), ""
    if editor.spec.model == "sage-mean":
        count = editor.reduce("ReduceSum", mask, (1,), "count", keep_dims=True)
    else:
        zero = editor.constant("zero", (1, 1, 1), dtype, density=0.0)
        deep = editor.eltwise("Greater", deep, zero, "greater")

    def aggregate(x: str, region: str) -> str:
        editor.region = region
        rows = editor.gather(x, index, "gather")
        if not count:
            low = editor.constant("low", (), editor.tensors[x].dtype)
            return editor.reduce("ReduceMax", editor.select(deep, rows, low, "select"), (1,), "reduce")
        total = editor.reduce("ReduceSum", editor.eltwise("Multiply", rows, deep, "multiply"), (1,), "reduce")
        return editor.eltwise("Divide", total, count, "divide")

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
        messages = editor.gather(x, edges.source, "gather")
        if weights:
            messages = editor.eltwise("Multiply", messages, weights, "multiply")
        total = edges.scatter(messages, "scatter", reduction)
        return editor.eltwise("Divide", total, count, "divide") if count else total

    return aggregate


def _counts(edges: EdgeList) -> str:
    """Return the sampled neighbours of each node, at least 1, [N, 1]."""
    editor = edges.editor
    count = edges.scatter(edges.ones(), "count")
    count = editor.eltwise("Maximum", count, editor.constant("one", (1,), edges.dtype), "count_clamped")
    return editor.reshape(count, (edges.nodes, 1), "count_column")


def matrix_product(editor: Builder, matrix: str, compressed: bool = False) -> Aggregate:
    """Return the aggregation as a product with a matrix, dense or in compressed rows."""

    def aggregate(x: str, region: str) -> str:
        if compressed:
            return editor.sparse_product(matrix, x, region)
        editor.region = region
        return editor.matmul(matrix, x, "matmul")

    return aggregate


def build_gat(spec: GnnSpec, structure: GraphStructure) -> Graph:
    """Build a GAT.

    Form `dense`: scores of all pairs [heads, N, N], masked by the adjacency; `edges`: scores along the edges;
    `csr`: the scores as values of a matrix in compressed rows. Inner layers have `heads` heads that share
    `hidden`, the last layer has one. LeakyReLU (slope 0.2) on the scores, ELU between layers.
    """
    editor = Builder(spec, structure)
    x = editor.all_features()
    edges = EdgeList(editor, structure.edges, structure.nodes, structure.nodes, loops=True)
    present = None
    if spec.form == "dense":  # compared once: OpenVINO merges the layers' equal comparisons
        zero = editor.constant("zero", (1, 1), edges.dtype, density=0.0)
        present = editor.eltwise("Greater", edges.matrix(), zero, "greater")
    rows = edges.compressed_rows() if spec.form == "csr" else None
    for layer, (_, width) in enumerate(spec.widths(structure.features, structure.classes)):
        heads = spec.heads if layer + 1 < spec.layers else 1
        h = editor.linear(x, width, f"layer{layer}/combine", bias=False)
        if present is not None:
            x = _dense_layer(editor, h, present, layer, heads)
        else:
            x = _edge_layer(edges, h, layer, heads, rows)
        x = editor.biased(x, f"layer{layer}/aggregate")
        x = editor.finish_layer(x, layer, spec.layers, "Elu", alpha=1.0)
    return editor.finish()


def _dense_layer(editor: Builder, h: str, present: str, layer: int, heads: int) -> str:
    """Add attention over all pairs of nodes."""
    editor.region = f"layer{layer}/attention"
    (nodes, width), dtype = editor.tensors[h].shape, editor.tensors[h].dtype
    stack, each = (heads,) if heads > 1 else (), width // heads
    if heads > 1:
        h = editor.transpose(editor.reshape(h, (nodes, heads, each), "split_heads"), (1, 0, 2), "heads_first")

    def score(end: str) -> str:
        shape = (*stack, 1, each)
        vector = editor.constant(f"{end}_score/weight", shape, dtype, role=Role.WEIGHT)
        return editor.matmul(h, vector, f"{end}_score", transpose_b=True)

    target, source = score("target"), score("source")
    turned = editor.reshape(source, (*stack, 1, nodes), "transpose")
    scores = _leaky_relu(editor, editor.eltwise("Add", target, turned, "add"))
    shape = editor.tensors[scores].shape
    low = editor.constant("minus_infinity", (), dtype)
    absent = editor.op("Broadcast", (low,), shape, dtype, "broadcast")
    masked = editor.select(present, scores, absent, "select")
    weights = editor.unary("Softmax", masked, "softmax", axes=(len(shape) - 1,))
    editor.region = f"layer{layer}/aggregate"
    result = editor.matmul(weights, h, "matmul")
    if heads > 1:
        result = editor.transpose(result, (1, 0, 2), "heads_last")
        result = editor.reshape(result, (nodes, width), "join_heads")
    return result


def _leaky_relu(editor: Builder, scores: str) -> str:
    return editor.add("PRelu", (scores, editor.constant("slope", (), editor.tensors[scores].dtype)), "prelu")


def _edge_layer(edges: EdgeList, flat: str, layer: int, heads: int, rows: str | None) -> str:
    """Add attention along the edges, [E, heads], as in PyTorch Geometric: a softmax of scatters.

    With compressed `rows` the weights are the values of the rows, and the messages one sparse product.
    """
    editor = edges.editor
    editor.region = f"layer{layer}/attention"
    (nodes, width), dtype = editor.tensors[flat].shape, editor.tensors[flat].dtype
    shape = (1, heads, width // heads)
    h = editor.reshape(flat, (nodes, *shape[1:]), "split_heads")

    def score(end: str) -> str:
        vector = editor.constant(f"{end}_score/weight", shape, dtype, role=Role.WEIGHT)
        scaled = editor.eltwise("Multiply", h, vector, f"{end}_score/multiply")
        return editor.reduce("ReduceSum", scaled, (2,), f"{end}_score")

    source, target = score("source"), score("target")
    at_source = editor.gather(source, edges.source, "gather_source")
    at_target = editor.gather(target, edges.target, "gather_target")
    scores = _leaky_relu(editor, editor.eltwise("Add", at_source, at_target, "add"))
    most = editor.gather(edges.scatter(scores, "scatter_max", "max"), edges.target, "gather_max")
    raised = editor.unary("Exp", editor.eltwise("Subtract", scores, most, "subtract"), "exp")
    total = editor.gather(edges.scatter(raised, "scatter_sum"), edges.target, "gather_sum")
    weights = editor.eltwise("Divide", raised, total, "divide")
    region = editor.region = f"layer{layer}/aggregate"
    if rows is not None:
        return editor.sparse_product(rows, flat, region, weights)
    messages = editor.gather(h, edges.source, "gather")
    column = editor.reshape(weights, (edges.count, heads, 1), "unsqueeze_weights", "Unsqueeze")
    summed = edges.scatter(editor.eltwise("Multiply", messages, column, "multiply"), "scatter")
    return editor.reshape(summed, (nodes, width), "join_heads")
