"""The operator graph (an immutable DAG of operators and tensors) and its editor."""

from npusim.graph.difference import GraphDifference, graph_difference, to_dot
from npusim.graph.editor import Editor
from npusim.graph.graph import Graph, GraphMeta, GraphStructure
from npusim.graph.regions import Phase, Region

__all__ = [
    "Editor",
    "Graph",
    "GraphDifference",
    "GraphMeta",
    "GraphStructure",
    "Phase",
    "Region",
    "graph_difference",
    "to_dot",
]
