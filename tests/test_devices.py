"""Machines with any number of devices, by their own names: laws of placements, fallbacks, bad input."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs

import npusim
from npusim.arch import Soc, load_soc
from npusim.config import dump_model
from npusim.cost.machine.design_point import arch_row
from npusim.cost.units.rates import TOLERANCE
from npusim.errors import ConfigError, InfeasibleError, UnknownNameError
from npusim.graph import Editor, Graph
from npusim.mapping import Run, map_graph
from npusim.mapping.graphsplit.device_costs import placement_problem
from npusim.mapping.graphsplit.splitting import Terms, best_placement
from npusim.mapping.mapped import map_placed
from npusim.ops import DType

ROUNDING = 1 + 1e-9
BASE = load_soc("core-ultra-series2")
SLOWER = {"npu": {"vpu_clock": "500 MHz"}, "cpu": {"clock": "1 GHz"}, "gpu": {"clock": "1 GHz"}}


def sheet(tmp: Path, devices: str, head: str = "") -> Path:
    """Write a data sheet that starts from a shipped one."""
    file = tmp / "machine.yaml"
    top = "schema: npusim.soc/1\nextends: core-ultra-series2\nname: machine\ntitle: a machine\nsources: {}\n"
    file.write_text(f"{top}{head}devices:\n{devices}", encoding="utf-8")
    return file


def machine(kinds: tuple[str, ...], names: tuple[str, ...], slower: tuple[bool, ...] = ()) -> Soc:
    """Return a machine of devices like the shipped one's, some of them slower."""
    data = BASE.model_dump(mode="json", by_alias=True, exclude_unset=True)
    devices = {}
    for i, (kind, name) in enumerate(zip(kinds, names, strict=True)):
        device = dict(data["devices"][kind])
        if slower and slower[i]:
            device |= {key: {"value": text, "source": "test"} for key, text in SLOWER[kind].items()}
        devices[name] = device
    data |= {"devices": devices, "operating_points": {}}
    return Soc.model_validate(data)


KINDS = st.lists(st.sampled_from(["npu", "cpu", "gpu"]), min_size=1, max_size=5).map(
    lambda kinds: tuple(sorted(kinds, key=["npu", "cpu", "gpu"].index))
)


def names_of(kinds: tuple[str, ...], word: str) -> tuple[str, ...]:
    return tuple(f"{word}{i}" for i in range(len(kinds)))


# ------------------------------------------------------------------------------------------------- laws
@given(graphs(), KINDS, st.data())
@settings(max_examples=12)
def test_a_further_device_never_makes_the_best_placement_worse(graph, kinds, data):
    slower = tuple(data.draw(st.booleans()) for _ in kinds)
    soc, run = machine(kinds, names_of(kinds, "d"), slower), Run(tiles=1)
    every, fewer = (placement_problem(graph, soc, run, tuple(soc.devices)) for _ in range(2))
    if not every.names:
        return
    fewer.allowed[:, -1] = len(kinds) == 1
    values = []
    for problem in (every, fewer):
        values.append(best_placement(problem, Terms.of(soc, run, "latency", problem.devices)).value)
    assert values[0] <= values[1] * ROUNDING


@given(graphs(), KINDS, st.sampled_from([1, 4]))
@settings(max_examples=12)
def test_names_of_devices_change_no_figure(graph, kinds, requests):
    found = []
    for word in ("d", "unit"):
        names = names_of(kinds, word)
        soc = machine(kinds, names)
        try:
            mapped = map_graph(graph, soc, Run("latency", requests, 1))
        except InfeasibleError:
            found.append(None)
            continue
        found.append((mapped.total.tobytes(), mapped.uses.tobytes(), mapped.results.tobytes()))
    assert found[0] == found[1]


def halves(second: str | None) -> Graph:
    """Return two equal products of inputs of their own; the second one on a device."""
    editor = Editor("halves")
    for name, device in (("a", None), ("b", second)):
        x = editor.input(f"x_{name}", (512, 512), DType.FP16)
        w = editor.constant(f"w_{name}", (512, 512), DType.FP16)
        editor.outputs.append(editor.matmul(x, w, name, device=device))
    return editor.finish()


def test_two_equal_npus_share_independent_halves_and_double_the_rate():
    soc = machine(("npu", "npu"), ("left", "right"))
    run = Run("throughput", 64, 2)  # so many that the calls of runtimes set no pace
    alone, shared = (map_placed(halves(device), soc, run).total for device in (None, "right"))
    one, both = map_placed(halves("right"), soc, run).uses, map_placed(halves(None), soc, run).uses
    assert one["work_s"][0] == pytest.approx(one["work_s"][1])
    assert both["work_s"][1] == 0.0
    # On one NPU the second product's weights come in while the first one is worked on.
    assert both["work_s"][0] == pytest.approx(one["work_s"].sum(), rel=0.1)
    assert both["work_s"][0] <= one["work_s"].sum() * ROUNDING
    # DRAM sets the pace of both; a mapping may be slower within the tolerance, to move fewer bytes.
    assert shared["throughput_per_s"] >= alone["throughput_per_s"] * (1.0 - TOLERANCE)
    assert shared["dpu_s"] == pytest.approx(
        alone["dpu_s"], rel=TOLERANCE
    )  # a first fill asks for other blocks
    assert shared["area_mm2"] == pytest.approx(
        2.0 * float(arch_row(soc, 2, 8, "throughput")["left"]["area_mm2"])
    )


