"""CacheG: a matrix that several layers read stays in SRAM from its first use to its last."""

from __future__ import annotations

from npusim.graph import Editor, Graph
from npusim.ops import Annotation, Tensor
from npusim.techniques.aggregation import find_aggregations
from npusim.techniques.edge_attention import find_edge_attentions
from npusim.techniques.preprocessing import is_node_matrix, preprocessing_results, stored_tensors
from npusim.techniques.technique import NPU_MEMORY_ONLY, NoParameters, Stage, Technique


def _shared(graph: Graph) -> list[Tensor]:
    return [t for t in stored_tensors(graph) if is_node_matrix(graph, t) and len(graph.readers(t.name)) >= 2]


def _hint(graph: Graph) -> str:
    in_graph = any(is_node_matrix(graph, t) for t in preprocessing_results(graph))
    in_graph = in_graph or bool(find_aggregations(graph) or find_edge_attentions(graph))
    return "stagr or grad makes one" if in_graph else ""


def _rewrite(graph: Graph, _: NoParameters) -> Graph:
    editor = Editor.of(graph)
    for tensor in _shared(graph):
        editor.change_tensor(tensor.name, cached=True)
    return editor.finish()


CACHEG = Technique(
    name="cacheg",
    summary=(
        "A constant or input matrix over the nodes that two or more operators read is marked to stay in SRAM."
    ),
    rationale=(
        "Both layers multiply by the same norm matrix. Kept in SRAM it is fetched once; as much as fits "
        "stays, the rest is streamed again. What it takes from the SRAM is missing for tiles of everything "
        "else."
    ),
    numerics="The same.",
    rewrite=_rewrite,
    stage=Stage.STORAGE,
    needs="a constant or input matrix over the nodes that two or more operators read",
    finds=lambda graph, _: _shared(graph),
    hint=_hint,
    annotation=Annotation.RESIDENT,
    what_if="no compiler offers it today",
    host_note=NPU_MEMORY_ONLY,
    source="GraNNite, section IV-B",
)
