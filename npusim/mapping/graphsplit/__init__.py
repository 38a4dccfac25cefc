"""GraphSplit: which device runs which operator, decided by what it costs.

Like a household that shares out errands: each goes to whoever does it fastest, but not if most of the time
would be spent handing over. `problem` writes down what everything costs, `dynamic` finds the best placement,
`splitting` applies it to a graph.
"""

from npusim.mapping.graphsplit.dynamic import Solution, solve
from npusim.mapping.graphsplit.pricing import price
from npusim.mapping.graphsplit.problem import Link, Load, Prices, Problem
from npusim.mapping.graphsplit.splitting import (
    Objective,
    Split,
    Terms,
    best_placement,
    objective_of,
    placed,
    split,
    wished,
)

__all__ = [
    "Link",
    "Load",
    "Objective",
    "Prices",
    "Problem",
    "Solution",
    "Split",
    "Terms",
    "best_placement",
    "objective_of",
    "placed",
    "price",
    "solve",
    "split",
    "wished",
]
