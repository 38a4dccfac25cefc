"""GCN (Kipf and Welling, 2017), GraphSAGE (Hamilton et al., 2017) and GAT (Velickovic et al., 2018).

Each part adds the operators that OpenVINO's conversion of the equal PyTorch code gives, down to the shape of
a bias: tests compare exported and built graphs operator for operator. Along edges a message is fetched by a
Gather and delivered by a Scatter, both slow on an NPU; PyTorch Geometric models have that form. A matrix in
compressed rows is what a library for sparse matrices multiplies on a CPU or GPU.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from npusim.graph import Editor, Graph, GraphMeta, GraphStructure
from npusim.ops import DType, Role, Storage
from npusim.workloads.gnn.spec import FORMS, GnnSpec
from npusim.workloads.gnn.statistics import sampled_edges

PREPROCESS = "preprocess"
"""Region of the operators that prepare the edges."""


def start(spec: GnnSpec, structure: GraphStructure, sampled_edges: int | None = None) -> tuple[Editor, str]:
    """Return an editor for a workload, and the name of its features [N, F]."""
    on_npu = tuple(form for form in FORMS[spec.model] if form != "csr") if spec.form == "csr" else ()
    meta = GraphMeta(
        model=spec.model,
        form=spec.form,
        dataset=structure.name,
        precision=spec.dtype,
        neighbours=spec.neighbours,
        npu_forms=on_npu,
        sampled_edges=sampled_edges,
    )
    editor = Editor(f"{spec.model}-{structure.name}", structure, meta=meta)
    x = editor.input("x", (structure.nodes, structure.features), spec.dtype, role=Role.FEATURES)
    blocks = structure.feature_block_density.get(16)
    editor.change_tensor(x, density=structure.feature_density, block_density=blocks)
    return editor, x


def weight(editor: Editor, name: str, shape: Sequence[int], dtype: DType) -> str:
    """Add a weight."""
    return editor.constant(name, shape, dtype, role=Role.WEIGHT)


def linear(editor: Editor, x: str, width: int, region: str, name: str = "matmul", bias: bool = True) -> str:
    """Add `x W^T (+ b)` for `x` [N, inputs], the weight [width, inputs] as PyTorch stores it."""
    editor.region = region
    tensor = editor.tensors[x]
    matrix = weight(editor, f"{region}/{name}/weight", (width, tensor.shape[-1]), tensor.dtype)
    product = editor.matmul(x, matrix, f"{region}/{name}", transpose_b=True)
    return add_bias(editor, product, region) if bias else product


def add_bias(editor: Editor, x: str, region: str) -> str:
    """Add a bias [1, F] to `x` [N, F]."""
    editor.region = region
    tensor = editor.tensors[x]
    bias = editor.constant(f"{region}/add/bias", (1, tensor.shape[-1]), tensor.dtype, role=Role.BIAS)
    return editor.eltwise("Add", x, bias, f"{region}/add")


def activation(editor: Editor, type_: str, x: str, region: str, **attrs: Any) -> str:
    """Add an activation."""
    editor.region = region
    return editor.unary(type_, x, f"{region}/{type_.lower()}", **attrs)


def finish_layer(editor: Editor, x: str, layer: int, layers: int, type_: str, **attrs: Any) -> str:
    """Add what follows a layer: an activation, or after the last the LogSoftmax and the output."""
    if layer + 1 < layers:
        return activation(editor, type_, x, f"layer{layer}/activation", **attrs)
    result = activation(editor, "LogSoftmax", x, "readout", axes=(1,))
    editor.outputs = [result]
    return result


@dataclass(slots=True)
class EdgeList:
    """Edges as two vectors of node numbers, and tensors that were computed from them."""

    editor: Editor
    nodes: int
    """Nodes that receive messages."""
    sources: int
    """Nodes that send messages."""
    count: int
    """Edges E, self-loops included."""
    source: str
    """Tensor [E] of sending nodes."""
    target: str
    """Tensor [E] of receiving nodes."""
    dtype: DType
    place: str
    """Region of the operators that prepare the edges."""
    shared: dict[str, str] = field(default_factory=dict)
    """Results that layers share: OpenVINO merges equal subgraphs."""

    def gather(self, x: str, name: str, at: str | None = None) -> str:
        """Gather the rows of `x` [N, ...] at the sources of the edges, or at other node numbers."""
        return self.editor.gather(x, at or self.source, name)

    def target_spread(self, region: str, shape: tuple[int, ...]) -> str:
        """Return the targets repeated over a message's elements, int32 of `shape` [E, ...].

        This is preprocessing; a layer whose messages have a new width repeats it.
        """
        key = f"target{shape}"
        if key in self.shared:
            return self.shared[key]
        editor, here = self.editor, self.editor.region
        layer = region.split("/")[0]
        place = editor.region = PREPROCESS if layer == PREPROCESS else f"{layer}/{PREPROCESS}"
        index = self._target_column(place, len(shape) - 1) if len(shape) > 1 else self.target
        if shape != editor.tensors[index].shape:
            index = editor.op("Broadcast", (index,), shape, DType.INT64, self.free(f"{place}/broadcast"))
        self.shared[key] = editor.add("Convert", (index,), self.free(f"{place}/convert"), DType.INT32)
        editor.region = here
        return self.shared[key]

    def _target_column(self, place: str, axes: int) -> str:
        """Return the targets with `axes` further dimensions of length 1."""
        key = f"column{axes}"
        if key not in self.shared:
            shape = (self.count, *(1,) * axes)
            self.shared[key] = self.editor.reshape(self.target, shape, self.free(f"{place}/target_column"))
        return self.shared[key]

    def scatter(self, messages: str, region: str, name: str, reduction: str = "sum") -> str:
        """Combine messages [E, ...] at their targets to [N, ...]; a node without messages gets 0."""
        editor, shape = self.editor, self.editor.tensors[messages].shape
        index = self.target_spread(region, shape)
        blank = editor.constant(f"{name}/blank", (self.nodes, *shape[1:]), self.dtype, density=0.0)
        inputs = (blank, index, messages)
        return editor.add("ScatterElementsUpdate", inputs, name, axes=(0,), reduction=reduction)

    def ones(self, name: str) -> str:
        """Add a constant of one 1 per edge."""
        return self.editor.constant(name, (self.count,), self.dtype)

    def matrix(self) -> str:
        """Form the dense 0/1 matrix [targets, sources]: number each cell, scatter ones into zeros."""
        editor, nodes, size = self.editor, self.nodes, self.nodes * self.sources
        editor.region, place = self.place, f"{self.place}/adjacency"
        width = editor.constant(f"{place}/nodes", (1,), DType.INT64)
        row = editor.eltwise("Multiply", self.target, width, f"{place}/row_start")
        cell = editor.eltwise("Add", row, self.source, f"{place}/cell")
        index = editor.add("Convert", (cell,), f"{place}/convert", DType.INT32)
        blank = editor.constant(f"{place}/blank", (size,), self.dtype, density=0.0)
        inputs, density = (blank, index, self.ones(f"{place}/ones")), min(1.0, self.count / size)
        options: dict[str, Any] = {"tensor": {"density": density}, "axes": (0,), "reduction": "none"}
        flat = editor.add("ScatterElementsUpdate", inputs, f"{place}/scatter", **options)
        fields = {"role": Role.ADJACENCY, "density": density}
        if editor.structure is not None and self.count == editor.structure.nonzeros and nodes == self.sources:
            fields |= {"block_density": editor.structure.padded_block_density(16), "symmetric": True}
        return editor.reshape(flat, (nodes, self.sources), place, tensor=fields)

    def compressed_rows(self, values: str | None = None, mean: bool = False) -> str:
        """Sort the edges by target into a matrix [targets, sources] in compressed rows and return its name.

        Parameters
        ----------
        values : str, optional
            Weight of each edge, [E] or [E, 1]; None: ones.
        mean : bool
            Whether each row is divided by its length.
        """
        self.editor.region, shape = self.place, (self.nodes, self.sources)
        inputs = (self.source, self.target, *((values,) if values is not None else ()))
        role = Role.NORM if mean or values is not None else Role.ADJACENCY
        density = min(1.0, self.count / (self.nodes * self.sources))
        fields = {"role": role, "density": density, "storage": Storage.CSR}
        name, normalise = self.free(f"{self.place}/csr"), "mean" if mean else "none"
        return self.editor.op(
            "EdgesToCsr", inputs, shape, self.dtype, name, tensor=fields, normalise=normalise
        )

    def free(self, name: str) -> str:
        """Return a name, or the first of name_1, name_2 ... that no operator bears."""
        count, free = 1, name
        while free in self.editor.operators:
            free, count = f"{name}_{count}", count + 1
        return free


def edge_list(
    editor: Editor, edges: int, shape: tuple[int, int], dtype: DType, loops: bool, layer: str = ""
) -> EdgeList:
    """Add the input `edge_index` [2, E] and take its two rows apart.

    Parameters
    ----------
    shape : (int, int)
        Nodes that receive messages, and nodes that send them.
    layer : str
        Layer that alone uses this list; '': all do.
    """
    place = editor.region = f"{layer}/{PREPROCESS}" if layer else PREPROCESS
    name = f"edge_index_{layer}" if layer else "edge_index"
    pairs = editor.input(name, (2, edges), DType.INT64, role=Role.EDGES, structural=True)
    if loops:
        own = editor.constant(f"{place}/loops", (2, shape[0]), DType.INT64)
        edges += shape[0]
        pairs = editor.concat((pairs, own), 1, f"{place}/add_loops")
    ends = []
    for row, end in enumerate(("source", "target")):
        number = editor.constant(f"{place}/{end}/row", (), DType.INT64, density=float(row > 0))
        ends.append(editor.gather(pairs, number, f"{place}/{end}"))
    return EdgeList(editor, *shape, edges, ends[0], ends[1], dtype, place)


def sparse_product(editor: Editor, matrix: str, x: str, region: str, values: str | None = None) -> str:
    """Multiply a matrix in compressed rows [N, M] by `x` [M, F].

    Parameters
    ----------
    values : str, optional
        Weights [E, heads] that replace the matrix's values, in the order of its rows; a head has F / heads
        columns of `x`.
    """
    editor.region = region
    inputs = (matrix, x, *((values,) if values is not None else ()))
    return editor.add("SparseMatMul", inputs, f"{region}/spmm", editor.tensors[x].dtype)


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
    if spec.form == "gathered":
        aggregate = _gathered(editor, spec, structure.nodes, edges)
    else:
        listed = edge_list(editor, edges, (structure.nodes,) * 2, spec.dtype, loops=False)
        is_maximum = spec.model == "sage-max"
        aggregate = along_edges(listed, reduction="max") if is_maximum else mean_along(listed, spec.form)
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


def mean_along(edges: EdgeList, form: str) -> Aggregate:
    """Return the mean over neighbours in a form: along the edges, or as a product with a matrix of them."""
    if form == "edges":
        return along_edges(edges, count=_counts(edges))
    if form == "dense":
        editor, adjacency, place = edges.editor, edges.matrix(), edges.place
        count = editor.reduce("ReduceSum", adjacency, (1,), f"{place}/count", keep_dims=True)
        fields = {"role": Role.NORM, "density": editor.tensors[adjacency].density}
        norm = editor.eltwise("Divide", adjacency, count, f"{place}/norm", tensor=fields)
        return matrix_product(editor, norm)
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


def build_gat(spec: GnnSpec, structure: GraphStructure) -> Graph:
    """Build a GAT.

    Form `dense`: scores of all pairs [heads, N, N], masked by the adjacency; `edges`: scores along the edges;
    `csr`: the scores as values of a matrix in compressed rows. Inner layers have `heads` heads that share
    `hidden`, the last layer has one. LeakyReLU (slope 0.2) on the scores, ELU between layers.
    """
    editor, x = start(spec, structure)
    edges = edge_list(editor, structure.edges, (structure.nodes,) * 2, spec.dtype, loops=True)
    present = None
    if spec.form == "dense":  # compared once: OpenVINO merges the layers' equal comparisons
        zero = editor.constant(f"{PREPROCESS}/zero", (1, 1), edges.dtype, density=0.0)
        present = editor.eltwise("Greater", edges.matrix(), zero, f"{PREPROCESS}/greater")
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
