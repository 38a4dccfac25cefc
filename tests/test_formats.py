"""Number formats and regular sparsity: bytes by hand, rates of the sheet, and laws of both."""

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npusim
from npusim.arch import Soc, load_soc
from npusim.engines.analytical import mapped_estimate
from npusim.errors import ConfigError, NpusimError
from npusim.graph import Editor, Graph
from npusim.mapping import map_graph
from npusim.ops import DType, Role, Storage, Tensor
from npusim.ops.formats import FORMATS
from npusim.ops.sparsity import index_bits, kept_share, parse_sparsity
from npusim.scenario import Scenario, resolve_run
from npusim.workloads import load_workload

SOC = "core-ultra-series2"
PRODUCTS = [name for name, form in FORMATS.items() if form.computed_in]
_SHEET = (
    ("npu.dpu.macs_per_mpe", "MAC/cycle", {"int8": 8, "fp16": 4, "fp8_e4m3": 16}),
    ("technology.energy.mac", "pJ/MAC", {"int8": 0.05, "fp16": 0.325, "fp8_e4m3": 0.04}),
    ("technology.area.mac", "um^2/MAC", {"int8": 85, "fp16": 150, "fp8_e4m3": 90}),
)
OWN_FP8 = {
    path: {name: {"value": f"{value} {unit}", "source": "a test"} for name, value in values.items()}
    for path, unit, values in _SHEET
}


def product(
    activations: str = "fp16",
    weights: str = "fp16",
    sizes: tuple[int, int, int] = (512, 512, 512),
    **more: Any,
) -> Graph:
    """Build one product of an input and a constant; `more` are fields of the weights."""
    editor = Editor("product")
    rows, inner, columns = sizes
    x = editor.input("x", (rows, inner), DType(activations))
    w = editor.constant("w", (inner, columns), DType(weights), role=Role.WEIGHT, **more)
    editor.outputs = [editor.matmul(x, w, "product")]
    return editor.finish()


def row_of(graph: Graph, soc: Soc) -> tuple[Any, Any, Any]:
    """Return the table's row, results and estimate of a graph of one operator."""
    mapped = map_graph(graph, soc, resolve_run(soc))
    return mapped.lowered.ops[0], mapped.results[0], mapped_estimate(mapped)


@pytest.mark.parametrize(
    ("name", "elements", "expected"),
    [
        ("fp8_e4m3", 1000, 1000.0),
        ("mxfp8_e4m3", 64, 64.0 + 2.0),  # two blocks of 32, a byte each
        ("mxfp6_e3m2", 32, 24.0 + 1.0),
        ("mxfp4", 33, 16.5 + 2.0),  # the second block holds one element
        ("int2", 8, 2.0),
        ("msfp12", 16, 8.0 + 1.0),
    ],
)
def test_bytes_by_hand(name: str, elements: int, expected: float) -> None:
    """Elements and every block's scale count, the last one whole."""
    assert Tensor("t", (elements,), DType(name)).bytes == expected


@given(elements=st.integers(0, 10_000), name=st.sampled_from(sorted(FORMATS)))
def test_scales_are_counted_exactly(elements: int, name: str) -> None:
    """A tensor takes its elements' bits and the scales of ceil(elements / block) blocks."""
    form = FORMATS[name]
    blocks = sum(1 for _ in range(0, elements, form.block))
    assert Tensor("t", (elements,), DType(name)).bytes * 8 == elements * form.bits + blocks * form.scale_bits


@settings(max_examples=20, deadline=None)
@given(
    pair=st.lists(st.sampled_from(PRODUCTS), min_size=2, max_size=2), size=st.sampled_from([64, 512, 1024])
)
def test_fewer_bits_of_weights_take_no_more(pair: list[str], size: int) -> None:
    """At fp16's rate, weights of fewer stored bits take no more bytes and no more time."""
    soc = load_soc(SOC)
    narrow, wide = sorted(pair, key=lambda name: FORMATS[name].stored_bits)
    if FORMATS[wide].bits > 16:
        return
    less, more = (row_of(product("fp16", name, (64, size, size)), soc)[2] for name in (narrow, wide))
    assert less.dram_bytes <= more.dram_bytes
    assert less.latency_s <= more.latency_s * (1 + 5e-3)  # among mappings within 0.5 % the least traffic


