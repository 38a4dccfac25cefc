"""GraphSAGE (Hamilton et al., 2017): the mean or the maximum over a sample of a node's neighbours.

Along the sampled edges it is PyTorch Geometric's SAGEConv, operator for operator; the neighbours may also lie
side by side as a tensor [N, neighbours, F] (form `gathered`), or a matrix be made of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from npusim.graph import Editor, Graph, GraphStructure
from npusim.ops import DType, Role
from npusim.workloads.gnn.csr import compressed_rows, sparse_product
from npusim.workloads.gnn.edges import PREPROCESS, EdgeList, edge_list
from npusim.workloads.gnn.layers import finish_layer, linear, start
from npusim.workloads.gnn.spec import GnnSpec
from npusim.workloads.gnn.statistics import sampled_edges


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
        return AlongEdges(listed, None)
    return mean_along(listed, spec.form)


def mean_along(edges: EdgeList, form: str) -> AlongEdges | Product:
    """Return the mean over neighbours in a form: along the edges, or as a product with a matrix of them."""
    if form == "edges":
        return AlongEdges(edges, _counts(edges))
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
    """Aggregation of messages along the sampled edges."""

    edges: EdgeList
    count: str | None
    """[N, 1] for the mean; None for the maximum."""

    def add(self, x: str, region: str) -> str:
        """Aggregate `x` [N, F]."""
        editor = self.edges.editor
        editor.region = region
        messages = self.edges.gather(x, f"{region}/gather")
        if self.count is None:
            return self.edges.scatter(messages, region, f"{region}/scatter", "max")
        total = self.edges.scatter(messages, region, f"{region}/scatter")
        return editor.eltwise("Divide", total, self.count, f"{region}/divide")


def _counts(edges: EdgeList) -> str:
    """Sampled neighbours of each node, at least 1, [N, 1]."""
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
    """The sampled adjacency, each row divided by its sum."""
    editor = edges.editor
    adjacency = edges.matrix()
    count = editor.reduce("ReduceSum", adjacency, (1,), f"{edges.place}/count", keep_dims=True)
    fields = {"role": Role.NORM, "density": editor.tensors[adjacency].density}
    return editor.eltwise("Divide", adjacency, count, f"{edges.place}/norm", tensor=fields)
