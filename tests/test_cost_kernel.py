"""The compiled cost kernel agrees with its slow twin, on random networks and machines and at the edges."""

from types import SimpleNamespace
from typing import Any

import naive
import naive_dma
import naive_dsp
import naive_products
import naive_triangle
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from naive_records import record
from one_point import evaluate
from strategies import convolutions, graphs, machines, runs, soc_with, tight_convolutions, tight_products

from npusim import estimate
from npusim.cost.batch.design_batch import points_in_groups
from npusim.cost.batch.evaluation import evaluate_points
from npusim.cost.lowering.plans import plan_table
from npusim.cost.lowering.tables import DSP_KERNEL_DTYPE, RESULT_DTYPE, TOTAL_DTYPE, Split, Unit
from npusim.cost.machine.design_point import arch_row
from npusim.cost.tilings.search import _triangle_cycles
from npusim.cost.tilings.tiling import tile_share
from npusim.cost.units.dsp import dsp_operator_s
from npusim.cost.units.rates import CMX2DDR, DDR2CMX, dma_latency_s, dma_transfer_s, sram_copy_s
from npusim.errors import InfeasibleError
from npusim.graph import Editor, Graph
from npusim.mapping import Mapped, Run, map_graph
from npusim.ops import DType, Storage

RELATIVE = 1e-9
TILING = (
    "split", "mode", "order", "row_blocks", "column_blocks", "channel_chunks", "tiles", "strips",
    "row_pieces", "buffers",
)  # fmt: skip
COSTS = (
    "latency_s",
    "dpu_s",
    "dsp_s",
    "dma_s",
    "host_s",
    "dram_bytes",
    "sram_peak_bytes",
    "energy_j",
)


def mapped_or_reject(graph: Graph, soc: Any, run: Any) -> Mapped:
    try:
        return map_graph(graph, soc, run)
    except InfeasibleError:
        assume(False)
        raise


def same(a: float, b: float) -> bool:
    return a == pytest.approx(b, rel=RELATIVE, abs=1e-30)


def check_operator(row: Any, op: Any, result: Any) -> Any:
    """Compare one operator; of several tilings that move equally many bytes the kernel may take any."""
    if op["unit"] == Unit.DPU and op["dpu_operation"] in naive.PRODUCTS:
        plain = record(op)
        arch = naive.device_of(row, plain)
        every = naive.product_choices(arch, plain)
        if not every:
            assert np.isinf(result["latency_s"])
            return SimpleNamespace(**naive.NOTHING | {"latency_s": np.inf})
        every = naive.chosen(every)
        alike = [c for c in every if all(getattr(c, key) == result[key] for key in TILING)]
        keys = [key for key in COSTS if key != "energy_j" and hasattr(alike[0], key)]
        # A stored triangle fetched once and a dense matrix cut along K can have the same counts, pieces of
        # several sizes the same costs.
        found = [c for c in alike if all(same(result[key], getattr(c, key)) for key in keys)]
        energies = [naive.energy_j(arch, plain, c) for c in found]
        pairs = zip(found, energies, strict=True)
        chosen, energy_j = next(pair for pair in pairs if same(result["energy_j"], pair[1]))
        return SimpleNamespace(**naive.NOTHING | vars(chosen) | {"energy_j": energy_j})
    twin = naive.operator(row, op)
    assert same(result["latency_s"], twin.latency_s)
    if np.isinf(twin.latency_s):  # fits in no way
        return twin
    for key in COSTS:
        assert same(result[key], getattr(twin, key)), key
    return twin


def check(mapped: Mapped) -> None:
    rows = zip(mapped.lowered.ops, mapped.results, strict=True)
    costs = [check_operator(mapped.arch, op, result) for op, result in rows]
    twin = naive.total(mapped.arch, mapped.lowered.ops, costs)
    for key, value in vars(twin).items():
        assert same(mapped.total[key], value), key


@given(st.data())
@hypothesis_settings(max_examples=25)
def test_kernel_agrees_with_its_twin_on_random_networks(data):
    soc = data.draw(machines()).soc
    check(mapped_or_reject(data.draw(graphs()), soc, data.draw(runs(soc))))


@pytest.mark.laws
@given(st.data())
@hypothesis_settings(max_examples=25)
def test_kernel_agrees_with_its_twin_on_images(data):
    soc = data.draw(machines()).soc
    check(mapped_or_reject(data.draw(convolutions()), soc, data.draw(runs(soc))))