@pytest.mark.parametrize("requests", [1, 4])
def test_both_engines_agree_on_two_npus(requests):
    soc = machine(("npu", "npu", "cpu"), ("left", "right", "host"))
    graph = halves("right")
    analytical = npusim.estimate(graph, soc, requests=requests)
    acted = npusim.estimate(graph, soc, requests=requests, engine="event")
    names = [f"{npu}.{part}" for npu in ("left", "right") for part in ("dpu", "dsp", "dma")]
    assert list(analytical.units) == [*names, "host"]
    assert set(acted.units) == {*names, "host"}
    assert {op.unit for op in analytical.operators} == {"left.dpu", "right.dpu"}
    assert acted.latency_s == pytest.approx(analytical.latency_s, rel=0.15)
    assert acted.throughput_per_s == pytest.approx(analytical.throughput_per_s, rel=0.15)
    for npu in ("left", "right"):
        busy_s = analytical.units[f"{npu}.dpu"].busy_s
        assert acted.units[f"{npu}.dpu"].busy_s == pytest.approx(busy_s, rel=1e-6)


# -------------------------------------------------------------------------------------- who runs what
def chain() -> Graph:
    editor = Editor("chain")
    x = editor.input("x", (64, 64), DType.FP16)
    y = editor.matmul(x, editor.constant("w", (64, 64), DType.FP16), "product")
    editor.outputs.append(editor.unary("Softmax", y, "softmax", axes=(1,)))
    return editor.finish()


def test_a_cpu_alone_and_a_host_named_otherwise():
    soc = machine(("cpu",), ("zen",))
    e = npusim.estimate(chain(), soc)
    assert list(e.units) == ["zen"] and {op.unit for op in e.operators} == {"zen"}
    assert npusim.map(chain(), soc).devices == ["zen"]


def test_the_default_device_runs_what_nobody_placed(tmp_path):
    soc = load_soc(sheet(tmp_path, "  cpu: {title: a host}\n", "default_device: cpu\n"))
    assert {op.unit for op in npusim.estimate(chain(), soc).operators} == {"cpu"}
    assert {op.unit for op in npusim.estimate(chain(), soc, device="npu").operators} == {"npu.dpu", "npu.dsp"}


def test_a_fallback_runs_what_a_device_cannot_and_transfers_count(tmp_path):
    soc = load_soc(sheet(tmp_path, "  npu: {ops: [matmul], fallback: cpu}\n"))
    found = npusim.estimate(chain(), soc)
    assert [op.unit for op in found.operators] == ["npu.dpu", "cpu"]
    product, softmax = found.operators
    size = 64 * 64 * 2
    assert product.dram_bytes - product.dram_read_bytes == size  # it leaves SRAM for the other device
    assert softmax.dram_read_bytes >= size
    assert npusim.map(chain(), soc).groups[1].costs["npu"] is not None


def test_the_shipped_machine_of_two_npus_sends_what_its_second_one_cannot_run_to_the_first():
    e = npusim.estimate("mobilenet-v2", "two-npus", device="vision")
    units = {op.unit for op in e.operators}
    assert "vision.dpu" in units and any(unit.startswith("npu.") for unit in units)


# -------------------------------------------------------------------------------------------- bad input
BAD = {
    "unknown fallback": ("  npu: {fallback: cpuu}\n", "", "devices.npu.fallback", "did you mean `cpu`"),
    "fallback to itself": ("  npu: {fallback: npu}\n", "", "devices.npu.fallback", "the device itself"),
    "fallbacks in a circle": (
        "  npu: {fallback: cpu}\n  cpu: {fallback: npu}\n", "", "fallback", "npu -> cpu -> npu",
    ),
    "unknown default": (
        "  cpu: {title: x}\n", "default_device: gpuu\n", "default_device", "did you mean `gpu`",
    ),
    "like nothing": ("  two: {kind: npu, like: nqu}\n", "", "devices.two.like", "did you mean `npu`"),
    "like itself": ("  two: {kind: npu, like: two}\n", "", "devices.two.like", "the device `two`"),
    "one name twice": (
        "  two: {kind: npu, like: npu}\n  two: {kind: npu, like: npu}\n", "", "devices.two", "a second time",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_devices_get_one_message_with_file_line_and_key(name, tmp_path):
    devices, head, key, told = BAD[name]
    file = sheet(tmp_path, devices, head)
    with pytest.raises(ConfigError) as caught:
        load_soc(file)
    message = str(caught.value)
    assert f"{file}:" in message and key in message and told in message


def test_an_operator_that_no_device_runs_is_named_with_the_key(tmp_path):
    soc = load_soc(sheet(tmp_path, "  npu: {ops: [matmul]}\n"))
    with pytest.raises(InfeasibleError, match=r"'softmax' \(Softmax\).*devices\.npu\.ops.*fallback"):
        npusim.estimate(chain(), soc)


def test_an_unknown_device_is_told_with_those_there_are():
    with pytest.raises(UnknownNameError, match="unknown device `visoin`; did you mean `vision`"):
        npusim.estimate(chain(), "two-npus", device="visoin")


def test_a_machine_written_out_is_the_same_machine():
    soc = load_soc("two-npus")
    assert "vision" in dump_model(soc)
    row: Any = arch_row(soc, 2, 1, "latency")
    assert (row.arrays, row.hosts) == (("npu", "vision"), ("cpu", "gpu"))
    assert row["vision"]["npu_tiles"] == 2 and np.isfinite(row.numbers).all()
