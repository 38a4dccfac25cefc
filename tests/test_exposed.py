"""Times of operators that nothing hides: `npu.exposed`, counted in dispatches."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.arch import Soc, load_soc
from npusim.cost import Unit
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
    x = net.input("x", (1, channels, size, size))
    return net.finished(net.convolution(x, channels, "layer", kernel, groups=channels, bias=False))


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


def test_a_transposition_has_a_time_of_its_own() -> None:
    editor = Editor("turned")
    editor.outputs.append(editor.transpose(editor.input("x", (1, 64, 100)), (0, 2, 1), "turned"))
    graph = editor.finish()
    one, other = (latency_s(graph, machine(transpose=time)) for time in ("10 us", "30 us"))
    assert other - one == pytest.approx(20e-6, rel=1e-6)


@pytest.mark.parametrize(
    ("type_name", "shape", "constant", "on_grid"),
    [
        ("Multiply", (1, 32, 1, 1), True, True),
        ("Multiply", (1, 32, 1, 1), False, True),  # what squeeze-and-excitation computes
        ("Add", (1, 32, 1, 1), True, True),
        ("Add", (1, 32, 1, 1), False, False),
        ("Multiply", (1, 1, 1, 1), True, True),
        ("Multiply", (1, 1, 1, 1), False, False),
        ("Multiply", (1, 1, 14, 14), True, False),
        ("Divide", (1, 32, 1, 1), True, False),
    ],
)
def test_a_number_by_channel_is_a_depthwise_convolution(
    type_name: str, shape: tuple[int, ...], constant: bool, on_grid: bool
) -> None:
    editor = Editor("scaled")
    image = editor.input("x", (1, 32, 14, 14))
    factor = editor.constant("f", shape, DType.FP16) if constant else editor.input("f", shape)
    result = editor.add(type_name, (editor.unary("Sigmoid", image, "sigmoid"), factor), "scaled")
    editor.outputs.append(editor.unary("Sigmoid", result, "end"))
    groups = Scenario(editor.finish(), load_soc(SOC), device="npu").mapped.lowered.groups
    units = {member: group.unit for group in groups for member in group.members}
    assert (units["scaled"] is Unit.DPU) == on_grid


@pytest.mark.parametrize("name", ["semnasnet_100", "mobilenetv3_small_100", "efficientnet_b0", "mixnet_s"])
def test_squeeze_and_excite_networks_are_no_slower_in_bytes(name: str) -> None:
    def time_s(precision: str) -> float:
        return latency_s(load_workload(name, [f"workload.precision={precision}"]), load_soc(SOC))

    assert time_s("int8") <= 1.02 * time_s("fp16")
