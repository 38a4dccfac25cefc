"""A memory level that several devices share: one declaration, what one makes the other finds there."""

from dataclasses import fields

import naive_event
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import convolutions, graphs
from test_levels import LEVEL

import npusim
from npusim.arch import load_soc, with_overrides
from npusim.config import dump_model
from npusim.cost.lowering.tables import empty_ops
from npusim.cost.machine.architecture import ARCH_DTYPE
from npusim.cost.units.levels import SERVED_DTYPE, fill_served
from npusim.engines.event import run_events
from npusim.engines.event.build import build_program
from npusim.engines.event.machine import simulate, transfer_rates
from npusim.engines.timeline import EventLog, TaskKind
from npusim.errors import ConfigError, InfeasibleError
from npusim.graph import Editor
from npusim.mapping import map_graph
from npusim.ops import DType
from npusim.scenario import resolve_run

TWO = load_soc("two-npus")
ROUNDING = 1 + 1e-12
CHILD = "schema: npusim.soc/1\nextends: core-ultra-series2\nname: mine\ntitle: Mine\n"


def by_turns():
    """Convolutions, which the second NPU runs, and Softmax, which the first one does."""
    editor = Editor("turns")
    x = editor.input("x", (1, 64, 56, 56), DType.FP16)
    for i in range(3):
        w = editor.constant(f"w{i}", (64, 64, 3, 3), DType.FP16)
        x = editor.op("Convolution", (x, w), (1, 64, 56, 56), DType.FP16, f"conv{i}", strides=(1, 1))
        x = editor.unary("Softmax", x, f"softmax{i}", axes=(1,))
    editor.outputs.append(x)
    return editor.finish()


NARROW = {"levels.l2.bandwidth": "1 GB/s", "dram.bandwidth": "1 GB/s"}
"""The level has four banks."""


def mapped(capacity="16MiB", requests=1, **settings):
    soc = with_overrides(TWO, {"levels.l2.capacity": capacity, **settings})
    hint = "latency" if requests == 1 else "throughput"
    return map_graph(by_turns(), soc, resolve_run(soc, hint, requests, device="vision"))


def test_what_one_device_makes_the_other_finds_in_their_level():
    without, with_l2 = mapped("0B"), mapped()
    assert {group.device for group in with_l2.decisions.groups} == {"npu", "vision"}
    before, after = without.results, with_l2.results
    assert not before["level_bytes"].any()
    moved = after["dram_bytes"] + after["level_bytes"]
    assert moved == pytest.approx(before["dram_bytes"])  # what the level serves, DRAM does not
    assert after["level_bytes"].tolist() == after["shared_bytes"].tolist()
    handed = 64 * 56 * 56 * 2.0
    assert after["level_bytes"][1] == 2 * handed  # Softmax reads what the other made, and hands on its own
    assert after["dram_bytes"][1] == 0.0
    assert with_l2.total["latency_s"] < without.total["latency_s"]


@pytest.mark.parametrize("requests", [1, 4])
def test_both_engines_agree_on_a_shared_level(requests):
    one = mapped(requests=requests)
    other = run_events(one)
    assert other.throughput_per_s == pytest.approx(float(one.total["throughput_per_s"]), rel=0.15)
    assert other.latency_s == pytest.approx(float(one.total["latency_s"]), rel=0.15)


@pytest.mark.parametrize("managed_by", ["software", "cache"])
def test_more_of_it_is_never_slower_and_none_is_as_though_it_were_not_there(managed_by):
    found = [
        mapped(size, **{"levels.l2.managed_by": managed_by}).total["latency_s"]
        for size in ("0B", "1MiB", "64MiB")
    ]
    assert found[2] <= found[1] * ROUNDING <= found[0] * ROUNDING**2
    devices = {n: d.model_copy(update={"shared_level": None}) for n, d in TWO.array_devices.items()}
    without = TWO.model_copy(update={"levels": {}, "devices": {**TWO.devices, **devices}})
    alone = map_graph(by_turns(), without, resolve_run(without, device="vision"))
    assert alone.total["latency_s"] == found[0]


def test_what_all_devices_move_takes_as_long_as_its_banks_need():
    """Several requests keep both devices at work; the narrow level sets their pace, in both engines."""
    slow = mapped(requests=4, **NARROW)
    moved, bytes_per_s = slow.results["shared_bytes"].sum(), 4e9
    assert moved > 0.0
    fastest = bytes_per_s / moved
    assert slow.total["throughput_per_s"] <= fastest * ROUNDING
    assert run_events(slow).throughput_per_s <= fastest * 1.001


def test_a_run_on_a_shared_level_is_that_of_its_slow_twin_to_the_bit():
    one = mapped(requests=4, **NARROW)
    program, rates = build_program(one), transfer_rates(one.arch)
    assert rates.level_of == (0, 0) and rates.levels_bytes_per_s == (4e9,)
    found, twin = simulate(program, rates, 5, 2), naive_event.simulate(program, rates, 5, 2)
    for column in fields(EventLog):
        assert np.array_equal(getattr(found, column.name), getattr(twin, column.name)), column.name
    apart = simulate(program, rates.__class__(rates.dram_bytes_per_s, (), (-1, -1), rates.speed), 5, 2)
    assert max(found.ended) > max(apart.ended)  # they wait for each other


def test_inferences_side_by_side_have_an_even_part_each():
    arch, op = np.zeros(1, ARCH_DTYPE)[0], empty_ops(1)[0]
    arch["contexts"], arch["sharers"], arch["shared_place"] = 1.0, 4.0, 1.0
    arch["level_bytes"][0], arch["level_operands"][0] = 400.0, 7.0
    op["a_dram_bytes"] = 1000.0
    op["between_shared"]["a"] = 1.0
    served = np.zeros(1, SERVED_DTYPE)[0]
    fill_served(arch, op, served)
    assert served["first_bytes"][0] == 100.0
    arch["shared_place"] = 0.0
    fill_served(arch, op, served)
    assert served["first_bytes"][0] == 0.0  # nothing passes the private level twice


