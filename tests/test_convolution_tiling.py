"""Convolutions of any size fit, and what cutting them costs is counted."""

import numpy as np
import pytest
from strategies import NPU_SOCS, soc_with

from npusim.arch import load_soc
from npusim.engines.event import run_events
from npusim.graph import Editor, Graph
from npusim.mapping import Run, map_graph
from npusim.ops import DType
from npusim.workloads import load_workload

LARGE = [(1024, 14, 14, 1024), (512, 56, 56, 512), (320, 64, 64, 320), (64, 1024, 1024, 64)]
"""Input channels, height, width and output channels of 3x3 convolutions of VGG, Stable Diffusion, YOLO."""


def convolution(
    in_c: int,
    height: int,
    width: int,
    out_c: int,
    kernel: tuple[int, int] = (3, 3),
    dtype: DType = DType.FP16,
) -> Graph:
    editor = Editor("convolution")
    image = editor.input("x", (1, in_c, height + kernel[0] - 1, width + kernel[1] - 1), dtype)
    weight = editor.constant("w", (out_c, in_c, *kernel), dtype)
    shape = (1, out_c, height, width)
    editor.outputs.append(editor.op("Convolution", (image, weight), shape, dtype, "conv", strides=(1, 1)))
    return editor.finish()


@pytest.mark.few(3)
@pytest.mark.parametrize("sram", ["256KiB", "64KiB", "1MiB"])
@pytest.mark.parametrize("size", LARGE, ids=str)
@pytest.mark.parametrize("name", NPU_SOCS)
def test_a_convolution_fits_whatever_its_size(name, size, sram):
    soc = soc_with(name, (f"npu.sram.per_tile={sram}",))
    for dtype in (DType.FP16, DType.INT8):
        for tiles in (1, int(soc.npu.tiles)):
            mapped = map_graph(convolution(*size, dtype=dtype), soc, Run(tiles=tiles))
            assert mapped.total["sram_peak_bytes"] <= tiles * mapped.npu["sram_tile_bytes"]


def test_a_row_of_any_length_fits():
    soc = soc_with("core-ultra-series1", ("npu.sram.per_tile=64KiB",))
    assert np.isfinite(map_graph(convolution(384, 1, 3000, 384, (1, 3)), soc, Run()).total["latency_s"])


def moved_bytes(graph: Graph, sram: str) -> float:
    soc = soc_with("core-ultra-series1", (f"npu.sram.per_tile={sram}",))
    return float(map_graph(graph, soc, Run()).total["dram_bytes"])


def read_once(graph: Graph) -> float:
    return sum(graph.tensors[name].bytes for name in ("x", "w", *graph.outputs))


def test_rows_and_columns_at_the_border_of_two_blocks_are_fetched_for_both():
    graph = convolution(16, 128, 128, 16)
    mapped = map_graph(graph, soc_with("core-ultra-series1", ("npu.sram.per_tile=256KiB",)), Run())
    result = mapped.results[0]
    rows, columns = (130 + 2 * (result[name] - 1) for name in ("row_blocks", "strips"))
    again = (rows * columns - 130 * 130) * 16 * 2
    assert result["column_blocks"] == 1
    assert again > 0
    assert mapped.total["dram_bytes"] == pytest.approx(read_once(graph) + again)


def test_a_window_no_larger_than_its_step_has_no_rows_at_borders():
    graph = convolution(64, 64, 64, 64, (1, 1))
    assert moved_bytes(graph, "128KiB") == pytest.approx(read_once(graph))


@pytest.mark.few(2)
@pytest.mark.parametrize("size", LARGE, ids=str)
@pytest.mark.parametrize("sram", ["256KiB", "1440KiB"])
def test_engines_agree_on_large_convolutions(size, sram):
    soc = soc_with("core-ultra-series1", (f"npu.sram.per_tile={sram}",))
    mapped = map_graph(convolution(*size), soc, Run(tiles=2))
    simulated = run_events(mapped)
    assert mapped.total["latency_s"] == pytest.approx(simulated.latency_s, rel=0.15)
    assert mapped.total["dram_bytes"] == pytest.approx(simulated.dram_bytes, rel=1e-9)


@pytest.mark.laws
@pytest.mark.parametrize("workload", ["resnet-50", "unet"])
def test_engines_agree_on_networks_of_convolutions(workload):
    mapped = map_graph(load_workload(workload), load_soc("core-ultra-series1"), Run(tiles=2))
    simulated = run_events(mapped)
    assert mapped.total["latency_s"] == pytest.approx(simulated.latency_s, rel=0.15)
    assert mapped.total["dram_bytes"] == pytest.approx(simulated.dram_bytes, rel=1e-9)
