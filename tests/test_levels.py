"""Memory levels between SRAM and DRAM: what they serve, in both engines; more of them is never slower."""

from itertools import pairwise

import naive_levels
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npusim
from npusim.arch import load_soc, with_overrides
from npusim.cost.lowering.liveness import Use, bytes_between
from npusim.cost.lowering.tables import DpuOperation, Order, Unit, empty_ops
from npusim.cost.machine.architecture import ARCH_DTYPE
from npusim.cost.tilings.tiling import Tiling
from npusim.cost.tilings.tiling_needs import fill_needs
from npusim.cost.units import rates as cost_rates
from npusim.cost.units.levels import (
    LEVELS,
    SERVED_DTYPE,
    assume_all_repeats_served,
    fill_again,
    fill_served,
    repeats_of_activations,
    repeats_of_weights,
    share_held,
)
from npusim.cost.units.resources import CANDIDATE_DTYPE, LEVEL_READ_BYTES, READ_BYTES, halo_factor
from npusim.engines.analytical import estimate as run
from npusim.errors import ConfigError, InfeasibleError
from npusim.graph import Editor
from npusim.ops import DType
from npusim.studies.elasticity import elasticities

SERIES2 = load_soc("core-ultra-series2")
SIDE = "npu.levels.side_cache"
STACKS = ("stagr", "stagr+symg", "stagr+cacheg")
CAPACITIES = ("0B", "4MiB", "16MiB", "64MiB")
ROUNDING = 1 + 1e-12


def with_level(capacity, managed_by="software"):
    return with_overrides(SERIES2, {f"{SIDE}.capacity": capacity, f"{SIDE}.managed_by": managed_by})


def estimate(soc, techniques, **run):
    return npusim.estimate("gcn-cora", soc, techniques=techniques, **run)


# ------------------------------------------------------------------------------------------------ equations
SIZES = st.sampled_from([0.0, 1.0, 10.0, 64.0, 1000.0])


@given(st.sampled_from([0.0, 1.0, 50.0, 900.0]), SIZES, SIZES, st.booleans())
def test_what_is_held_is_its_slow_twin_and_no_less_with_more_room(capacity, passed, size, is_cache):
    found = share_held(capacity, passed, size, is_cache) * size
    assert found == pytest.approx(naive_levels.held(capacity, passed, size, is_cache))
    assert found <= share_held(capacity + 7.0, passed, size, is_cache) * size <= size


NAMES = st.sampled_from("abcdef")
OPERANDS = st.dictionaries(NAMES, st.sampled_from([1.0, 3.0, 20.0]), min_size=1, max_size=2)


@st.composite
def sequences(draw):
    """Groups on two devices that read and make a few tensors."""
    uses = []
    for i in range(draw(st.integers(1, 7))):
        sizes = draw(OPERANDS), draw(st.none() | OPERANDS), draw(st.lists(OPERANDS, max_size=2))
        made = {f"r{i}": 5.0}
        read = draw(st.none() | st.integers(0, i)) if i else None
        extra = (*sizes[2], *([{f"r{read}": 5.0}] if read is not None and read < i else []))
        uses.append(
            draw(st.none() | st.just(Use(draw(st.sampled_from("xy")), sizes[0], sizes[1], extra, made)))
        )
    return uses


@given(sequences(), st.sets(NAMES, max_size=1))
@settings(max_examples=60)
def test_what_passes_between_uses_is_its_slow_twin(uses, pinned):
    for i, (use, found) in enumerate(zip(uses, bytes_between(uses, (), pinned), strict=True)):
        if use is not None:
            assert found.a == naive_levels.between(uses, i, set(use.a), pinned)
            assert found.b == (naive_levels.between(uses, i, set(use.b), pinned) if use.b else 0.0)