@pytest.mark.parametrize("run", [{}, {"hint": "throughput"}])
def test_a_shared_level_of_one_device_is_its_own(tmp_path, run):
    level, file = LEVEL % ", managed_by: software", tmp_path / "mine.yaml"
    own, shared = f"levels: {{l2: {level}, side_cache: null}}", "levels: {side_cache: null}, shared_level: l2"
    found = []
    for head, npu in (("", own), (f"levels: {{l2: {level}}}\n", shared)):
        file.write_text(f"{CHILD}{head}devices: {{npu: {{{npu}}}}}\n")
        e = npusim.estimate("gcn-cora", load_soc(file), techniques="stagr+cacheg", **run)
        assert e.level_bytes > 0.0
        found.append((e.latency_s, e.throughput_per_s, e.energy_j, e.dram_bytes, e.level_bytes))
    assert found[0] == found[1]


def test_it_is_an_axis_that_sets_every_device_that_names_it(tmp_path):
    space = {
        "schema": "npusim.space/1", "workload": "mobilenet-v2", "soc": "two-npus", "keep": "all",
        "run": {"device": "vision"}, "axes": {"levels.l2.capacity": {"values": ["0B", "16MiB"]}},
        "minimise": ["latency_s", "energy_j"],
    }  # fmt: skip
    npusim.sweep(space, tmp_path / "found")
    rows = npusim.query(tmp_path / "found", "select * from points order by 1").to_pylist()
    for row in rows:
        soc = with_overrides(TWO, {"levels.l2.capacity": f"{row['levels.l2.capacity']:.0f}B"})
        found = npusim.estimate("mobilenet-v2", soc, device="vision")
        assert row["latency_s"] == pytest.approx(found.latency_s, rel=1e-9)
    assert len({row["latency_s"] for row in rows}) == 2


@given(st.data())
@settings(max_examples=30)
def test_bytes_are_conserved_at_every_level_in_both_engines(data):
    """What an operator moves comes from DRAM or from the level, byte for byte; SRAM sees all of it."""
    capacity = data.draw(st.sampled_from(["64KiB", "1MiB", "16MiB"]))
    sram = data.draw(st.sampled_from(["128KiB", "512KiB", "1440KiB"]))
    rule = data.draw(st.sampled_from(["software", "cache"]))
    changed = {"levels.l2.capacity": capacity, "levels.l2.managed_by": rule, "npu.sram.per_tile": sram}
    soc = with_overrides(TWO, {**changed, "vision.sram.per_tile": sram})
    graph = data.draw(st.one_of(graphs(), convolutions(), st.just(by_turns())))
    try:
        one = map_graph(graph, soc, resolve_run(soc, device=data.draw(st.sampled_from(["npu", "vision"]))))
    except InfeasibleError:
        assume(False)
    results, line = one.results, run_events(one, every_tile=True).timeline
    arrays = np.array([group.unit.is_array for group in one.decisions.groups])
    assert (results["shared_bytes"] == results["level_bytes"])[arrays].all()
    assert one.total["dram_bytes"] == pytest.approx(results["dram_bytes"].sum())
    sram_bytes = (results["sram_read_bytes"] + results["sram_written_bytes"])[arrays]
    assert (sram_bytes >= (results["dram_bytes"] + results["level_bytes"])[arrays] * (1.0 - 1e-9)).all()
    program = build_program(one)
    operator = np.maximum(program.tasks["operator"], 0)
    near = np.bincount(operator, program.tasks["shared_bytes"], len(results))
    assert near == pytest.approx(results["level_bytes"], rel=1e-9, abs=1e-3)
    moved = line.bytes * np.isin(line.kind, [TaskKind.DMA_IN, TaskKind.DMA_OUT])
    found = np.bincount(np.maximum(line.operator, 0), moved, len(results))
    assert found[arrays] == pytest.approx(results["dram_bytes"][arrays], rel=1e-9, abs=1e-3)


BAD = {
    "unknown": ("", "shared_level: l3", ("devices.npu.shared_level", "none: the SoC has no `levels`")),
    "misspelt": (
        f"levels: {{l2: {LEVEL % ''}}}\n", "shared_level: ll2", ("npu.shared_level", "did you mean `l2`"),
    ),
    "nobody reads it": (
        f"levels: {{l2: {LEVEL % ''}}}\n", "contexts: 1", ("levels.l2", "a level that nobody reads"),
    ),
    "twice": (
        f"levels: {{side_cache: {LEVEL % ''}}}\n", "shared_level: side_cache",
        ("npu.shared_level", "a level of its own, too"),
    ),
    "too many": (
        f"levels: {{l2: {LEVEL % ''}}}\n",
        f"shared_level: l2, levels: {{a: {LEVEL % ''}, b: {LEVEL % ''}}}",
        ("npu.shared_level", "4 levels", "at most 3"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_shared_level_is_told_by_file_line_and_key(name, tmp_path):
    head, npu, said = BAD[name]
    file = tmp_path / "mine.yaml"
    file.write_text(f"{CHILD}{head}devices: {{npu: {{{npu}}}}}\n")
    with pytest.raises(ConfigError) as caught:
        load_soc(file)
    assert all(part in str(caught.value) for part in (f"{file}:", *said)), str(caught.value)


def test_a_machine_with_a_shared_level_written_out_has_it():
    assert "shared_level: l2" in dump_model(TWO) and "l2:" in dump_model(TWO)
