"""States survive an inference: read, updated, written back through DRAM, counted by both engines."""

import numpy as np
import pytest

import npusim
from npusim.errors import GraphError, ShapeError
from npusim.frontends.openvino_ir import graph_of_model
from npusim.frontends.openvino_write import model_of_graph
from npusim.graph import Editor, Graph
from npusim.ops import DType, TensorKind

SIZE = 256 * 64 * 2
"""Bytes of the state in fp16."""


def ring(dtype: DType = DType.FP16) -> Graph:
    """A cache of 256 rows that forgets its oldest row, takes in a new one, and is multiplied."""
    editor = Editor("ring")
    x = editor.input("x", (1, 64))
    weight = editor.constant("weight", (64, 64))
    row = editor.matmul(x, weight, "row")
    state = editor.state("cache", (256, 64), dtype)
    held = editor.op("ReadValue", (state,), (256, 64), DType.FP16, "read")
    kept = editor.op("Slice", (held,), (255, 64), DType.FP16, "kept")
    cache = editor.op("Concat", (kept, row), (256, 64), DType.FP16, "joined", axes=(0,))
    editor.outputs.append(editor.matmul(x, cache, "scores", transpose_b=True))
    editor.assign(state, cache, "write")
    return editor.finish()


def bytes_of(graph: Graph, device: str, engine: str = "analytical", **how: bool) -> float:
    settings = [f"{device}.states.{key}={str(value).lower()}" for key, value in how.items()]
    return npusim.estimate(graph, device=device, settings=settings, engine=engine).dram_bytes


@pytest.mark.parametrize("device", ["npu", "cpu", "gpu"])
def test_a_state_is_read_and_written_once_at_least(device):
    assert bytes_of(ring(), device) >= 2 * SIZE


@pytest.mark.parametrize("engine", ["analytical", "event"])
def test_each_copy_by_the_driver_reads_and_writes_the_state_once_more(engine):
    shared = bytes_of(ring(), "npu", engine)
    read = bytes_of(ring(), "npu", engine, copied_on_read=True)
    both = bytes_of(ring(), "npu", engine, copied_on_read=True, copied_on_write=True)
    assert shared < read <= shared + 2 * SIZE
    assert read < both <= read + 2 * SIZE


def test_a_state_of_another_format_is_converted_where_the_device_does_not_take_it_over():
    graph = ring(DType.FP32)
    taken_over, converted = (
        npusim.estimate(graph, device="npu", settings=[f"npu.states.converted={value}"])
        for value in ("false", "true")
    )
    assert taken_over.memory.states_bytes == 2 * SIZE  # what is read, and what will be read next
    assert converted.memory.states_bytes == 2 * SIZE  # in fp32, read from and written to
    units = {op.name: op.unit for op in converted.operators}
    assert (units["read"], units["write"]) == ("npu.dsp", "npu.dsp")
    assert converted.latency_s > taken_over.latency_s


@pytest.mark.parametrize("device", ["npu", "cpu", "gpu"])
def test_both_engines_agree(device):
    settings = [f"{device}.states.copied_on_write=true"]
    found = [
        npusim.estimate(ring(), device=device, settings=settings, engine=engine).latency_s
        for engine in ("analytical", "event")
    ]
    assert found[1] == pytest.approx(found[0], rel=0.15)


def test_requests_in_flight_have_states_of_their_own():
    one, four = (npusim.estimate(ring(), device="cpu", requests=n).memory.states_bytes for n in (1, 4))
    assert four == 4 * one


def test_a_state_passes_through_a_model_and_works_there():
    graph = ring()
    model = model_of_graph(graph)
    assert [sink.get_type_name() for sink in model.get_sinks()] == ["Assign"]
    again = graph_of_model(model, "ring")
    assert [op.type for op in again] == [op.type for op in graph]
    assert [t.shape for t in again.tensors.values() if t.kind is TensorKind.STATE] == [(256, 64)]
    assert again.state_results == {"write"} and again.outputs[-1] == "write"
    openvino = pytest.importorskip("openvino")
    request = openvino.Core().compile_model(model, "CPU").create_infer_request()
    x = np.linspace(0.1, 1.0, 64, dtype=np.float16).reshape(1, 64)
    seen = [np.count_nonzero(next(iter(request.infer({"x": x}).values()))) for _ in range(3)]
    assert seen == [1, 2, 3]  # rows that the cache remembers


def test_a_state_without_initial_value_is_refused():
    openvino = pytest.importorskip("openvino")
    from openvino.passes import MakeStateful, Manager

    ops = openvino.opset15
    x, held = (ops.parameter([1, 4], openvino.Type.f32, name=name) for name in ("x", "held"))
    total = ops.add(x, held)
    results = [ops.result(total), ops.result(ops.relu(total))]
    model = openvino.Model(results, [x, held], "sum")
    manager = Manager()
    manager.register_pass(MakeStateful([(held, results[0])]))
    manager.run_passes(model)
    with pytest.raises(ShapeError, match=r"no initial value; allowed: a constant"):
        graph_of_model(model, "sum")


def test_an_assign_writes_a_state_of_its_shape():
    editor = Editor("wrong")
    x = editor.input("x", (2, 2))
    editor.state("state", (2, 3))
    with pytest.raises(GraphError, match=r"writes \(2, 2\) to the state 'state' of shape \(2, 3\)"):
        editor.assign("state", x, "write")
        editor.finish()
    other = Editor("none")
    other.tensors["x"] = editor.tensors["x"]
    with pytest.raises(GraphError, match="no state"):
        other.outputs.append(other.op("Assign", ("x",), (2, 2), DType.FP16, "write", variable="x"))
        other.finish()
