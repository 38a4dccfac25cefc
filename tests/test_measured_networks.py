"""Suite `measured-networks`: networks as others measured them, with the time of each harness."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.arch import load_soc
from npusim.errors import ConfigError
from npusim.llm.suite import workload_of
from npusim.scenario import Scenario
from npusim.studies.perturbation import governors, moved, sampled
from npusim.studies.uncertainty import draw
from npusim.validation.figures import Row, evidence_of
from npusim.validation.measured_networks import Harness, definitions, measured_rows
from npusim.validation.running import Judged, judge, run_suite
from npusim.validation.suite import Group, Suite

HEADER = "source,device,model,precision,hint,metric,value,notes"
TIMM = "ispcojp/ai_inference_device_benchmark there,Core Ultra 7 265KF NPU3720,{},fp16,latency,ms,{},"
SMALL, LARGE = TIMM.format("mobilenetv2_050", 0.9), TIMM.format("mobilenetv2_140", 1.8)


def judged(folder: Path, *lines: str) -> Judged:
    path = folder / "figures.csv"
    path.write_text("\n".join((HEADER, *lines)) + "\n", encoding="utf-8")
    return run_suite("measured-networks", path)


def test_rows_and_slopes_between_sizes_of_a_family(tmp_path: Path) -> None:
    rows = {row.id: row for row in judged(tmp_path, SMALL, LARGE).result().rows}
    assert rows[2].measured == pytest.approx(0.9e-3)
    slope = rows["2 to 3"]
    assert slope.measured == pytest.approx(0.9e-3)
    assert slope.predicted == pytest.approx(rows[3].predicted - rows[2].predicted)


def test_growth_with_the_cache_is_a_row_of_its_own(tmp_path: Path) -> None:
    line = "s,Core Ultra 7 258V GPU,phi-3.5-mini,int4,decode,ms/token,{},input {}"
    rows = {
        row.id: row for row in judged(tmp_path, line.format(32.5, 32), line.format(36.5, 1024)).result().rows
    }
    growth = rows["2 to 3"]
    assert growth.measured == pytest.approx(4e-3)
    assert growth.predicted == pytest.approx(rows[3].predicted - rows[2].predicted)
    assert growth.predicted > 0.0


@pytest.mark.parametrize(
    ("soc", "device"),
    [("core-ultra-7-155h", "npu"), ("core-ultra-7-258v", "npu"), ("core-ultra-7-258v", "gpu"),
     ("core-ultra-7-155h", "gpu"), ("core-ultra-7-155h", "cpu")],
)  # fmt: skip
def test_the_larger_network_of_a_family_takes_longer(soc: str, device: str) -> None:
    families = (("mobilenetv2_050", "mobilenetv2_140"), ("shufflenet_v2_x0_5", "shufflenet_v2_x2_0"))
    for precision in ("fp16", "int8"):
        for sizes in (*families, ("vgg11", "vgg13")):
            settings = [f"workload.precision={precision}"]
            scenarios = [Scenario(name, soc, device=device, settings=settings) for name in sizes]
            less, more = (float(scenario.mapped.total["latency_s"]) for scenario in scenarios)
            assert less < more, (sizes, precision)


def test_what_nobody_knows_is_named_and_skipped(tmp_path: Path) -> None:
    others = (
        SMALL.replace("mobilenetv2_050", "alexnet"),
        SMALL.replace("265KF", "999Z"),
        SMALL.replace("fp16", "fp4"),
        SMALL.replace("latency,ms", "decode,tok/s").replace("mobilenetv2_050", "gpt-99"),
    )
    done = judged(tmp_path, SMALL, *others)
    assert {row.id for row in done.result().rows} == {2}
    notes = "\n".join(done.evidence.notes)
    for text in ("left out alexnet", "no data sheet", "precisions of the npu", "no such decoder"):
        assert text in notes
    with pytest.raises(ConfigError, match="no row that can be predicted"):
        judged(tmp_path, *others)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (SMALL.replace("0.9", "fast"), "value"),
        (SMALL.replace("0.9", "-1"), "value"),
        (SMALL.replace(",ms,", ",parsecs,"), "metric"),
        (SMALL.replace("latency", "sometimes"), "hint"),
    ],
)
def test_a_bad_value_is_one_message_with_its_line(tmp_path: Path, line: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=rf"figures\.csv:2: {complaint}: found"):
        judged(tmp_path, line)


def test_every_device_text_of_the_shipped_rows_is_a_machine() -> None:
    from npusim.locate import resource

    rows, notes = measured_rows(resource("validate", "figures", "measured_networks.csv"))
    assert len(rows) == 123 and not notes


NAMES = """
mobilenetv2_035 mobilenetv2_100.ra_in1k mobilenetv3_rw tf_mobilenetv3_small_075 efficientnet_b0
efficientnet_b5 tf_efficientnet_b7 efficientnet_lite0 efficientnet_lite4 mnasnet_a1 mnasnet_b1
mnasnet_small mixnet_s mixnet_xl
repvgg_a0 repvgg_b3 resnet18 resnet50 resnet152 shufflenet_v2_x0_5 shufflenet_v2_x2.0
ese_vovnet19b_dw ese_vovnet39b ese_vovnet57b vgg11 vgg16_bn vgg19 yolo11s.pt YOLO11x yolo26l yolov11m
"""
DECODERS = """
llama-2-7b-chat-hf meta-llama/Meta-Llama-3-8B-Instruct llama-3.1-8b-instruct llama-3.2-1b
Llama-3.2-3B-Instruct phi-3.5-mini-instruct phi-3-mini-4k-instruct Qwen2.5-7B-Instruct qwen2-7b qwen3-0.6b
Qwen/Qwen3-8B mistral-7b-instruct-v0.3
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("machine", ["155H", "165H", "185H", "258V", "265K", "265KF", "288V", "358H"])
@pytest.mark.parametrize("device", ["NPU", "GPU", "CPU"])
def test_every_network_of_the_sources_is_a_row_on_every_device(
    machine: str, device: str, tmp_path: Path
) -> None:
    lines = [f"s,Core Ultra 7 {machine} {device},{name},fp16,latency,ms,9," for name in NAMES.split()]
    lines += [f"s,Core Ultra 7 {machine} {device},{name},int4,decode,tok/s,9," for name in DECODERS.split()]
    path = tmp_path / "figures.csv"
    path.write_text("\n".join((HEADER, *lines)) + "\n", encoding="utf-8")
    rows, notes = measured_rows(path)
    assert not notes
    assert all(workload_of(row.workload) for row in rows if row.is_token)
    assert {row.kind for row in rows} <= {*definitions().classes, "decoders"}


