"""Weights that idle DMA engines fetch for later operators: an optimal schedule, acted by both engines."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from spaces import QUICK, changed
from strategies import Machine

from npusim import estimate
from npusim.compiling.kernels import plain_kernels
from npusim.cost.lowering.plans import plan_table
from npusim.cost.lowering.tables import Unit, empty_ops
from npusim.cost.machine.architecture import ARCH_DTYPE
from npusim.cost.network.prefetch import new_prefetch, schedule
from npusim.cost.network.terms import new_costing, plan_independent
from npusim.cost.tilings.search import GroupSearch
from npusim.engines.estimate import Estimate
from npusim.explore.campaign import campaign_of
from npusim.explore.query import query
from npusim.explore.spaces import load_space
from npusim.explore.sweep import sweep
from npusim.graph import Editor, Graph
from npusim.metrics import objectives
from npusim.ops import DType
from npusim.studies.pareto import front

FAST = ("npu.launch_overhead=0ms", "dram.bandwidth=80GB/s")
ON, OFF = (
    Machine("core-ultra-series2", (*FAST, f"npu.schedule.prefetch={switch}")) for switch in ("true", "false")
)
TIMES = st.lists(st.integers(0, 9), min_size=2, max_size=9)


def scheduled(idle: Any, stall: Any, room: Any, held: Any, launches: Any) -> tuple[float, Any]:
    """Return what the schedule of operators saves (s), and its transfers."""
    ops = empty_ops(len(idle))
    ops["unit"], ops["launches"], ops["macs"] = Unit.DPU, launches, np.arange(len(idle))
    table, nothing = plan_table(ops[np.newaxis]), np.empty(0)
    search = GroupSearch(nothing, np.zeros(1, np.int64), nothing, nothing, 0.0)
    with plain_kernels():
        scratch = new_prefetch(1, len(idle), 1)
        costing = new_costing(table, search, plan_independent(1, 0, len(idle), 1), 1, 1)
        costing.row_of[:], terms = np.arange(len(idle)), costing.terms
        terms.best_s[:, 0], terms.stall_s[:, 0], terms.held_bytes_per_s[:, 0] = idle, stall, held
        terms.room_bytes[:, 0] = terms.own_room_bytes[:, 0] = room
        schedule(costing, 0, np.zeros(1, ARCH_DTYPE), 0, scratch)
    transfers = scratch.transfers
    return float(scratch.saved_s[0, 0]), transfers[: int(np.argmax(transfers["operator"] < 0))]


def most_saved(idle: Any, stall: Any, room: Any, held: Any, launches: Any) -> float:
    """Return the same by linear programming: a variable for each pair of operators."""
    count, begin = len(idle), np.maximum.accumulate(np.where(launches, np.arange(len(idle)), 0))
    pairs = [(i, j) for j in range(count) for i in range(j) if i >= begin[j]]
    if not pairs:
        return 0.0
    rows, limits = [], []
    for k in range(count):
        rows += [[float(i == k) for i, _ in pairs], [float(j == k) for _, j in pairs]]
        rows.append([held[j] * (i <= k <= j) for i, j in pairs])
        limits += [idle[k], stall[k], room[k]]
    return -float(linprog([-1.0] * len(pairs), A_ub=rows, b_ub=limits).fun)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.booleans())
def test_no_schedule_saves_more_where_all_bytes_take_as_much_sram(data, is_even):
    idle = data.draw(TIMES)
    stall, room = (
        data.draw(st.lists(st.integers(0, 9), min_size=len(idle), max_size=len(idle))) for _ in "sr"
    )
    launches = data.draw(st.lists(st.sampled_from([0, 0, 0, 1]), min_size=len(idle), max_size=len(idle)))
    held = (
        [2.0] * len(idle) if is_even else data.draw(st.lists(st.sampled_from([2.0, 4.0, 12.0]), min_size=9))
    )
    # Room of at most a byte is none.
    room = [10.0 * size for size in room]
    args = (np.array(idle, float), np.array(stall, float), np.array(room), held[: len(idle)], launches)
    if len(args[3]) < len(idle):
        return
    saved_s, transfers = scheduled(*args)
    most_s = most_saved(*args)
    assert saved_s <= most_s + 1e-9
    if is_even:
        assert saved_s == pytest.approx(most_s, abs=0.6)  # a second holds 2 bytes, and a byte is no room
    for k in range(len(idle)):
        during, of = transfers["during"], transfers["operator"]
        held_bytes = transfers["held_bytes"][(during <= k) & (of >= k)].sum()
        assert transfers["seconds"][during == k].sum() <= idle[k] + 1e-9
        assert transfers["seconds"][of == k].sum() <= stall[k] + 1e-9
        assert held_bytes <= room[k] + 1e-9
        assert (during < of).all()
    assert transfers["seconds"].sum() == pytest.approx(saved_s)


def chain(rows: int, columns: list[int], last_rows: int = 0, dtype: DType = DType.INT8) -> Graph:
    """Return a chain of products; `last_rows` of the result meet one more weight."""
    editor = Editor("chain")
    x, width = editor.input("x", (rows, columns[0]), dtype), columns[0]
    for i, wide in enumerate(columns[1:-1] if last_rows else columns[1:]):
        x, width = editor.matmul(x, editor.constant(f"w{i}", (width, wide), dtype), f"p{i}"), wide
    if last_rows:
        x = editor.matmul(editor.constant("chosen", (last_rows, rows), dtype), x, "select")
        x = editor.matmul(x, editor.constant("w", (width, columns[-1]), dtype), "last")
    editor.outputs.append(x)
    return editor.finish()


def estimated(graph: Graph, machine: Machine, per_tile: str, engine: str = "analytical") -> Estimate:
    return estimate(graph, machine.but(f"npu.sram.per_tile={per_tile}").soc, engine=engine)


@pytest.mark.parametrize("engine", ["analytical", "event"])
def test_a_product_that_waits_for_dram_waits_no_more(engine):
    """8.4 MB at 80 GB/s take 105 us, which the engines have spare while four products of 145 us compute."""
    graph = chain(2048, [1024] * 5 + [8192], last_rows=16)
    before, after = (estimated(graph, machine, "64MiB", engine) for machine in (OFF, ON))
    assert after.dram_bytes == pytest.approx(before.dram_bytes)
    busiest_s = max(unit.busy_s for unit in after.units.values())
    assert busiest_s <= after.latency_s < 1.08 * busiest_s
    if engine == "analytical":
        last, fetched_bytes = after.operators[-1], after.operators[-1].prefetched_bytes
        assert before.latency_s - after.latency_s == pytest.approx(fetched_bytes / 80e9, rel=0.05)
        assert 0.8 * 1024 * 8192 < fetched_bytes <= 1024 * 8192
        assert before.operators[-1].bound == "dma" and last.latency_s < 0.2 * before.operators[-1].latency_s


CHAINS = st.builds(
    chain,
    st.sampled_from([64, 256, 1024]),
    st.lists(st.sampled_from([256, 512, 1024, 2048]), min_size=3, max_size=7),
    st.sampled_from([0, 16, 64]),
    st.sampled_from([DType.INT8, DType.FP16]),
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CHAINS, st.sampled_from(["1MiB", "4MiB", "32MiB"]))
def test_prefetch_never_slows_and_never_beats_the_busiest_unit(graph, per_tile):
    before, after = (estimated(graph, machine, per_tile) for machine in (OFF, ON))
    assert after.latency_s <= before.latency_s * (1.0 + 1e-9)
    assert after.latency_s >= max(unit.busy_s for unit in after.units.values()) * (1.0 - 1e-9)
    read = sum(op.dram_read_bytes for op in after.operators)
    assert 0.0 <= sum(op.prefetched_bytes for op in after.operators) <= read


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CHAINS)
def test_more_sram_slows_no_prefetched_network(graph):
    latencies = [estimated(graph, ON, size).latency_s for size in ("1MiB", "2MiB", "8MiB", "64MiB")]
    assert all(more <= 1.005 * less for less, more in pairwise(latencies))


def test_a_kept_front_is_that_of_all_points(tmp_path):
    sheet = {"npu.schedule.prefetch": True, "npu.sram.per_tile": "64 MiB", "npu.launch_overhead": "0 ms"}
    graph = chain(2048, [1024] * 5 + [8192], last_rows=16)
    space = load_space(changed(QUICK, workload=graph, techniques="", set=sheet))
    sweep(space, tmp_path, chunk=700)
    expected = front(objectives(campaign_of(space).scores(0, 7200), space.minimise))
    assert query(tmp_path, "SELECT point FROM points ORDER BY 1")["point"].to_pylist() == expected.tolist()


def test_nothing_is_prefetched_unless_the_data_sheet_says_so():
    graph = chain(1024, [1024] * 4)
    off = estimated(graph, OFF, "8MiB")
    assert all(op.prefetched_bytes == 0.0 for op in off.operators)


@pytest.mark.parametrize("engine", ["analytical", "event"])
def test_weights_stay_between_inferences(engine):
    """With room for all, no weight is read; the first inference reads each once."""
    graph = chain(256, [1024, 1024, 1024, 4096])
    machine = OFF.but("npu.schedule.resident_weights=true", "npu.sram.per_tile=32MiB")
    steady, first = (estimate(graph, machine.soc, engine=engine, first=first) for first in (False, True))
    weights = sum(tensor.bytes for name, tensor in graph.tensors.items() if name.startswith("w"))
    assert steady.resident_bytes == weights and first.resident_bytes == 0.0
    assert first.dram_bytes - steady.dram_bytes == pytest.approx(weights)
    assert steady.energy_j < first.energy_j
    # The event engine finds other steps, which differ by no more than engines may.
    assert steady.latency_s < (1.0 if engine == "analytical" else 1.05) * first.latency_s
    assert first.latency_s == estimated(graph, OFF, "32MiB", engine).latency_s
    assert steady.sram_peak_bytes >= weights
    assert any("steady state" in note for note in steady.provenance["notes"])


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(CHAINS, st.sampled_from(["1MiB", "4MiB", "16MiB"]))
def test_residence_never_slows(graph, per_tile):
    machine = OFF.but("npu.schedule.resident_weights=true")
    before, after = (estimated(graph, each, per_tile) for each in (OFF, machine))
    assert after.latency_s <= before.latency_s * (1.0 + 1e-9)
