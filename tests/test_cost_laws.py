"""Laws of the cost kernel: what must hold for every operator on every machine, whatever the fitted numbers
are."""

from itertools import pairwise
from math import inf
from typing import Any

import naive
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from one_point import evaluate
from strategies import Machine, convolutions, graphs, machines, runs, tight_convolutions, tight_products

from npusim import estimate, load_workload
from npusim.arch import load_soc
from npusim.cost.lowering.tables import RESULT_DTYPE, TOTAL_DTYPE, Unit
from npusim.cost.machine.design_point import arch_row
from npusim.cost.network.plan_costs import contention_interval_s
from npusim.cost.units.rates import TOLERANCE
from npusim.errors import InfeasibleError
from npusim.graph import Graph
from npusim.mapping import Mapped, Run, map_graph
from npusim.ops import TensorKind

ROUNDING = 1 + 1e-12
CHOICE = ROUNDING * (1 + TOLERANCE)
"""A mapping may be so much slower than the fastest, where it moves fewer bytes."""

BETTER = {
    "DRAM bandwidth": "dram_bytes_per_s",
    "DPU clock": "dpu_clock_hz",
    "VPU clock": "vpu_clock_hz",
    "MACs per cycle": "dpu_mac_bytes_per_cycle",
    "DMA engines": "dma_engines",
    "DMA width": "dma_engine_bytes_per_cycle",
    "DSPs": "dsps_per_tile",
    "DSP lanes": "dsp_lanes",
    "SRAM": "sram_tile_bytes",
}


def cost(row: Any, ops: Any) -> tuple[Any, Any]:
    """Return (a row per operator, the total) of operators on one architecture."""
    results, total = np.zeros(len(ops), RESULT_DTYPE), np.zeros(1, TOTAL_DTYPE)
    evaluate(row, ops, results, total[0])
    return results, total[0]


def with_more(row: Any, field: str, factor: float) -> Any:
    better = row.copy()
    record = better.shared if field == "dram_bytes_per_s" else better["npu"]
    record[field] *= factor
    better.derive()
    return better


def mapped_or_reject(graph: Graph, machine: Machine, run: Run) -> Mapped:
    try:
        return map_graph(graph, machine.soc, run)
    except InfeasibleError:
        assume(False)
        raise


# A MAC unit reads whole steps of input channels: one that is deeper than a product has channels reads
# padding, which costs time where the ports of SRAM are the limit. So the law of deeper MACs is one of
# channels in whole steps.
DEEPER = "MACs per cycle"
FACTORS = st.sampled_from([1.1, 2.0, 3.0, 8.0])


def grown_by(what: str, factor: float) -> float:
    """The factor, rounded up to what makes sense: whole engines and DSPs, MAC units of twice, four times
    ... the depth."""
    if what == DEEPER:
        return float(2 ** np.ceil(np.log2(factor)))
    return float(np.ceil(factor)) if what in ("DMA engines", "DSPs") else factor


def check_never_slower(row: Any, ops: Any, factor: float, names: Any = tuple(BETTER)) -> None:
    results, total = cost(row, ops)
    for what in names:
        more = with_more(row, BETTER[what], grown_by(what, factor))
        results_with_more, total_with_more = cost(more, ops)
        slower = results_with_more["latency_s"] > results["latency_s"] * CHOICE
        assert not slower.any(), what
        assert total_with_more["latency_s"] <= total["latency_s"] * CHOICE, what
        # Tilings are chosen for the latency of an operator alone, and a quicker one may move more: with hosts
        # or other contexts that share DRAM and DMA, others then wait.
        several = row.shared["requests"] > 1
        alone = not several or (row["npu"]["contexts"] == 1 and not ops["host_read_bytes"].any())
        if alone:
            assert total_with_more["throughput_per_s"] * CHOICE >= total["throughput_per_s"], what


@given(row_and_op=tight_products(deep=True), factor=FACTORS)
@settings(max_examples=50)
def test_a_product_is_never_slower_on_a_better_machine(row_and_op, factor):
    row, op = row_and_op
    check_never_slower(row, np.array([op]), factor)


