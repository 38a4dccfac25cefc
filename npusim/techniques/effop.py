"""EffOp: arithmetic with masks replaces control flow on the DSPs (Select, Greater, Gather)."""

from __future__ import annotations

from npusim.graph import Graph
from npusim.techniques.aggregation import build_matrix, find_aggregations, write_products
from npusim.techniques.preprocessing import Rewriter, find_maskings, mask_pair
from npusim.techniques.technique import EdgeData, NoParameters, Stage, Technique


def _rewrite(graph: Graph, _: NoParameters) -> Graph:
    editor = Rewriter.of(graph)
    write_products(editor, graph, find_aggregations(graph), build_matrix)
    pairs: dict[str, tuple[str, str]] = {}
    for masking in find_maskings(graph):
        if masking.selects:
            ones, negative = mask_pair(editor, graph, masking, pairs)
            editor.region = masking.operator.region
            kept = editor.eltwise("Multiply", masking.values, ones, "multiply_mask")
            editor.rewire(masking.result, editor.eltwise("Add", kept, negative, "add_mask"))
    return editor.finish()


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
