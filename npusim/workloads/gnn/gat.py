"""Graph attention (Velickovic et al., 2018): each node weighs its neighbours by a learned score.

The dense form scores every pair of nodes and masks those that are no neighbours afterwards: wasteful, and
what runs out of the box with Greater and Select.
"""

from __future__ import annotations

from npusim.graph import Editor, Graph, GraphStructure
from npusim.ops import DType
from npusim.workloads.gnn.csr import compressed_rows, sparse_product
from npusim.workloads.gnn.edges import PREPROCESS, EdgeList, edge_list
from npusim.workloads.gnn.layers import add_bias, finish_layer, linear, start, weight
from npusim.workloads.gnn.spec import GnnSpec


def build_gat(spec: GnnSpec, structure: GraphStructure) -> Graph:
    """Build a GAT.

    Parameters
    ----------
    spec : GnnSpec
        Form `dense`: scores of all pairs [heads, N, N], masked by the adjacency; `edges`: scores along the
        edges; `csr`: these as the values of a matrix in compressed rows. Inner layers have `heads` heads
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
    """Attention over all pairs of nodes."""
    region = editor.region = f"layer{layer}/attention"
    nodes, width = editor.tensors[h].shape
    dtype = editor.tensors[h].dtype
    stack = (heads,) if heads > 1 else ()
    each = width // heads
    if heads > 1:
        split = editor.reshape(h, (nodes, heads, each), f"{region}/split_heads")
        h = editor.op(
            "Transpose", (split,), (heads, nodes, each), dtype, f"{region}/heads_first", order=(1, 0, 2)
        )
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
        turned = editor.op(
            "Transpose", (result,), (nodes, heads, each), dtype, f"{region}/heads_last", order=(1, 0, 2)
        )
        result = editor.reshape(turned, (nodes, width), f"{region}/join_heads")
    return result


def _score(editor: Editor, h: str, name: str, shape: tuple[int, ...]) -> str:
    vector = weight(editor, f"{name}/weight", shape, editor.tensors[h].dtype)
    return editor.matmul(h, vector, name, transpose_b=True)


def _leaky_relu(editor: Editor, scores: str, region: str) -> str:
    slope = editor.constant(f"{region}/slope", (), editor.tensors[scores].dtype)
    tensor = editor.tensors[scores]
    return editor.op("PRelu", (scores, slope), tensor.shape, tensor.dtype, f"{region}/prelu")


def _edge_layer(edges: EdgeList, flat: str, layer: int, heads: int, rows: str | None) -> str:
    """Attention along the edges, [E, heads], as in PyTorch Geometric: a softmax of scatters.

    With compressed `rows` the weights are their values, and the messages one sparse product.
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
    dtype: DType = editor.tensors[h].dtype
    vector = weight(editor, f"{name}/weight", shape, dtype)
    return editor.reduce("ReduceSum", editor.eltwise("Multiply", h, vector, f"{name}/multiply"), (2,), name)
