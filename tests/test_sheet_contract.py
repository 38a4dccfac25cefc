"""What a data sheet and the model promise each other: refusals, sheets that extend others, settings."""

import json
from pathlib import Path
from typing import Any

import pytest

from npusim import estimate
from npusim.arch import load_soc, sheet_text, soc_names, with_overrides
from npusim.arch.dsp import known_kernels
from npusim.arch.loading import soc_file, standalone
from npusim.cli.program import run
from npusim.config import SET_BY_YOU, schema_of
from npusim.cost.lowering.execution import execution_of, kernel_of
from npusim.errors import ConfigError, NpusimError
from npusim.explore.store import read_manifest
from npusim.explore.sweep import sweep
from npusim.ops import OPERATORS
from npusim.studies.uncertainty import method_of
from npusim.techniques import apply
from npusim.workloads import load_workload

SOC = "core-ultra-series2"
VARIANTS = [name for name in soc_names() if load_soc(name).extends]


def refusal(*settings: str, soc: str | Path = SOC) -> str:
    with pytest.raises(ConfigError) as caught:
        load_soc(soc, settings)
    return str(caught.value)


# ------------------------------------------------------------------------------- values that contradict
REFUSED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "above the memory's peak": (("dram.bandwidth=200 GB/s",), ("136.5 GB/s", "peak_bandwidth")),
    "a CPU's bandwidth above it": (("cpu.dram_bandwidth=200 GB/s",), ("136.5 GB/s", "peak_bandwidth")),
    "a peak below what is sustained": (("dram.peak_bandwidth=10 GB/s",), ("peak_bandwidth, 10 GB/s",)),
    "bits for bytes": (("dram.bandwidth=1280 Gb/s",), ("did you mean `160 GB/s`",)),
    "a petabyte a second": (("dram.bandwidth=1 PB/s",), ("at most 100 TB/s",)),
    "a billion tiles": (("npu.tiles=1000000000",), ("at most 1,024",)),
    "more tiles for a hint than there are": (("npu.tiles_for.latency=7",), ("at most 6",)),
    "an unknown operator": (("npu.dpu.fused_ops=[add, relux]",), ("relux", "did you mean `relu`")),
    "an unknown kernel": (
        ("npu.dsp.kernels.implied.kernels={sofmax: {fixed: 1 cycle}}",), ("sofmax", "did you mean `softmax`"),
    ),
    "a fallback to itself": (("npu.dsp.kernels.implied.fallback=implied",), ("`implied`", "vpuem")),
    "an unknown fallback": (("npu.dsp.kernels.implied.fallback=vpu",), ("vpuem",)),
    "a library elsewhere": (("npu.dsp.library=../../..",), ("npu4000",)),
    "a library by its path": (("npu.dsp.library=/etc",), ("npu4000",)),
    "a grid without formats": (("npu.dpu.macs_per_mpe={}",), ("macs_per_mpe",)),
    "a format without energy": (("npu.dpu.macs_per_mpe.fp64=16 MAC/cycle",), ("fp64", "technology")),
    "a format no grid has": (("npu.dpu.macs_per_mpe.int32=8 MAC/cycle",), ("int32", "fp16")),
    "lanes without fp16": (("npu.dsp.lanes={int8: 8 element/cycle}",), ("fp16",)),
    "an escape in a name": (('name="a\\x1b[31mred"',), ("U+001B",)),
    "a NUL in a name": (('title="a\\0b"',), ("U+0000",)),
    "a misspelt path": (("tilez=3",), ("did you mean `npu.tiles`",)),
}  # fmt: skip


@pytest.mark.parametrize("settings, told", REFUSED.values(), ids=REFUSED)
def test_a_setting_is_refused_with_what_is_allowed(settings: tuple[str, ...], told: tuple[str, ...]) -> None:
    message = refusal(*settings)
    assert all(part in message for part in told), message


