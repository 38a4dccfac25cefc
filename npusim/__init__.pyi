"""The public names with their types; `__init__.py` imports each on first use."""

from typing import Any

from npusim.api.asking import advise as advise
from npusim.api.asking import compare as compare
from npusim.api.asking import estimate as estimate
from npusim.api.asking import whatif as whatif
from npusim.api.exploring import learn as learn
from npusim.api.exploring import list as list
from npusim.api.exploring import report as report
from npusim.api.exploring import schema as schema
from npusim.api.planning import map as map
from npusim.api.planning import mix as mix
from npusim.api.planning import show as show
from npusim.api.planning import stream as stream
from npusim.api.trusting import accuracy as accuracy
from npusim.api.trusting import export as export
from npusim.api.trusting import measure as measure
from npusim.api.trusting import soc as soc
from npusim.api.trusting import trace as trace
from npusim.api.validating import validate as validate
from npusim.arch import Soc as Soc
from npusim.arch import load_soc as load_soc
from npusim.arch import soc_names as soc_names
from npusim.calibration.device import Calibrated as Calibrated
from npusim.calibration.device import calibrate as calibrate
from npusim.catalogues import Listing as Listing
from npusim.engines import Estimate as Estimate
from npusim.errors import NpusimError as NpusimError
from npusim.explore.fronts import Front as Front
from npusim.explore.fronts import pareto as pareto
from npusim.explore.query import query as query
from npusim.explore.search import SearchResult as SearchResult
from npusim.explore.search import search as search
from npusim.explore.spaces import Space as Space
from npusim.explore.spaces import load_space as load_space
from npusim.explore.sweep import SweepResult as SweepResult
from npusim.explore.sweep import sweep as sweep
from npusim.frontends.pyg import from_pyg as from_pyg
from npusim.gnn_models.document import AccuracyReport as AccuracyReport
from npusim.graph import Editor as Editor
from npusim.graph import Graph as Graph
from npusim.graph import GraphDifference as GraphDifference
from npusim.graph import GraphStructure as GraphStructure
from npusim.measuring.document import Measurement as Measurement
from npusim.measuring.traces import TraceDiff as TraceDiff
from npusim.ops import DType as DType
from npusim.ops import Operator as Operator
from npusim.ops import Role as Role
from npusim.ops import Storage as Storage
from npusim.ops import Tensor as Tensor
from npusim.ops import TensorKind as TensorKind
from npusim.scenario import Scenario as Scenario
from npusim.studies import Advice as Advice
from npusim.studies import Update as Update
from npusim.studies import WhatIf as WhatIf
from npusim.studies.placement_document import MapFront as MapFront
from npusim.studies.placement_document import Placement as Placement
from npusim.studies.side_by_side import Comparison as Comparison
from npusim.studies.stream import Followed as Followed
from npusim.techniques import Stack as Stack
from npusim.techniques import Technique as Technique
from npusim.techniques import apply as apply
from npusim.techniques import technique_names as technique_names
from npusim.validation.document import Validation as Validation
from npusim.workloads import load_workload as load_workload
from npusim.workloads import workload_names as workload_names

__version__: str

def __getattr__(name: str) -> Any:
    """Return a call that a package announces as `npusim.calls`."""
