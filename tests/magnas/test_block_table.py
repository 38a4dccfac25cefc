"""Tables of block costs: what an architecture comes to by look-up is what its own estimate says."""

import numpy as np
import pytest

from npusim import Scenario
from npusim.arch import load_soc
from npusim.errors import NpusimError
from npusim.magnas.block_costs import MappedSpace, blocks_of
from npusim.magnas.graph import build_vig
from npusim.magnas.space import ArchitectureSpace
from npusim.mapping import chain_front
from npusim.studies.chain import chain_of, chain_problem
from npusim.studies.map_front import Limits
from npusim.workloads import load_spec

SOC, UNITS = "core-ultra-series2", ("gpu", "cpu")
BACKBONE = load_spec("magnas-vig", ["workload.depth=1"])
SPACE = ArchitectureSpace(operators=("gin", "graphsage"), widths_percent=(30, 100))
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
    return MappedSpace(BACKBONE, SPACE, load_soc(SOC), UNITS).table


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


def test_the_front_is_that_of_the_chain_and_costs_what_its_placements_do(table):
    front, problem = table.front(MIXED), table.problem(table.rows(MIXED))
    assert front.latency_s == pytest.approx(chain_front(problem).latency_s)
    assert (np.diff(front.energy_j) < 0).all()
    values = problem.evaluate(front.placements)
    assert values == pytest.approx(np.stack([front.latency_s, front.energy_j], -1))


def test_limits_hold_for_an_architecture(table):
    within = table.front(MIXED, Limits(transitions=1))
    moves = (np.diff(within.placements, axis=1) != 0).sum(1)
    assert moves.max() <= 1


def test_a_block_that_is_not_in_the_table_is_refused_by_name(table):
    with pytest.raises(NpusimError, match="`grapher0` is of a kind"):
        table.front(BACKBONE.model_copy(update={"operator": ["edgeconv"] * 4}))
