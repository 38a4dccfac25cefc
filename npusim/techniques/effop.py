"""EffOp: arithmetic with masks replaces control flow on the DSPs (Select, Greater, Gather)."""

from __future__ import annotations

from npusim.graph import Editor, Graph
from npusim.ops import Tensor
from npusim.techniques.aggregation import build_matrix, find_aggregations, write_products
from npusim.techniques.preprocessing import find_maskings, fresh_name, mask_pair
from npusim.techniques.technique import EdgeData, NoParameters, Stage, Technique


def _rewrite(graph: Graph, _: NoParameters) -> Graph:
    editor = Editor.of(graph)
    write_products(editor, graph, find_aggregations(graph), build_matrix)
    pairs: dict[str, tuple[str, str]] = {}
    for masking in find_maskings(graph):
        if masking.selects:
            values = graph.tensors[masking.values]
            ones, negative = mask_pair(editor, graph, masking, pairs, values.dtype)
            _mask_by_arithmetic(
                editor, masking.operator.name, masking.operator.region, values, ones, negative
            )
    return editor.finish()


def _mask_by_arithmetic(
    editor: Editor, select: str, region: str, values: Tensor, ones: str, negative: str
) -> None:
    editor.region = region
    old = editor.operators[select].outputs[0]
    kept = editor.eltwise("Multiply", values.name, ones, fresh_name(editor, "multiply_mask"))
    masked = editor.eltwise("Add", kept, negative, fresh_name(editor, "add_mask"))
    editor.rewire(old, masked)


EFFOP = Technique(
    name="effop",
    summary=(
        "Select on a mask becomes Multiply and Add with two masks; Gather and Scatter of a sum become a "
        "product."
    ),
    rationale=(
        "A Select evaluates a condition for each of N x N scores on a DSP. Multiplying by a 0/1 mask and "
        "adding 0 or -1e4 gives the same softmax without it; the comparison and the broadcast of -9e15 to "
        "N x N disappear. The masks are constants after StaGr, inputs after GrAd, else part of the "
        "preprocessing."
    ),
    numerics=(
        "The same after the softmax. In fp16 the mask must be -1e4: (1 - A) x (-9e15) overflows, and 0 x "
        "infinity is not a number."
    ),
    rewrite=_rewrite,
    stage=Stage.OPERATORS,
    needs="a Select on a mask or a Gather of neighbours that is summed",
    finds=lambda graph, _: find_aggregations(graph) or any(m.selects for m in find_maskings(graph)),
    edges=EdgeData.IN_GRAPH,
    forms=lambda _: {"masking": "arithmetic"},
    source="GraNNite, section IV-B",
)
