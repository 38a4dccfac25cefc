"""A network in parts: each is launched by itself, and what it hands on passes through DRAM."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npusim
from npusim.engines.chrome_trace import chrome_trace
from npusim.engines.event import event_estimate
from npusim.errors import GraphError
from npusim.graph import Editor, Graph
from npusim.ops import DType
from npusim.scenario import Scenario


def tower(parts: list[str], devices: dict[str, str] | None = None, width: int = 256) -> Graph:
    """Products one after the other, the i-th in part `parts[i]`; each part also adds a table of its own."""
    editor = Editor("tower")
    x = editor.input("x", (64, width))
    for i, part in enumerate(parts):
        editor.part_name = part
        device = (devices or {}).get(part)
        weight = editor.constant(f"w{i}", (width, width), DType.FP16)
        x = editor.matmul(x, weight, f"product{i}", device=device)
        x = editor.unary("Relu", x, f"relu{i}", device=device)
    editor.outputs.append(x)
    return editor.finish()


def launches(graph: Graph, **how: object) -> int:
    estimate = npusim.estimate(graph, **how)
    each = npusim.load_soc(estimate.soc).npu.launch_overhead
    return round(estimate.launch_s / each)


@pytest.mark.parametrize("engine", ["analytical", "event"])
def test_parts_are_launched_one_by_one_and_pass_results_through_dram(engine):
    size = 64 * 256 * 2
    one = npusim.estimate(tower([""] * 4), engine=engine)
    two = npusim.estimate(tower(["a", "a", "b", "b"]), engine=engine)
    assert [launches(tower(list(parts)), engine=engine) for parts in ("aaaa", "aabb")] == [1, 2]
    assert two.dram_bytes == pytest.approx(one.dram_bytes + 2 * size)
    assert two.latency_s > one.latency_s + float(npusim.load_soc(one.soc).npu.launch_overhead)
    assert [part.name for part in two.parts] == ["a", "b"] and one.parts == []
    assert [part.launches for part in two.parts] == [1, 1]
    assert sum(part.latency_s for part in two.parts) == pytest.approx(two.latency_s)
    assert sum(part.dram_bytes for part in two.parts) == pytest.approx(two.dram_bytes)
    assert [part.constants_bytes for part in two.parts] == [2 * 256 * 256 * 2] * 2
    assert [op.part for op in two.operators if op.type == "MatMul"] == ["a", "a", "b", "b"]


@pytest.mark.parametrize("engine", ["analytical", "event"])
def test_each_part_may_have_a_device_of_its_own(engine):
    graph = tower(["a", "a", "b", "b"], {"a": "cpu", "b": "npu"})
    estimate = npusim.estimate(graph, engine=engine)
    assert [part.devices for part in estimate.parts] == [["cpu"], ["npu"]]
    assert estimate.energy.cpu_j > 0 and estimate.energy.mac_j > 0


def test_parts_run_in_order_even_where_a_later_one_could_begin():
    editor = Editor("fork")
    x = editor.input("x", (64, 64))
    editor.part_name = "z"
    first = editor.unary("Relu", x, "first")
    editor.part_name = "a"
    early = editor.unary("Tanh", x, "early")  # needs nothing of part z
    editor.outputs.append(editor.eltwise("Add", first, early, "sum"))
    estimate = npusim.estimate(editor.finish())
    assert [op.part for op in estimate.operators] == ["z", "a", "a"]
    assert [part.launches for part in estimate.parts] == [1, 1]


def test_parts_that_need_each_other_are_refused():
    graph = tower(["a", "b", "a", "a"])
    with pytest.raises(GraphError, match="parts that need each other's results"):
        npusim.estimate(graph)


def test_a_trace_names_the_part_that_is_launched():
    line = event_estimate(Scenario(tower(["a", "a", "b", "b"]))).timeline
    names = [event["name"] for event in json.loads(chrome_trace(line))["traceEvents"]]
    assert [name for name in names if name.startswith("launch")] == ["launch a", "launch b"]


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 6), st.data())
def test_more_parts_never_shorten_an_inference(length, data):
    """Each cut costs a launch, and what it cuts passes through DRAM."""
    cuts = data.draw(st.sets(st.integers(1, length), max_size=3))
    more = data.draw(st.integers(1, length))
    device = data.draw(st.sampled_from(["npu", "cpu", "gpu"]))

    def cut(at: set[int]) -> float:
        parts = [f"part{sum(c <= i for c in at)}" for i in range(length + 1)]
        return npusim.estimate(tower(parts, width=64), device=device).latency_s

    assert cut(cuts | {more}) >= cut(cuts) * (1 - 1e-9)