@pytest.mark.parametrize(
    ("name", "network", "techniques", "short"),
    [
        ("mobilenet-v2", [], "none", "precision"),
        ("gcn-cora", [], "stagr", "quantgr"),
    ],
)
def test_w8a8_is_int8_to_the_last_digit(name: str, network: list[str], techniques: str, short: str) -> None:
    """weights=int8 with activations=int8 builds what precision=int8, or quantgr, builds."""
    both = Scenario(name, SOC, techniques, settings=["workload.weights=int8", "workload.activations=int8"])
    if short == "quantgr":
        other = Scenario(name, SOC, f"{techniques}+quantgr")
    else:
        other = Scenario(name, SOC, techniques, settings=["workload.precision=int8"])
    assert {t.name: (t.dtype, t.bytes) for t in both.graph.tensors.values()} == {
        t.name: (t.dtype, t.bytes) for t in other.graph.tensors.values()
    }
    if short == "quantgr":
        a, b = mapped_estimate(both.mapped), mapped_estimate(other.mapped)
        assert (a.latency_s, a.energy_j, a.dram_bytes) == (b.latency_s, b.energy_j, b.dram_bytes)


def test_a_format_without_a_rate_is_widened() -> None:
    """Without an fp8 rate the grid works in fp16 on half the bytes, and a note says so."""
    soc = load_soc(SOC)
    row, _, estimate = row_of(product("fp8_e4m3", "fp8_e4m3"), soc)
    wide_row, _, wide = row_of(product(), soc)
    assert (row["a_item"], row["a_pack"], row["mac_rate"]) == (2.0, 0.5, 1.0)
    assert wide_row["a_item"] == 2.0
    assert estimate.dram_bytes == wide.dram_bytes / 2
    assert any("fp8_e4m3 is computed as fp16" in note for note in estimate.provenance["notes"])


def test_a_format_has_its_own_rate_and_energy() -> None:
    """A rate of twice int8's doubles the MACs per cycle; its energy and area follow from the sheet."""
    plain, own = load_soc(SOC), load_soc(SOC, OWN_FP8)
    rate = 16.0 / plain.npu.dpu.macs_per_mpe["int8"]
    row, _, estimate = row_of(product("fp8_e4m3", "fp8_e4m3"), own)
    assert (row["a_item"], row["mac_rate"]) == (1.0, rate)
    assert row["mac_energy"] == pytest.approx(0.04e-12 / float(plain.technology.energy.mac["int8"]))
    int8 = row_of(product("int8", "int8"), own)[2]
    assert estimate.energy.mac_j == pytest.approx(int8.energy.mac_j * row["mac_energy"])
    assert not any("computed as" in note for note in estimate.provenance["notes"])
    areas = [map_graph(product(), soc, resolve_run(soc)).total["area_mm2"] for soc in (plain, own)]
    assert areas[1] > areas[0]


RATES = {"int8": 8, "fp16": 4, "fp8_e4m3": 8, "msfp12": 8, "bf16": 2, "mxfp6_e2m3": 6}


@pytest.mark.parametrize("name", sorted(RATES))
def test_rates_by_hand(name: str) -> None:
    """A large product takes its multiply-accumulates over those of a cycle of all tiles, and its start-up."""
    numbers = {"npu.dpu.macs_per_mpe": "{} MAC/cycle", "technology.energy.mac": "0.{} pJ/MAC"}
    numbers["technology.area.mac"] = "{} um^2/MAC"
    soc = load_soc(
        SOC,
        {
            path: {form: {"value": text.format(rate), "source": "a test"} for form, rate in RATES.items()}
            for path, text in numbers.items()
        },
    )
    rows, inner, columns = 2048, 1024, 1024
    result = row_of(product(name, name, (rows, inner, columns)), soc)[1]
    mpes = 16 * 16  # M x M VPEs of N x N MPEs, both 4
    tiles = resolve_run(soc).tiles
    ideal_s = rows * inner * columns / (tiles * mpes * RATES[name]) / float(soc.npu.dpu.clock)
    assert ideal_s <= result["dpu_s"] <= 1.12 * ideal_s


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        (["workload.weights=fp9"], "fp9"),
        (["workload.weights=bool"], "a format of products"),
        (["workload.weights=fp32", "workload.activations=int8"], "at most the activations' bits"),
        (["workload.weight_sparsity=5:4"], "5:4"),
        (["workload.weight_sparsity=none"], "share of non-zeros"),
        (["workload.activation_density=0"], "greater than 0"),
    ],
)
def test_impossible_formats_are_refused(settings_: list[str], message: str) -> None:
    """A wrong format or pattern is one message."""
    with pytest.raises(NpusimError, match=message):
        load_workload("gcn-cora", settings_)


def sheet(structure: str = "2:4", action: str = "skipping") -> Soc:
    """Load the machine with a use of sparse weights."""
    use = f"[{{operand: weights, structure: '{structure}', action: {action}}}]"
    return load_soc(SOC, [f"npu.dpu.sparsity={use}"])


