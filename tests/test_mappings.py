"""Mappings that users give: loop nests written, read back, costed exactly, refused where they do not fit."""

import math
from pathlib import Path

import naive
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from naive_records import record
from one_point import evaluate
from strategies import tight_convolutions, tight_products

import npusim
from npusim.cli.program import run
from npusim.compiling.kernels import plain_kernels
from npusim.cost.batch.nests import least_sram_bytes, nest_of
from npusim.cost.lowering.tables import RESULT_DTYPE, TOTAL_DTYPE, Order
from npusim.cost.units.rates import TOLERANCE
from npusim.errors import ConfigError, InfeasibleError
from npusim.mapping import FORMATS, mapping_file, product_nests
from npusim.scenario import Scenario

PRODUCTS = st.one_of(tight_products(), tight_products(triangle=True), tight_convolutions())
COUNTS = {
    "row_blocks": "rows",
    "column_blocks": "columns",
    "channel_chunks": "depth",
    "strips": "width",
}
FEW = hypothesis_settings(max_examples=20)


def costed(row, op, nest=None):
    """Return the costs of one operator, searched or under a nest."""
    results, total = np.zeros(1, RESULT_DTYPE), np.zeros(1, TOTAL_DTYPE)
    with plain_kernels():
        evaluate(row, np.array([op]), results, total[0], None if nest is None else [nest])
    return results[0]


@given(PRODUCTS)
@FEW
def test_the_nest_of_the_search_costs_what_the_search_said(row_and_op):
    row, op = row_and_op
    searched = costed(row, op)
    if np.isinf(searched["latency_s"]):
        return
    nest = nest_of(row.archs.arrays[0], op, searched)
    again = costed(row, op, nest)
    assert nest_of(row.archs.arrays[0], op, again) == nest
    again["piece_level"] = searched["piece_level"]  # levels whose pieces have one size are one nest
    assert again.tobytes() == searched.tobytes()


@pytest.mark.laws
@given(PRODUCTS, st.integers(0, 2), st.integers(0, 2), st.sampled_from([*Order][:2]))
@FEW
def test_split_mode_and_order_restrict_the_search_to_what_a_twin_enumerates(row_and_op, split, mode, order):
    row, op = row_and_op
    arch, plain = record(row.archs.arrays[0]), record(op)
    every = naive.product_choices(arch, plain)
    agreeing = [c for c in every if (c.split, c.mode, c.order) == (split, mode, order)]
    restricted = costed(row, op, {"tiles.split": split, "grid.mode": mode, "dram.order": order})
    if not agreeing:
        assert np.isinf(restricted["latency_s"])
        return
    assert (restricted["split"], restricted["mode"], restricted["order"]) == (split, mode, order)
    least_s = min(c.latency_s for c in agreeing)
    assert restricted["latency_s"] <= least_s + TOLERANCE * least_s
    assert restricted["latency_s"] >= least_s * (1.0 - 1e-9)


@given(PRODUCTS, st.sampled_from([*COUNTS]), st.integers(1, 9), st.sampled_from([None, *Order]))
@FEW
def test_no_nest_is_quicker_than_the_search(row_and_op, column, count, order):
    row, op = row_and_op
    searched = costed(row, op)
    nest = {f"dram.blocks.{COUNTS[column]}": count} | ({} if order is None else {"dram.order": order})
    restricted = costed(row, op, nest)
    if np.isfinite(restricted["latency_s"]):
        assert restricted["latency_s"] >= searched["latency_s"] * (1.0 - TOLERANCE)
        assert restricted["piece_level"] < 0 or restricted[column] == count


@pytest.mark.laws
@given(tight_products(), st.integers(1, 4), st.integers(1, 4))
@FEW
def test_a_nest_fits_from_the_least_sram_on_and_not_below(row_and_op, rows, columns):
    row, op = row_and_op
    nest = {"dram.blocks.rows": rows, "dram.blocks.columns": columns}
    least = least_sram_bytes(row.archs, op, nest)
    if math.isinf(least):
        return
    for sram_bytes, is_feasible in ((least, True), (least - 2.0, False)):
        row["npu"]["sram_tile_bytes"] = sram_bytes
        row.derive()
        assert np.isfinite(costed(row, op, nest)["latency_s"]) == is_feasible


