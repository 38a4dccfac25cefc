"""All decisions about a graph in one call: the front door of the mapping.

Like a travel agent who books flights first and the rooms where they lead: placement comes first where it is
open, then fusion and residency.
"""

from __future__ import annotations

from npusim.arch import Soc
from npusim.graph import Graph
from npusim.mapping.graphsplit import split, wished
from npusim.mapping.mapped import Mapped, Run, map_placed

__all__ = ["map_graph"]


def map_graph(graph: Graph, soc: Soc, run: Run) -> Mapped:
    """Decide placement, fusion and residency of a graph on a SoC so that an inference takes the least time.

    Parameters
    ----------
    graph : Graph
        Techniques applied. What GraphSplit wishes on the CPU goes there as far as that is cheaper; other
        wishes are obeyed.
    soc : Soc
    run : Run

    Raises
    ------
    InfeasibleError
        Where some operator fits into SRAM under no plan; it is named.
    """
    if run.device == "auto" and soc.has("npu") and soc.has("cpu") and wished(graph):
        return split(graph, soc, run)
    return map_placed(graph, soc, run)
