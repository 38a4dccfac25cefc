"""GraphSplit: preprocessing with its control flow goes to the CPU, the rest to the NPU."""

from __future__ import annotations

from npusim.graph import Editor, Graph
from npusim.techniques.preprocessing import preprocessing_operators
from npusim.techniques.technique import NoParameters, Technique, lacks

__all__ = ["GRAPHSPLIT"]

NEEDS = "preprocessing in the graph"


def _check(graph: Graph, _: NoParameters) -> str | None:
    return None if preprocessing_operators(graph) else lacks("graphsplit", NEEDS, graph)


def _rewrite(graph: Graph, _: NoParameters) -> Graph:
    editor = Editor.of(graph)
    for op in preprocessing_operators(graph):
        editor.change_operator(op.name, device="cpu")
    return editor.finish()


GRAPHSPLIT = Technique(
    name="graphsplit",
    summary=("Operators that follow from the edges alone prefer the CPU; the mapping decides by cost."),
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
