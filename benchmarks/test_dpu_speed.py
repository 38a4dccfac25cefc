"""Speed of the MAC grid's equations on one core: a sweep runs them some ten billion times.

The twin of the tests does the same work register tile by register tile, to show what the compiled equations
are for.
"""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from npusim.arch import load_soc
from npusim.compiling.kernels import compiled
from npusim.cost.machine.design_point import arch_row
from npusim.cost.units.grid import DpuWorkload, conv_cycles, matmul_cycles

LEAST_PER_S = 5e6
"""Dense products a second, best of three modes, that one core must do."""
COUNT = 200_000


@compiled
def products(arch, m, k, n, density, cycles):
    for i in range(m.size):
        work = DpuWorkload(
            m[i], 1.0, n[i], k[i], 1.0, 1.0, 1.0, 0.0, 0.0, 2.0, 2.0, 2.0, 1.0, density[i], 1.0, 1.0, 1.0
        )
        cycles[i] = matmul_cycles(arch[0], work)


@compiled
def convolutions(arch, w, k, n, density, cycles):
    for i in range(w.size):
        work = DpuWorkload(
            w[i], w[i], n[i], k[i], 3.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, density[i], 1.0, 1.0, 1.0
        )
        cycles[i] = conv_cycles(arch[0], work, 0)


@pytest.fixture
def arch():
    return arch_row(load_soc("core-ultra-series2"), 1, 1, "latency").archs.arrays.copy()


def sizes(count):
    random = np.random.default_rng(0)
    return [random.integers(1, 4000, count).astype(float) for _ in range(3)]


def per_second(benchmark, count):
    """Workloads a second in the fastest round: other work on the machine only ever slows a round down."""
    speed = count / benchmark.stats.stats.min
    benchmark.extra_info["workloads_per_s"] = speed
    return speed


def test_dense_products_best_of_three_modes(benchmark, arch):
    m, k, n = sizes(COUNT)
    cycles, density = np.empty(COUNT), np.ones(COUNT)
    benchmark.pedantic(products, (arch, m, k, n, density, cycles), rounds=20, warmup_rounds=1)
    assert per_second(benchmark, COUNT) >= LEAST_PER_S


def test_sparse_products(benchmark, arch):
    m, k, n = sizes(COUNT)
    cycles, density = np.empty(COUNT), np.full(COUNT, 0.3)
    benchmark.pedantic(products, (arch, m, k, n, density, cycles), rounds=20, warmup_rounds=1)
    assert per_second(benchmark, COUNT) >= LEAST_PER_S / 2


def test_dense_convolutions(benchmark, arch):
    w, k, n = sizes(COUNT)
    cycles, density = np.empty(COUNT), np.ones(COUNT)
    benchmark.pedantic(
        convolutions, (arch, np.ceil(w / 20), k, n, density, cycles), rounds=20, warmup_rounds=1
    )
    assert per_second(benchmark, COUNT) >= LEAST_PER_S


def test_the_twin_of_dense_products(benchmark, arch, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "tests")
    twin, interpreted = import_module("naive_dpu"), import_module("naive_interpreted")
    record, count = interpreted.record(arch[0]), 20
    shapes = list(zip(*sizes(count), strict=True))

    def all_of_them():
        items = (2.0, 2.0, 2.0)
        return [
            min(twin.matmul_mode_cycles(record, *shape, items, mode, 1.0, twin.DENSE) for mode in range(3))
            for shape in shapes
        ]

    slow = benchmark.pedantic(all_of_them, rounds=3)
    per_second(benchmark, count)
    cycles = np.empty(count)
    products(arch, *sizes(count), np.ones(count), cycles)
    assert cycles == pytest.approx(slow, rel=1e-9)
