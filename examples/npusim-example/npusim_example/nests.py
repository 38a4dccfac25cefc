"""A mapping search of one's own: the loop order with the least DRAM traffic, whatever time it takes.

npusim's own search minimises latency. This one tries the three loop orders of each product, lets npusim cost
each, and keeps the one that moves the fewest bytes. `estimate --mapping least-traffic` runs it.
"""

from math import inf
from typing import Any

from npusim import Graph, Scenario, Soc, estimate
from npusim.errors import InfeasibleError

ORDERS = ("columns rows", "rows columns", "rows columns depth")
PRODUCTS = ("MatMul", "Convolution")
NO_TILING = (inf, inf)


def least_traffic(graph: Graph, soc: Soc) -> dict[str, Any]:
    """Return the loop order of each product that moves the fewest bytes over DRAM.

    Parameters
    ----------
    graph : npusim.Graph
        Operators of a network, after its techniques.
    soc : npusim.Soc
        Machine that runs them.

    Returns
    -------
    dict
        A mapping as `npusim schema mapping` describes; what it leaves open npusim's search chooses.
    """
    orders: dict[str, dict[str, Any]] = {}
    for name, operator in graph.operators.items():
        if operator.type not in PRODUCTS:
            continue
        costs = {}
        for order in ORDERS:
            nest = {"dram": {"order": order}}
            costs[order] = _cost(graph, soc, {"operators": orders | {name: nest}})
        best = min(ORDERS, key=lambda order: costs[order])
        if costs[best] < NO_TILING:
            orders[name] = {"dram": {"order": best}}
    return {"operators": orders}


def _cost(graph: Graph, soc: Soc, mapping: dict[str, Any]) -> tuple[float, float]:
    """Return DRAM traffic in bytes and latency in seconds; infinite where no tiling agrees."""
    try:
        result = estimate(Scenario(graph, soc, mapping=mapping))
    except InfeasibleError:
        return NO_TILING
    return result.dram_bytes, result.latency_s
