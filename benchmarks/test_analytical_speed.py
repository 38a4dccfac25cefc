"""Speed of the analytical engine: one warm estimate, and 10,000 architectures at once beside the slow twin.

Rerun: `make bench`, or `.venv/bin/python -m pytest benchmarks/test_analytical_speed.py -m ""
--benchmark-only`. Points a second are the column `points_per_s` of `--benchmark-json FILE` (under
`extra_info`). To see why a loop does not scale, set NUMBA_NUM_THREADS=1 beside the default, and
`evaluate_points.parallel_diagnostics(level=1)` after a call.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npusim import estimate
from npusim.arch import load_soc
from npusim.cost.architecture import PRIMITIVE_COLUMNS, arch_row
from npusim.cost.evaluation import evaluate, evaluate_points
from npusim.cost.plan_table import plan_table
from npusim.cost.tables import RESULT_DTYPE, TOTAL_DTYPE
from npusim.mapping import Mapped, Run, map_graph
from npusim.techniques import apply
from npusim.workloads import load_workload

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
POINTS = 10_000
TWIN_POINTS = 5


@pytest.fixture(scope="module")
def mapped() -> Mapped:
    """GCN on Cora as GraNNite runs it."""
    graph = apply(load_workload("gcn-cora"), "graphsplit+grad+nodepad")
    return map_graph(graph, load_soc("core-ultra-series2"), Run("throughput", 8, 4))


@pytest.fixture(scope="module")
def architectures() -> Any:
    """Rows of the architecture table around a real machine: clocks, bandwidth, SRAM, MACs and engines
    vary."""
    table = np.repeat(arch_row(load_soc("core-ultra-series2"), 4, 8, "throughput"), POINTS)
    random = np.random.default_rng(1)
    for field in ("dpu_clock_hz", "vpu_clock_hz", "dram_bytes_per_s"):
        table[field] *= random.uniform(0.5, 2.0, POINTS)
    table["sram_tile_bytes"] = 1024 * random.integers(512, 8192, POINTS)
    table["dpu_mac_bytes_per_cycle"] = random.choice([4, 8, 16, 32], (POINTS, 1))
    table["dma_engines"] = random.integers(1, 5, POINTS)
    table["npu_tiles"] = table["wanted_tiles"] = table["tiles"] = random.integers(1, 9, POINTS)
    return table


def points_per_s(benchmark: Any, points: int) -> None:
    if benchmark.stats is not None:
        benchmark.extra_info["points_per_s"] = round(points / benchmark.stats.stats.median)


def test_one_estimate_when_everything_is_warm(benchmark):
    soc, graph = load_soc("core-ultra-series2"), apply(load_workload("gcn-cora"), "stagr")
    estimate(graph, soc)
    benchmark(estimate, graph, soc)


def test_many_architectures_on_all_cores(benchmark, mapped, architectures):
    numbers, columns = architectures.view(np.float64).reshape(POINTS, -1), np.array(PRIMITIVE_COLUMNS)
    groups, ops = np.arange(POINTS + 1), plan_table(mapped.lowered.ops[np.newaxis])
    totals, plans = np.zeros(POINTS, TOTAL_DTYPE), np.zeros(POINTS, np.int64)
    task = (numbers[0], columns, numbers[:, columns], groups, ops, totals, plans)
    evaluate_points(*task)
    benchmark.pedantic(evaluate_points, task, rounds=5)
    points_per_s(benchmark, POINTS)


def test_many_architectures_on_one_core(benchmark, mapped, architectures):
    ops = mapped.lowered.ops
    results, totals = np.zeros(len(ops), RESULT_DTYPE), np.zeros(POINTS, TOTAL_DTYPE)

    def one_after_another() -> None:
        for i in range(POINTS):
            evaluate(architectures[i], ops, results, totals[i])

    benchmark.pedantic(one_after_another, rounds=3, warmup_rounds=1)
    points_per_s(benchmark, POINTS)


def test_a_few_architectures_with_the_slow_twin(benchmark, mapped, architectures):
    import naive

    ops = mapped.lowered.ops

    def twin() -> None:
        for arch in architectures[:TWIN_POINTS]:
            naive.total(arch, ops, [naive.operator(arch, op) for op in ops])

    benchmark.pedantic(twin, rounds=1)
    points_per_s(benchmark, TWIN_POINTS)
