"""Graph neural networks: GCN, GAT and GraphSAGE on the statistics of a data graph."""

from collections.abc import Callable, Mapping

from npusim.graph import Editor, Graph, GraphStructure
from npusim.workloads.gnn.models import build_gat, build_gcn, build_sage
from npusim.workloads.gnn.propagation import build_propagation
from npusim.workloads.gnn.spec import EQUATION_1, GnnSpec
from npusim.workloads.gnn.statistics import load_statistics
from npusim.workloads.spec import WorkloadKind

_BUILDERS: Mapping[str, Callable[[GnnSpec, GraphStructure], Graph]] = {
    "gcn": build_gcn,
    "gat": build_gat,
    "sage-mean": build_sage,
    "sage-max": build_sage,
    **dict.fromkeys(EQUATION_1, build_propagation),
}


def build_gnn(spec: GnnSpec, structure: GraphStructure, name: str | None = None) -> Graph:
    """Return the operator graph of a network on a data graph.

    Parameters
    ----------
    name : str, optional
        Name of the graph; default "model-dataset".

    Returns
    -------
    Graph
        The baseline, before any technique.
    """
    graph = _BUILDERS[spec.model](spec, structure)
    if name is not None and name != graph.name:
        editor = Editor.of(graph)
        editor.name = name
        graph = editor.finish()
    return graph


GNN = WorkloadKind(
    "gnn",
    "graph neural networks on a data graph",
    GnnSpec,
    lambda spec, name, folder: build_gnn(spec, load_statistics(spec.dataset, folder), name),
)
