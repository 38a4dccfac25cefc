"""Named workloads of every kind, and the builders that turn their files into operator graphs."""

from npusim.workloads.gnn import (
    DatasetStatistics,
    GnnSpec,
    build_gnn,
    dataset_names,
    load_statistics,
    sampled_edges,
)
from npusim.workloads.loading import (
    KINDS,
    import_precision,
    load_gnn,
    load_spec,
    load_workload,
    workload_file,
    workload_names,
    workload_path,
    workload_published_as,
)
from npusim.workloads.spec import WorkloadKind, WorkloadSpec

__all__ = [
    "KINDS",
    "DatasetStatistics",
    "GnnSpec",
    "WorkloadKind",
    "WorkloadSpec",
    "build_gnn",
    "dataset_names",
    "import_precision",
    "load_gnn",
    "load_spec",
    "load_statistics",
    "load_workload",
    "sampled_edges",
    "workload_file",
    "workload_names",
    "workload_path",
    "workload_published_as",
]
