"""Graphs of GraNNite's figures that no workload builder makes.

`each_layer` lets every layer make its own mask, `formula` writes the norm matrix as the paper's Fig. 3 does,
`row_scaled` keeps the adjacency and scales the features by the degrees before and after the product,
`by_elements` gathers and masks sampled neighbours element by element, `spread_masks` prepares masks in the
shape of what they mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from npusim.graph import Editor, Graph
from npusim.ops import DType, Operator, Role, TensorKind

_PREPROCESS = "preprocess"


def each_layer(graph: Graph) -> Graph:
    """Return a graph whose layers each repeat the preprocessing that they shared."""
    editor = Editor.of(graph)
    made = [op for op in graph if graph.structural.issuperset(op.outputs)]
    layers = dict.fromkeys(op.region.split("/")[0] for op in graph if op.region.startswith("layer"))
    for layer in list(layers)[1:]:
        readers = [op.name for op in graph if op.region.startswith(f"{layer}/") and op not in made]
        copies: dict[str, str] = {}
        for op in made:
            _copy(editor, graph, op, layer, copies)
        for old, new in copies.items():
            if any(old in graph.operators[name].inputs for name in readers):
                editor.rewire(old, new, only=readers)
    return editor.finish()


def _copy(editor: Editor, graph: Graph, op: Operator, layer: str, copies: dict[str, str]) -> None:
    """Copy one operator for a layer; `copies` holds the copy of each tensor."""
    results = []
    for name in op.outputs:
        copies[name] = f"{layer}/{name}"
        results.append(graph.tensors[name].with_(name=copies[name]))
    inputs = tuple(copies.get(name, name) for name in op.inputs)
    renamed = op.with_(
        name=f"{layer}/{op.name}",
        inputs=inputs,
        outputs=tuple(t.name for t in results),
        region=f"{layer}/{_PREPROCESS}",
    )
    editor.add_operator(renamed, results)


def formula(graph: Graph) -> Graph:
    """Return a dense GCN that computes adjacency / sqrt(degree x degree) on N x N (Figs. 3 and 14)."""
    editor = Editor.of(graph)
    editor.region = _PREPROCESS
    norm = graph.tensors[graph.operators[f"{_PREPROCESS}/norm"].outputs[0]]
    nodes = norm.shape[0]
    degree = graph.operators[f"{_PREPROCESS}/degree"].outputs[0]
    column = editor.reshape(degree, (nodes, 1), f"{_PREPROCESS}/degree_column", "Unsqueeze")
    row = editor.reshape(degree, (1, nodes), f"{_PREPROCESS}/degree_row", "Unsqueeze")
    product = editor.eltwise("Multiply", column, row, f"{_PREPROCESS}/degree_product")
    root = editor.unary("Sqrt", product, f"{_PREPROCESS}/degree_root")
    fields = {
        "density": norm.density,
        "block_density": norm.block_density,
        "role": Role.NORM,
        "symmetric": True,
    }
    quotient = editor.eltwise(
        "Divide", graph.with_role(Role.ADJACENCY)[0].name, root, f"{_PREPROCESS}/quotient", tensor=fields
    )
    editor.rewire(norm.name, quotient)
    return editor.finish()


def row_scaled(graph: Graph) -> Graph:
    """Return a GCN with the adjacency as input, and features scaled by degrees before and after."""
    editor = Editor.of(graph)
    matrix = graph.with_role(Role.NORM)[0]
    nodes = matrix.shape[0]
    editor.region = _PREPROCESS
    degree = editor.reduce("ReduceSum", matrix.name, (1,), f"{_PREPROCESS}/degree")
    exponent = editor.constant(f"{_PREPROCESS}/exponent", (1,), matrix.dtype)
    factor = editor.eltwise("Power", degree, exponent, f"{_PREPROCESS}/degree_factor")
    column = editor.reshape(factor, (nodes, 1), f"{_PREPROCESS}/factor_column", "Unsqueeze")
    for op in graph.readers(matrix.name):
        editor.region = op.region
        before = editor.eltwise("Multiply", op.inputs[1], column, f"{op.name}/scale_before")
        editor.rewire(op.inputs[1], before, only=[op.name])
        readers = [reader.name for reader in graph.readers(op.outputs[0])]
        after = editor.eltwise("Multiply", op.outputs[0], column, f"{op.name}/scale_after")
        editor.rewire(op.outputs[0], after, only=readers)
    return editor.finish()


def by_elements(graph: Graph) -> Graph:
    """Return a SAGE-max as PyTorch's `gather`, `expand` and `where` export it (Fig. 18, left).

    Features, node numbers, mask and what stands for a missing neighbour are all repeated to [N, K, F].
    """
    editor = Editor.of(graph)
    column = ""
    for select in [op for op in graph if op.type == "Select"]:
        region, shape = select.region, graph.tensors[select.outputs[0]].shape
        condition, values, low = select.inputs
        rows, greater = graph.operators[graph.writer(values).name], graph.writer(condition)  # type: ignore[union-attr]
        features, number = rows.inputs[:2]
        nodes = graph.writer(number).inputs[0]  # type: ignore[union-attr]
        deep, zero = greater.inputs  # type: ignore[union-attr]
        editor.region = _PREPROCESS
        column = column or editor.reshape(nodes, (*shape[:2], 1), f"{_PREPROCESS}/column", "Unsqueeze")
        editor.region = region
        one = editor.reshape(features, (shape[0], 1, shape[2]), f"{region}/unsqueeze", "Unsqueeze")
        spread = {
            name: editor.op("Broadcast", (t,), shape, editor.tensors[t].dtype, f"{region}/spread_{name}")
            for name, t in (("features", one), ("numbers", column), ("mask", deep), ("low", low))
        }
        index = editor.op("Convert", (spread["numbers"],), shape, DType.INT32, f"{region}/convert")
        inputs = (spread["features"], index)
        dtype = graph.tensors[features].dtype
        gathered = editor.op("GatherElements", inputs, shape, dtype, f"{region}/gather_elements", axes=(0,))
        present = editor.eltwise("Greater", spread["mask"], zero, f"{region}/greater")
        masked = editor.select(present, gathered, spread["low"], f"{region}/select_elements")
        editor.rewire(select.outputs[0], masked)
    return editor.finish()


def spread_masks(graph: Graph) -> Graph:
    """Return a graph whose prepared masks have the shape of what they mask, so that nothing is repeated."""
    editor = Editor.of(graph)
    for op in graph:
        result = graph.tensors[op.outputs[0]]
        for tensor in graph.inputs_of(op):
            smaller = tensor.role is Role.MASK and 1 < tensor.elements < result.elements
            if op.type in ("Multiply", "Add") and smaller and tensor.kind is not TensorKind.ACTIVATION:
                wide = editor.constant(f"{op.name}/mask", result.shape, tensor.dtype, role=Role.MASK)
                editor.rewire(tensor.name, wide, only=[op.name])
    return editor.finish()


def peak_product(m: int, k: int, n: int, precision: str) -> Graph:
    """Return one product of M x K by K x N in a precision."""
    editor = Editor(f"product-{precision}")
    left = editor.input("x", (m, k), DType(precision))
    right = editor.constant("w", (k, n), DType(precision), role=Role.WEIGHT)
    editor.outputs.append(editor.matmul(left, right, "product"))
    return editor.finish()


FORMS: Mapping[str, Callable[[Graph], Graph]] = {
    "as_built": lambda graph: graph,
    "by_elements": by_elements,
    "each_layer": each_layer,
    "formula": formula,
    "row_scaled": row_scaled,
    "spread_masks": spread_masks,
}
"""What a definition may ask for."""
