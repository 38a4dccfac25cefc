"""Costs of operators at one design point, for tests of the kernels."""

from typing import Any

import numpy as np

from npusim.cost.batch.evaluation import evaluate_plans
from npusim.cost.lowering.plans import plan_table


def evaluate(row: Any, ops: Any, results: Any, total: Any, nests: Any = None) -> None:
    """Write the costs of operators under one residency plan, and of their network."""
    costs = evaluate_plans(row, plan_table(ops[np.newaxis]), nests)
    results[:] = costs.operators()[0]
    for name in total.dtype.names:
        total[name] = costs.total[name]
