"""What must hold of machines: a source at every number, frozen, overridable, never impossible."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.arch import Soc, load_soc, soc_names, with_overrides
from npusim.arch.loading import soc_data, standalone
from npusim.config import dump_model, field_descriptions, load_model, override_model, schema_of, valid_paths
from npusim.config.loading import _models_within
from npusim.errors import ConfigError, FileError, UnknownNameError
from npusim.locate import data_root
from npusim.units import Count, Quantity

SERIES = ("core-ultra-series1", "core-ultra-series2")
SHEETS = sorted((data_root() / "configs" / "socs").glob("*.yaml"))


def numbers(soc: Soc) -> dict[str, Quantity | Count]:
    return {path: value for path, value in valid_paths(soc).items() if isinstance(value, Quantity | Count)}


def test_both_series_are_shipped() -> None:
    assert set(SERIES) <= set(soc_names())


@pytest.fixture(scope="module")
def validator() -> Any:
    """What checks a data sheet by the schema of SoCs."""
    schema = schema_of(Soc)
    chosen = jsonschema.validators.validator_for(schema)
    chosen.check_schema(schema)
    return chosen(schema)


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda path: path.stem)
class TestShippedSheets:
    def test_its_name_is_the_files(self, sheet: Path) -> None:
        assert load_soc(sheet).name == sheet.stem

    def test_every_number_has_a_source(self, sheet: Path) -> None:
        without = [path for path, number in numbers(load_soc(sheet)).items() if number.source == "user"]
        assert not without

    def test_every_source_key_is_explained(self, sheet: Path) -> None:
        soc = load_soc(sheet)
        used = set(re.findall(r"\[([A-Z][A-Z0-9]+)\]", sheet.read_text(encoding="utf-8"))) - {"KEY", "HU"}
        assert used <= set(soc.sources)

    def test_every_estimate_states_its_uncertainty(self, sheet: Path) -> None:
        vague = [
            path
            for path, number in numbers(load_soc(sheet)).items()
            if number.source.startswith("[EST]")
            and number.uncertainty is None
            and number not in (0, 1)  # a choice between none and all, not a measure
            and isinstance(number, Quantity)
        ]
        assert not vague

    def test_sustained_bandwidth_is_below_the_peak(self, sheet: Path) -> None:
        soc = load_soc(sheet)
        peak = soc.dram.peak_bandwidth
        assert peak is None or soc.dram.bandwidth <= peak

    def test_it_is_valid_by_its_own_schema(self, sheet: Path, validator: Any) -> None:
        validator.validate(soc_data(sheet).data)

    def test_dumped_it_loads_as_the_equal_machine_with_its_sources(self, sheet: Path, tmp_path: Path) -> None:
        before = standalone(load_soc(sheet))
        path = tmp_path / "dump.yaml"
        path.write_text(dump_model(before), encoding="utf-8")
        after = load_soc(path)
        assert after == before
        assert {path: n.as_written() for path, n in numbers(after).items()} == {
            path: n.as_written() for path, n in numbers(before).items()
        }

    def test_every_path_can_be_set(self, sheet: Path) -> None:
        soc = load_soc(sheet)
        assert override_model(soc, valid_paths(soc)) == soc


def test_the_npus_are_as_their_data_sheets_say() -> None:
    one, two = (load_soc(name).npu for name in SERIES)
    assert (one.dpu.macs_per_cycle("int8"), two.dpu.macs_per_cycle("fp16")) == (2048, 1024)
    assert one.peak_macs_per_s("int8") == 2 * 2048 * 1.3e9
    assert two.peak_macs_per_s("int8", tiles=4) == 4 * 2048 * 1.85e9
    assert (one.sram_bytes(), two.sram_bytes(4)) == (2 * 1936 * 1024, 4 * 1440 * 1024)
    assert (one.tiles_used("latency"), two.tiles_used("latency"), two.tiles_used("throughput")) == (2, 4, 2)
    assert one.dma.engines * one.dma.width * one.vpu_clock == pytest.approx(62.4e9)


@pytest.mark.parametrize("name", SERIES)
def test_each_mode_of_the_grid_holds_as_many_outputs(name: str) -> None:
    modes = load_soc(name).npu.dpu.modes.values()
    assert {mode.groups_w * mode.groups_h * mode.groups_c for mode in modes} == {64}


@pytest.mark.parametrize("name", SERIES)
def test_the_usual_clocks_are_one_of_the_operating_points(name: str) -> None:
    npu = load_soc(name).npu
    assert (npu.dpu.clock, npu.vpu_clock, npu.voltage) in {
        (point.dpu_clock, point.vpu_clock, point.voltage) for point in npu.operating_points.values()
    }


def test_settings_are_a_keyword_with_numbers_in_si_units_or_texts() -> None:
    soc = load_soc("core-ultra-series2", settings={"npu.tiles": 2, "dram.bandwidth": 50e9})
    text = load_soc("core-ultra-series2", settings=["npu.tiles=2", "dram.bandwidth=50GB/s"])
    assert (int(soc.npu.tiles), float(soc.dram.bandwidth)) == (2, 50e9)
    assert soc.dram.bandwidth == text.dram.bandwidth and soc.npu.tiles == text.npu.tiles


def test_a_setting_changes_one_number_and_says_so() -> None:
    soc = load_soc("core-ultra-series2", ["npu.sram.per_tile=2MiB"])
    assert soc.npu.sram.per_tile == 2 * 2**20
    assert soc.npu.sram.per_tile.source == "set by you"
    assert "1440 KiB" in soc.npu.sram.per_tile.note
    plain = load_soc("core-ultra-series2")
    changed = {path for path, value in valid_paths(soc).items() if value != valid_paths(plain)[path]}
    assert changed == {"npu.sram.per_tile"}


def test_an_operating_point_sets_both_clocks_and_the_voltage() -> None:
    soc = load_soc("core-ultra-series2", ["npu.operating_point=dpu_1300mhz"])
    assert (soc.npu.dpu.clock, soc.npu.vpu_clock, soc.npu.voltage) == (1.3e9, 743e6, 0.66)
    assert soc.npu.dpu.clock.source.startswith("[NPUC]")


def test_later_settings_win() -> None:
    soc = load_soc("core-ultra-series2", ["npu.operating_point=dpu_1300mhz", "npu.dpu.clock=1.2 GHz"])
    assert (soc.npu.dpu.clock, soc.npu.vpu_clock) == (1.2e9, 743e6)


def test_settings_on_a_loaded_soc_are_the_same_as_at_loading() -> None:
    settings_ = {"dram.bandwidth": "100 GB/s", "cpu.clock": "4 GHz", "npu.tiles": 3}
    assert with_overrides(load_soc(SERIES[1]), settings_) == load_soc(SERIES[1], settings_)


def test_a_chip_with_fewer_tiles_uses_those_it_has() -> None:
    assert load_soc(SERIES[1], ["npu.tiles=3"]).npu.tiles_used("latency") == 3


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("npu.sram.per_tle=2MiB", "did you mean `npu.sram.per_tile`?"),
        ("nu.tiles=3", "did you mean `npu.tiles`?"),
        ("npu.operating_point=dpu_1300mh", "did you mean `dpu_1300mhz`?"),
        ("cpu.operating_point=fast", "allowed: low"),
        ("npu.dpu.clock=3 MiB", "such as 1.85 GHz"),
        ("npu.dpu.macs_per_mpe.int3=16 MAC/cycle", "did you mean `int32`?"),
        ("npu.dsp.kernel_generation=x", "one of"),
        ("devices.tpu.clock=1 GHz", "unknown path"),
        ("npu.kind=gpu", "unknown key"),
        ("npu.dpu.eltwise_ops=add", "a list"),
        ("schema=npusim.soc/2", "npusim.soc/1"),
    ],
)
def test_a_bad_setting_is_refused_with_what_is_allowed(setting: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_soc("core-ultra-series2", [setting])
    assert str(caught.value).startswith(f"--set {setting}") or "core-ultra-series2.yaml" in str(caught.value)
    assert said in str(caught.value)


def test_an_unknown_soc_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean `core-ultra-series2`"):
        load_soc("core-ultra-serie2")
    with pytest.raises(FileError, match="no such file"):
        load_soc("./core-ultra-series2.yaml")


def test_a_missing_device_is_an_error_that_lists_those_there_are() -> None:
    soc = load_soc(SERIES[0])
    without = soc.model_copy(update={"devices": {"cpu": soc.cpu}})
    assert not without.has("npu")
    with pytest.raises(UnknownNameError, match="cpu"):
        _ = without.npu
    with pytest.raises(UnknownNameError, match="Known: cpu, gpu, npu"):
        soc.device("dla")


def test_an_unknown_number_format_is_refused() -> None:
    soc = load_soc(SERIES[0])
    for device in (soc.npu, soc.cpu, soc.gpu):
        with pytest.raises(UnknownNameError, match=r"`fp8`.* Known: .*int8"):
            device.peak_macs_per_s("fp8")


def test_a_device_may_not_take_the_name_of_a_section() -> None:
    data = load_soc(SERIES[0]).model_dump(mode="json", by_alias=True)
    data["devices"]["dram"] = data["devices"]["gpu"]
    with pytest.raises(ValueError, match="a device named `dram`"):
        Soc.model_validate(data)


def test_a_machine_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_soc(SERIES[0]).npu.voltage = 3  # type: ignore[misc]


BAD: list[Any] = [
    "nan GHz", "-1 GHz", "0", "0 Hz", "3 MiB", "1e400 Hz", "inf", "-1", float("nan"), float("inf"), -1, None,
    True, [], {}, "x", {"value": "nan"}, {"value": -1, "source": "x"}, {"source": "x"},
]  # fmt: skip
NUMBERS = sorted(numbers(load_soc(SERIES[1])))
BASE = load_soc(SERIES[1])
PHYSICAL = [
    "dram.latency",
    "npu.sram.per_tile",
    "npu.dpu.clock",
    "npu.vpu_clock",
    "npu.voltage",
    "gpu.clock",
]


@settings(max_examples=60)
@given(st.sampled_from(NUMBERS), st.sampled_from(BAD))
def test_bad_values_never_load(path: str, bad: Any) -> None:
    try:
        number = valid_paths(with_overrides(BASE, {path: bad}))[path]
    except ConfigError as error:
        assert path.split(".")[-1] in str(error) or "found" in str(error)
    else:  # some values are bad for most numbers only: 0 is fine for an overhead, null for an optional number
        assert (number is None) == (bad is None)
        assert number is None or (bad in ("0", "0 Hz", "3 MiB") and 0 <= number < float("inf"))


@settings(max_examples=20)
@given(st.sampled_from(PHYSICAL), st.floats(1e-3, 10))
def test_any_positive_what_if_loads_and_round_trips(path: str, scale: float) -> None:
    old = valid_paths(BASE)[path]
    scale = min(scale, 1.3) if path.startswith("npu.") and path.endswith("clock") else scale
    soc = with_overrides(BASE, {path: Quantity(old * scale, old.unit)})
    assert valid_paths(soc)[path] == old * scale
    assert override_model(soc, {}) == soc


def test_every_field_of_every_machine_is_described() -> None:
    for model in _models_within(Soc):
        keys = {info.alias or name for name, info in model.model_fields.items()}
        assert set(field_descriptions(model)) == keys, model


def test_a_soc_file_of_ones_own_loads_with_bare_numbers(tmp_path: Path) -> None:
    text = (data_root() / "configs" / "socs" / "core-ultra-series2.yaml").read_text(encoding="utf-8")
    text = re.sub(r"tiles: +\{value: 6, .*\}", "tiles: 8", text, count=1).replace(
        "name: core-ultra-series2", "name: mine"
    )
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    soc = load_soc(str(tmp_path / "mine.yaml"))
    assert (soc.name, soc.npu.tiles, soc.npu.tiles.source) == ("mine", 8, "user")
    assert load_model(tmp_path / "mine.yaml", Soc) == soc


def test_a_grid_has_one_to_three_modes(tmp_path: Path) -> None:
    text = (data_root() / "configs" / "socs" / "core-ultra-series2.yaml").read_text(encoding="utf-8")
    extra = "        more: {groups_w: 1, groups_h: 1, groups_c: 64}\n"
    (tmp_path / "four.yaml").write_text(
        text.replace("      eltwise_ops:", extra + "      eltwise_ops:", 1), encoding="utf-8"
    )
    with pytest.raises(ConfigError, match="modes"):
        load_soc(tmp_path / "four.yaml")


def test_caches_need_a_line(tmp_path: Path) -> None:
    sheet = (data_root() / "configs" / "socs" / "generic-cpu.yaml").read_text(encoding="utf-8")
    mine = tmp_path / "mine.yaml"
    mine.write_text(re.sub(r"\n    cache_line:.*", "", sheet), encoding="utf-8")
    with pytest.raises(ConfigError, match="`caches` without a `cache_line`"):
        load_soc(mine)
