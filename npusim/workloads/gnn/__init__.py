"""Graph neural networks: GCN, GAT and GraphSAGE on the statistics of a data graph."""

from npusim.workloads.gnn.family import GNN, build_gnn
from npusim.workloads.gnn.spec import GnnSpec
from npusim.workloads.gnn.statistics import DatasetStatistics, dataset_names, load_statistics, sampled_edges

__all__ = [
    "GNN",
    "DatasetStatistics",
    "GnnSpec",
    "build_gnn",
    "dataset_names",
    "load_statistics",
    "sampled_edges",
]
