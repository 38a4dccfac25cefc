"""CPU and GPU: what must hold of their equations, and of what rides along on them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_hosts import cost as slow_cost
from naive_hosts import host_row
from naive_records import record

import npusim
from npusim.arch import load_soc, with_overrides
from npusim.arch.device import CACHE_LEVELS, ELEMENT_KINDS, ROW_KINDS
from npusim.calibration.published_fits import HostFit
from npusim.cost.lowering.execution import execution_of
from npusim.cost.lowering.tables import Unit, empty_ops
from npusim.cost.machine.design_point import arch_row
from npusim.cost.machine.hosts import DramRates, HostFormat, derive_host
from npusim.cost.units.hosts import cost_host, host_waits_s
from npusim.errors import ConfigError
from npusim.graph.editor import Editor
from npusim.mapping import Run, map_graph
from npusim.ops import DType, Operator, Tensor

ROUNDING = 1 + 1e-9
DRAM_LATENCY = 1e-7
CPU = load_soc("generic-cpu")

positive = st.floats(1e-3, 1e3)
sizes = st.one_of(st.just(0.0), st.floats(1.0, 1e9))


def several(values, count):
    return st.lists(values, min_size=count, max_size=count)


@st.composite
def hosts(draw):
    return {
        "cores": float(draw(st.integers(1, 64))),
        "clock_hz": draw(st.floats(1e8, 1e10)),
        "macs_per_cycle": draw(several(positive, len(HostFormat))),
        "dense_efficiency": draw(st.floats(0.01, 1.0)),
        "busy_outputs": draw(st.one_of(st.just(0.0), st.floats(1.0, 1e6))),
        "product_lanes": float(draw(st.integers(1, 64))),
        "result_macs": draw(st.floats(0.0, 100.0)),
        "element_cycles": draw(several(st.floats(0.0, 50.0), len(ELEMENT_KINDS))),
        "row_cycles": draw(several(st.floats(0.0, 500.0), len(ROW_KINDS))),
        "cache_bytes": draw(several(sizes, CACHE_LEVELS)),
        "cache_bytes_per_s": draw(several(st.floats(1e8, 1e13), CACHE_LEVELS)),
        "cache_latency_s": draw(several(st.floats(1e-10, 1e-6), CACHE_LEVELS)),
        "write_cost": draw(st.floats(0.1, 5.0)),
        "outstanding_misses": draw(st.floats(1.0, 100.0)),
        "scatter_cost": draw(st.floats(0.1, 10.0)),
        "scatter_columns": draw(st.one_of(st.just(0.0), st.floats(1.0, 1e3))),
        "core_bytes_per_s": draw(st.one_of(st.just(0.0), st.floats(1e8, 1e12))),
        "bytes_per_s": draw(st.floats(1e8, 1e13)),
        "dispatch_s": draw(st.floats(0.0, 1e-3)),
        "product_overhead_s": draw(st.one_of(st.just(0.0), st.floats(0.0, 1e-3))),
    }


@st.composite
def works(draw):
    """Columns of an operator: a product, or work on elements, with some traffic and random accesses."""
    work = {
        "host_elements": draw(several(sizes, len(ELEMENT_KINDS))),
        "host_rows": draw(several(sizes, len(ROW_KINDS))),
        "host_read_bytes": draw(sizes),
        "host_written_bytes": draw(sizes),
        "host_handed_bytes": draw(sizes),
        "host_gathers": draw(sizes),
        "host_scatters": draw(sizes),
        "host_columns": draw(sizes),
        "host_reach_bytes": draw(sizes),
        "host_fetched_bytes": draw(sizes),
        "host_format": int(draw(st.sampled_from(HostFormat))),
    }
    work["host_fresh_bytes"] = work["host_read_bytes"] * draw(st.floats(0.0, 1.0))
    work["host_network_bytes"] = work["host_fresh_bytes"] * draw(st.floats(1.0, 100.0))
    work["host_leaving_bytes"] = work["host_written_bytes"] * draw(st.floats(0.0, 1.0))
    if draw(st.booleans()):
        rows, columns, depth = (float(draw(st.integers(1, 5000))) for _ in range(3))
        work |= {"out_w": rows, "out_c": columns, "in_c": depth}
        work |= {"host_macs": rows * columns * depth, "host_results": rows * columns}
    return work


def op_row(work):
    row = empty_ops(1)[0]
    row["unit"] = Unit.HOST
    for name, value in work.items():
        row[name] = value
    return row


def derived(host):
    row = host_row(**host)
    derive_host(row, DramRates(DRAM_LATENCY, 0.0, 1.0, 1.0))
    return row


def time_s(host, work):
    return cost_host(derived(host), op_row(work))[0]


@given(hosts(), works())
@settings(max_examples=60)
def test_the_kernel_is_its_slow_twin(host, work):
    found = cost_host(derived(host), op_row(work))
    slow = slow_cost(record(host_row(**host)), record(op_row(work)), DRAM_LATENCY)
    moved = found.read_bytes + found.written_bytes
    assert (found.time_s, moved, found.streamed_bytes) == pytest.approx(slow)


@given(hosts(), works())
@settings(max_examples=25)
def test_time_is_finite_and_waits_are_part_of_it(host, work):
    row, op = derived(host), op_row(work)
    cost = cost_host(row, op)
    assert 0.0 <= host_waits_s(row, op) <= cost.time_s * ROUNDING < np.inf
    touched = work["host_read_bytes"] + work["host_written_bytes"] + work["host_handed_bytes"]
    touched += work["host_fetched_bytes"]
    assert 0.0 <= cost.streamed_bytes <= (cost.read_bytes + cost.written_bytes) * ROUNDING
    assert cost.streamed_bytes <= touched
    assert cost.read_bytes + cost.written_bytes <= touched * ROUNDING


BETTER = ["cores", "clock_hz", "dense_efficiency", "bytes_per_s", "outstanding_misses", "macs_per_cycle"]
BETTER += ["cache_bytes_per_s", "core_bytes_per_s"]


@given(hosts(), works(), st.sampled_from(BETTER), st.floats(1.0, 10.0))
@settings(max_examples=80)
def test_a_better_host_is_never_slower(host, work, what, factor):
    if what == "cores":
        factor = float(np.ceil(factor))
    better = host | {what: (np.asarray(host[what]) * factor).tolist()}
    assert time_s(better, work) <= time_s(host, work) * ROUNDING


@given(hosts(), works(), st.integers(0, CACHE_LEVELS - 1), st.floats(1.0, 100.0))
@settings(max_examples=60)
def test_a_larger_cache_is_never_slower(host, work, level, factor):
    larger = list(host["cache_bytes"])
    larger[level] *= factor
    assert time_s(host | {"cache_bytes": larger}, work) <= time_s(host, work) * ROUNDING


MORE = ["host_read_bytes", "host_written_bytes", "host_handed_bytes", "host_gathers", "host_scatters"]
MORE += ["host_reach_bytes", "host_fetched_bytes"]


@given(hosts(), works(), st.sampled_from(MORE), st.floats(0.0, 1e8))
@settings(max_examples=80)
def test_more_to_move_never_takes_less_time(host, work, what, more):
    assert time_s(host, work | {what: work[what] + more}) * ROUNDING >= time_s(host, work)


@given(hosts(), works(), st.sampled_from(["host_elements", "host_rows"]), st.integers(0, 2), sizes)
@settings(max_examples=25)
def test_more_elements_or_rows_never_take_less_time(host, work, what, which, more):
    counts = list(work[what])
    counts[which] += more
    assert time_s(host, work | {what: counts}) * ROUNDING >= time_s(host, work)


@given(hosts(), several(st.integers(1, 300), 3), st.integers(0, 2), st.integers(1, 300))
@settings(max_examples=80)
def test_a_larger_product_never_takes_less_time(host, shape, which, more):
    def product(rows, columns, depth):
        macs, results = float(rows * columns * depth), float(rows * columns)
        return {
            "out_w": float(rows),
            "out_c": float(columns),
            "in_c": float(depth),
            "host_macs": macs,
            "host_results": results,
        }

    larger = [size + more if i == which else size for i, size in enumerate(shape)]
    assert time_s(host, product(*larger)) * ROUNDING >= time_s(host, product(*shape))


def test_a_host_without_caches_or_kinds_of_elements_is_a_roofline():
    host = derived({"cores": 2.0, "clock_hz": 1e9, "bytes_per_s": 1e9, "macs_per_cycle": 8.0})
    streamed = cost_host(host, op_row({"host_read_bytes": 1e6, "host_written_bytes": 1e6}))
    assert streamed[:2] == pytest.approx((2e-3, 2e6))
    assert (streamed.read_bytes, streamed.written_bytes) == pytest.approx((1e6, 1e6))
    assert streamed.waiting_s == streamed.time_s
    product = {"out_w": 10.0, "out_c": 10.0, "in_c": 16.0, "host_macs": 1600.0, "host_results": 100.0}
    assert cost_host(host, op_row(product))[0] == pytest.approx(1600 / (8 * 2 * 1e9))


def test_columns_are_rounded_up_to_lanes_but_not_for_a_vector():
    host = derived({"product_lanes": 16.0})

    def macs(rows, columns, depth):
        product = {"out_w": rows, "out_c": columns, "in_c": depth, "host_results": rows * columns}
        return cost_host(host, op_row(product | {"host_macs": rows * columns * depth}))[0]

    assert macs(100.0, 7.0, 32.0) == macs(100.0, 16.0, 32.0) == 100 * 16 * 32
    assert macs(100.0, 1.0, 32.0) == 100 * 32


def test_what_fits_a_level_moves_at_its_bandwidth_and_the_rest_at_the_next():
    host = derived(
        {"cache_bytes": [1e3, 1e6, 0.0, 0.0], "cache_bytes_per_s": [1e9, 1e8, 1.0, 1.0], "bytes_per_s": 1e7}
    )
    assert cost_host(host, op_row({"host_read_bytes": 1e3}))[0] == pytest.approx(1e-6)
    assert cost_host(host, op_row({"host_read_bytes": 1e6}))[0] == pytest.approx(1e-6 + 999e3 / 1e8)
    time, beyond, *_ = cost_host(host, op_row({"host_read_bytes": 3e6}))
    assert (time, beyond) == pytest.approx((1e-6 + 999e3 / 1e8 + 2e6 / 1e7, 2e6))


def test_narrow_rows_of_a_scatter_keep_few_cores_busy():
    kind = ELEMENT_KINDS.index("scatter")
    cycles = [float(i == kind) for i in range(len(ELEMENT_KINDS))]
    host = {"cores": 8.0, "clock_hz": 1.0, "element_cycles": cycles, "scatter_columns": 128.0}

    def time_of(columns):
        counts = [1024.0 * (i == kind) for i in range(len(ELEMENT_KINDS))]
        return time_s(host, {"host_elements": counts, "host_columns": columns})

    assert [time_of(columns) for columns in (1.0, 128.0, 256.0, 1024.0, 1e6)] == [1024, 1024, 512, 128, 128]
    assert time_s(host | {"scatter_columns": 0.0}, {"host_elements": [1024.0] * len(cycles)}) == 128


def test_one_core_has_a_part_of_the_bandwidth_from_dram():
    host = {"bytes_per_s": 50.0, "core_bytes_per_s": 12.0}
    times = [time_s(host | {"cores": cores}, {"host_read_bytes": 600.0}) for cores in (1.0, 2.0, 8.0)]
    assert times == pytest.approx([50.0, 25.0, 12.0])


def test_what_a_network_reads_anew_comes_from_dram_as_far_as_no_cache_holds_it():
    host = {"bytes_per_s": 1.0, "cache_bytes": [60.0, 0, 0, 0], "cache_bytes_per_s": [10.0, 1, 1, 1]}
    work = {"host_read_bytes": 60.0, "host_fresh_bytes": 60.0}
    times = [time_s(host, work | {"host_network_bytes": size}) for size in (60.0, 120.0, 6e9)]
    assert times == pytest.approx([6.0, 3.0 + 30.0, 60.0])
    assert cost_host(derived(host), op_row(work | {"host_network_bytes": 120.0})).streamed_bytes == 30.0


def test_kinds_that_a_data_sheet_leaves_out_take_as_long_as_what_they_are_like():
    row = cpu_row(load_soc("core-ultra-series2"), "latency")["element_cycles"]
    assert row[ELEMENT_KINDS.index("scatter_reduce")] == row[ELEMENT_KINDS.index("scatter")]
    assert row[ELEMENT_KINDS.index("row_relayout")] == row[ELEMENT_KINDS.index("relayout")]
    for kind, like in (("spread", "relayout"), ("wide_gather", "gather"), ("softmax_across", "softmax")):
        assert row[ELEMENT_KINDS.index(kind)] == row[ELEMENT_KINDS.index(like)]
    rows = cpu_row(load_soc("core-ultra-series2"), "latency")["row_cycles"]
    assert rows[ROW_KINDS.index("reduction_across")] == rows[ROW_KINDS.index("reduction")] > 0
    assert rows[ROW_KINDS.index("vector")] == 0


@pytest.mark.parametrize(
    ("axes", "rows"),
    [
        ((2,), {"reduction": 64 * 4}),
        ((1,), {"reduction_across": 64 * 8, "vector": 64 * 4}),
        ((0,), {"reduction_across": 4 * 8, "vector": 64}),
        ((0, 1), {"reduction_across": 8, "vector": 64 * 4}),
    ],
)
def test_a_reduction_across_rows_adds_vectors(axes, rows):
    op = Operator("op", "ReduceSum", ("x",), ("y",), {"axes": axes})
    x = Tensor("x", (64, 4, 8), DType.FP32)
    work = op.traits.work(op, (x,), ())
    assert execution_of(op.traits).row_counts(op, (x,), work) == rows


def test_a_row_longer_than_a_line_is_streamed():
    """Ten times the bytes in as many rows: the accesses stay, bandwidth is asked for more."""
    found = []
    for width in (16, 160):
        editor = Editor("gather")
        table = editor.input("x", (100_000, width), DType.FP32)
        rows = editor.input("rows", (1000,), DType.INT32)
        editor.outputs.append(editor.gather(table, rows, "gather"))
        found.append(map_graph(editor.finish(), CPU, Run(tiles=0)).lowered.ops[0])
    assert found[0]["host_gathers"] == found[1]["host_gathers"] == 1000
    assert found[1]["host_written_bytes"] == 10 * found[0]["host_written_bytes"]
    assert found[1]["host_read_bytes"] < 100_000 * 160  # a table is not read as a whole


@pytest.mark.parametrize(
    ("kind", "type_", "read", "written", "attrs"),
    [
        ("arithmetic", "Relu", (64, 8), (64, 8), {}),
        ("division", "Divide", (64, 8), (64, 8), {}),
        ("sigmoid", "Elu", (64, 8), (64, 8), {}),
        ("arithmetic", "ReduceSum", (64, 8), (64,), {"axes": (1,)}),
        ("reduction", "ReduceSum", (64, 8), (8,), {"axes": (0,)}),
        ("pooling", "MaxPool", (2, 4, 8), (2, 4, 1), {"kernel": (8,)}),
        ("relayout", "Transpose", (64, 8), (8, 64), {"order": (1, 0)}),
        ("arithmetic", "Transpose", (64, 1), (1, 64), {"order": (1, 0)}),
        ("row_relayout", "Transpose", (64, 8, 16), (8, 64, 16), {"order": (1, 0, 2)}),
        ("relayout", "Transpose", (64, 8, 15), (8, 64, 15), {"order": (1, 0, 2)}),
        ("spread", "Broadcast", (64, 1), (64, 8), {}),
        ("gather", "Gather", (64,), (9,), {}),
        ("gather", "Gather", (64, 1), (9, 1), {}),
        ("narrow_gather", "Gather", (64, 16), (9, 16), {}),
        ("wide_gather", "Gather", (64, 17), (9, 4, 17), {}),
        ("softmax", "Softmax", (64, 4, 8), (64, 4, 8), {"axes": (2,)}),
        ("softmax_across", "Softmax", (64, 4, 8), (64, 4, 8), {"axes": (1,)}),
        ("arithmetic", "Broadcast", (1, 8), (64, 8), {}),
        ("scatter", "ScatterElementsUpdate", (64, 8), (64, 8), {"reduction": "sum"}),
        ("scatter", "ScatterElementsUpdate", (64, 8), (64, 8), {}),
        ("scatter_reduce", "ScatterElementsUpdate", (64, 8), (64, 8), {"reduction": "max"}),
    ],
)
def test_kinds_of_work_on_elements(kind, type_, read, written, attrs):
    op = Operator("op", type_, ("x",), ("y",), attrs)
    given_, made = Tensor("x", read, DType.FP32), Tensor("y", written, DType.FP32)
    assert execution_of(op.traits).element_kind(op, (given_,), (made,)) == kind


def chain():
    """Return a product, an addition of a tensor that is made later, and an activation that leaves."""
    editor = Editor("chain")
    x, w = editor.input("x", (64, 32), DType.FP32), editor.constant("w", (32, 16), DType.FP32)
    product = editor.matmul(x, w, "product")
    other = editor.unary("Softmax", editor.input("other", (64, 16), DType.FP32), "other/softmax", axes=(1,))
    added = editor.eltwise("Add", product, other, "add")
    editor.outputs.append(editor.unary("Relu", added, "relu"))
    return editor.finish()


def test_elementwise_operators_ride_along_on_a_cpu():
    mapped = map_graph(chain(), CPU, Run(tiles=0))
    groups = {g.main: g.fused for g in mapped.decisions.groups}
    assert groups == {"other/softmax": (), "product": ("add", "relu")}
    order = [g.main for g in mapped.decisions.groups]
    assert order.index("other/softmax") < order.index("product")  # whose follower reads it
    row = mapped.lowered.ops[order.index("product")]
    assert row["host_read_bytes"] == 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert row["host_written_bytes"] == 4 * 64 * 16
    assert row["host_elements"].sum() == 2 * 64 * 16


def test_nothing_rides_along_where_the_data_sheet_lists_nothing():
    bare = npusim.load_soc("generic-cpu", ["cpu.fused_ops=[]"])
    mapped = map_graph(chain(), bare, Run(tiles=0))
    assert not any(g.fused for g in mapped.decisions.groups)
    assert mapped.total["latency_s"] > map_graph(chain(), CPU, Run(tiles=0)).total["latency_s"]


def test_where_devices_share_an_inference_what_crosses_passes_through_dram():
    soc = load_soc("core-ultra-series2")
    graph = npusim.apply(npusim.load_workload("gcn-cora"), "grad+nodepad+graphsplit")
    editor = Editor.of(graph)
    first = next(op for op in graph if op.family.value == "matmul")
    editor.change_operator(first.name, device="cpu")
    mapped = map_graph(editor.finish(), soc, Run(tiles=4))
    assert len({group.device for group in mapped.decisions.groups if group.device}) > 1
    rows = mapped.lowered.ops[mapped.lowered.ops["unit"] == Unit.HOST]
    assert len(rows) and (rows["host_handed_bytes"] > 0).all()
    by_name = {g.main: row for g, row in zip(mapped.decisions.groups, mapped.lowered.ops, strict=True)}
    row, shape = by_name[first.name], graph.tensors[first.outputs[0]].shape
    made = 4.0 * shape[0] * shape[1]  # in fp32, on a CPU that has no fp16
    assert row["host_handed_written_bytes"] == made and not row["host_written_bytes"]
    read = (graph.tensors[name] for name in first.inputs)
    assert row["host_read_bytes"] == sum(4.0 * t.elements for t in read)  # inputs and constants: once


# ------------------------------------------------------------------------------------ cores and clock by hint
BY_HINT = load_soc("core-ultra-7-165h")


def cpu_row(soc, hint):
    return arch_row(soc, 1, 1, hint)["cpu"]


@pytest.mark.parametrize(("hint", "cores"), [("latency", 6), ("throughput", 14)])
def test_a_hint_takes_its_cores_and_the_clock_that_they_sustain(hint, cores):
    row = cpu_row(BY_HINT, hint)
    share = getattr(BY_HINT.cpu.sustained_clock_share, hint)
    assert row["cores"] == cores
    assert row["clock_hz"] == pytest.approx(float(BY_HINT.cpu.clock) * float(share))
    note = next(
        n
        for n in npusim.estimate("resnet-50", BY_HINT, hint=hint, device="cpu").provenance["notes"]
        if "CPU" in n
    )
    assert f"{cores} of 14 cores" in note


def test_a_data_sheet_without_hints_has_all_cores_at_their_clock_for_each():
    for hint in ("latency", "throughput"):
        row = cpu_row(CPU, hint)
        assert (row["cores"], row["clock_hz"]) == (int(CPU.cpu.cores), float(CPU.cpu.clock))


def test_never_more_cores_than_the_chip_has():
    with pytest.raises(ConfigError, match="at most 14"):
        load_soc("core-ultra-7-165h", ["cpu.cores_for.latency=15"])
    fewer = load_soc("core-ultra-7-165h", ["cpu.cores=4"])
    assert [cpu_row(fewer, hint)["cores"] for hint in ("latency", "throughput")] == [4, 4]


@given(st.floats(0.05, 4.0))
@settings(max_examples=10)
def test_the_element_rate_divides_cycles_of_elements_and_rows(rate):
    plain = cpu_row(CPU, "latency")
    scaled = cpu_row(with_overrides(CPU, {"cpu.element_rate": rate}), "latency")
    for cycles in ("element_cycles", "row_cycles"):
        np.testing.assert_allclose(scaled[cycles], plain[cycles] / rate)


# ----------------------------------------------------------------------------------------- published networks
def test_the_fit_to_published_networks_finds_numbers_that_made_the_figures():
    shipped = HostFit("gpu")
    truth = {number.name: number.start for number in shipped.free}
    made = shipped.predicted(truth)
    rows = [replace(row, value=value) for row, value in zip(shipped.rows, made.tolist(), strict=True)]
    found = HostFit("gpu", rows).solve().values
    assert found == pytest.approx(truth, rel=1e-3)


def test_a_network_left_out_has_no_part_in_its_own_prediction():
    shipped = HostFit("gpu")
    network = shipped.rows[0].workload
    spoilt = [replace(row, value=row.value * (7 if row.workload == network else 1)) for row in shipped.rows]
    found = HostFit("gpu", spoilt).solve(without=network).values
    assert found == pytest.approx(shipped.solve(without=network).values)


def test_the_next_generation_of_gpu_is_the_faster_one():
    """A number that was fitted to narrow products once made it five times slower."""

    def latency_s(soc):
        return npusim.estimate("resnet-50", soc, device="gpu").latency_s

    assert latency_s("core-ultra-9-288v") < latency_s("core-ultra-7-165h")


@pytest.mark.parametrize(("type_", "dtype", "ratio"), [
    ("GatherElements", DType.FP16, 0.71), ("GatherElements", DType.INT8, 1.0), ("Gather", DType.FP16, 1.0),
])  # fmt: skip
def test_one_operator_keeps_a_network_in_floating_point_planar(
    type_: str, dtype: DType, ratio: float
) -> None:
    """Products take 1 / rate as long; integers and other operators leave them as they are."""

    def macs(planar: bool) -> float:
        soc = load_soc("core-ultra-7-165h")
        editor = Editor("g")
        a, b = editor.input("a", (512, 512), dtype), editor.constant("b", (512, 512), dtype)
        editor.outputs.append(editor.matmul(a, b, "product"))
        table, index = editor.input("t", (64, 64), DType.FP16), editor.input("i", (64, 64), DType.INT32)
        attrs = {"axes": (0,)}
        kind = type_ if planar else "Gather"
        index = index if kind == "GatherElements" else editor.input("j", (64,), DType.INT32)
        editor.outputs.append(editor.op(kind, (table, index), (64, 64), DType.FP16, "fetched", **attrs))
        mapped = map_graph(editor.finish(), soc, Run(device="gpu"))
        return float(mapped.lowered.ops["host_macs"].sum())

    assert macs(planar=False) / macs(planar=True) == pytest.approx(ratio)