@pytest.mark.parametrize(
    "path, value",
    [
        ("npu.dsp.lanes.int8", "8 element/cycle"), ("npu.dpu.model.padding_saving", "0.5"),
    ],
)  # fmt: skip
def test_an_informative_number_is_refused_as_a_setting_and_as_an_axis(path: str, value: str) -> None:
    assert "informative" in refusal(f"{path}={value}")
    space = {
        "schema": "npusim.space/1", "workload": "gcn-cora", "techniques": "stagr",
        "axes": {path: {"values": [value]}},
    }  # fmt: skip
    with pytest.raises(ConfigError, match="informative"):
        sweep(space, "nowhere")


def test_the_schema_marks_what_is_informative_and_bounds_what_is_possible() -> None:
    definitions = schema_of(load_soc(SOC).__class__)["$defs"]
    assert "x-informative" in definitions["DmaModel"]["properties"]["cmx2ddr_row_cycles"]
    assert definitions["Npu"]["properties"]["tiles"]["anyOf"][0]["maximum"] == 1024
    assert definitions["Dram"]["properties"]["bandwidth"]["x-maximum"] == 1e14


def test_a_misspelt_key_suggests_one_that_is_missing(tmp_path: Path) -> None:
    text = soc_file(SOC).read_text(encoding="utf-8").replace("    tiles:  ", "    tilez:  ")
    path = tmp_path / "soc.yaml"
    path.write_text(text, encoding="utf-8")
    assert "did you mean `tiles`" in refusal(soc=path)


def test_fewer_tiles_than_a_hint_asks_for_are_all_used() -> None:
    assert load_soc(SOC, ["npu.tiles=2"]).npu.tiles_used("latency") == 2


# ------------------------------------------------------------------------------------ what a setting says
def test_a_changed_number_is_set_by_you_and_keeps_no_source() -> None:
    number = load_soc(SOC, ["dram.latency=1 us"]).dram.latency
    assert (number.source, number.note) == (SET_BY_YOU, "instead of 120 ns")


def test_a_point_that_is_changed_and_chosen_counts_in_either_order() -> None:
    settings = ["npu.operating_point=dpu_900mhz", "npu.operating_points.dpu_900mhz.dpu_clock=1 GHz"]
    for order in (settings, settings[::-1]):
        assert load_soc(SOC, order).npu.dpu.clock == 1e9


@pytest.mark.parametrize("generation", ["fitted", "vpuem", "classic"])
def test_every_shipped_kernel_generation_estimates_and_its_numbers_can_be_set(generation: str) -> None:
    graph = apply(load_workload("gcn-cora"), "none")
    soc = load_soc(SOC, [f"npu.dsp.kernel_generation={generation}"])
    hits = [hit for hit in (kernel_of(soc.npu, op) for op in graph) if hit is not None]
    used = sorted({name for name, (found, *_) in hits if found == generation})
    paths = [f"npu.dsp.kernels.{generation}.kernels.{name}.fixed" for name in used]
    slow = with_overrides(soc, [f"{path}=1e8 cycle" for path in paths])
    assert estimate(graph, slow).latency_s > 1.01 * estimate(graph, soc).latency_s
    assert all(path in method_of(slow, 8, 0) for path in paths)


def test_an_axis_reaches_the_numbers_of_a_library(tmp_path: Path) -> None:
    space: dict[str, Any] = {"schema": "npusim.space/1", "workload": "gat-cora", "keep": "all"}
    space["set"] = {"npu.dsp.kernel_generation": "fitted"}
    values = {"from": "1 cycle", "to": "9e6 cycle", "count": 3}
    with pytest.raises(ConfigError, match=r"acos.*changes nothing"):
        sweep(space | {"axes": {"npu.dsp.kernels.fitted.kernels.acos.fixed": values}}, tmp_path / "idle")
    done = sweep(space | {"axes": {"npu.dsp.kernels.fitted.kernels.elu.fixed": values}}, tmp_path / "out")
    assert done.kept == 3


def test_every_kernel_that_operators_ask_for_may_stand_in_a_data_sheet() -> None:
    asked = {execution_of(OPERATORS[name]).dsp_kernel for name in OPERATORS} - {""}
    assert asked <= known_kernels()


