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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npusim.cost.evaluation import evaluate_points
from npusim.cost.tables import TOTAL_DTYPE
from npusim.explore import load_space
from npusim.explore.campaign import Campaign
from npusim.explore.pareto import corner_of, corner_of_unit, front, hypervolume, scaled
from npusim.explore.query import query
from npusim.metrics import objectives

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


def test_sweeping_the_shipped_space_on_one_and_two_cores(benchmark, tmp_path, exhaustive):
    """By turns, so that a machine that slows down does so for all: one core, two cores, and two sweeps of one
    core each at once, which is as much as two cores of this machine give to anybody.
    """
    runs = iter(range(99))
    found: dict[str, list[tuple[dict[str, Any], float, float]]] = {"one": [], "two": []}
    at_once: list[float] = []

    def sweep(cores: int) -> tuple[dict[str, Any], float, float]:
        return swept(tmp_path / str(next(runs)), cores)

    def turn() -> None:
        found["one"].append(sweep(1))
        found["two"].append(sweep(2))
        began = time.perf_counter()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(sweep, [1, 1]))
        at_once.append(time.perf_counter() - began)

    benchmark.pedantic(turn, rounds=5)
    points = found["one"][0][0]["points"]
    walls = {name: np.array([wall for _, wall, _ in runs]) for name, runs in found.items()}
    inner = {name: np.array([document["seconds"] for document, _, _ in runs]) for name, runs in found.items()}
    told(
        benchmark,
        points=points,
        kept=found["two"][0][0]["kept"],
        points_per_s={name: round(points / float(np.median(wall))) for name, wall in walls.items()},
        points_per_s_without_start={name: round(points / float(np.median(s))) for name, s in inner.items()},
        points_per_s_best={name: round(points / float(wall.min())) for name, wall in walls.items()},
        speedup=round(float(np.median(walls["one"] / walls["two"])), 2),
        speedup_without_start=round(float(np.median(inner["one"] / inner["two"])), 2),
        speedup_of_two_sweeps_at_once=round(float(np.median(2.0 * walls["one"] / np.array(at_once))), 2),
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
