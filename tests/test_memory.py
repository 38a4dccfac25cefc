"""DRAM that a network occupies: constants once, inputs and results per request, results while they live."""

import pytest

from npusim.arch import load_soc
from npusim.errors import InfeasibleError
from npusim.graph import Editor, Graph
from npusim.mapping import Run, map_graph
from npusim.ops import DType

SERIES2 = load_soc("core-ultra-series2")
CPU = load_soc("generic-cpu")


def tower(rows: int, width: int, layers: int) -> Graph:
    editor = Editor("tower")
    value = editor.input("x", (rows, width), DType.FP16)
    for i in range(layers):
        value = editor.matmul(value, editor.constant(f"w{i}", (width, width), DType.FP16), f"product{i}")
    editor.outputs.append(value)
    return editor.finish()


def test_results_that_stay_in_sram_occupy_no_dram():
    memory = map_graph(tower(64, 64, 4), SERIES2, Run(tiles=4)).memory
    assert memory.results_peak_bytes == 0
    assert (memory.constants_bytes, memory.inputs_bytes) == (4 * 64 * 64 * 2, 64 * 64 * 2)
    assert memory.outputs_bytes == 64 * 64 * 2


def test_a_host_keeps_two_results_of_a_chain_at_a_time_and_in_fp32():
    memory = map_graph(tower(64, 64, 6), CPU, Run(device="cpu")).memory
    tensor = 64 * 64 * 4
    # While the last product writes the output, the one before it is still read.
    assert memory.results_peak_bytes == 2 * tensor
    assert (memory.constants_bytes, memory.inputs_bytes, memory.outputs_bytes) == (6 * tensor, tensor, tensor)


def test_requests_in_flight_share_constants_only():
    one, four = (map_graph(tower(64, 64, 3), CPU, Run(requests=r, device="cpu")).memory for r in (1, 4))
    assert four.constants_bytes == one.constants_bytes
    for name in ("inputs_bytes", "outputs_bytes", "results_peak_bytes"):
        assert getattr(four, name) == 4 * getattr(one, name)


@pytest.mark.parametrize("requests", [1, 4])
def test_what_does_not_fit_into_dram_is_refused_with_what_would(requests):
    graph = tower(64, 64, 4)
    run = Run(tiles=4, requests=requests)
    need = map_graph(graph, SERIES2, run).memory.dram_peak_bytes
    map_graph(graph, load_soc("core-ultra-series2", [f"dram.capacity={need:.0f}B"]), run)
    with pytest.raises(InfeasibleError, match=r"dram\.capacity=1GB"):
        map_graph(graph, load_soc("core-ultra-series2", [f"dram.capacity={need - 1:.0f}B"]), run)
