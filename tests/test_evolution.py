"""NSGA-II and random placements: no chains, finer units, and what evolution misses of an exact front."""

import json

import numpy as np
import pytest

from npusim import Scenario
from npusim.cli.program import run
from npusim.mapping import Terms, objective_of
from npusim.studies.evolution import Budget, Genes, searched
from npusim.studies.map_front import Limits, map_front, placed_units
from npusim.studies.pareto import hypervolume

NETWORK = Scenario("gcn-cora", techniques="stagr")
FEW = Budget(evaluations=300, population=50)


@pytest.fixture(scope="module")
def units():
    return placed_units(NETWORK, ["npu", "cpu", "gpu"], "operator")


@pytest.mark.parametrize("minimise", ["latency", "energy"])
def test_a_placement_costs_what_it_does_with_one_objective(units, minimise):
    terms = Terms.of(NETWORK.machine, NETWORK.run, minimise, units.units)
    placements = np.random.default_rng(0).integers(0, 3, (20, len(units.blocks)))
    found = units.evaluate(placements)[:, 0 if minimise == "latency" else 1]
    expected = [objective_of(units.problem, terms, tuple(one)) for one in placements.tolist()]
    assert found == pytest.approx(expected)


def test_a_unit_never_runs_what_it_cannot(units):
    allowed = units.allowed.copy()
    allowed[0] = [False, True, False]
    found = searched(Genes(allowed, units.evaluate), "nsga2", FEW)
    assert (found.placements[:, 0] == 1).all()


def test_the_same_seed_finds_the_same_and_nothing_found_beats_another(units):
    first, again = (searched(Genes(units.allowed, units.evaluate), "nsga2", FEW) for _ in range(2))
    assert (first.placements == again.placements).all()
    assert (np.diff(first.values[:, 0]) > 0).all()
    assert (np.diff(first.values[:, 1]) < 0).all()


def test_hypervolume_is_the_area_below_the_worst():
    worst = np.array([4.0, 4.0])
    values = np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 3.5], [5.0, 1.0]])
    assert hypervolume(values.T, worst) == pytest.approx(1.0 + 4.0)
    assert hypervolume(values[:0].T, worst) == 0.0


@pytest.mark.laws
def test_evolution_finds_most_of_the_exact_front_and_more_than_chance():
    network = Scenario("vit")
    shares = {
        method: map_front(network, devices=["npu", "gpu"], method=method, budget=FEW).hypervolume_share
        for method in ("nsga2", "random")
    }
    assert shares["random"] < shares["nsga2"] <= 1.0 + 1e-9


def test_finer_units_are_never_worse():
    network = Scenario("gcn-cora")  # at blocks no chain either
    fronts = [
        map_front(network, devices=["npu", "cpu"], granularity=one, budget=FEW).points
        for one in ("block", "operator")
    ]
    for coarse in fronts[0]:
        assert any(
            fine.latency_s <= coarse.latency_s * 1.000001 and fine.energy_j <= coarse.energy_j * 1.000001
            for fine in fronts[1]
        )


def test_limits_hold_in_a_search():
    found = map_front(NETWORK, limits=Limits(transitions=0), budget=FEW, granularity="operator")
    assert {point.transitions for point in found.points} == {0}


def test_a_network_that_is_no_chain_is_searched(capsys):
    command = ["map", "gcn-cora", "--minimise", "latency,energy", "--evaluations", "100", "--format", "json"]
    assert run(command) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["method"], document["evaluations"]) == ("nsga2", 100)
    assert document["hypervolume_share"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "exact", "--granularity", "layer"], "exact fronts are of chains of blocks"),
        (["--dvfs", "--method", "nsga2"], "operating points are tried with exact fronts"),
        (["--max-latency", "1ns", "--evaluations", "20"], "keeps all limits"),
    ],
)
def test_what_a_search_cannot_do_is_said(options, message, capsys):
    assert run(["map", "gcn-cora", "--minimise", "latency,energy", *options]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
