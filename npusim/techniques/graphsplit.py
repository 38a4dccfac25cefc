"""GraphSplit: preprocessing with its control flow goes to the CPU, the rest to the NPU."""

from npusim.graph import Editor, Graph
from npusim.ops import Annotation, Family
from npusim.techniques.preprocessing import preprocessing_operators
from npusim.techniques.technique import NoParameters, Stage, Technique


def _rewrite(graph: Graph, _: NoParameters) -> Graph:
    """Let preprocessing prefer the CPU.

    Degrees, scatter, comparison and selection are control flow: slow on the NPU's DSPs, fast on a CPU. They
    depend on the edges only, so they need nothing from the NPU. Only their result crosses over, once.
    """
    editor = Editor.of(graph)
    for op in preprocessing_operators(graph):
        editor.change_operator(op.name, device="cpu")
    return editor.finish()


def _note(graph: Graph) -> str | None:
    """Say how much of the preprocessing that is offered to the CPU runs there."""
    offered = [op for op in preprocessing_operators(graph) if op.family is not Family.VIEW]
    if not offered:
        return None
    moved = sum(op.device == "cpu" for op in offered)
    why = "the rest costs less where it is" if moved else "calling the CPU costs more than it saves"
    why = "all of it costs less there" if moved == len(offered) else why
    return f"graphsplit: {moved} of {len(offered)} operators of the preprocessing run on the CPU; {why}"


GRAPHSPLIT = Technique(
    name="graphsplit",
    summary=("Operators that follow from the edges alone prefer the CPU; the mapping decides by cost."),
    numerics="The same.",
    rewrite=_rewrite,
    stage=Stage.PREPROCESSING,
    needs="preprocessing in the graph",
    finds=lambda graph, _: preprocessing_operators(graph),
    annotation=Annotation.DEVICE,
    note=_note,
    source="GraNNite, section IV-A",
)