def sparse(pattern: str, density: float) -> Graph:
    """Build a product of int8 whose weights have a pattern."""
    zeros = {"pattern": pattern, "density": density, "storage": Storage.ZVC}
    return product("int8", "int8", (2048, 1024, 1024), **zeros)


def test_two_of_four_halves_the_grid_and_not_more() -> None:
    """Skipping 2:4 halves the MAC cycles at most; traffic keeps half the elements and 2 bits of each."""
    dense = row_of(product("int8", "int8", (2048, 1024, 1024)), sheet())
    half = row_of(sparse("2:4", 0.5), sheet())
    assert half[0]["mac_rate"] == 2.0
    assert 0.5 <= half[1]["dpu_s"] / dense[1]["dpu_s"] < 0.55
    assert half[2].energy.mac_j == dense[2].energy.mac_j / 2
    elements = 1024 * 1024
    assert dense[0]["b_dram_bytes"] == elements
    assert half[0]["b_dram_bytes"] == elements / 2 + elements / 2 * 2 / 8


@settings(max_examples=10, deadline=None)
@given(
    sizes=st.tuples(st.sampled_from([16, 100, 256]), st.sampled_from([64, 192]), st.sampled_from([32, 144])),
    word=st.sampled_from([2, 8, 16, 256]),
    pattern=st.sampled_from(["2:4", "1:4", "2:8"]),
)
def test_an_array_that_skips_waits_for_the_operands_that_stay(
    sizes: tuple[int, int, int], word: int, pattern: str
) -> None:
    """Zeros of weights shorten an array's time by their share at most, never below its inputs' transfer."""
    density = parse_sparsity(pattern)[1]
    use = f"[{{operand: weights, structure: '{pattern}', action: skipping}}]"
    soc = load_soc("gemmini", [f"gemmini.sram.word={word} B", f"gemmini.dpu.sparsity={use}"])
    zeros = {"pattern": pattern, "density": density, "storage": Storage.ZVC}
    dense, half = (row_of(product("int8", "int8", sizes, **more), soc)[1]["dpu_s"] for more in ({}, zeros))
    assert density * dense * (1 - 1e-9) <= half <= dense * (1 + 1e-9)
    device = soc.array_devices["gemmini"]
    inputs_cycles = sizes[0] * sizes[1] / (word * int(device.sram.read_ports))
    assert half * float(device.dpu.clock) >= inputs_cycles * (1 - 1e-9)


@pytest.mark.parametrize(("pattern", "density"), [("4:8", 0.5), ("1:4", 0.25), ("3:4", 0.75)])
def test_cycles_of_other_patterns(pattern: str, density: float) -> None:
    """N:M takes its share of the MAC cycles and not less; the index has the bits of a place in its group."""
    dense = row_of(product("int8", "int8", (2048, 1024, 1024)), sheet(pattern))
    some = row_of(sparse(pattern, density), sheet(pattern))
    assert some[0]["mac_rate"] == 1.0 / density
    assert density <= some[1]["dpu_s"] / dense[1]["dpu_s"] < density + 0.06
    bits = {"4": 2, "8": 3}[pattern[-1]]
    assert some[0]["b_dram_bytes"] == 1024 * 1024 * density * (1 + bits / 8)


def both(patterns: bool, together: str, densities: tuple[float, float] = (0.5, 0.5)) -> tuple[Any, Any]:
    """Return row and results of a product with zeros in both operands, by pattern or by bitmap."""
    uses = ", ".join(
        f"{{operand: {name}, structure: '2:4', action: skipping}}" for name in ("weights", "inputs")
    )
    soc = load_soc(SOC, [f"npu.dpu.sparsity=[{uses}]", f"npu.dpu.skips_by_both={together}"])
    editor = Editor("product")
    zeros = [{"density": density, "storage": Storage.ZVC} for density in densities]
    zeros = [each | {"pattern": "2:4"} for each in zeros] if patterns else zeros
    x = editor.input("x", (2048, 1024), DType.INT8, **zeros[0])
    w = editor.constant("w", (1024, 1024), DType.INT8, role=Role.WEIGHT, **zeros[1])
    editor.outputs = [editor.matmul(x, w, "product")]
    return row_of(editor.finish(), soc)[:2]


