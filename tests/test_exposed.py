"""Times of operators that nothing hides: `npu.exposed`, counted in dispatches."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.arch import Soc, load_soc
from npusim.graph import Editor, Graph
from npusim.ops import DType
from npusim.scenario import Scenario
from npusim.workloads import load_workload
from npusim.workloads.network import Network

SOC = "core-ultra-7-165h"


def machine(**times: str) -> Soc:
    return load_soc(SOC, [f"npu.exposed.{name}={value}" for name, value in times.items()])


def latency_s(graph: Graph, soc: Soc) -> float:
    return float(Scenario(graph, soc, device="npu").mapped.total["latency_s"])


def depthwise(channels: int, size: int, kernel: int) -> Graph:
    net = Network("depthwise", "depthwise", "fp16")
    x = net.editor.input("x", (1, channels, size, size))
    return net.finish(net.convolution(x, channels, "layer", kernel, groups=channels, bias=False))


@settings(max_examples=12, deadline=None)
@given(st.sampled_from([16, 64, 144]), st.sampled_from([14, 28]), st.sampled_from([3, 5]))
def test_depthwise_convolutions_cost_their_taps(channels: int, size: int, kernel: int) -> None:
    graph, taps = depthwise(channels, size, kernel), channels * size**2 * kernel**2
    none, some = (latency_s(graph, machine(depthwise_tap=time)) for time in ("0 ns", "0.1 ns"))
    assert some - none == pytest.approx(taps * 0.1e-9, rel=1e-6)


@pytest.mark.parametrize(("elements", "is_small"), [(64, True), (100_000, False)])
def test_a_call_on_few_elements_costs_a_task(elements: int, is_small: bool) -> None:
    editor = Editor("call")
    editor.outputs.append(editor.unary("Sigmoid", editor.input("x", (1, elements)), "sigmoid"))
    graph = editor.finish()
    one, other = (latency_s(graph, machine(task=time)) for time in ("1 us", "3 us"))
    assert other - one == pytest.approx(2e-6 if is_small else 0.0, abs=1e-15)


def test_a_separate_requantisation_costs_its_elements_and_no_call() -> None:
    editor = Editor("rounding")
    x = editor.input("x", (1, 50_000))
    editor.outputs.append(editor.add("FakeQuantize", (x,), "rounded", DType.INT8, levels=256))
    graph = editor.finish()
    none, some = (latency_s(graph, machine(requantised_element=time)) for time in ("0 ns", "1 ns"))
    assert some - none == pytest.approx(50e-6, rel=1e-6)


@pytest.mark.parametrize("name", ["semnasnet_100", "mobilenetv3_small_100", "efficientnet_b0", "mixnet_s"])
def test_squeeze_and_excite_networks_are_no_slower_in_bytes(name: str) -> None:
    def time_s(precision: str) -> float:
        return latency_s(load_workload(name, [f"workload.precision={precision}"]), load_soc(SOC))

    assert time_s("int8") <= 1.02 * time_s("fp16")
