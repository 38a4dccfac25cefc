"""Placement by operators, layers and blocks: inside a unit a device works as it does alone."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs
from test_graphsplit import problems, weighted, weights_for

import npusim
from npusim.arch import load_soc
from npusim.cli.program import run as command
from npusim.graph import Editor
from npusim.mapping import (
    GRANULARITIES,
    Run,
    Terms,
    map_placed,
    merged,
    objective_of,
    placed,
    placement_problem,
    spread,
    units_of,
)
from npusim.ops import DType
from npusim.workloads import load_workload

SERIES2 = load_soc("core-ultra-series2")


@given(st.data())
@settings(max_examples=25)
def test_units_cost_what_their_nodes_do(data):
    problem = data.draw(problems())
    n, k = len(problem.names), len(problem.devices)
    inner = data.draw(st.sets(st.integers(1, n - 1))) if n > 1 else ()
    cuts = [0, *sorted(inner), n]
    units = tuple(tuple(range(a, b)) for a, b in pairwise(cuts))
    coarse, weights = merged(problem, units), data.draw(weights_for(k))
    for placement in product(range(k), repeat=len(units)):
        assert coarse.loads(placement) == pytest.approx(problem.loads(spread(units, placement)))
        whole = weighted(problem, spread(units, placement), weights)
        assert weighted(coarse, placement, weights) == pytest.approx(whole)


@given(graphs(), st.sampled_from([1, 4]))
@settings(max_examples=20)
def test_a_device_that_has_all_blocks_works_as_it_does_alone(graph, requests):
    run = Run(requests=requests, tiles=1)
    problem = placement_problem(graph, SERIES2, run, ("npu", "cpu", "gpu"))
    for d, device in enumerate(problem.devices):
        engine = map_placed(graph, SERIES2, Run(requests=requests, tiles=1, device=device)).total
        terms = Terms.of(SERIES2, run, "latency", problem.devices)
        value = objective_of(problem, terms, (d,) * len(problem.names))
        if device == "npu":  # a residency plan overlaps neighbours
            assert value >= 1.0 / engine["throughput_per_s"] * (1.0 - 1e-9)
        elif problem.names:
            assert value == pytest.approx(1.0 / engine["throughput_per_s"], rel=1e-9)


@pytest.mark.few(1)
@pytest.mark.parametrize("workload", ["gcn-cora", "gat-cora", "sage-mean-cora"])
@pytest.mark.parametrize("minimise", ["latency", "energy"])
def test_a_finer_granularity_is_never_worse(workload, minimise):
    found = [npusim.map(workload, minimise=minimise, granularity=one) for one in GRANULARITIES]
    for finer, coarser in pairwise(found):
        assert finer.units >= coarser.units
        metric = "latency_s" if minimise == "latency" else "energy_j"
        assert getattr(finer, metric) <= getattr(coarser, metric) * (1.0 + 1e-12)
        if finer.exact:
            assert finer.bound <= coarser.bound * (1.0 + 1e-9)


def test_a_block_is_placed_as_one():
    found = npusim.map("gat-cora", granularity="block", minimise="energy")
    neighbours = [(a, b) for a, b in pairwise(found.groups) if a.block == b.block]
    assert neighbours and all(a.device == b.device for a, b in neighbours)


def test_units_are_runs_of_a_layer_within_runs_of_a_block():
    graph = load_workload("gat-cora")
    problem = placement_problem(graph, SERIES2, Run(tiles=4), ("npu", "cpu"))
    operator, layer, block = (units_of(graph, problem, one) for one in GRANULARITIES)
    assert len(operator) > len(layer) > len(block) > 1
    for fine, coarse in ((operator, layer), (layer, block)):
        starts = {nodes[0] for nodes in fine}
        assert {nodes[0] for nodes in coarse} <= starts


# ---------------------------------------------------------------------------- results that stay on a device
def chain(devices):
    """Return a product and elementwise operators behind it, one after the other."""
    editor = Editor("chain")
    x = editor.input("x", (256, 256), DType.FP32)
    x = editor.matmul(x, editor.constant("w", (256, 256), DType.FP32), "product")
    for i in range(len(devices) - 1):
        x = editor.unary("Relu" if i % 2 else "Sigmoid", x, f"e{i}")
    editor.outputs.append(x)
    graph = editor.finish()
    change = Editor.of(graph)
    for op, device in zip(graph, devices, strict=True):
        change.change_operator(op.name, device=device)
    return change.finish()


def rows(graph):
    mapped = map_placed(graph, SERIES2, Run(tiles=4))
    return {g.main: (g, row) for g, row in zip(mapped.decisions.groups, mapped.lowered.ops, strict=True)}


def test_a_host_joins_operators_beside_other_devices_as_it_does_alone():
    shared = rows(chain(["cpu", "cpu", "cpu", "npu"]))
    assert shared["product"][0].fused == ("e0", "e1")
    row = shared["product"][1]
    size = 4.0 * 256 * 256
    assert row["host_read_bytes"] == 2 * size and row["host_handed_bytes"] == size
    assert row["host_handed_written_bytes"] == size and not row["host_written_bytes"]


def test_nothing_is_handed_over_where_nothing_crosses():
    for _, row in rows(chain(["gpu"] * 4)).values():
        assert not row["host_handed_bytes"]


@pytest.mark.parametrize("devices", ["ccgg", "cgcg", "cccg", "gccc", "cccc", "cggc"])
def test_the_price_list_of_a_chain_on_two_hosts_is_the_engine_s(devices):
    graph = chain([{"c": "cpu", "g": "gpu"}[d] for d in devices])
    soc = npusim.load_soc("core-ultra-7-258v")
    problem = placement_problem(graph, soc, Run(tiles=4), ("cpu", "gpu"))
    place = dict(zip(["product", "e0", "e1", "e2"], ("cg".index(d) for d in devices), strict=True))
    placement = tuple(place[name] for name in problem.names)
    listed = objective_of(problem, Terms.of(soc, Run(tiles=4), "latency", problem.devices), placement)
    engine = map_placed(placed(graph, problem, placement), soc, Run(tiles=4)).total["latency_s"]
    assert listed == pytest.approx(engine, rel=0.05)


def test_the_command_names_the_granularity(tmp_path):
    assert command(["map", "gcn-cora", "--granularity", "block", "-o", str(tmp_path / "b.json")]) == 0
    assert command(["map", "gcn-cora", "--granularity", "blok"]) == 2
    assert np.isfinite(npusim.map("gcn-cora", granularity="layer").latency_s)
