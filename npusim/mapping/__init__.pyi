"""The public names with their types; `__init__.py` imports each on first use."""

from npusim.mapping.contents import SramContents as SramContents
from npusim.mapping.contents import sram_contents as sram_contents
from npusim.mapping.fusion import DeviceChoice as DeviceChoice
from npusim.mapping.fusion import wished as wished
from npusim.mapping.graphsplit.cuts import cut_loads as cut_loads
from npusim.mapping.graphsplit.cuts import cut_transfer_bytes as cut_transfer_bytes
from npusim.mapping.graphsplit.device_costs import placement_problem as placement_problem
from npusim.mapping.graphsplit.problem import Problem as Problem
from npusim.mapping.graphsplit.splitting import Objective as Objective
from npusim.mapping.graphsplit.splitting import Terms as Terms
from npusim.mapping.graphsplit.splitting import best_placement as best_placement
from npusim.mapping.graphsplit.splitting import objective_of as objective_of
from npusim.mapping.graphsplit.splitting import objective_of_loads as objective_of_loads
from npusim.mapping.graphsplit.splitting import placed as placed
from npusim.mapping.mapped import Mapped as Mapped
from npusim.mapping.mapped import Run as Run
from npusim.mapping.mapped import SwapOperands as SwapOperands
from npusim.mapping.mapped import map_graph as map_graph
from npusim.mapping.mapped import map_placed as map_placed
from npusim.mapping.memory import MemoryUse as MemoryUse
from npusim.mapping.order import entries as entries
from npusim.mapping.tables import READ_BY_LOWERING as READ_BY_LOWERING
from npusim.mapping.tables import plan_tables as plan_tables
