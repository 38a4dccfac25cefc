"""Networks that tables of blocks describe, beside counts that others publish."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.errors import ConfigError, UnknownNameError
from npusim.graph import Graph
from npusim.ops import Family, Role, TensorKind
from npusim.workloads import load_workload, workload_path
from npusim.workloads.cnn.blocks import rounded_channels
from npusim.workloads.loading import workload_published_as
from npusim.workloads.spec import variants

# count: 10^9 multiply-accumulates; macts: 10^6 results of convolutions; params_m: 10^6 parameters. Sources:
# timm: huggingface/pytorch-image-models@aa4b5850, results/benchmark-infer-amp-nchw-pt210-cu121-rtx3090.csv,
#   ...-pt240-cu124-rtx4090.csv; its counter adds two for each result of a batch normalisation;
# repvgg: Ding et al., 2021, Tables 2 and 3, as deployed; torchvision 0.28: ShuffleNet_V2_*_Weights;
# ultralytics: docs/macros/yolo-det-perf.md and docs/en/models, fused models; FLOPs, two a multiply-accumulate
#   of a layer (products of two activations are none).
COUNTS = Path(__file__).with_name("network_counts.csv")
CONVOLUTIONS = (Family.CONVOLUTION, Family.DEPTHWISE)


def published() -> Iterator[dict[str, str]]:
    with COUNTS.open(encoding="utf-8") as file:
        yield from csv.DictReader(file)


def within(text: str, share: float = 0.01) -> object:
    """A published number: 1 %, and half of its last digit."""
    digits = len(text.partition(".")[2])
    return pytest.approx(float(text), abs=share * float(text) + 0.5 * 10.0**-digits)


def parameters(graph: Graph) -> int:
    constants = (t for t in graph.tensors.values() if t.kind is TensorKind.CONSTANT)
    return sum(t.elements for t in constants if t.role in (Role.WEIGHT, Role.BIAS))


@pytest.mark.few(20)
@pytest.mark.parametrize("row", list(published()), ids=lambda row: row["model"])
def test_work_and_parameters_are_the_published_ones(row: dict[str, str]) -> None:
    graph = load_workload(row["model"], [f"workload.{side}={row['size']}" for side in ("height", "width")])
    results = sum(graph.outputs_of(op)[0].elements for op in graph if op.family in CONVOLUTIONS)
    count = graph.macs + (2 * results if row["source"] == "timm" else 0)
    if row["source"] == "ultralytics":
        products = (op for op in graph if op.family is Family.MATMUL)
        count = 2 * (count - sum(graph.macs_of(op) for op in products))
    assert count / 1e9 == within(row["count"])
    assert parameters(graph) / 1e6 == within(row["params_m"])
    if row["macts"]:
        assert (results + 1000) / 1e6 == within(row["macts"])


def test_every_variant_has_published_counts() -> None:
    assert set(variants()) == {row["model"] for row in published()}


@pytest.mark.parametrize(
    ("alias", "name"),
    [("mnasnet_a1", "semnasnet_100"), ("mobilenetv2_050", "mobilenetv2_050"), ("YOLO26n", "yolo26n")],
)
def test_a_variant_has_the_names_of_its_publishers(alias: str, name: str) -> None:
    assert workload_published_as(alias) == name


def test_an_end_to_end_detector_returns_300_detections_of_six_numbers() -> None:
    graph = load_workload("yolo26n")
    assert graph.tensors[graph.outputs[0]].shape == (1, 300, 6)
    assert sum(op.type == "TopK" for op in graph) == 2
    assert graph.tensors[load_workload("yolo11s").outputs[0]].shape == (1, 84, 8400)


@given(st.floats(1, 4000))
def test_rounded_channels_are_a_multiple_of_eight_and_lose_less_than_a_tenth(channels: float) -> None:
    rounded = rounded_channels(channels)
    assert rounded % 8 == 0
    assert 0.9 * channels <= rounded <= max(8, channels + 8)


@settings(max_examples=4, deadline=None)
@given(st.sampled_from(["mobilenetv2_100", "efficientnet_b0"]), st.floats(0.3, 2), st.floats(1, 2))
def test_a_larger_factor_never_makes_a_smaller_network(name: str, channels: float, depth: float) -> None:
    def macs(*factors: float) -> float:
        keys = ("channel_factor", "depth_factor")
        return load_workload(name, [f"workload.{key}={f}" for key, f in zip(keys, factors, strict=True)]).macs

    assert macs(channels, depth) <= macs(channels * 1.1, depth)
    assert macs(channels, depth) <= macs(channels, depth + 0.5)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rows: [{block: conv}, {block: concat, inputs: [0, 1]}]", "a row above row 1"),
        ("rows: [{block: detect}]", "`detect` for a detector alone"),
        ("rows: []", "rows"),
        ("rows: [{block: cnov, channels: 8}]", "block: found `cnov`"),
    ],
)
def test_a_table_that_cannot_be_built_is_one_message(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"kind: blocks\nmodel: classifier\n{text}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_workload(file)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_misspelt_variant_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError) as caught:
        workload_path("mobilenetv2_51")
    assert "mobilenetv2" in str(caught.value)