def test_a_harness_costs_the_least_that_is_known_of_the_device_where_its_machine_is_new() -> None:
    harness = Harness.model_validate(
        {"name": "h", "where": "x", "per_call": {
            f"{soc} npu": {"value": f"{ms} ms", "source": "test"} for soc, ms in (("a", 3), ("b", 5))
        }}
    )  # fmt: skip
    assert (harness.constant_s("b", "npu"), harness.constant_s("c", "npu")) == (5e-3, 3e-3)
    assert harness.constant_s("a", "gpu") == 0.0


def test_each_class_of_networks_has_a_name_of_its_own() -> None:
    parts = [part for names in definitions().classes.values() for part in names]
    assert len(parts) == len(set(parts))


def test_a_row_has_a_90_percent_interval_that_holds_the_time_of_a_call(tmp_path: Path) -> None:
    row = judged(tmp_path, SMALL).result().rows[0]
    assert row.interval is not None
    low, high = row.interval
    assert low < row.predicted < high


@given(inside=st.integers(0, 20))
def test_limits_on_coverage_fail_on_either_side(inside: int) -> None:
    """Intervals that hold too few rows are too narrow, intervals that hold all of them too wide."""
    rows = [Row(i, 1.0, 1.0, {"device": "npu"}, (0.5, 2.0) if i < inside else (2.0, 3.0)) for i in range(20)]
    group = Group.model_validate({"group": "all", "inside": ["80 %", "97 %"]})
    suite = Suite.model_validate(
        {"schema": "npusim.suite/1", "title": "t", "figures": None, "predictor": "p", "groups": [group]}
    )
    done = judge("t", suite, evidence_of(suite, rows))
    assert done.groups[0].inside == pytest.approx(inside / 20)
    assert done.ok == (16 <= inside <= 19)


def test_rows_without_an_interval_have_no_coverage(tmp_path: Path) -> None:
    groups = {group.group: group for group in judged(tmp_path, SMALL, LARGE).groups}
    assert groups["slopes, npu"].inside is None


@given(normal=st.floats(-4.0, 4.0).filter(lambda normal: abs(normal) > 1e-3))
def test_a_governor_sets_both_clocks_of_one_operating_point(normal: float) -> None:
    soc = load_soc("core-ultra-7-155h")
    machine = sampled(soc, governors(soc)[:1], [normal])
    clocks = float(machine.npu.dpu.clock), float(machine.npu.vpu_clock)
    assert clocks == ((1.16e9, 0.87e9) if normal <= 0.0 else (1.3e9, 0.975e9))


@pytest.mark.parametrize("setting", ["npu.dpu.clock=1.2 GHz", "npu.operating_point=dpu_1160mhz"])
def test_a_governor_yields_to_a_chosen_clock(setting: str) -> None:
    assert not [g for g in governors(load_soc("core-ultra-7-155h", [setting])) if "npu" in g.path]


@pytest.mark.parametrize(
    ("governor", "complaint"),
    [({"dpu_1300mhz": 0.7, "dpu_1000mhz": 0.7}, "together"), ({"fast": 1}, "operating point")],
)
def test_a_governor_of_unknown_points_or_missing_shares_is_refused(
    governor: dict[str, float], complaint: str, tmp_path: Path
) -> None:
    shares = ", ".join(f"{name}: {{value: {share}, source: t}}" for name, share in governor.items())
    text = "schema: npusim.soc/1\nextends: core-ultra-series1\nname: mine\ntitle: t\n"
    (tmp_path / "mine.yaml").write_text(f"{text}devices:\n  npu:\n    governor: {{{shares}}}\n")
    with pytest.raises(ConfigError, match=complaint):
        load_soc(tmp_path / "mine.yaml")


def test_the_error_of_left_out_classes_is_in_a_latency_and_cancels_in_a_ratio() -> None:
    """Two forms of one network on one device err together."""
    sheet, place = load_soc("core-ultra-7-258v"), ("devices", "npu", "network_error")
    exact = moved(sheet, {place: 1e-12})
    settings = (["workload.precision=int8"], ["workload.precision=fp16"])
    with_error, without = (
        draw([Scenario("resnet-50", soc, device="npu", settings=s).mapped for s in settings], samples=8)
        for soc in (sheet, exact)
    )
    names = [number.name for number in with_error.numbers]
    normals = with_error.normals[:, names.index("equations.networks on npu")]
    factors = np.exp(float(sheet.npu.network_error or 0.0) * normals)
    for i in range(2):
        assert with_error.latency_s[i] / without.latency_s[i] == pytest.approx(factors)
    assert with_error.speedup_interval(0, 1) == pytest.approx(without.speedup_interval(0, 1))