@given(st.data())
@settings(max_examples=40)
def test_levels_serve_no_more_than_is_moved_and_each_byte_once(data):
    arch, op = np.zeros(1, ARCH_DTYPE)[0], empty_ops(1)[0]
    arch["contexts"] = data.draw(st.sampled_from([1.0, 2.0]))
    for k in range(LEVELS):
        arch["level_bytes"][k] = data.draw(SIZES)
        arch["level_operands"][k] = float(data.draw(st.integers(1, 7)))
        arch["level_is_cache"][k] = float(data.draw(st.booleans()))
    for name in ("a", "b", "extra", "c"):
        op[f"{name}_dram_bytes"], op["between"][name] = data.draw(SIZES), data.draw(SIZES)
    op["a_pinned"], op["pinned_bytes"] = data.draw(st.integers(0, 1)), data.draw(SIZES)
    served, more = np.zeros(2, SERVED_DTYPE)
    fill_served(arch, op, served)
    assert (served["first_bytes"] >= 0).all() and (served["written_bytes"] >= 0).all()
    assert served["first_bytes"].sum() <= served["compulsory_bytes"] * ROUNDING
    assert served["written_bytes"].sum() <= op["c_dram_bytes"] * ROUNDING
    arch["level_bytes"] += 5.0
    fill_served(arch, op, more)
    if not op["a_pinned"]:
        for name in ("first_bytes", "written_bytes"):
            assert more[name].sum() >= served[name].sum() - 1e-9
    arch["level_bytes"] = 0.0
    fill_served(arch, op, more)
    assert not more["is_any"]


COUNTS = st.integers(1, 4)


@given(st.data(), st.sampled_from(list(Order)), COUNTS, COUNTS, st.booleans())
@settings(max_examples=60)
def test_levels_serve_no_more_repeated_reads_than_there_are(data, order, rows, columns, is_segment):
    """Weights of a segment stay in SRAM and are read once; the bound of a search is never exceeded."""
    arch, op = np.zeros(1, ARCH_DTYPE)[0], empty_ops(1)[0]
    arch["contexts"], op["batch"] = 1.0, 1.0
    op["unit"], op["dpu_operation"], op["b_resident"] = Unit.DPU, DpuOperation.MATMUL, is_segment
    for k in range(LEVELS):
        arch["level_bytes"][k] = data.draw(SIZES)
        arch["level_operands"][k] = float(data.draw(st.integers(1, 7)))
        arch["level_is_cache"][k] = float(data.draw(st.booleans()))
    for name in ("a", "b", "extra", "c"):
        op[f"{name}_dram_bytes"] = data.draw(SIZES)
    candidates = np.zeros(2, CANDIDATE_DTYPE)
    for new in candidates:
        new["order"], new["strips"], new["row_blocks"], new["column_blocks"] = order, 1.0, rows, columns
        fill_needs(op, new, Tiling(int(order), 1.0, rows, columns, 1.0), 0.0, 0.0)
    fill_again(arch, op, candidates[0], candidates.view(np.float64), 0)
    assume_all_repeats_served(op, candidates[1])
    by_levels, at_most = (sum(new[f"level{k}_read_bytes"] for k in range(LEVELS)) for new in candidates)
    assert by_levels <= at_most * ROUNDING + 1e-9
    first_bytes = sum(op[f"{name}_dram_bytes"] for name in ("a", "b", "extra"))
    assert candidates[0]["read_bytes"] - by_levels >= first_bytes / ROUNDING - 1e-9


@given(st.sampled_from(list(Order)), COUNTS, COUNTS, st.integers(2, 3))
@settings(max_examples=60)
def test_reuse_distances_of_a_tiling_are_those_of_its_sequence_of_blocks(order, rows, columns, chunks):
    """A block of `a` has 30 B, of `b` 50 B, of `c` 7 B; the tiling is written out access by access."""
    chunks = chunks if order is Order.OUTPUTS_HELD else 1
    op, new = empty_ops(1)[0], np.zeros(1, CANDIDATE_DTYPE)[0]
    sizes = {"a": 30.0, "b": 50.0, "c": 7.0}
    op["a_dram_bytes"], op["b_dram_bytes"] = rows * chunks * 30.0, columns * chunks * 50.0
    op["c_dram_bytes"] = rows * columns * 7.0
    new["order"], new["strips"], new["row_blocks"], new["column_blocks"] = order, 1.0, rows, columns
    sequence = naive_levels.accesses(order, rows, columns, chunks)
    for operand, repeats in (("a", repeats_of_activations(op, new)), ("b", repeats_of_weights(op, new))):
        read = [block for block in sequence if block[0] == operand]
        assert repeats.moved == sizes[operand] * (len(read) - len(set(read)))
        distance = naive_levels.reuse_bytes(sequence, operand, sizes)
        most = sum(sizes[name] for name, *_ in set(sequence))
        assert distance <= repeats.panel + repeats.beside <= max(distance, most) or not repeats.moved
        if rows > 2 and columns > 2:
            assert repeats.panel + repeats.beside == pytest.approx(distance)