@pytest.mark.parametrize("patterns", [True, False])
def test_zeros_of_both_operands_save_together_where_the_sheet_says_so(patterns: bool) -> None:
    """An intersection is faster than the better operand alone, by no more than the product of both shares."""
    one, two = both(patterns, "false"), both(patterns, "true")
    dense = row_of(product("int8", "int8", (2048, 1024, 1024)), load_soc(SOC))[1]
    assert two[1]["dpu_s"] < one[1]["dpu_s"]
    assert two[1]["dpu_s"] >= 0.25 * dense["dpu_s"]
    if patterns:
        assert (one[0]["mac_rate"], two[0]["mac_rate"]) == (2.0, 4.0)


def test_whole_channels_have_a_bit_each() -> None:
    """The index counts output channels, wherever their axis is: columns of products, filters."""
    network = Scenario("resnet-50", settings=["workload.weight_sparsity=channel@0.5"]).graph
    stored = [t for t in network.tensors.values() if t.pattern]
    assert stored
    for tensor in stored:
        reader = network.readers(tensor.name)[0]
        result = network.outputs_of(reader)[0].shape
        channels = result[-1] if reader.type == "MatMul" else result[1]
        assert tensor.stored_bytes == tensor.elements * 0.5 * tensor.dtype.bytes + channels / 8


@pytest.mark.parametrize("text", ["0.5", "1", "2:4", "block:16@0.25"])
def test_every_form_of_sparsity_is_a_setting(text: str) -> None:
    """A share reads as the text that it is, though YAML takes it for a number."""
    spec = Scenario("mobilenet-v2", settings=[f"workload.weight_sparsity={text}"])
    densities = {t.density for t in spec.graph.tensors.values() if t.storage is Storage.ZVC}
    assert densities == {parse_sparsity(text)[1]}


def test_gating_saves_energy_and_no_cycle() -> None:
    """Gated zeros take their cycles."""
    dense = row_of(product("int8", "int8", (2048, 1024, 1024)), sheet())
    gated = row_of(sparse("2:4", 0.5), sheet(action="gating"))
    assert gated[1]["dpu_s"] == dense[1]["dpu_s"]
    assert gated[2].energy.mac_j == dense[2].energy.mac_j / 2


def test_a_sheet_without_the_pattern_uses_its_bitmap_alone() -> None:
    """Elsewhere zeros of a pattern are those of a bitmap, where the machine reads one, or nothing."""
    soc = load_soc(SOC)
    with_pattern, anywhere = (row_of(sparse(pattern, 0.5), soc)[2] for pattern in ("2:4", ""))
    assert (with_pattern.latency_s, with_pattern.dram_bytes) == (anywhere.latency_s, anywhere.dram_bytes)
    none = load_soc(SOC, [f"npu.sparsity.{key}=false" for key in ("decompress_weights", "skip_weights")])
    dense = row_of(product("int8", "int8", (2048, 1024, 1024)), none)[2]
    stored = row_of(sparse("2:4", 0.5), none)[2]
    assert (stored.latency_s, stored.dram_bytes) == (dense.latency_s, dense.dram_bytes)


def expected_fullest(blocks: int, density: float, lanes: int) -> float:
    """Return the expected fullest lane by enumeration of all fillings of all lanes."""
    counts = [math.comb(blocks, k) * density**k * (1 - density) ** (blocks - k) for k in range(blocks + 1)]
    lanes_full = itertools.product(range(blocks + 1), repeat=lanes)
    return sum(max(each) * math.prod(counts[k] for k in each) for each in lanes_full)


@given(blocks=st.integers(1, 5), density=st.floats(0.01, 0.99), lanes=st.integers(1, 4))
def test_lanes_wait_for_the_fullest(blocks: int, density: float, lanes: int) -> None:
    """The share of cycles is the expected maximum over lanes, which enumeration finds too."""
    share = kept_share("block:16", density, 16.0 * blocks, lanes)
    assert share == pytest.approx(expected_fullest(blocks, density, lanes) / blocks, rel=1e-9)
    assert density <= share * (1 + 1e-12)
    assert share <= 1.0 + 1e-12


@pytest.mark.parametrize(
    ("text", "pattern", "density", "bits"),
    [
        ("2:4", "2:4", 0.5, 64 * 2),
        ("4:8", "4:8", 0.5, 64 * 3),
        ("block:16@0.25", "block:16", 0.25, 8),
        ("channel@0.5", "channel", 0.5, 4),
        ("0.3", "", 0.3, 128),
    ],
)
def test_index_bits(text: str, pattern: str, density: float, bits: float) -> None:
    """Nothing is free: each pattern has an index."""
    assert parse_sparsity(text) == (pattern, density)
    assert index_bits(pattern, 128, 4, density) == bits


