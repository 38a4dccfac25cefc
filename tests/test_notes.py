"""What an import takes for granted is said, and a setting that can do nothing is refused with what can."""

from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from npusim import estimate, load_soc, load_workload
from npusim.errors import ConfigError


def notes(path: Path, shapes: dict[str, list[int]]) -> str:
    found = estimate(load_workload(str(path), shapes=shapes), load_soc("core-ultra-series1"))
    return "\n".join(found.provenance["notes"])


def saved(path: Path, by_values: bool = False) -> Path:
    x = ops.parameter([4, 8], np.float32, name="x")
    result = ops.add(x, ops.constant(np.float32(1.5)))
    if by_values:
        result = ops.convert(ops.non_zero(result, "i64"), np.float32)
    ov.save_model(ov.Model([result], [x], "net"), path)
    return path


def test_a_size_that_depends_on_values_is_costed_at_its_bound_and_said_so(tmp_path):
    assert "depends on values: [2, 32], its upper bound" in notes(saved(tmp_path / "a.xml", True), {})


def test_a_fixed_size_that_is_replaced_is_said_so(tmp_path):
    path = saved(tmp_path / "a.xml")
    assert "--shape replaces sizes that the file fixes: x [4,8], now [2, 8]" in notes(path, {"x": [2, 8]})
    assert "--shape" not in notes(path, {"x": [4, 8]})
    assert "--shape" not in notes(path, {})


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("npu.dpu.fused_ops=[add,softmax]", "`softmax`, which no unit applies element by element"),
        ("npu.dpu.fused_ops=[matmul]", "`matmul`, which no unit applies element by element"),
        ("npu.contexts=1000000", "at most 1,024"),
        ("npu.schedule.in_place_ops=[slice]", "concat, split, variadicsplit"),
    ],
)
def test_a_setting_that_can_do_nothing_is_refused(setting, said):
    with pytest.raises(ConfigError) as error:
        load_soc("core-ultra-series1", [setting])
    assert said in str(error.value)


def test_a_model_without_its_kind_is_told_the_kind(tmp_path):
    path = tmp_path / "net.yaml"
    path.write_text("model: resnet-50\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="allowed: kind: cnn"):
        load_workload(str(path))


@pytest.mark.parametrize(("tiles", "is_noted"), [(3, False), (4, True)])
def test_tiles_that_leave_room_for_fewer_contexts_are_a_note(tiles, is_noted):
    result = estimate("gcn-cora", hint="throughput", requests=3, tiles=tiles)
    assert ("leave room for 1 of 2 contexts; 3 would" in result.to_json()) is is_noted
