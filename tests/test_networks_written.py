"""Built networks written as OpenVINO models, as they are measured, and imported again."""

from collections import Counter

import pytest

pytest.importorskip("openvino")

from npusim.frontends.openvino_ir import graph_of_model
from npusim.frontends.openvino_write import model_of_graph
from npusim.graph import Graph
from npusim.ops import DType, Family
from npusim.workloads import load_workload, workload_names

SMALL = {
    "bert-base": ("layers=2", "vocabulary=100"),
    "bert-large": ("layers=1", "vocabulary=100", "sequence=32"),
    "vit": ("layers=2",),
    "unet": ("height=32", "width=32"),
    "unet-camvid": ("height=32", "width=48"),
}
NETWORKS = [*workload_names("cnn"), *workload_names("transformer")]


def built(name: str, precision: str) -> Graph:
    return load_workload(
        name, [f"workload.{key}" for key in (f"precision={precision}", *SMALL.get(name, ()))]
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("name", NETWORKS)
def test_openvino_makes_the_same_shapes_and_the_import_the_same_operators(name: str) -> None:
    graph = built(name, "fp16")
    imported = graph_of_model(model_of_graph(graph), name)
    assert Counter(op.type for op in imported) == Counter(op.type for op in graph)
    assert imported.macs == graph.macs


@pytest.mark.few(2)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_quantised_network_still_multiplies_bytes_when_it_is_imported(name: str) -> None:
    graph = built(name, "int8")
    imported = graph_of_model(model_of_graph(graph), name)
    assert imported.macs == graph.macs
    for one in (graph, imported):
        in_bytes = sum(
            one.work(op).macs
            for op in one
            if op.family in (Family.MATMUL, Family.CONVOLUTION, Family.DEPTHWISE)
            and all(t.dtype is DType.INT8 for t in one.inputs_of(op)[:2])
        )
        assert in_bytes == pytest.approx(graph.macs, rel=0.01)
