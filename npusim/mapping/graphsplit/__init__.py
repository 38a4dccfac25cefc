"""GraphSplit: which device runs which operator, decided by what it costs.

`device_costs` costs every group on every device, `problem` holds that as plain numbers, `dynamic` finds the
best placement, `splitting` applies it to a graph.
"""

from npusim.mapping.graphsplit.device_costs import placement_problem
from npusim.mapping.graphsplit.dynamic import Solution, solve
from npusim.mapping.graphsplit.problem import Link, Load, ObjectiveWeights, Problem
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
    "ObjectiveWeights",
    "Problem",
    "Solution",
    "Split",
    "Terms",
    "best_placement",
    "objective_of",
    "placed",
    "placement_problem",
    "solve",
    "split",
    "wished",
]