# --------------------------------------------------------------------------------------------- extending
def child(name: str, parent: str = SOC, **parts: Any) -> str:
    return json.dumps({"schema": "npusim.soc/1", "extends": parent, "name": name, "title": name, **parts})


def test_a_variant_differs_in_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(child("mine", devices={"npu": {"tiles": {"value": 5, "source": "mine"}}}))
    mine, base = load_soc(path), load_soc(SOC)
    assert (mine.npu.tiles, mine.npu.tiles.source, mine.npu.tiles.note) == (5, "mine", "")
    assert mine.npu.dpu == base.npu.dpu
    assert mine.cpu == base.cpu


def test_a_number_is_replaced_with_its_source_and_uncertainty_and_null_leaves_out(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(child("mine", dram={"latency": "1 us", "peak_bandwidth": None}))
    mine = load_soc(path)
    assert (mine.dram.latency.source, mine.dram.latency.uncertainty) == ("user", None)
    assert mine.dram.peak_bandwidth is None


def test_an_error_names_the_file_and_line_that_holds_the_number(tmp_path: Path) -> None:
    parent, path = tmp_path / "parent.yaml", tmp_path / "mine.yaml"
    lines = soc_file(SOC).read_text(encoding="utf-8").splitlines()
    at = next(i for i, line in enumerate(lines) if "launch_overhead" in line)
    lines[at] = "    launch_overhead: never"
    parent.write_text("\n".join(lines), encoding="utf-8")
    path.write_text("schema: npusim.soc/1\nextends: parent.yaml\nname: mine\ntitle: mine\n")
    assert f"{parent}:{at + 1}: devices.npu.launch_overhead" in refusal(soc=path)
    path.write_text(
        f"schema: npusim.soc/1\nextends: {SOC}\nname: mine\ntitle: mine\ndram:\n  latency: never\n"
    )
    assert f"{path}:6: dram.latency" in refusal(soc=path)


def test_a_circle_and_an_unknown_parent_are_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.write_text(child("one", "other.yaml"))
    other.write_text(child("other", "./one.yaml"))
    assert "one.yaml -> other.yaml -> one.yaml" in refusal(soc=one)
    one.write_text("schema: npusim.soc/1\nextends: core-ultra-series9\nname: one\ntitle: one\n")
    assert all(
        part in refusal(soc=one) for part in (f"{one}:2", "extends", "did you mean `core-ultra-series")
    )
    one.write_text(child("one", "nowhere.yaml"))
    assert "extends: found no file" in refusal(soc=one)  # a long path is shown in part


def test_name_and_title_are_a_variants_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"schema: npusim.soc/1\nextends: {SOC}\nname: mine\n")
    assert f"{path}:1: title: found no key `title`" in refusal(soc=path)


def test_sheets_in_a_row_end_and_settings_come_too_late_to_start_from_another(tmp_path: Path) -> None:
    for i in range(20):
        (tmp_path / f"c{i}.yaml").write_text(child(f"c{i}", f"c{i + 1}.yaml"))
    assert "data sheets in a row" in refusal(soc=tmp_path / "c0.yaml")
    assert "`extends`, which is informative" in refusal("extends=core-ultra-7-155h")


def test_a_library_may_be_a_file_beside_the_sheet_and_nowhere_else(tmp_path: Path) -> None:
    folder = tmp_path / "sheets"
    folder.mkdir()
    kernels = "{select: {fixed: 7 cycle}}"
    kernels = f"{{schema: npusim.dsp-kernels/1, title: mine, reference_lanes: 32, kernels: {kernels}}}"
    (folder / "mine.yaml").write_text(kernels)
    (tmp_path / "outside.yaml").write_text(kernels)
    path = folder / "soc.yaml"
    dsp = {"library": "mine.yaml", "kernel_generation": "mine", "kernels": {"implied": None}}
    path.write_text(child("own", devices={"npu": {"dsp": dsp}}))
    soc = load_soc(path)
    assert soc.npu.dsp.generation().kernels["select"].fixed == 7
    assert estimate(apply(load_workload("gcn-cora"), "none"), soc).latency_s > 0
    path.write_text(child("own", devices={"npu": {"dsp": {"library": "../outside.yaml"}}}))
    assert "beside the data sheet" in refusal(soc=path)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", VARIANTS)
