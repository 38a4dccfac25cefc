"""How fast spaces are swept, fronts found and searches done.

Rerun: `.venv/bin/python -m pytest benchmarks/test_sweep_speed.py -m "" --benchmark-only`, on a machine that
does nothing else. Figures beside the times stand under `extra_info` of `--benchmark-json FILE`; `-s` prints
them. Every measured sweep runs in a process of its own, its kernels compiled before.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npusim.cost.kernel import evaluate_points
from npusim.cost.tables import TOTAL_DTYPE
from npusim.explore import load_space
from npusim.explore.campaign import Campaign
from npusim.explore.hypervolume import corner_of, corner_of_unit, hypervolume, scaled
from npusim.explore.metrics import objectives
from npusim.explore.pareto import front
from npusim.explore.query import query

SPACE = "gcn-cora"


def told(benchmark: Any, **figures: Any) -> None:
    benchmark.extra_info.update(figures)
    print(f"\n{figures}", file=sys.stderr)


def swept(directory: Path, cores: int) -> tuple[dict[str, Any], float, float]:
    """Run the command; return (its document, wall time, processor time)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(
        [
            sys.executable, "-m", "npusim", "sweep", SPACE, "-o", str(directory), "--keep", "pareto",
            "--format", "json", "--quiet", "--cores", str(cores),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return json.loads(done.stdout), wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.fixture(scope="module")
def exhaustive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The front of the whole space; makes sure that everything is compiled."""
    directory = tmp_path_factory.mktemp("exhaustive") / "out"
    swept(directory, 2)
    return directory


@pytest.mark.parametrize("cores", [1, 2])
def test_sweeping_the_shipped_space(benchmark, tmp_path, exhaustive, cores):
    runs = iter(range(99))
    found: list[tuple[dict[str, Any], float, float]] = []

    def sweep() -> None:
        found.append(swept(tmp_path / str(next(runs)), cores))

    benchmark.pedantic(sweep, rounds=3)
    document, wall, processor = min(found, key=lambda run: run[1])
    told(
        benchmark,
        points=document["points"],
        kept=document["kept"],
        points_per_s=round(document["points"] / wall),
        points_per_s_without_start=round(document["points"] / document["seconds"]),
        points_per_processor_s=round(document["points"] / processor),
        peak_bytes=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        searches=Campaign(load_space(SPACE)).searches(),
    )


def test_points_that_share_no_search(benchmark):
    """Every point makes its own shortlists: what a sweep would cost without hoisting."""
    campaign = Campaign(load_space(SPACE))
    random, count = np.random.default_rng(0), 5000
    points = np.stack([random.integers(0, axis.size, count) for axis in campaign.axes], axis=1).astype(float)
    points[:, [axis.is_variant for axis in campaign.axes]] = 0.0
    variant, values = campaign._variant(points[0]), np.ascontiguousarray(campaign._values(points))
    totals, plans = np.zeros(count, TOTAL_DTYPE), np.empty(count, np.int64)
    task = (variant.row, campaign._columns, values, np.arange(count + 1), variant.ops, totals, plans)
    evaluate_points(*task)
    benchmark.pedantic(evaluate_points, task, rounds=5)
    told(benchmark, points_per_s=round(count / benchmark.stats.stats.min), cores=os.cpu_count())


@pytest.mark.parametrize("shape", ["independent", "conflicting"])
def test_front_of_ten_million_points(benchmark, shape):
    random = np.random.default_rng(0)
    values = random.random((3, 10_000_000))
    if shape == "conflicting":  # near a plane, so that many do not beat each other
        values /= values.sum(axis=0) ** 0.98
    front(values[:, :20_000])
    found = benchmark.pedantic(front, (values,), rounds=2)
    told(benchmark, front=len(found), seconds=benchmark.stats.stats.min)


def test_search_with_a_hundredth_of_the_evaluations(benchmark, tmp_path, exhaustive):
    from npusim.explore.search import search

    space = load_space(SPACE)
    budget = Campaign(space).total // 100
    result = benchmark.pedantic(search, (space, tmp_path), {"budget": budget, "seed": 1}, rounds=1)
    fronts = []
    for directory in (exhaustive, tmp_path):
        table = query(directory, "SELECT * FROM points")
        fronts.append(objectives({name: table[name].to_numpy() for name in space.minimise}, space.minimise))
    corner, unit = corner_of(fronts[0]), corner_of_unit(len(space.minimise))
    best, found = (hypervolume(scaled(values, corner), unit) for values in fronts)
    last = result.steps[-1]
    told(benchmark, share_of_exhaustive=found / best, chance_of_evolution=last.chance / last.evolution)
    assert found >= 0.95 * best
    assert last.evolution > last.chance
