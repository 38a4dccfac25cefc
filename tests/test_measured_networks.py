"""Suite `measured-networks`: networks as others measured them, with the time of each harness."""

from pathlib import Path

import pytest

from npusim.errors import ConfigError
from npusim.validation.measured_networks import Harness, definitions, measured_rows
from npusim.validation.running import Judged, run_suite

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
