"""Graph convolution (Kipf and Welling, 2017): the degree-weighted sum of neighbours' features."""

from __future__ import annotations

from npusim.graph import Editor, Graph, GraphStructure
from npusim.ops import Role
from npusim.workloads.gnn.csr import compressed_rows, sparse_product
from npusim.workloads.gnn.edges import PREPROCESS, EdgeList, edge_list
from npusim.workloads.gnn.layers import finish_layer, linear, start
from npusim.workloads.gnn.spec import GnnSpec


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
    norm, aggregate = GCN_FORMS[spec.form][0](edges), GCN_FORMS[spec.form][1]
    for layer, (_, width) in enumerate(spec.widths(structure.features, structure.classes)):
        if spec.order == "transform_first":
            x = linear(editor, x, width, f"layer{layer}/combine")
            x = aggregate(edges, norm, x, f"layer{layer}/aggregate")
        else:
            x = aggregate(edges, norm, x, f"layer{layer}/aggregate")
            x = linear(editor, x, width, f"layer{layer}/combine")
        x = finish_layer(editor, x, layer, spec.layers, "Relu")
    return editor.finish()


def _degree_factor(editor: Editor, degree: str) -> str:
    """Add d^-1/2."""
    exponent = editor.constant(f"{PREPROCESS}/exponent", (1,), editor.tensors[degree].dtype)
    return editor.eltwise("Power", degree, exponent, f"{PREPROCESS}/degree_factor")


def _edge_weights(edges: EdgeList) -> str:
    """Weight of each edge, [E, 1]: the product of the factors of its two ends."""
    editor = edges.editor
    degree = edges.scatter(edges.ones(f"{PREPROCESS}/ones"), PREPROCESS, f"{PREPROCESS}/degree")
    factor = _degree_factor(editor, degree)
    left = edges.gather(factor, f"{PREPROCESS}/source_factor")
    right = edges.gather(factor, f"{PREPROCESS}/target_factor", edges.target)
    weights = editor.eltwise("Multiply", left, right, f"{PREPROCESS}/edge_weight")
    return editor.reshape(weights, (edges.count, 1), f"{PREPROCESS}/edge_weight_column", "Unsqueeze")


def _norm_matrix(edges: EdgeList) -> str:
    """The dense norm matrix [N, N]."""
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


def _multiply(edges: EdgeList, norm: str, x: str, region: str) -> str:
    edges.editor.region = region
    return edges.editor.matmul(norm, x, f"{region}/matmul")


def _along_edges(edges: EdgeList, weights: str, x: str, region: str) -> str:
    edges.editor.region = region
    messages = edges.gather(x, f"{region}/gather")
    scaled = edges.editor.eltwise("Multiply", messages, weights, f"{region}/multiply")
    return edges.scatter(scaled, region, f"{region}/scatter")


def _norm_csr(edges: EdgeList) -> str:
    """The norm matrix in compressed rows."""
    return compressed_rows(edges, _edge_weights(edges))


def _along_rows(edges: EdgeList, norm: str, x: str, region: str) -> str:
    return sparse_product(edges.editor, norm, x, region)


GCN_FORMS = {
    "edges": (_edge_weights, _along_edges),
    "dense": (_norm_matrix, _multiply),
    "csr": (_norm_csr, _along_rows),
}
"""What is made of the edges, and how a layer aggregates with it, by form."""