CASES = [
    ("gcn-cora", "core-ultra-series2", {"techniques": "stagr"}),
    ("gcn-cora", "core-ultra-series1", {"techniques": "stagr+symg"}),
    ("gcn-citeseer", "gemmini", {"techniques": "stagr+cacheg"}),
    ("gat-cora", "core-ultra-series2", {"techniques": "graphsplit", "swap_operands": "search"}),
    ("mobilenet-v2", "core-ultra-series1", {}),
    ("gcn-cora", "core-ultra-series2", {"settings": ["npu.schedule.prefetch=true"], "hint": "throughput"}),
    ("gcn-cora", "core-ultra-series2", {"mapping_objective": "energy"}),
]


@pytest.mark.laws
@pytest.mark.few(3)
@pytest.mark.parametrize(("network", "soc", "how"), CASES)
@pytest.mark.parametrize("engine", ["analytical", "event"])
def test_a_mapping_read_back_gives_every_figure_again(tmp_path, network, soc, how, engine):
    searched = Scenario(network, soc, **how)
    path = tmp_path / "mapping.yaml"
    path.write_text(FORMATS["npusim"](searched.mapped), encoding="utf-8")
    given_back = npusim.estimate(searched.with_(mapping=path), engine=engine)
    assert given_back == npusim.estimate(searched, engine=engine)


def test_part_of_a_mapping_leaves_the_rest_to_the_search():
    whole = npusim.estimate("gcn-cora", techniques="stagr")
    nest = {"layer0/combine/matmul": {"dram": {"order": "rows columns"}}}
    part = npusim.estimate("gcn-cora", techniques="stagr", mapping={"operators": nest})
    assert part.operators[0].mapping.order == "activations_held" != whole.operators[0].mapping.order
    assert part.latency_s >= whole.latency_s
    sizes = {"layer0/combine/matmul": {"sram": {"block": {"rows": 192}}}}
    sized = npusim.estimate("gcn-cora", techniques="stagr", mapping={"operators": sizes})
    assert sized.operators[0].mapping.rows / sized.operators[0].mapping.row_blocks <= 192


def test_a_tiling_that_the_search_leaves_out_is_costed():
    nest = {"layer0/combine/matmul": {"dram": {"order": "columns rows", "blocks": {"rows": 43}}}}
    for engine in ("analytical", "event"):
        estimate = npusim.estimate("gcn-cora", techniques="stagr", mapping={"operators": nest}, engine=engine)
        assert estimate.operators[0].mapping.row_blocks == 43


def text_of(nest: str) -> str:
    return f"operators:\n  layer0/combine/matmul:\n    {nest}\n"


WRONG = [
    (
        "operators:\n  layer0/combine: {unit: npu.dpu}\n",
        ":2: ",
        "the unknown operator",
        "allowed: an operator of",
    ),
    (text_of("l1: {order: rows columns}"), ":3: ", "unknown key `l1`", "dram, tiles, sram, grid"),
    (
        text_of("dram: {blocks: {channels: 2}}"),
        ":3: ",
        "unknown key `channels`",
        "rows, width, columns, depth",
    ),
    (text_of("dram: {order: depth rows}"), ":3: ", "depth rows", "rows columns"),
    (text_of("grid: {mode: 3x3}"), ":3: ", "`3x3`", "16x16, 8x16, 4x16"),
    (text_of("unit: cpu"), ":3: ", "`cpu`", "npu.dpu"),
    ("operators:\n  readout/logsoftmax:\n    tiles: {count: 2}\n", ":3: ", "a loop nest", "npu.dsp"),
    ("stays:\n  whole: [nothing]\n", ":1: ", "tensors that no plan keeps together", "--save-mapping"),
]


@pytest.mark.parametrize(("text", "line", "problem", "allowed"), WRONG)
def test_a_wrong_mapping_is_one_message_with_its_place(capsys, tmp_path, text, line, problem, allowed):
    path = tmp_path / "mapping.yaml"
    path.write_text(text, encoding="utf-8")
    assert run(["estimate", "gcn-cora", "-t", "stagr", "--mapping", str(path)]) == 2
    message = capsys.readouterr().err
    assert all(part in message for part in (f"{path}{line}", problem, allowed))
    assert len(message.splitlines()) == 1