def test_activations_of_a_cnn_are_stored_compressed() -> None:
    """Activations that convolutions alone read shrink where the DMA takes a bitmap."""
    network = Scenario("mobilenet-v2", settings=["workload.activation_density=0.5"]).graph
    stored = [t for t in network.tensors.values() if t.storage is Storage.ZVC]
    assert stored and all(t.density == 0.5 for t in stored)
    assert all(t.stored_bytes == t.elements * (0.5 * 2 + 1 / 8) for t in stored)


def test_one_message_for_a_grid_without_widths() -> None:
    """A grid needs a format by width."""
    with pytest.raises(ConfigError, match="one of int4, int8, fp16, fp32"):
        load_soc(SOC, ['npu.dpu.macs_per_mpe={fp8_e4m3: {value: 16 MAC/cycle, source: "a test"}}'])


def widens(rate: float, energy: float = 0.0, name: str = "int4") -> Soc:
    """Load the machine with loaders that widen a format, `rate` elements a cycle in each tile."""
    cost = f"rate: {rate} element/cycle, energy: {energy} pJ/op"
    return load_soc(SOC, [f"npu.dpu.widening={{{name}: {{{cost}}}}}"])


@pytest.mark.parametrize("name", ["int4", "mxfp4", "int8"])
def test_widening_takes_its_cycles(name: str) -> None:
    """Every weight of a product of few rows is widened once, by all tiles together: elements over rate."""
    sizes, rate = (16, 2048, 2048), 2.0
    soc = widens(rate, name=name)
    free, slow = (row_of(product("fp16", name, sizes), each)[1] for each in (load_soc(SOC), soc))
    ideal_s = 2048 * 2048 / rate / resolve_run(soc).tiles / float(soc.npu.dpu.clock)
    assert ideal_s <= slow["dpu_s"] <= 1.05 * ideal_s
    assert free["dpu_s"] < 0.5 * ideal_s
    quick = row_of(product("fp16", name, sizes), widens(1e6, name=name))[1]
    assert quick["dpu_s"] == free["dpu_s"]
    as_stored = (row_of(product("fp16", "fp16", sizes), each)[1]["dpu_s"] for each in (load_soc(SOC), soc))
    assert len({*as_stored}) == 1


@pytest.mark.parametrize(("rows", "reads"), [(16, 1), (256, 1), (1024, 4)])
def test_widening_takes_its_energy(rows: int, reads: int) -> None:
    """A weight is widened for each register tile of 256 pixels that reads it."""
    graph = product("fp16", "int4", (rows, 512, 512))
    free, costly = (row_of(graph, widens(1e6, pj))[2].energy.mac_j for pj in (0.0, 2.0))
    assert costly - free == pytest.approx(reads * 512 * 512 * 2e-12, rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(
    rates=st.lists(st.floats(0.5, 512.0), min_size=2, max_size=2),
    sizes=st.tuples(*[st.integers(1, 600)] * 3),
)
def test_slower_widening_is_never_faster(rates: list[float], sizes: tuple[int, int, int]) -> None:
    """The time falls with the rate, to that of loaders that widen for nothing."""
    slow, fast = (row_of(product("fp16", "int4", sizes), widens(rate))[2] for rate in sorted(rates))
    free = row_of(product("fp16", "int4", sizes), load_soc(SOC))[2]
    assert free.latency_s <= fast.latency_s * (1 + 5e-3)  # among mappings within 0.5 % the least traffic
    assert fast.latency_s <= slow.latency_s * (1 + 5e-3)


@pytest.mark.parametrize(
    ("name", "soc", "settings_", "message"),
    [
        ("resnet-50", SOC, ["workload.activations=int4"], "product in int4: .*weights alone"),
        ("gcn-cora", "core-ultra-series1", ["workload.activations=uint4"], "activations .* in uint4"),
        (
            "gcn-cora",
            SOC,
            [
                "npu.dpu.dataflow=weight_stationary",
                "npu.dpu.widening={int4: {rate: 8 element/cycle, energy: 0 pJ/op}}",
            ],
            "nothing with a dataflow",
        ),
        ("gcn-cora", SOC, ["npu.dpu.widening={int4: {rate: 0 element/cycle, energy: 0 J/op}}"], "above 0"),
    ],
)
def test_operands_that_a_grid_cannot_have(name: str, soc: str, settings_: list[str], message: str) -> None:
    """Four bits are for weights alone on Intel's NPUs; a cost of widening belongs to a grid."""
    with pytest.raises(NpusimError, match=message) as error:
        npusim.estimate(name, soc, settings=settings_)
    assert "\n" not in str(error.value)
