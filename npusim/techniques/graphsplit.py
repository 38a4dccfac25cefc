"""GraphSplit: preprocessing with its control flow goes to the CPU, the data-parallel part to the NPU.

Like a market gardener who washes and sorts by hand and lets the machine do the packing: each does what it is
quick at.
"""

from __future__ import annotations

from npusim.graph import Editor, Graph
from npusim.techniques.frontier import preprocessing
from npusim.techniques.technique import NoParameters, Technique, lacks

__all__ = ["GRAPHSPLIT"]

NEEDS = "preprocessing in the graph"


def _check(graph: Graph, _: NoParameters) -> str | None:
    return None if preprocessing(graph) else lacks("graphsplit", NEEDS, graph)


def _rewrite(graph: Graph, _: NoParameters) -> Graph:
    editor = Editor.of(graph)
    for op in preprocessing(graph):
        editor.change_operator(op.name, device="cpu")
    return editor.finish()


GRAPHSPLIT = Technique(
    name="graphsplit",
    summary=(
        "Operators that follow from the edges alone get the wish to run on the CPU; the mapping decides by "
        "cost."
    ),
    words=(
        "Degrees, scatter, comparison and selection are control flow: slow on the NPU's DSPs, quick on a "
        "CPU. They depend on the edges only, so nothing has to come back from the NPU before they can run. "
        "What crosses over is their result, once."
    ),
    numerics="The same.",
    rewrite=_rewrite,
    check=_check,
    needs=NEEDS,
    source="GraNNite, section IV-A",
)