def evaluated(row: Any, op: Any) -> Any:
    ops = np.array([op])
    results, total = np.zeros(1, RESULT_DTYPE), np.zeros(1, TOTAL_DTYPE)
    evaluate(row, ops, results, total[0])
    return results[0]


@given(tight_products(rates=True))
@hypothesis_settings(max_examples=60)
def test_no_tiling_beats_the_one_that_the_candidates_give(row_and_op):
    row, op = row_and_op
    check_operator(row, op, evaluated(row, op))


@pytest.mark.laws
@given(tight_products(triangle=True, rates=True))
@hypothesis_settings(max_examples=40)
def test_no_way_to_fetch_a_triangle_beats_the_chosen_one(row_and_op):
    row, op = row_and_op
    check_operator(row, op, evaluated(row, op))


@pytest.mark.laws
@given(tight_products(triangle=True, rates=True))
@hypothesis_settings(max_examples=60)
def test_the_busiest_tile_of_a_triangle_has_its_share_of_whole_blocks(row_and_op):
    """Each way to fetch a triangle once takes the cycles of its twin, also where another way is faster."""
    row, op = row_and_op
    row["npu"]["sram_tile_bytes"] = 1e12
    row.derive()
    arch = row.archs.arrays[0]
    twins = naive_triangle.choices_once(record(arch), record(op))
    assert len(twins) >= 9
    for twin in twins:
        pixels = min(op["out_w"], twin.register_tile_pixels)
        channels = tile_share(arch, op, int(twin.split))[2]
        sharing = float(twin.tiles) if twin.split == Split.ROWS else 1.0
        cycles = _triangle_cycles(arch, op, pixels, channels, twin.mode, sharing)
        assert same(cycles / arch["dpu_clock_hz"], twin.dpu_s)


@given(machines(), st.integers(1, 4), st.floats(0.0, 1e8), st.floats(0.0, 1e8), st.floats(0.0, 1e5))
def test_transfers_agree_with_their_twin(machine, tiles, read, written, row_bytes):
    arch = arch_row(machine.soc, tiles, 1, "latency")["npu"]
    plain = record(arch)
    gaps_s = naive_dma.read_gaps_s(plain, read, row_bytes) if row_bytes else 0.0
    engines = plain.dma_engines
    wait_s = dma_latency_s(arch, DDR2CMX, read / engines) if read else 0.0
    came_s = dma_transfer_s(arch, DDR2CMX, read, row_bytes, engines)
    assert same(came_s, wait_s + naive_dma.stream_s(plain, read, 0.0) + gaps_s)
    wait_s = dma_latency_s(arch, CMX2DDR, written / engines) if written else 0.0
    went_s = dma_transfer_s(arch, CMX2DDR, written, 0.0, engines)
    assert same(went_s, wait_s + naive_dma.stream_s(plain, 0.0, written))
    assert same(sram_copy_s(arch, read), naive_dma.copy_s(plain, read))


@st.composite
def dsp_kernels(draw):
    """A DSP kernel with loops and thresholds that no data sheet combines."""
    kernel = np.zeros(1, DSP_KERNEL_DTYPE)[0]
    thresholds = {"small_below", "small_counted", "row_head_elements", "few_rows_below"}
    for name in DSP_KERNEL_DTYPE.names:
        if name in thresholds or name in ("stream_from_elements", "stream_from_rows"):
            kernel[name] = draw(st.sampled_from([0.0, 0.0, 4.0, 32.0, 500.0]))
        else:
            kernel[name] = draw(st.floats(0.0, 100.0))
    kernel["vector_share"] = draw(st.floats(0.0, 1.0))
    kernel["reference_lanes"] = draw(st.sampled_from([8.0, 16.0, 32.0]))
    return kernel


@given(
    dsp_kernels(), st.integers(0, 5000), st.integers(1, 600), st.integers(1, 8), st.sampled_from([8.0, 32.0])
)
@hypothesis_settings(max_examples=100)
def test_dsp_kernels_agree_with_their_twin(kernel, elements, rows, dsps, lanes):
    """Every loop, at, below and above its thresholds, padded or not."""
    seconds = dsp_operator_s(kernel, float(elements), float(rows), float(dsps), lanes, 1e9)
    cycles = naive_dsp.operator_cycles(record(kernel), elements, rows, dsps, lanes)
    assert seconds == pytest.approx(cycles / 1e9, rel=RELATIVE)


