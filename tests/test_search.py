"""Searching: seeded, resumable, better than chance."""

import numpy as np
import pytest
from spaces import MIXED, QUICK, changed

from npusim.errors import NpusimError
from npusim.explore.campaign import campaign_of
from npusim.explore.query import query
from npusim.explore.spaces import load_space
from npusim.explore.sweep import Interrupted
from npusim.metrics import admitted, objectives
from npusim.studies.pareto import front, hypervolume_shares

pytest.importorskip("pymoo")

from npusim.explore.search import search

SPACE = load_space(changed(MIXED, constraints={"area_mm2": {"max": 8.0}}))


@pytest.mark.laws
def test_the_same_seed_finds_the_same_and_another_seed_something_else(tmp_path):
    runs = [search(SPACE, tmp_path / str(i), budget=200, seed=seed) for i, seed in enumerate((1, 1, 2))]
    assert runs[0].steps == runs[1].steps != runs[2].steps
    fronts = [(tmp_path / str(i) / "kept.parquet").read_bytes() for i in range(3)]
    assert fronts[0] == fronts[1] != fronts[2]


@pytest.mark.laws
def test_a_stopped_search_is_resumed_to_the_same_front(tmp_path):
    search(SPACE, tmp_path / "whole", budget=300)
    generations = iter(range(100))
    with pytest.raises(Interrupted, match="--resume"):
        search(SPACE, tmp_path / "parts", budget=300, stop=lambda: next(generations) == 3)
    search(SPACE, tmp_path / "parts", budget=300, resume=True)
    for name in ("kept.parquet", "search.npz"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.laws
def test_another_search_is_not_resumed(tmp_path):
    search(SPACE, tmp_path, budget=100)
    with pytest.raises(NpusimError, match="another space, seed"):
        search(SPACE, tmp_path, budget=100, seed=9, resume=True)
    with pytest.raises(NpusimError, match="not empty"):
        search(SPACE, tmp_path, budget=100)


@pytest.mark.laws
def test_evolution_nears_the_exhaustive_front_and_beats_chance(tmp_path):
    campaign = campaign_of(SPACE)
    scores = campaign.scores(0, campaign.total)
    values = objectives(scores, SPACE.minimise)[:, admitted(scores, SPACE.constraints)]
    best = values[:, front(values)]
    result = search(SPACE, tmp_path, budget=campaign.total // 10, seed=3)
    table = query(tmp_path, "SELECT * FROM points")
    found = objectives({name: table[name].to_numpy() for name in SPACE.minimise}, SPACE.minimise)
    assert hypervolume_shares([found], best)[0] >= 0.95
    assert result.steps[-1].evolution > result.steps[-1].chance
    assert np.all(table["area_mm2"].to_numpy() <= 8.0)


def test_an_open_range_cannot_be_searched(tmp_path):
    axes = {"npu.dpu.clock": {"from": "1 GHz", "to": "2 GHz"}}
    space = load_space(changed(QUICK, axes=axes, design={"method": "sobol", "points": 8}))
    with pytest.raises(NpusimError, match="values"):
        search(space, tmp_path, budget=10)
