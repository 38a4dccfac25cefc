"""SymG: of a symmetric norm matrix only the triangle with the diagonal is stored and moved."""

from __future__ import annotations

from npusim.graph import Editor, Graph
from npusim.ops import Annotation, Role, Storage, Tensor
from npusim.techniques.preprocessing import preprocessing_results, stored_tensors
from npusim.techniques.technique import NPU_MEMORY_ONLY, NoParameters, Stage, Technique


def _triangles(graph: Graph) -> list[Tensor]:
    return [
        t for t in stored_tensors(graph) if t.role is Role.NORM and t.symmetric and t.shape[-1] == t.shape[-2]
    ]


def _hint(graph: Graph) -> str:
    in_graph = graph.meta.model == "gcn" and preprocessing_results(graph)
    return "stagr or grad makes one" if in_graph else ""


def _rewrite(graph: Graph, _: NoParameters) -> Graph:
    editor = Editor.of(graph)
    for tensor in _triangles(graph):
        editor.change_tensor(tensor.name, storage=Storage.TRIANGLE)
    return editor.finish()


SYMG = Technique(
    name="symg",
    summary=(
        "The symmetric norm matrix is stored and moved as a triangle with its diagonal: n (n + 1) / 2 "
        "elements."
    ),
    rationale=(
        "GCN's norm is symmetric, so half of it says everything and half of the traffic is saved. The grid "
        "has to use each block twice, once as it is and once transposed. Where the DMA can decompress the "
        "operand, zero-value compression of so sparse a matrix saves more; the triangle is for hardware that "
        "cannot. After GraSp, the norm is a triangle and all else stays compressed."
    ),
    numerics="The same.",
    rewrite=_rewrite,
    stage=Stage.STORAGE,
    needs="a symmetric constant or input norm matrix",
    finds=lambda graph, _: _triangles(graph),
    hint=_hint,
    annotation=Annotation.TRIANGLE,
    what_if="no hardware reads a stored triangle today",
    host_note=NPU_MEMORY_ONLY,
    source="GraNNite, section IV-B",
)