@pytest.mark.laws
@given(tight_convolutions())
@hypothesis_settings(max_examples=40)
def test_no_tiling_of_a_convolution_beats_the_one_that_the_candidates_give(row_and_op):
    row, op = row_and_op
    check_operator(row, op, evaluated(row, op))


def product(m: int, k: int, n: int, **tensor: Any) -> Graph:
    editor = Editor("product")
    x = editor.input("x", (m, k), DType.FP16)
    w = editor.constant("w", (k, n), DType.FP16, **tensor)
    editor.outputs.append(editor.matmul(x, w, "product"))
    return editor.finish()


EDGES = {
    "one element": product(1, 1, 1),
    "one row": product(1, 4000, 70),
    "one column": product(500, 33, 1),
    "one channel": product(500, 1, 100),
    "channels that fill no lane": product(100, 100, 17),
    "no zeros left out of a full bitmap": product(64, 64, 64, storage=Storage.ZVC, density=1.0),
    "nothing but zeros": product(64, 64, 64, storage=Storage.ZVC, density=0.0),
}


@pytest.mark.parametrize("tiles", [1, 4])
@pytest.mark.parametrize("name", EDGES)
def test_kernel_agrees_with_its_twin_at_the_edges(name, tiles):
    soc = soc_with("core-ultra-series2", ())
    check(map_graph(EDGES[name], soc, Run(tiles=tiles)))


@pytest.mark.parametrize("requests", [1, 2, 8])
def test_requests_in_flight_wait_for_the_busiest_device_where_launches_are_short(requests):
    soc = soc_with("core-ultra-series2", ("npu.launch_overhead=1 ns",))
    hint = "latency" if requests == 1 else "throughput"
    mapped = map_graph(EDGES["one row"], soc, Run(hint, requests, 2))
    check(mapped)
    assert mapped.total["latency_s"] * mapped.total["throughput_per_s"] == pytest.approx(requests, rel=0.01)


def test_a_product_fits_into_just_enough_sram_and_not_into_a_byte_less():
    row = arch_row(soc_with("core-ultra-series2", ()), 1, 1, "latency")
    arch = row["npu"]
    op = map_graph(product(70, 40, 50), soc_with("core-ultra-series2", ()), Run()).lowered.ops[0]
    need = np.inf
    # Fewer bytes may need more parts, of which only the fewest that fit are tried.
    while choices := naive_products.choices(record(arch), record(op)):
        need = min(c.sram_peak_bytes for c in choices)
        arch["sram_tile_bytes"] = need - 1
    arch["sram_tile_bytes"] = need
    enough = evaluated(row, op)
    arch["sram_tile_bytes"] = need - 1
    assert enough["sram_peak_bytes"] == need
    assert np.isinf(evaluated(row, op)["latency_s"])


def test_many_architectures_at_once_cost_what_each_costs_alone():
    soc = soc_with("core-ultra-series2", ())
    ops = map_graph(product(300, 200, 100), soc, Run()).lowered.ops
    rows = [arch_row(soc, tiles, requests, "latency") for tiles in (1, 2, 6) for requests in (1, 8)]
    totals, alone = np.zeros(len(rows), TOTAL_DTYPE), np.zeros(len(rows), TOTAL_DTYPE)
    numbers, columns = np.array([row.numbers for row in rows]), np.array(rows[0].primitives)
    groups, plans = np.arange(len(rows) + 1), np.zeros(len(rows), np.int64)
    values = np.ascontiguousarray(numbers[:, columns])  # as in a sweep, whose compiled code then serves here
    points = points_in_groups(columns, values, groups)
    evaluate_points(rows[0], points, plan_table(ops[np.newaxis]), totals, plans)
    for row, total in zip(rows, alone, strict=True):
        evaluate(row, ops, np.zeros(len(ops), RESULT_DTYPE), total)
    assert totals.tobytes() == alone.tobytes()


@pytest.mark.parametrize(("name", "shape"), [("views alone", (4, 0)), ("no rows", (0, 4))])
def test_a_network_without_work_costs_its_launch(name, shape):
    editor = Editor(name)
    x = editor.input("x", shape, DType.FP16)
    editor.outputs.append(editor.reshape(x, shape[::-1], "view"))
    soc = soc_with("core-ultra-series2", ())
    e = estimate(editor.finish(), soc)
    assert e.latency_s == float(soc.npu.launch_overhead)
    assert np.isfinite(e.throughput_per_s)
