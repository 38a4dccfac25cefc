"""A network over several devices of a kind: what each has to do and what they exchange."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npusim
from npusim.cli.program import run
from npusim.errors import ConfigError, InfeasibleError
from npusim.graph import Editor, Graph
from npusim.mapping import Sharding
from npusim.ops import DType
from npusim.scenario import Scenario
from npusim.studies.placement import divided


def perceptron(rows: int = 64, widths: tuple[int, ...] = (64, 96, 64), dtype: DType = DType.FP16) -> Graph:
    """Return products with an activation each, from the first width to the last."""
    editor = Editor("perceptron")
    x = editor.input("x", (rows, widths[0]), dtype)
    for number, (before, after) in enumerate(pairwise(widths)):
        weight = editor.constant(f"w{number}", (before, after), dtype)
        x = editor.unary("Relu", editor.matmul(x, weight, f"product{number}"), f"relu{number}")
    editor.outputs.append(x)
    return editor.finish()


def images(kernel: int = 3) -> Graph:
    """Return two convolutions of images of 32 x 32, 16 channels each."""
    editor = Editor("images")
    x = editor.input("x", (1, 16, 32, 32), DType.FP16)
    for number in range(2):
        weight = editor.constant(f"w{number}", (16, 16, kernel, kernel), DType.FP16)
        more = {"strides": (1, 1), "pads_begin": (kernel // 2,) * 2, "pads_end": (kernel // 2,) * 2}
        x = editor.op("Convolution", (x, weight), (1, 16, 32, 32), DType.FP16, f"layer{number}", **more)
    editor.outputs.append(x)
    return editor.finish()


def test_rows_need_all_weights_and_exchange_nothing():
    sharding = Sharding(perceptron(), 2, "rows")
    shard = sharding.editor.finish()
    assert sharding.exchanges == 0 and shard.macs == perceptron().macs / 2
    assert shard.tensors["product0"].shape == (32, 96) and shard.tensors["w1"].shape == (96, 64)


def test_channels_then_depth_need_one_sum_of_partial_products():
    """Megatron-LM: columns of the first weight, rows of the second, then each reads the other's sums."""
    sharding = Sharding(perceptron(), 2, "channels")
    shard = sharding.editor.finish()
    assert shard.macs == perceptron().macs / 2
    assert shard.tensors["w0/1"].shape == (64, 48) and shard.tensors["w1/0"].shape == (48, 64)
    assert sharding.exchanged_bytes == 64 * 64 * 2
    assert sharding.exchanges == 1 and len(shard.parts) == 2


def test_four_devices_gather_results_that_are_smaller_than_three_partial_sums():
    sharding = Sharding(perceptron(), 4, "channels")
    assert sharding.editor.finish().tensors["w1/1"].shape == (96, 16)
    assert sharding.exchanges == 1 and sharding.exchanged_bytes == 64 * (96 - 24) * 2


def test_rows_of_an_image_exchange_the_rows_that_windows_reach():
    assert Sharding(images(1), 2, "rows").exchanges == 0
    sharding = Sharding(images(3), 2, "rows")
    assert sharding.exchanges == 1 and sharding.exchanged_bytes == 16 * 2 * 32 * 2
    assert sharding.editor.finish().tensors["layer1"].shape == (1, 16, 16, 32)


def test_a_whole_matrix_is_gathered_for_an_aggregation():
    """Two layers of a GCN by rows: each product with the norm needs the features of all nodes."""
    graph = Scenario("gcn-cora", techniques="stagr").graph
    sharding = Sharding(graph, 2, "rows")
    half = graph.structure.nodes // 2
    assert sharding.exchanges == 2 and sharding.exchanged_bytes == half * (64 + 7) * 2


@given(
    rows=st.integers(2, 40),
    widths=st.lists(st.integers(2, 40), min_size=2, max_size=4),
    devices=st.integers(2, 4),
    way=st.sampled_from(["rows", "channels"]),
)
@settings(max_examples=40, deadline=None)
def test_shares_cover_the_work_and_none_has_more_than_all(rows, widths, devices, way):
    graph = perceptron(rows, tuple(widths))
    try:
        shard = Sharding(graph, devices, way).editor.finish()
    except InfeasibleError:
        assert min(rows, *widths) < devices
        return
    assert graph.macs <= devices * shard.macs and shard.macs <= graph.macs


def test_large_products_on_two_devices_take_about_half_the_time_and_requests_twice_the_rate():
    graph = perceptron(2048, (512, 512, 512, 512), DType.INT8)
    soc = npusim.load_soc("core-ultra-series2", ["npu.launch_overhead=1us", "cpu.dram_bandwidth=130GB/s"])
    ways = {way.name: way for way in divided(Scenario(graph, soc), 2).ways}
    alone = ways["one device"]
    assert alone.latency_s / 2.2 < ways["rows"].latency_s < alone.latency_s / 1.6
    assert ways["requests"].throughput_per_s == pytest.approx(2.0 * alone.throughput_per_s, rel=0.2)
    assert ways["rows"].latency_s < ways["channels"].latency_s  # which exchange results


@pytest.mark.laws
def test_the_chosen_way_costs_least_and_both_commands_show_it(capsys):
    for words, by in ((["estimate"], "latency_s"), (["map", "--hint", "throughput"], "throughput_per_s")):
        assert run([words[0], "mobilenet-v2", "--split", "2", *words[1:]]) == 0
        assert "npu + npu2" in capsys.readouterr().out
        call = {"estimate": npusim.estimate, "map": npusim.map}[words[0]]
        found = call("mobilenet-v2", split=2, hint=words[-1] if len(words) > 1 else "latency").divided
        chosen = next(way for way in found.ways if way.name == found.chosen)
        values = [getattr(way, by) for way in found.ways]
        assert getattr(chosen, by) == (min(values) if by == "latency_s" else max(values))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"split": 1}, "1 devices.*from 2 to 16"),
        ({"split": 2, "device": "gpu"}, "--device gpu"),
        ({"split": 2, "soc": "generic-cpu"}, "whose main device is no host"),
    ],
)
def test_what_cannot_be_divided_is_refused(how, says):
    with pytest.raises(ConfigError, match=says):
        npusim.estimate("mobilenet-v2", **how)
