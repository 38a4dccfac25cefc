"""A table of residency plans: it says what lowering each plan alone says, and grows with the operators."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import graphs, machines

from npusim.arch import load_soc
from npusim.cost.batch.evaluation import evaluate_plans
from npusim.cost.lowering.lowering import lower
from npusim.cost.lowering.plans import Decisions, operators_of, plan_table
from npusim.cost.lowering.tables import OP_DTYPE, TOTAL_DTYPE
from npusim.cost.machine.design_point import arch_row
from npusim.graph import Editor, Graph
from npusim.mapping.mapped import PlanTables, plan_tables
from npusim.techniques import apply
from npusim.workloads import load_workload

SERIES2 = load_soc("core-ultra-series2")


def check_every_plan(graph: Graph, soc, step: int = 1) -> PlanTables:
    tables = plan_tables(graph, soc)
    for plan in range(0, len(tables.plans.steps), step):
        decisions = Decisions(tables.groups, tables.plans.residency(plan))
        alone, found = lower(graph, decisions, soc).ops, operators_of(tables.table, plan)
        for name in OP_DTYPE.names:
            if OP_DTYPE[name].names is None:
                np.testing.assert_allclose(found[name], alone[name], rtol=1e-12, atol=1e-3, err_msg=name)
        assert found["dsp"].tobytes() == alone["dsp"].tobytes()
        on_host = np.isin(alone["unit"], (4, 5))
        live = alone["live_spread_bytes"] + alone["live_copied_bytes"]
        assert tables.table.waits[plan] == (live[on_host] > 0).any()
    return tables


@given(graphs(), machines())
@settings(max_examples=25)
def test_each_plan_is_that_of_lowering_it_alone(graph, machine):
    check_every_plan(graph, machine.soc)


@pytest.mark.parametrize(
    ("workload", "stack"),
    [
        ("gcn-cora", "stagr+cacheg"),
        ("gcn-cora", "graphsplit+stagr+grasp+cacheg"),
        ("gat-cora", "stagr+effop+grax1"),
        ("gat-cora", "stagr+grasp"),
    ],
)
def test_each_plan_of_a_gnn_is_that_of_lowering_it_alone(workload, stack):
    check_every_plan(apply(load_workload(workload), stack), SERIES2, step=7)


def chain(layers: int, growth: int) -> Graph:
    """Products one after the other, each `growth` columns wider than the one before."""
    editor = Editor("chain")
    width, result = 64, editor.input("x", (64, 64))
    for i in range(layers):
        wider = width + growth
        result = editor.matmul(result, editor.constant(f"w{i}", (width, wider)), f"product{i}")
        result = editor.unary("Exp", result, f"exp{i}")
        width = wider
    editor.outputs.append(result)
    return editor.finish()


def best(table, requests: float = 1.0) -> tuple[np.void, int]:
    arch = arch_row(SERIES2, 2, requests, "latency")
    costs = evaluate_plans(arch, table)
    return costs.total, costs.plan


@pytest.mark.parametrize("growth", [0, 5])
def test_sums_of_changes_are_those_of_whole_plans(growth):
    """More operators than a node of the tree of sums has, so that it has several levels."""
    tables = plan_tables(chain(70, growth), SERIES2)
    plans = range(len(tables.plans.steps))
    whole = plan_table(np.stack([operators_of(tables.table, plan) for plan in plans]))
    for requests in (1.0, 4.0):
        (found, plan), (expected, same) = best(tables.table, requests), best(whole, requests)
        assert plan == same
        for name in TOTAL_DTYPE.names:
            assert found[name] == pytest.approx(expected[name], rel=1e-12)


def test_the_table_grows_with_the_operators_however_many_sizes_there_are():
    sizes = []
    for layers in (100, 200, 400):
        table = plan_tables(chain(layers, 3), SERIES2).table
        assert len(table.family) < 100  # whatever the number of sizes
        sizes.append((len(table.rows), len(table.changes)))
    for (rows, changes), (more_rows, more_changes) in pairwise(sizes):
        assert more_rows <= 2.1 * rows
        assert more_changes <= 2.1 * changes
