"""Low-rank weights: each large constant matrix becomes the product of two thin ones (truncated SVD)."""

from pydantic import PositiveInt

from npusim.graph import Editor, Graph
from npusim.ops import Operator, TensorKind
from npusim.techniques import Parameters, Stage, Technique

NEEDS = "a product with a constant matrix that two matrices of the rank would make smaller"


class LowRankParameters(Parameters):
    """How thin the matrices become."""

    rank: PositiveInt = 32
    """Columns of the first matrix and rows of the second."""


def _factored(graph: Graph, rank: int) -> list[Operator]:
    """Return the products [M, K] x [K, N] in which K N elements become rank (K + N), fewer."""
    found = []
    for op in graph:
        if op.type == "MatMul" and not (op.attrs.get("transpose_a") or op.attrs.get("transpose_b")):
            weight = graph.tensors[op.inputs[1]]
            if weight.kind is TensorKind.CONSTANT and len(weight.shape) == 2:
                found += [op] if rank * sum(weight.shape) < weight.elements else []
    return found


def _check(graph: Graph, parameters: LowRankParameters) -> str | None:
    if _factored(graph, parameters.rank):
        return None
    return f"lowrank needs {NEEDS}; {graph.name} has none at rank {parameters.rank}"


def _rewrite(graph: Graph, parameters: LowRankParameters) -> Graph:
    editor = Editor.of(graph)
    for op in _factored(graph, parameters.rank):
        weight, editor.region = graph.tensors[op.inputs[1]], op.region
        rows, columns = weight.shape
        left = editor.constant(f"{weight.name}/{op.name}/left", (rows, parameters.rank), weight.dtype)
        right = editor.constant(f"{weight.name}/{op.name}/right", (parameters.rank, columns), weight.dtype)
        thin = editor.matmul(op.inputs[0], left, f"{op.name}/lowrank")
        editor.change_operator(op.name, inputs=(thin, right))
    return editor.finish()


LOWRANK = Technique(
    name="lowrank",
    summary="Each large constant matrix is replaced by two thin ones of a given rank.",
    rationale="Fewer weights to fetch and fewer multiply-accumulates, for one more operator each.",
    numerics="Depends on the singular values that are cut off; needs fine-tuning.",
    rewrite=_rewrite,
    check=_check,
    stage=Stage.OPERATORS,
    needs=NEEDS,
    parameters=LowRankParameters,
    exact=False,
)
