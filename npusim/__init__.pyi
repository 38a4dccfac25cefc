"""The public names with their types; `__init__.py` imports each on first use."""

from npusim.api import accuracy as accuracy
from npusim.api import advise as advise
from npusim.api import calibrate as calibrate
from npusim.api import compare as compare
from npusim.api import estimate as estimate
from npusim.api import measure as measure
from npusim.api import place as place
from npusim.api import stream as stream
from npusim.api import whatif as whatif
from npusim.arch import Soc as Soc
from npusim.arch import load_soc as load_soc
from npusim.arch import soc_names as soc_names
from npusim.engines import Estimate as Estimate
from npusim.errors import NpusimError as NpusimError
from npusim.explore.fronts import pareto as pareto
from npusim.explore.query import query as query
from npusim.explore.search import search as search
from npusim.explore.spaces import Space as Space
from npusim.explore.spaces import load_space as load_space
from npusim.explore.sweep import sweep as sweep
from npusim.frontends.pyg import from_pyg as from_pyg
from npusim.graph import Editor as Editor
from npusim.graph import Graph as Graph
from npusim.graph import GraphStructure as GraphStructure
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
from npusim.techniques import apply as apply
from npusim.techniques import technique_names as technique_names
from npusim.workloads import load_workload as load_workload
from npusim.workloads import workload_names as workload_names

__version__: str