@given(row_and_op=tight_products(triangle=True, deep=True), factor=FACTORS)
@settings(max_examples=50)
def test_a_product_with_a_stored_triangle_is_never_slower_on_a_better_machine(row_and_op, factor):
    row, op = row_and_op
    # A known breach: 768 x 768 by 49 columns takes 4.7 % longer with some more SRAM, for parts that
    # stream are tried only where the share does not fit.
    check_never_slower(row, np.array([op]), factor, [name for name in BETTER if name != "SRAM"])


@given(row_and_op=tight_convolutions(), factor=FACTORS)
@settings(max_examples=40)
def test_a_convolution_is_never_slower_on_a_better_machine(row_and_op, factor):
    row, op = row_and_op
    check_never_slower(row, np.array([op]), factor, [name for name in BETTER if name != DEEPER])


@given(data=st.data(), factor=FACTORS)
@settings(max_examples=40)
def test_an_inference_is_never_slower_on_a_better_machine(data, factor):
    machine = data.draw(machines())
    graph = data.draw(st.one_of(graphs(), convolutions()))
    mapped = mapped_or_reject(graph, machine, data.draw(runs(machine.soc)))
    check_never_slower(mapped.arch, mapped.lowered.ops, factor, [name for name in BETTER if name != DEEPER])


@given(row_and_op=tight_products(), more=st.integers(1, 5))
@settings(max_examples=50)
def test_a_product_is_never_slower_on_more_tiles(row_and_op, more):
    row, op = row_and_op
    check_tiles(row, op, more)


@given(row_and_op=tight_products(triangle=True), more=st.integers(1, 5))
@settings(max_examples=50)
def test_a_product_with_a_stored_triangle_is_never_slower_on_more_tiles(row_and_op, more):
    row, op = row_and_op
    check_tiles(row, op, more)


def check_tiles(row: Any, op: Any, more: int) -> None:
    before, _ = cost(row, np.array([op]))
    row["npu"]["tiles"] += more
    after, _ = cost(row, np.array([op]))
    assert after[0]["latency_s"] <= before[0]["latency_s"] * ROUNDING


@given(row_and_op=tight_products(), steps=st.tuples(*[st.integers(0, 3)] * 3))
@settings(max_examples=80)
def test_a_product_is_never_faster_with_more_rows_channels_or_columns(row_and_op, steps):
    row, op = row_and_op
    check_growth(row, op, steps)


@given(row_and_op=tight_products(triangle=True), step=st.integers(0, 3))
@settings(max_examples=50)
def test_a_product_with_a_stored_triangle_is_never_faster_with_a_larger_matrix(row_and_op, step):
    row, op = row_and_op
    check_growth(row, op, (step, step, 0))
    check_growth(row, op, (0, 0, step))