@given(st.data())
@settings(max_examples=40)
def test_a_transfer_takes_as_long_as_its_slow_twin(data):
    """Random levels, bandwidths and bytes, read by DMA engines of 16 GB/s."""
    row = npusim.Scenario("gcn-cora", SERIES2).mapped.arch
    arch, rates = row["npu"].copy(), np.zeros((1, cost_rates.RATES, cost_rates.BLOCK))
    arch["dma_engines"], arch["dma_engine_bytes_per_cycle"] = 1.0, 16e9 / arch["vpu_clock_hz"]
    arch["dma_ddr2cmx_share"] = 1.0
    speeds = [data.draw(st.sampled_from([1e9, 4e9, 10e9, 30e9])) for _ in range(LEVELS + 1)]
    moved = [data.draw(SIZES) for _ in range(LEVELS + 1)]
    arch["dram_bytes_per_s"] = speeds[0]
    arch["level_bytes"], arch["level_bytes_per_s"] = 1e6, speeds[:0:-1]
    numbers = np.zeros(LEVEL_READ_BYTES + 2 * LEVELS)
    numbers[READ_BYTES] = moved[0]
    numbers[LEVEL_READ_BYTES : LEVEL_READ_BYTES + LEVELS] = moved[:0:-1]
    cost_rates.fill_rates(arch, rates, 0, 0)
    cost_rates.fill_beside(numbers, 0, True, rates[0], 0, 1)
    transfer_s = moved[0] * rates[0, cost_rates.READ, 0] + rates[0, cost_rates.BESIDE, 0]
    assert transfer_s == pytest.approx(naive_levels.transfer_s(moved, speeds, 16e9))


# ------------------------------------------------------------------------------------------------ networks
def product(rows, depth, columns):
    editor = Editor("product")
    x = editor.input("x", (rows, depth), DType.FP16)
    editor.outputs.append(editor.matmul(x, editor.constant("w", (depth, columns), DType.FP16), "product"))
    return editor.finish()


def readers():
    """A product of 4096 x 1024 by 1024 x 1024, whose result six products of 64 columns read."""
    editor = Editor("readers")
    x = editor.input("x", (4096, 1024), DType.FP16)
    a = editor.matmul(x, editor.constant("w", (1024, 1024), DType.FP16), "a")
    for i in range(6):
        w = editor.constant(f"w{i}", (1024, 64), DType.FP16)
        editor.outputs.append(editor.matmul(a, w, f"reader{i}"))
    return editor.finish()


