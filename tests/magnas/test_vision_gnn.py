"""Vision GNNs: sizes as published, the traced PyTorch module operator for operator, bad input."""

from typing import Any

import pytest
from graph_agreement import assert_agreement

from npusim import estimate
from npusim.cli.program import run
from npusim.magnas.graph import build_vig
from npusim.magnas.spec import VisionGnnSpec
from npusim.ops import TensorKind
from npusim.workloads import load_workload

OPERATORS = ("max_relative", "edgeconv", "gin", "graphsage")
SMALL = {
    "model": "vig",
    "channels": 64,
    "depth": 1,
    "image": 64,
    "knn": 3,
    "classes": 10,
    "precision": "fp32",
}


@pytest.mark.parametrize(
    ("name", "macs", "parameters"),
    [("vig-s", 4.5e9, 22.7e6), ("magnas-vig", 4.5e9, 22.7e6), ("pyramid-vig-m", 8.9e9, 51.7e6)],
)
def test_multiplications_and_parameters_are_the_published_ones(name, macs, parameters):
    graph = load_workload(name)
    weights = [t for t in graph.tensors.values() if t.kind is TensorKind.CONSTANT and t.dtype.is_float]
    assert graph.macs == pytest.approx(macs, rel=0.02)
    assert sum(t.elements for t in weights) == pytest.approx(parameters, rel=0.02)


def test_the_backbone_of_magnas_has_34_blocks():
    blocks = {region.block for region in load_workload("magnas-vig").regions.values()}
    assert blocks == {"stem", "head", *(f"{what}{n}" for what in ("grapher", "ffn") for n in range(16))}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "choices",
    [
        *({"operator": operator} for operator in OPERATORS),
        {"model": "pyramid-vig", "channels": [16, 32, 64, 128], "operator": list(OPERATORS)},
        {"batch": 2, "depth": [1, 2, 1, 1], "preprocess": False, "ffn_hidden": [0, 96, 0, 32]},
    ],
    ids=str,
)
def test_the_traced_module_is_the_built_graph(choices: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("openvino")
    from npusim import from_pyg
    from npusim.magnas.vig import VisionGnn

    spec = VisionGnnSpec(kind="vision-gnn", **{**SMALL, **choices})
    module = VisionGnn(spec).eval()
    for name, parameter in module.named_parameters():
        if name.endswith("epsilon"):  # a factor of 1 would be folded
            parameter.data.fill_(0.1)
    image = torch.rand(spec.batch, 3, spec.image, spec.image)
    assert_agreement(build_vig(spec, "x"), from_pyg(module, {"image": image}, "x", precision=None))


@pytest.mark.few(1)
@pytest.mark.parametrize("operator", OPERATORS)
def test_engines_agree(operator):
    graph = load_workload(
        "magnas-vig",
        [f"workload.operator={operator}", "workload.depth=1", "workload.preprocess=[true,false,true,false]"],
    )
    analytical = estimate(graph, soc="core-ultra-series2").latency_s
    event = estimate(graph, soc="core-ultra-series2", engine="event")
    assert event.latency_s == pytest.approx(analytical, rel=0.15)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("depth=[1,2]", "depth: found 2 values; allowed: one value, or a list of four"),
        ("operator=mean", "max_relative"),
        ("knn=[9,9]", "allowed: 1, 4 or, one a block, 16"),
        ("knn=200", "allowed: at most the 196 nodes there are"),
        ("channels=100", "multiples of 8"),
        ("channels=[8,16,32,64]", "one width throughout"),
        ("image=100", "a multiple of 16"),
        ("reduction=3", "divisors of the 14"),
    ],
)
def test_bad_choices_are_refused(setting, message, capsys):
    assert run(["estimate", "magnas-vig", "--set", f"workload.{setting}"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