def check_growth(row: Any, op: Any, steps: tuple[int, int, int]) -> None:
    """Round a product up to whole steps of the grid, then add more of them; bytes that are moved grow
    along."""
    arch = row["npu"]
    lanes = (
        arch["dpu_pixel_lanes_w"] * arch["dpu_pixel_lanes_h"],
        arch["dpu_channel_lanes"],
        arch["dpu_channel_lanes"],
    )
    if op["triangle"]:
        side = lanes[0] * lanes[1]
        lanes = (side, side, lanes[2])
    sizes = [-(-op[name] // lane) for name, lane in zip(("out_w", "in_c", "out_c"), lanes, strict=True)]
    first, last = np.array([op, op])
    for sized, more in ((first, (0, 0, 0)), (last, steps)):
        m, k, n = (lane * (size + add) for lane, size, add in zip(lanes, sizes, more, strict=True))
        sized["out_w"], sized["in_c"], sized["out_c"] = m, k, n
        for side, elements in (("a", m * k), ("b", k * n), ("c", m * n)):
            if sized[f"{side}_dram_bytes"]:
                pack = sized[f"{side}_pack"] if side != "c" else 1.0
                sized[f"{side}_dram_bytes"] = sized["batch"] * elements * sized[f"{side}_item"] * pack
        if sized["a_triangle_bytes"]:
            sized["a_triangle_bytes"] = m * (m + 1) / 2 * sized["a_item"]
    small, _ = cost(row, np.array([first]))
    large, _ = cost(row, np.array([last]))
    assert large[0]["latency_s"] * ROUNDING >= small[0]["latency_s"]


@given(row_and_op=tight_products(triangle=True))
@settings(max_examples=60)
def test_a_triangle_that_is_read_at_full_rate_never_moves_more_than_the_dense_matrix(row_and_op):
    row, op = row_and_op
    row["npu"]["symg_transposed_rate"] = 1.0
    row.derive()
    dense = np.array([op])[0]
    dense["triangle"] = 0
    with_triangle, _ = cost(row, np.array([op]))
    without, _ = cost(row, np.array([dense]))
    assume(np.isfinite(without[0]["latency_s"]))
    assert with_triangle[0]["dram_bytes"] <= without[0]["dram_bytes"]
    assert with_triangle[0]["latency_s"] <= without[0]["latency_s"]


@given(row_and_op=tight_products(triangle=True), rate=st.floats(0.05, 1.0))
@settings(max_examples=60)
def test_transposed_reads_slow_the_grid_in_each_way_to_fetch_a_triangle(row_and_op, rate):
    """Half of the uses of a stored triangle's blocks are transposed, however often a block is fetched."""
    row, op = row_and_op
    plain, slow = (np.array([op])[0] for _ in range(2))
    plain["triangle"] = 0
    row["npu"]["symg_transposed_rate"] = rate
    row["npu"]["sram_tile_bytes"] = 1e9
    for sides in ("a", "b", "c"):  # the grid sets the pace
        for each in (plain, slow):
            each[f"{sides}_dram_bytes"] = each["a_triangle_bytes"] = each["extra_dram_bytes"] = 0.0
    row.derive()
    dense, _ = cost(row, np.array([plain]))
    stored, _ = cost(row, np.array([slow]))
    assert stored[0]["dpu_s"] * ROUNDING >= dense[0]["dpu_s"] * (0.5 + 0.5 / rate)


@given(st.data())
@settings(max_examples=50)
def test_totals_are_bounded_by_their_parts(data):
    machine = data.draw(machines())
    graph = data.draw(st.one_of(graphs(), convolutions()))
    mapped = mapped_or_reject(graph, machine, data.draw(runs(machine.soc)))
    total = mapped.total
    contexts = mapped.npu["contexts"]
    assert 1 <= contexts <= min(mapped.run.requests, max(1, machine.soc.npu.tiles // mapped.run.tiles))
    for unit in ("dma_s", "cpu_s", "gpu_s"):
        assert total["throughput_per_s"] * total[unit] <= ROUNDING
    for unit in ("dpu_s", "dsp_s"):
        assert total["throughput_per_s"] * total[unit] <= contexts * ROUNDING
    busy = max(total[unit] for unit in ("dpu_s", "dsp_s", "dma_s", "cpu_s", "gpu_s"))
    assert total["throughput_per_s"] * total["dram_bytes"] <= mapped.npu["dram_bytes_per_s"] * ROUNDING or (
        mapped.run.requests == 1
    )
    assert total["latency_s"] * ROUNDING >= busy
    assert total["energy_j"] > 0.0
    assert total["sram_peak_bytes"] <= mapped.run.tiles * mapped.npu["sram_tile_bytes"] * ROUNDING
    if mapped.run.requests == 1:
        assert total["throughput_per_s"] == 1.0 / total["latency_s"]
    for column in total.dtype.names:
        assert np.isfinite(total[column]) and total[column] >= 0.0


@given(st.data())
@settings(max_examples=15)
def test_more_contexts_never_lower_the_throughput(data):
    machine = data.draw(machines())
    graph, run = data.draw(st.one_of(graphs(), convolutions())), data.draw(runs(machine.soc))
    mapped = [mapped_or_reject(graph, machine.but(f"npu.contexts={c}"), run) for c in (1, 2, 3, 7)]
    rates = [one.total["throughput_per_s"] for one in mapped]
    for few, many in pairwise(rates):
        assert few <= many * ROUNDING
    for one, rate in zip(mapped, rates, strict=True):
        assert rate <= one.npu["contexts"] * rates[0] * ROUNDING
        assert one.total["latency_s"] >= run.requests / rate / ROUNDING


@given(st.integers(1, 9), st.floats(1e-6, 1.0), st.floats(0.0, 1.0))
def test_contexts_that_share_dma_are_a_closed_queueing_network(contexts, npu_s, share):
    dma_s = share * npu_s
    interval = contention_interval_s(float(contexts), npu_s, dma_s)
    assert interval == pytest.approx(naive.contention_interval_s(contexts, npu_s, dma_s), rel=1e-9)
    assert interval * ROUNDING >= max(npu_s / contexts, dma_s)


def test_contexts_are_as_many_as_sheet_tiles_and_requests_allow():
    soc = load_soc("core-ultra-series2")
    ample, narrow = load_soc(soc.name, ["npu.contexts=9"]), load_soc(soc.name, ["npu.tiles=5"])
    for machine, tiles, requests, contexts in (
        (soc, 2, 8, 2), (soc, 2, 1, 1), (soc, 1, 8, 2), (soc, 4, 8, 1), (soc, inf, 8, 1), (narrow, 2, 8, 2),
        (ample, 2, 8, 3), (ample, 1, 8, 6), (ample, 1, 4, 4), (load_soc("core-ultra-series1"), 1, 8, 1),
    ):  # fmt: skip
        assert arch_row(machine, tiles, requests, "throughput")["npu"]["contexts"] == contexts


@given(st.data())
@settings(max_examples=50)
def test_dram_carries_at_least_what_comes_in_and_goes_out(data):
    machine = data.draw(machines())
    graph = data.draw(st.one_of(graphs(), convolutions()))
    mapped = mapped_or_reject(graph, machine, data.draw(runs(machine.soc)))
    # What a CPU or GPU touches may lie in its caches.
    groups = [g for g in mapped.decisions.groups if g.unit not in (Unit.VIEW, Unit.HOST)]
    on_npu = [graph.operators[name] for g in groups for name in (g.main, *g.fused)]
    used = {t for op in on_npu for t in op.inputs}
    outside = [t for t in graph.tensors.values() if t.kind is not TensorKind.ACTIVATION and t.name in used]
    made = {t for op in on_npu for t in op.outputs}
    compulsory = sum(min(t.bytes, t.stored_bytes) for t in outside)
    compulsory += sum(graph.tensors[t].bytes for t in set(graph.outputs) & made)
    assert mapped.total["dram_bytes"] * ROUNDING >= compulsory


@given(st.data())
@settings(max_examples=10)
def test_the_same_question_has_the_same_answer_to_the_bit(data):
    machine = data.draw(machines())
    graph = data.draw(graphs())
    run = data.draw(runs(machine.soc))
    first, second = mapped_or_reject(graph, machine, run), mapped_or_reject(graph, machine, run)
    assert first.results.tobytes() == second.results.tobytes()
    assert first.total.tobytes() == second.total.tobytes()


def test_no_work_of_the_grid_draws_more_power_than_dense_convolutions():
    """Depthwise convolutions and pooling cost more per operation because they keep few multipliers busy."""
    power = {}
    for workload in ("resnet-50", "mobilenet-v2"):
        found = estimate(load_workload(workload), load_soc("core-ultra-series1"))
        for op in found.operators:
            if op.unit == "npu.dpu":
                power.setdefault(op.type, []).append(op.energy_j / op.latency_s)
    dense = max(power.pop("Convolution"))
    assert all(max(watts) < dense for watts in power.values())


@pytest.mark.parametrize("name", ["core-ultra-series1", "core-ultra-series2"])
def test_softmax_is_no_cheaper_than_an_addition_of_the_same_tensor(name):
    """Each element of a Softmax takes an exponential, a sum and a quotient."""
    dsp = load_soc(name).npu.dsp
    kernels = dsp.generation(dsp.kernel_generation).kernels
    for kind in ("softmax", "logsoftmax"):
        assert kernels[kind].per_element >= kernels["add"].per_element
