"""The search fills a table of candidates to its end, reports a full one, and never writes beyond it."""

import os
import subprocess
import sys

import numpy as np
import pytest

import npusim
from npusim.compiling.kernels import VARIABLE, plain_kernels
from npusim.cost.batch.totals import rates_at_point
from npusim.cost.lowering.tables import DpuOperation, Unit, empty_ops
from npusim.cost.machine.design_point import arch_row
from npusim.cost.tilings.candidates import KEYS, is_dominated
from npusim.cost.tilings.products import SRAM_RANGES
from npusim.cost.tilings.search import search_operator
from npusim.cost.units.arrays.mapper import no_known_tiles
from npusim.cost.units.rates import LOWER, READ, TILE_SRAM, UPPER
from npusim.cost.units.resources import CANDIDATE_DTYPE

SPACE = {
    "schema": "npusim.space/1", "workload": "resnet-50", "soc": "core-ultra-series2", "keep": "pareto",
    "minimise": ["latency_s", "energy_j", "area_mm2"],
    "axes": {
        "npu.tiles": {"values": [4]},
        "npu.dpu.grid.vpe": {"values": [4]},
        "npu.dpu.grid.mpe": {"values": [2]},
        "npu.sram.per_tile": {"from": "768 KiB", "to": "4 MiB", "count": 16},
        "npu.dma.engines": {"values": [1, 2, 4]},
        "dram.bandwidth": {"from": "40 GB/s", "to": "130 GB/s", "count": 5},
    },
}  # fmt: skip


def product(triangle: bool):
    op = empty_ops(1)[0]
    op["unit"], op["dpu_operation"] = Unit.DPU, DpuOperation.MATMUL
    op["out_w"], op["in_c"], op["out_c"], op["triangle"] = 150, 150, 32, triangle
    op["macs"] = op["out_w"] * op["in_c"] * op["out_c"]
    for side, elements in (("a", 150 * 150), ("b", 150 * 32), ("c", 150 * 32)):
        op[f"{side}_item"], op[f"{side}_dram_bytes"] = 2.0, 2.0 * elements
    op["a_triangle_bytes"] = 150 * 151 if triangle else 0.0
    return op


@pytest.mark.laws
@pytest.mark.parametrize("triangle", [False, True])
def test_a_table_of_any_length_is_never_written_beyond(triangle):
    """As plain Python, where numpy checks every index."""
    archs, op = arch_row(npusim.load_soc("core-ultra-series2"), 4, 1, "latency").archs, product(triangle)
    with plain_kernels():
        bounds = rates_at_point(archs)[1][0]
        bounds[READ, LOWER] *= 0.7
        bounds[TILE_SRAM, UPPER], bounds[TILE_SRAM, LOWER] = 24e3, 64e3

        def end(places: int) -> int:
            candidates, keys = np.zeros(places, CANDIDATE_DTYPE), np.empty((places, KEYS))
            known, limits = no_known_tiles(archs.arrays), np.empty((3, SRAM_RANGES + 1))
            return search_operator(archs.arrays[0], op, bounds, candidates, 0, keys, known, limits)

        enough = end(500)
        found = [end(places) for places in range(1, 40)]
    assert enough > 3
    assert set(found) == {-1, enough} and found[0] == -1


def test_a_full_table_needs_no_place_for_scratch():
    """The last candidate is dominated by the one in the middle, which moves ahead of the first."""
    candidates, keys = np.zeros(3, CANDIDATE_DTYPE), np.zeros((3, KEYS))
    candidates["grid_cycles"], keys[:, 2] = (3.0, 1.0, 2.0), (3.0, 1.0, 2.0)
    with plain_kernels():
        assert not is_dominated(candidates, keys, 0, 1, 0.0, np.inf, True)
        assert is_dominated(candidates, keys, 0, 2, 0.0, np.inf, True)
    assert candidates["grid_cycles"].tolist() == keys[:, 2].tolist() == [1.0, 3.0, 2.0]


@pytest.mark.slow
def test_a_sweep_of_sizes_and_rates_leaves_no_array(tmp_path):
    """The table grows in this space while kernels check every index."""
    script = f"import npusim; print(npusim.sweep({SPACE!r}, 'found').points)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {VARIABLE: "checked"},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "IndexError" not in done.stderr and done.stdout.strip() == "240"
