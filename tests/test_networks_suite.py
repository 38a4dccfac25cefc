"""Suite `networks`: published throughput and latency beside predictions."""

from pathlib import Path

import pytest

from npusim.arch import soc_names
from npusim.errors import ConfigError
from npusim.measuring import Network
from npusim.measuring.models import UnbuildableError, graph_of
from npusim.ops import DType
from npusim.scenario import Scenario
from npusim.validation.running import Judged, run_suite
from npusim.workloads import load_spec, workload_names, workload_published_as

HEADER = "release,platform,npu,model,precision,throughput,throughput_unit,latency_ms_sync_int8,source,note"
HOSTS = HEADER.replace(",npu,", ",device,")
RESNET = "2024.5,Core Ultra 7 155H,NPU3720,resnet-50,int8,774.88,FPS,1.56,there,"


def judged(folder: Path, *lines: str) -> Judged:
    path = folder / "figures.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return run_suite("networks", path)


def test_a_line_makes_a_row_of_each_number_that_it_holds(tmp_path: Path) -> None:
    result = judged(tmp_path, HEADER, "", RESNET).result()
    rows = {row.group: row for row in result.rows}
    assert {row.id for row in result.rows} == {3}
    assert rows["npu3720 throughput"].measured == 774.88
    assert rows["npu3720 latency"].measured == pytest.approx(1.56e-3)
    assert rows["npu3720 throughput"].predicted == pytest.approx(
        1 / rows["npu3720 latency"].predicted, rel=0.5
    )


def test_predictions_are_estimates_with_openvinos_requests_and_tiles(tmp_path: Path) -> None:
    rows = {row.group: row for row in judged(tmp_path, HEADER, RESNET).result().rows}
    soc = "core-ultra-7-155h" if "core-ultra-7-155h" in soc_names() else "core-ultra-series1"
    scenario = Scenario("resnet-50", soc, settings=["workload.precision=int8"], device="npu")
    assert scenario.run.requests == 1
    assert scenario.with_(hint="throughput").run.requests == 4
    found = scenario.with_(hint="throughput").mapped.total["throughput_per_s"]
    assert rows["npu3720 throughput"].predicted == pytest.approx(float(found))


def test_a_line_may_name_a_host_and_leave_a_number_out(tmp_path: Path) -> None:
    lines = (
        "2024.3,Core Ultra 7 165H,gpu,resnet-50,int8,,,2.24,,",
        "2024.3,Core Ultra 7 165H,cpu,resnet-50,fp16,69.12,FPS,,,",
    )
    groups = [(row.id, row.group) for row in judged(tmp_path, HOSTS, *lines).result().rows]
    assert groups == [(2, "gpu latency"), (3, "cpu throughput")]


def test_what_cannot_be_built_is_left_out_with_a_note(tmp_path: Path) -> None:
    others = (
        RESNET.replace("resnet-50", "alexnet"),
        RESNET.replace("155H", "999Z"),
        RESNET.replace("int8", "int4"),
        RESNET.replace("FPS", "tok/s"),
    )
    done = judged(tmp_path, HEADER, RESNET, *others)
    assert {row.id for row in done.result().rows} == {2}
    notes = "\n".join(done.evidence.notes)
    assert "left out alexnet (int8): npusim builds no such network" in notes
    assert "no data sheet of Core Ultra 7 999Z" in notes
    assert "precisions are fp16, int8" in notes
    assert "a token is no inference" in notes
    with pytest.raises(ConfigError, match="builds no such network; and 3 others"):
        judged(tmp_path, HEADER, *others)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ((HEADER,), "no rows below the header"),
        ((HEADER.replace("model", "modle"), RESNET), "no column `model` but `modle`"),
        ((HEADER.replace("throughput,", "thruput,"), RESNET), "no column `throughput`"),
        ((HEADER, RESNET.replace("774.88", "").replace("1.56", "")), "no row that can be predicted"),
    ],
)
def test_figures_without_a_number_to_compare_are_refused(
    tmp_path: Path, lines: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        judged(tmp_path, *lines)


def test_anomalous_rows_inform_only_and_say_why(tmp_path: Path) -> None:
    told = RESNET.replace("there,", "there,anomalous (nobody knows)")
    known = (
        RESNET.replace("155H", "288V").replace("3720", "4000").replace("resnet-50", "ssd_mobilenet_v1_coco")
    )
    done = judged(tmp_path, HEADER, told, known)
    assert {row.group for row in done.result().rows} == {"anomalous"}
    assert done.ok
    notes = "\n".join(done.evidence.notes)
    assert "nobody knows" in notes
    assert "DetectionOutput" in notes


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (RESNET.replace("774.88", "-1"), "throughput"),
        (RESNET.replace("1.56", "fast"), "latency_ms_sync_int8"),
        (RESNET.replace("FPS", "FPM"), "throughput_unit"),
        (RESNET.replace("NPU3720", ""), "npu"),
    ],
)
def test_a_bad_value_is_refused_with_its_line_and_column(tmp_path: Path, line: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=rf"figures\.csv:2: {complaint}: found"):
        judged(tmp_path, HEADER, line)


def test_each_published_name_means_one_workload() -> None:
    names = [(alias, name) for name in workload_names() for alias in load_spec(name).published_as]
    assert all(workload_published_as(alias) == name for alias, name in names)
    assert workload_published_as("YOLO_V8N") == "yolov8n"
    assert workload_published_as("alexnet") is None


def test_a_published_network_can_be_built_from_its_name() -> None:
    graph = graph_of(Network(network="bert-base-cased", precision="int8"), "f16")
    assert graph.name == "bert-base"
    assert {t.dtype for t in graph.tensors.values()} >= {DType.INT8, DType.FP16}
    with pytest.raises(UnbuildableError, match="known by its name only"):
        graph_of(Network(network="alexnet", precision="int8"))
