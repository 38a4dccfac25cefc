"""Named workloads: which network on which data graph, and the builders that turn them into operator
graphs.
"""

from npusim.workloads.loading import build, load_workload, workload_names
from npusim.workloads.spec import WorkloadSpec
from npusim.workloads.statistics import DatasetStatistics, dataset_names, load_statistics, sampled_edges

__all__ = [
    "DatasetStatistics",
    "WorkloadSpec",
    "build",
    "dataset_names",
    "load_statistics",
    "load_workload",
    "sampled_edges",
    "workload_names",
]