# A reader moves 4096 x 1024 x 2 B = 8,388,608 B of the handed-on tensor, 1024 x 64 x 2 B = 131,072 B of
# weights, and writes 4096 x 64 x 2 B = 524,288 B. DRAM moves 80.64 GB/s. Two DMA engines of 64 B at 1.057 GHz
# read at 94.61 % of 135.3 GB/s (128.0 GB/s) and write at 82.54 % (111.7 GB/s).
_HANDED, _WEIGHTS, _RESULT = 8_388_608, 131_072, 524_288
READER_CASES = {
    "none": ("0B", "64GB/s", (_HANDED + _WEIGHTS + _RESULT) / 80.64e9, 0, "dma"),  # 112.2 us
    # All reads pass through the level at 120 GB/s, and writes at the engines' 111.7 GB/s: 75.7 us.
    # DRAM meanwhile moves 655,360 B in 8.1 us.
    "fast": ("64MiB", "120GB/s", (_HANDED + _WEIGHTS) / 120e9 + _RESULT / 111.6733e9, _HANDED, "dma"),
    "between": ("64MiB", "90GB/s", (_HANDED + _WEIGHTS + _RESULT) / 90e9, _HANDED, "level"),  # 100.5 us
    # A slower level than DRAM: data go past it. 8,388,608 B through 1 MB/s would take 8.4 s.
    "slow": ("64MiB", "1GB/s", (_HANDED + _WEIGHTS + _RESULT) / 80.64e9, 0, "dma"),
    "slowest": ("64MiB", "1MB/s", (_HANDED + _WEIGHTS + _RESULT) / 80.64e9, 0, "dma"),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("engine", ["analytical", "event"])
@pytest.mark.parametrize("case", READER_CASES)
def test_readers_of_one_tensor_take_the_time_of_a_calculation_by_hand(case, engine):
    capacity, bandwidth, transfer_s, level_bytes, bound = READER_CASES[case]
    chosen = {"npu.launch_overhead": "0ms", "npu.sram.per_tile": "512KiB", f"{SIDE}.bandwidth": bandwidth}
    soc = with_overrides(with_level(capacity), chosen)
    e = npusim.estimate(readers(), soc, tiles=6, engine=engine)
    for op in e.operators[1:]:
        assert op.busy_s == pytest.approx(transfer_s, rel=1e-4 if engine == "analytical" else 0.01)
        assert (op.level_bytes, op.dram_bytes) == (level_bytes, _HANDED + _WEIGHTS + _RESULT - level_bytes)
        assert op.bound == bound
    assert e.bound == ("npu.side_cache" if bound == "level" else "npu.dma")
    limits = [point.limit for point in e.roofline.points[1:]]
    assert limits == ["npu side_cache" if level_bytes else "npu DRAM"] * 6


def test_a_capacity_of_0_is_as_though_the_level_were_not_there():
    without = SERIES2.model_copy(
        update={"devices": {**SERIES2.devices, "npu": SERIES2.npu.model_copy(update={"levels": {}})}}
    )
    for techniques in STACKS:
        one, other = estimate(without, techniques), estimate(SERIES2, techniques)
        for figure in ("latency_s", "energy_j", "dram_bytes", "sram_peak_bytes", "level_bytes"):
            assert getattr(one, figure) == getattr(other, figure)


@pytest.mark.parametrize("managed_by", ["software", "cache"])
@pytest.mark.parametrize("techniques", STACKS)
def test_more_of_a_level_is_never_slower_and_bytes_are_conserved(techniques, managed_by):
    found = [estimate(with_level(capacity, managed_by), techniques) for capacity in CAPACITIES]
    for less, more in pairwise(found):
        assert more.latency_s <= less.latency_s * ROUNDING
    for e in found:
        for op in e.operators:
            assert op.level_bytes >= 0.0 and op.dram_bytes >= 0.0
    assert found[0].level_bytes == 0.0 < found[-1].level_bytes
    assert found[-1].dram_bytes < found[0].dram_bytes
    if techniques == "stagr":
        moved = {e.dram_bytes + e.level_bytes for e in found}
        assert max(moved) == pytest.approx(min(moved))  # the same plan: what a level serves, DRAM does not


@pytest.mark.parametrize("techniques", STACKS)
def test_both_engines_agree_on_levels(techniques):
    for capacity in ("8MiB", "64MiB"):
        soc = with_level(capacity)
        one, other = (estimate(soc, techniques, engine=engine) for engine in ("analytical", "event"))
        assert other.latency_s == pytest.approx(one.latency_s, rel=0.15)


def two_products(rows, depth, columns):
    editor = Editor("two")
    x = editor.input("x", (rows, depth), DType.FP16)
    x = editor.matmul(x, editor.constant("w", (depth, columns), DType.FP16), "first")
    editor.outputs.append(editor.matmul(x, editor.constant("v", (columns, 256), DType.FP16), "second"))
    return editor.finish()


def two_convolutions(height, channels, kernel):
    editor = Editor("two")
    x = editor.input("x", (1, channels, height, height), DType.FP16)
    shape = (1, 2 * channels, height, height)
    for i, depth in enumerate((channels, 2 * channels)):
        w = editor.constant(f"w{i}", (2 * channels, depth, kernel, kernel), DType.FP16)
        x = editor.op("Convolution", (x, w), shape, DType.FP16, f"c{i}", strides=(1, 1))
    editor.outputs.append(x)
    return editor.finish()


TWO_OPERATORS = st.one_of(
    st.builds(two_products, *[st.sampled_from([200, 512, 1500])] * 3),
    st.builds(
        two_convolutions, st.sampled_from([28, 56]), st.sampled_from([64, 128]), st.sampled_from([1, 3])
    ),
)
MACHINES = st.fixed_dictionaries(
    {
        "npu.launch_overhead": st.just("0ms"),
        "npu.sram.per_tile": st.sampled_from(["128KiB", "256KiB"]),
        "dram.bandwidth": st.sampled_from(["10GB/s", "30GB/s", "80GB/s"]),
        f"{SIDE}.managed_by": st.sampled_from(["software", "cache"]),
    }
)
BETTER = {
    "capacity": ("0B", "128KiB", "500KiB", "1MiB", "3MiB", "16MiB"),
    "bandwidth": ("1GB/s", "20GB/s", "60GB/s", "90GB/s", "500GB/s"),
    "latency": ("2us", "100ns", "1ns"),
}
LARGEST_RISE = 1.001
"""`npusim.cost.units.rates.SERVED_TOLERANCE`."""


@given(TWO_OPERATORS, MACHINES, st.sampled_from(list(BETTER)), st.data())
@settings(max_examples=40)
def test_more_capacity_and_bandwidth_or_less_latency_of_a_level_never_hurts(graph, machine, axis, data):
    level = {name: data.draw(st.sampled_from(values[1:])) for name, values in BETTER.items()}
    least_s = np.inf
    for value in BETTER[axis]:
        at = {f"{SIDE}.{name}": each for name, each in {**level, axis: value}.items()}
        latency_s = npusim.estimate(graph, with_overrides(SERIES2, {**machine, **at}), tiles=6).latency_s
        assert latency_s <= least_s * LARGEST_RISE
        least_s = min(least_s, latency_s)


@given(TWO_OPERATORS, MACHINES, st.sampled_from(BETTER["capacity"][1:]))
@settings(max_examples=40)
def test_a_level_of_the_bandwidth_of_dram_changes_no_latency(graph, machine, capacity):
    """Its latency is at least that of DRAM, and the bytes of both pass through it one after another."""
    level = {f"{SIDE}.bandwidth": machine["dram.bandwidth"], f"{SIDE}.latency": "100us"}
    found = []
    for size in ("0B", capacity):
        soc = with_overrides(SERIES2, {**machine, **level, f"{SIDE}.capacity": size})
        found.append(npusim.estimate(graph, soc, tiles=6))
    assert found[1].latency_s == pytest.approx(found[0].latency_s, rel=1e-12)
    assert [op.mapping for op in found[1].operators] == [op.mapping for op in found[0].operators]
    assert found[1].dram_bytes <= found[0].dram_bytes


@given(TWO_OPERATORS, MACHINES, st.sampled_from(BETTER["capacity"]))
@settings(max_examples=40)
def test_what_enters_and_leaves_sram_comes_from_levels_and_dram_byte_for_byte(graph, machine, capacity):
    level = {f"{SIDE}.capacity": capacity, f"{SIDE}.bandwidth": "100GB/s"}
    mapped = npusim.Scenario(graph, with_overrides(SERIES2, {**machine, **level}), tiles=6).mapped
    for op, result in zip(mapped.lowered.ops, mapped.results, strict=True):
        halo = halo_factor(op, float(result["row_blocks"]), float(result["strips"]))
        order, columns = result["order"], result["column_blocks"]
        a = op["a_dram_bytes"] * halo * (1 if order == Order.ACTIVATIONS_HELD else columns)
        rows = 1 if order == Order.WEIGHTS_HELD else result["row_blocks"] * result["strips"]
        b = op["b_dram_bytes"] * rows
        moved = a + b + op["extra_dram_bytes"] + op["c_dram_bytes"]
        assert result["dram_bytes"] + result["level_bytes"] == pytest.approx(moved)
        assert result["through_bytes"][0] == pytest.approx(moved if capacity != "0B" else 0.0)
    total = mapped.total
    assert total["dram_bytes"] == pytest.approx(mapped.results["dram_bytes"].sum())
    assert total["level_traffic_bytes"] == pytest.approx(mapped.results["level_bytes"].sum())


@pytest.mark.parametrize("managed_by", ["software", "cache"])
def test_the_tiling_uses_a_level_that_holds_what_it_reads_again(managed_by):
    """4096 x 1024 by 1024 x 4096: seven blocks of weights are held in turn, and 8.39 MB stream past each.

    A cache of 8 MiB holds these only without the block of weights and outputs that pass between.
    """
    again = 6 * 4096 * 1024 * 2
    machine = {"npu.launch_overhead": "0ms", "npu.sram.per_tile": "512KiB"}
    for capacity, share in (("2MiB", 0.25), ("8MiB", 1.0), ("16MiB", 1.0)):
        soc = with_overrides(with_level(capacity, managed_by), machine)
        (op,) = npusim.estimate(product(4096, 1024, 4096), soc, tiles=6).operators
        assert (op.mapping.order, op.mapping.column_blocks) == ("weights_held", 7)
        expected = share if managed_by == "software" else float(capacity == "16MiB")
        assert op.level_bytes == pytest.approx(expected * again)


def blocks_of(mapping):
    return mapping.row_blocks * mapping.column_blocks


def test_a_level_makes_another_tiling_the_fastest():
    """2048 x 2048 x 2048, 512 KiB a tile: smaller blocks, which read more, pay if a level serves the rest."""
    machine, found = {"npu.launch_overhead": "0ms", "npu.sram.per_tile": "512KiB"}, []
    for capacity in ("0B", "16MiB"):
        soc = with_overrides(with_level(capacity), machine)
        found.append(npusim.estimate(product(2048, 2048, 2048), soc, tiles=6))
    without, with_side = found
    (before,), (after,) = without.operators, with_side.operators
    assert with_side.latency_s < 0.9 * without.latency_s
    assert after.dram_bytes == 3 * 2048 * 2048 * 2  # each operand once
    assert after.dram_bytes + after.level_bytes > before.dram_bytes
    assert blocks_of(after.mapping) > blocks_of(before.mapping)


def test_more_bandwidth_of_a_level_saves_time_where_it_is_the_bound():
    soc = with_overrides(with_level("16MiB"), {f"{SIDE}.bandwidth": "90GB/s"})
    gains = {row.resource: row.gain for row in elasticities(npusim.Scenario("gcn-cora", soc, "stagr"), run)}
    assert gains["bandwidth of side_cache"] > 0.01 > abs(gains["capacity of side_cache"])
    assert "level" in {op.bound for op in estimate(soc, "stagr").operators}


BANDWIDTHS = ("1MB/s", "10GB/s", "80GB/s", "100GB/s", "400GB/s")
"""Of the level; DRAM moves 80.64 GB/s."""


@pytest.mark.parametrize("managed_by", ["software", "cache"])
@pytest.mark.parametrize("engine", ["analytical", "event"])
def test_a_level_supplies_no_more_bytes_than_its_bandwidth_moves(engine, managed_by):
    """More bandwidth never hurts, and a level slower than DRAM supplies nothing."""
    without = estimate(SERIES2, "stagr", engine=engine)
    before = without
    for bandwidth in BANDWIDTHS:
        soc = with_overrides(with_level("64MiB", managed_by), {f"{SIDE}.bandwidth": bandwidth})
        found = estimate(soc, "stagr", engine=engine)
        assert found.latency_s <= before.latency_s * ROUNDING
        bytes_per_s = float(soc.npu.levels["side_cache"].bytes_per_s)
        assert (found.level_bytes > 0.0) == (bytes_per_s >= soc.dram.bandwidth)
        assert found.latency_s * ROUNDING >= found.level_bytes / bytes_per_s
        if not found.level_bytes:
            assert found.dram_bytes == without.dram_bytes
            leaks_j = found.energy.static_j - without.energy.static_j
            assert 0.0 < leaks_j == pytest.approx(found.energy_j - without.energy_j)
        before = found


def test_a_sweep_over_bandwidths_of_a_level_has_the_points_of_estimates(tmp_path):
    space = {
        "schema": "npusim.space/1", "workload": "gcn-cora", "techniques": "stagr", "keep": "all",
        "set": {f"{SIDE}.managed_by": "software", f"{SIDE}.capacity": "64MiB"},
        "axes": {
            f"{SIDE}.bandwidth": {"values": ["50GB/s", "100GB/s"]},
            "dram.bandwidth": {"values": ["40GB/s", "80GB/s"]},
        },
        "minimise": ["latency_s", "energy_j", "level_traffic_bytes"],
    }  # fmt: skip
    npusim.sweep(space, tmp_path / "found")
    for row in npusim.query(tmp_path / "found", "select * from points").to_pylist():
        level, dram = row[f"{SIDE}.bandwidth"], row["dram.bandwidth"]
        settings = {f"{SIDE}.bandwidth": f"{level:.0f}B/s", "dram.bandwidth": f"{dram:.0f}B/s"}
        alone = estimate(with_overrides(with_level("64MiB"), settings), "stagr")
        assert row["latency_s"] == pytest.approx(alone.latency_s, rel=1e-9)
        assert row["energy_j"] == pytest.approx(alone.energy_j, rel=1e-9)
        assert row["level_traffic_bytes"] == pytest.approx(alone.level_bytes, rel=1e-9)
        assert (row["level_traffic_bytes"] > 0.0) == (level >= dram)


def test_a_level_is_an_axis_of_a_sweep_from_0_up(tmp_path):
    space = {
        "schema": "npusim.space/1", "workload": "gcn-cora", "techniques": "stagr", "keep": "all",
        "set": {f"{SIDE}.managed_by": "software"},
        "axes": {
            f"{SIDE}.capacity": {"values": ["0B", "16MiB"]},
            "dram.bandwidth": {"values": ["40GB/s", "80GB/s"]},
        },
        "minimise": ["latency_s", "energy_j", "level_traffic_bytes"],
    }  # fmt: skip
    npusim.sweep(space, tmp_path / "found")
    rows = npusim.query(tmp_path / "found", "select * from points").to_pylist()
    assert len(rows) == 4
    for row in rows:
        soc = with_overrides(
            with_level(f"{row[f'{SIDE}.capacity']:.0f}B"),
            {"dram.bandwidth": f"{row['dram.bandwidth']:.0f}B/s"},
        )
        alone = estimate(soc, "stagr")
        assert row["latency_s"] == pytest.approx(alone.latency_s, rel=1e-9)
        assert row["level_traffic_bytes"] == pytest.approx(alone.level_bytes, rel=1e-9)
        assert (row["level_traffic_bytes"] > 0.0) == (row[f"{SIDE}.capacity"] > 0.0)


WEIGHTS = "tpu.dpu.array.levels.weights.capacity"


def test_points_where_what_stays_has_no_room_count_as_infeasible_and_fail_nothing(tmp_path):
    """A register of 0 B, of half a weight, of one: only the last one is a machine that runs the network."""
    space = {
        "schema": "npusim.space/1", "workload": "gcn-cora", "techniques": "stagr+quantgr", "soc": "tpu-v1",
        "keep": "all", "minimise": ["latency_s", "energy_j"],
        "axes": {WEIGHTS: {"values": ["0B", "0.5B", "2B"]}},
    }  # fmt: skip
    npusim.sweep(space, tmp_path / "found")
    rows = npusim.query(tmp_path / "found", "select * from points").to_pylist()
    assert [row[WEIGHTS] for row in rows if row["latency_s"] is not None] == [2.0]
    found = npusim.whatif("gcn-cora", "tpu-v1", stacks=["stagr+quantgr"], over={WEIGHTS: ["0.5B", "2B"]})
    assert found is not None
    with pytest.raises(InfeasibleError):
        estimate(load_soc("tpu-v1", {WEIGHTS: "0B"}), "stagr+quantgr")


# ------------------------------------------------------------------------------------------------ bad input
CHILD = "schema: npusim.soc/1\nextends: core-ultra-series2\nname: mine\ntitle: Mine\n"
LEVEL = "{capacity: 1 MiB, bandwidth: 100 GB/s, latency: 10 ns, read_energy: 2 pJ/B%s}"


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ({"l2": LEVEL % ", operands: [weigths]"}, ("npu.levels.l2.operands", "weights")),
        ({"l2": LEVEL % ", operands: []"}, ("npu.levels.l2.operands",)),
        ({f"l{i}": LEVEL % "" for i in range(4)}, ("npu.levels",)),
        ({"l2": "{capacity: 1 MiB}"}, ("npu.levels.l2",)),
        ({"l2": LEVEL % ", managed_by: hope"}, ("npu.levels.l2.managed_by", "software")),
    ],
)
def test_a_bad_level_is_told_by_file_and_key(tmp_path, levels, said):
    path = tmp_path / "mine.yaml"
    text = ", ".join(f"{name}: {level}" for name, level in levels.items())
    path.write_text(f"{CHILD}devices: {{npu: {{levels: {{side_cache: null, {text}}}}}}}\n")
    with pytest.raises(ConfigError) as caught:
        load_soc(path)
    assert all(part in str(caught.value) for part in said), str(caught.value)


def test_a_level_larger_than_the_one_outside_it_is_warned_of():
    assert not estimate(with_level("64MiB"), "stagr").warnings
    told = estimate(with_level("1MiB"), "stagr").warnings
    assert any("npu: SRAM holds 8.438 MiB, more than side_cache outside it, 1 MiB" in text for text in told)
