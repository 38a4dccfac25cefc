"""The public names with their types; `__init__.py` imports each on first use."""

from npusim.workloads.gnn import build_gnn as build_gnn
from npusim.workloads.gnn.spec import GnnSpec as GnnSpec
from npusim.workloads.gnn.statistics import DatasetStatistics as DatasetStatistics
from npusim.workloads.gnn.statistics import dataset_names as dataset_names
from npusim.workloads.gnn.statistics import load_statistics as load_statistics
from npusim.workloads.gnn.statistics import sampled_edges as sampled_edges
from npusim.workloads.loading import KINDS as KINDS
from npusim.workloads.loading import import_settings as import_settings
from npusim.workloads.loading import is_workload as is_workload
from npusim.workloads.loading import load_gnn as load_gnn
from npusim.workloads.loading import load_of_kind as load_of_kind
from npusim.workloads.loading import load_spec as load_spec
from npusim.workloads.loading import load_workload as load_workload
from npusim.workloads.loading import workload_file as workload_file
from npusim.workloads.loading import workload_names as workload_names
from npusim.workloads.loading import workload_path as workload_path
from npusim.workloads.loading import workload_published_as as workload_published_as
from npusim.workloads.spec import WorkloadKind as WorkloadKind
from npusim.workloads.spec import WorkloadSpec as WorkloadSpec
