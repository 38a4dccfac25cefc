"""Tables of block costs: what an architecture comes to by look-up is what its own estimate says."""

import numpy as np
import pytest

from npusim import Scenario
from npusim.errors import NpusimError
from npusim.magnas.block_costs import block_table, blocks_of, covering_specs
from npusim.magnas.graph import build_vig
from npusim.mapping import chain_front
from npusim.studies.chain import chain_of, chain_problem
from npusim.studies.map_front import Limits
from npusim.workloads import load_spec

SOC, UNITS = "core-ultra-series2", ["gpu", "cpu"]
BACKBONE = load_spec("magnas-vig", ["workload.depth=1"])
SPACE = {"operators": ["gin", "graphsage"], "preprocess": [False, True], "hidden": [[96, 320]] * 4}
MIXED = BACKBONE.model_copy(
    update={
        "depth": [1, 2, 1, 1],
        "operator": ["gin", "graphsage", "gin", "gin"],
        "preprocess": [True, False, False, True],
        "ffn_hidden": [320, 0, 96, 320],
    }
)


@pytest.fixture(scope="module")
def table():
    return block_table(covering_specs(BACKBONE, **SPACE), SOC, devices=UNITS)


def test_blocks_of_a_specification_are_those_of_its_graph():
    for spec in (MIXED, load_spec("pyramid-vig-m", ["workload.depth=1"])):
        assert tuple(name for name, _ in blocks_of(spec)) == chain_of(build_vig(spec, "net")).blocks


def test_a_mixed_architecture_costs_what_its_own_estimate_says(table):
    scenario = Scenario(build_vig(MIXED, "mixed"), SOC)
    own = chain_problem(scenario, chain_of(scenario.graph), table.units)
    found = table.problem(table.rows(MIXED))
    assert found.time_s.sum(0) == pytest.approx(own.time_s.sum(0), rel=1e-3)
    assert found.energy_j.sum(0) == pytest.approx(own.energy_j.sum(0), rel=1e-3)
    assert found.time_s == pytest.approx(own.time_s, rel=0.1)  # what caches hold of a block varies
    assert found.crossing_s == pytest.approx(own.crossing_s, rel=1e-12)


def test_the_front_is_that_of_the_chain_and_pairs_cost_what_its_placements_do(table):
    front = table.front(MIXED)
    exact = chain_front(table.problem(table.rows(MIXED)))
    assert front.latency_s == pytest.approx(exact.latency_s)
    assert (np.diff(front.energy_j) < 0).all()
    encoded = table.encoded(
        [BACKBONE.model_copy(update={"operator": ["gin"] * 4, "ffn_hidden": [320] * 4}), MIXED]
    )
    pairs = table.evaluate(encoded, np.ones(len(front.placements)), front.placements)
    assert pairs == pytest.approx(np.stack([front.latency_s, front.energy_j], -1))


def test_limits_hold_for_an_architecture(table):
    within = table.front(MIXED, Limits(transitions=1))
    moves = (np.diff(within.placements, axis=1) != 0).sum(1)
    assert moves.max() <= 1


def test_a_block_that_is_not_in_the_table_is_refused_by_name(table):
    with pytest.raises(NpusimError, match="`grapher0` is of a kind"):
        table.front(BACKBONE.model_copy(update={"operator": ["edgeconv"] * 4}))
