"""GrAx1: an addition alone masks attention, without the multiplication by the 0/1 mask."""

from __future__ import annotations

from npusim.graph import Graph
from npusim.ops import Family
from npusim.techniques.preprocessing import Masking, Rewriter, find_maskings, mask_pair
from npusim.techniques.technique import NoParameters, Stage, Technique


def _masked_softmaxes(graph: Graph) -> list[Masking]:
    return [m for m in find_maskings(graph) if _enters_softmax(graph, m.result)]


def _enters_softmax(graph: Graph, name: str) -> bool:
    readers = graph.readers(name)
    if any(op.family is Family.SOFTMAX for op in readers):
        return True
    return any(op.family is Family.VIEW and _enters_softmax(graph, t) for op in readers for t in op.outputs)


def _rewrite(graph: Graph, _: NoParameters) -> Graph:
    editor = Rewriter.of(graph)
    pairs: dict[str, tuple[str, str]] = {}
    for masking in _masked_softmaxes(graph):
        negative = masking.negative
        if negative is None:
            negative = mask_pair(editor, graph, masking, pairs)[1]
        editor.region = masking.operator.region
        editor.rewire(masking.result, editor.eltwise("Add", masking.values, negative, "grax1/add_mask"))
    return editor.finish()


GRAX1 = Technique(
    name="grax1",
    summary="The attention's mask is one addition of 0 or -1e4, without the multiplication by the 0/1 mask.",
    rationale=(
        "EffOp multiplies each score by 0 or 1 and adds the mask. The score of an absent edge is small "
        "compared with -1e4, so the softmax gives 0 without the multiplication, a pass over N x N "
        "elements that the grid does badly."
    ),
    numerics="No change with -1e4; masks weaker than -10 let absent edges through (-29 points at -5).",
    rewrite=_rewrite,
    stage=Stage.OPERATORS,
    needs="a masked softmax (Select, or Multiply and Add)",
    finds=lambda graph, _: _masked_softmaxes(graph),
    exact=False,
    forms=lambda _: {"masking": "additive"},
    source="GraNNite, section IV-C",
)