def test_each_shipped_variant_estimates_and_can_be_written_out_whole(name: str, tmp_path: Path) -> None:
    soc = load_soc(name)
    path = tmp_path / "whole.yaml"
    path.write_text(sheet_text(name), encoding="utf-8")
    whole = load_soc(path)
    assert whole.extends is None
    assert whole == standalone(soc)
    assert estimate(apply(load_workload("gcn-cora"), "stagr"), soc).latency_s > 0


def test_the_variants_are_listed_and_are_the_chips_they_name() -> None:
    others = {"core-ultra-series3", "core-ultra-nitro", "two-npus"}
    assert set(VARIANTS) == {
        "core-ultra-7-155h",
        "core-ultra-7-165h",
        "core-ultra-7-258v",
        "core-ultra-7-265k",
        "core-ultra-9-185h",
        "core-ultra-9-288v",
        "core-ultra-x7-358h",
        *others,
    }
    for name in sorted(set(VARIANTS) - others):
        assert load_soc(name).is_chip("cpu", f"Intel(R) Core(TM) {_chip(name)}")
    assert load_soc("core-ultra-9-288v").npu.peak_macs_per_s("int8") * 2 == pytest.approx(48e12, rel=0.01)


def _chip(soc: str) -> str:
    """The part's name, as OpenVINO says it: "Ultra 7 155H"."""
    return soc.removeprefix("core-").replace("-", " ").title()


# ---------------------------------------------------------------------------------------- spaces and sweeps
SPACE: dict[str, Any] = {
    "schema": "npusim.space/1", "workload": "gcn-cora", "techniques": "stagr", "keep": "all",
    "axes": {"npu.tiles": {"from": 1, "to": 6, "step": 1}},
}  # fmt: skip


def test_a_space_with_one_axis_sweeps_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(json.dumps(SPACE))
    assert run(["sweep", str(path), "-o", str(tmp_path / "out")]) == 0
    assert "npu.tiles" in capsys.readouterr().out


def test_an_axis_that_changes_nothing_is_refused_by_its_name_and_leaves_nothing(tmp_path: Path) -> None:
    axes = {**SPACE["axes"], "gpu.clock": {"values": ["1 GHz", "2 GHz"]}}
    with pytest.raises(ConfigError, match=r"axes\.gpu\.clock.*changes nothing"):
        sweep(SPACE | {"axes": axes}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_misspelt_stack_is_refused_before_anything_is_swept(tmp_path: Path) -> None:
    with pytest.raises(NpusimError, match="stagr"):
        sweep(SPACE | {"axes": {"techniques": {"values": ["stagr", "stager"]}}}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_sweep_is_not_resumed_when_what_it_reads_has_changed(tmp_path: Path) -> None:
    workload, soc, out = tmp_path / "net.yaml", tmp_path / "soc.yaml", tmp_path / "out"
    workload.write_text("model: gcn\ndataset: cora\n")
    soc.write_text(child("mine"))
    space = SPACE | {"workload": str(workload), "soc": str(soc)}
    sweep(space, out)
    sweep(space, out, resume=True)
    inputs = read_manifest(out).inputs
    assert {"equations", "packages", "toolchains", "DSP library npu4000"} <= set(inputs)
    workload.write_text("model: gcn\ndataset: cora\nhidden: 128\n")
    with pytest.raises(NpusimError, match=r"cannot be resumed.*workload .*net\.yaml"):
        sweep(space, out, resume=True)
    workload.write_text("model: gcn\ndataset: cora\n")
    soc.write_text(child("mine", dram={"latency": "1 us"}))
    with pytest.raises(NpusimError, match=r"cannot be resumed.*data sheet .*soc\.yaml"):
        sweep(space, out, resume=True)