def test_a_mapping_that_breaks_a_capacity_names_the_buffer_and_the_bytes(tmp_path):
    whole = text_of("dram: {order: columns rows, blocks: {rows: 1, columns: 1, depth: 1}}")
    path = tmp_path / "mapping.yaml"
    path.write_text(whole, encoding="utf-8")
    with pytest.raises(InfeasibleError) as refusal:
        npusim.estimate("gcn-cora", techniques="stagr", mapping=path, tiles=1)
    message = str(refusal.value)
    needed = refusal.value.needed
    assert needed is not None and f"needed: {needed:,.0f} bytes, available: " in message
    assert f"{path}:2: operators.layer0/combine/matmul" in message and "npu.sram.per_tile" in message
    # All activations and outputs of a tile in fp16, and weights.
    assert needed >= 2 * (2708 * 1433 + 1433 * 64)
    again = Scenario("gcn-cora", techniques="stagr", mapping=path, tiles=1)
    assert again.with_settings([f"npu.sram.per_tile={math.ceil(needed)}B"]).mapped


@pytest.mark.laws
def test_a_nest_against_itself_names_the_key_that_disagrees():
    nest = {"layer0/combine/matmul": {"tiles": {"split": "single", "count": 3}}}
    with pytest.raises(InfeasibleError, match=r"`tiles.(count|split)` disagrees"):
        npusim.estimate("gcn-cora", techniques="stagr", mapping={"operators": nest})


def test_a_mapping_is_for_one_network():
    with pytest.raises(ConfigError, match="unknown operator"):
        npusim.estimate("resnet-50", mapping=mapping_file(Scenario("gcn-cora", techniques="stagr").mapped))


def factors_of(text: str) -> dict[str, int]:
    """Return the product of a dimension's bounds over the directives of a Timeloop mapping."""
    whole: dict[str, int] = {}
    for directive in yaml.safe_load(text)["mapping"]:
        for factor in directive["factors"].split():
            name, _, bound = factor.partition("=")
            whole[name] = whole.get(name, 1) * int(bound.partition(",")[0])
    return whole


def test_loops_of_other_tools_cover_every_dimension():
    mapped = Scenario("gcn-cora", techniques="stagr").mapped
    first = FORMATS["timeloop"](mapped).split("---\n")[0]
    dimensions = {"P": 2708, "Q": 1, "C": 1433, "M": 64, "R": 1, "S": 1, "N": 1}
    assert all(factors_of(first)[name] >= size for name, size in dimensions.items())
    assert factors_of(first)["C"] == 1433
    entry = yaml.safe_load(FORMATS["zigzag"](mapped))[0]
    depth = [size for name, size in entry["temporal_ordering"] if name == "C"]
    assert math.prod(depth) == 1433 and len(list(product_nests(mapped))) == 4


@given(st.integers(2, 60), st.integers(2, 60), st.integers(1, 60))
@FEW
def test_turns_and_their_rests_count_every_row(rows, block, lanes):
    """The rest of a loop is what remains in the last turn of the loops around it: sizes add up exactly."""
    from npusim.mapping.exchange import loop_between

    block = min(rows, block)
    lanes = min(block, lanes)
    rest = {"rows": rows}
    outer = [*loop_between("dram", "rows", rows, block, rest)]
    inner = [*loop_between("sram", "rows", block, lanes, rest)]
    last = [*loop_between("lanes", "rows", lanes, 1, rest)]
    turns = [(loops[0].turns, loops[0].rest) if loops else (1, 1) for loops in (outer, inner, last)]
    (n, _), (p, p_rest), (q, q_rest) = turns
    whole_blocks = (n - 1) * block
    assert whole_blocks + (p_rest - 1) * lanes + q_rest == rows
    assert p == math.ceil(block / lanes) and q == lanes


def test_the_command_writes_each_format_and_prints_loops(capsys, tmp_path):
    for form in FORMATS:
        path = Path(tmp_path / f"{form}.yaml")
        words = ["estimate", "gcn-cora", "-t", "stagr", "--save-mapping", str(path), "--mapping-format", form]
        assert run(words) == 0
        assert path.read_text(encoding="utf-8")
    capsys.readouterr()
    assert run(["estimate", "gcn-cora", "-t", "stagr", "--details", "--loops"]) == 0
    assert "parallel columns in 4  # tiles" in capsys.readouterr().out
