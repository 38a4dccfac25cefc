"""ONNX and IR files of many families that nobody here wrote import and estimate, with the right work."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import npusim
from npusim.graph import Graph

pytest.importorskip("onnx")
ov = pytest.importorskip("openvino")

from real_models import CONVERTED, LARGE, LIGHT, NODES, converted, exported, light, macs_of, node_test  # noqa: E402

from npusim.frontends.openvino_ir import import_model  # noqa: E402

try:
    from torch_modules import MODULES
except ImportError:  # torch belongs to an extra
    MODULES = {}

SOCS = ("core-ultra-series1", "core-ultra-series2")
ENGINES = ("analytical", "event")
Source = Callable[[Path], object]
SOURCES: dict[str, Source] = {
    **{f"light/{name}": light(name) for name in (*LIGHT, *LARGE)},
    **{name: converted(name) for name in CONVERTED},
    **{f"node/{name}": node_test(name) for name in NODES},
    **{f"torch/{name}": exported(name) for name in MODULES},
}
"""Each network by its name: what writes its ONNX file."""
TWO_WAYS_APART = 0.01
ENGINES_APART = 0.15


def test_there_are_sixty_families() -> None:
    assert len({*LIGHT, *LARGE, *CONVERTED, *NODES}) >= 59
    if MODULES:
        assert len(SOURCES) >= 80


@pytest.mark.few(6)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n.removeprefix("light/") in LARGE)) for n in SOURCES],
)
def test_a_network_from_the_wild_is_costed_alike_by_both_ways_in_and_both_engines(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "net.onnx"
    SOURCES[name](path)
    read = ov.convert_model(path)
    ov.save_model(read, path.with_suffix(".xml"))
    graph, other = import_model(path), import_model(path.with_suffix(".xml"))
    assert graph.macs == pytest.approx(macs_of(read), rel=0.01)
    assert other.macs == pytest.approx(graph.macs, rel=0.01)
    for soc in SOCS:
        latency_s = {engine: estimated(graph, soc, engine).latency_s for engine in ENGINES}
        by_ir_s = estimated(other, soc, "analytical").latency_s
        assert latency_s["event"] == pytest.approx(latency_s["analytical"], rel=ENGINES_APART)
        assert by_ir_s == pytest.approx(latency_s["analytical"], rel=TWO_WAYS_APART)


def estimated(graph: Graph, soc: str, engine: str) -> Any:
    """An estimate; it warns of nothing but operators without a family."""
    estimate = npusim.estimate(graph, soc, engine=engine)
    unknown = {op.type for op in graph if not op.traits.known}
    assert bool(estimate.warnings) == bool(unknown), estimate.warnings
    assert all(any(kind in warning for kind in unknown) for warning in estimate.warnings)
    return estimate
