"""Recurrent layers, loops and branches: steps wait for each other, and each is counted."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from one_point import evaluate
from strategies import tight_products

import npusim
from npusim.cost.lowering.tables import RESULT_DTYPE, TOTAL_DTYPE
from npusim.errors import ShapeError
from npusim.graph import Graph

ov = pytest.importorskip("openvino")

from npusim.frontends.openvino_ir import graph_of_model  # noqa: E402

ops = ov.opset13
SOCS = ("core-ultra-series1", "core-ultra-series2")
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def constant(*shape: int) -> Any:
    return ops.constant(np.ones(shape, np.float32))


def graph_of(inputs: list[Any], *outputs: Any) -> Graph:
    return graph_of_model(ov.Model(list(outputs), inputs, "m"), "m")


def layer(kind: str, steps: int, size: int, hidden: int, directions: int = 1, batch: int = 1) -> Graph:
    """A recurrent layer whose hidden states of all steps are the result."""
    x = ops.parameter([batch, steps, size], ov.Type.f32)
    width = GATES[kind] * hidden
    state = constant(batch, directions, hidden)
    weights = [constant(directions, width, size), constant(directions, width, hidden)]
    lengths = ops.constant(np.full(batch, steps, np.int32))
    way = "bidirectional" if directions == 2 else "forward"
    states = [state, state] if kind == "lstm" else [state]
    bias = constant(directions, width)
    make = getattr(ops, f"{kind}_sequence")
    return graph_of([x], make(x, *states, lengths, *weights, bias, hidden, way).output(0))


def latency_s(graph: Graph, soc: str = SOCS[1], **options: Any) -> float:
    return npusim.estimate(graph, soc, **options).latency_s


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("directions", [1, 2])
def test_a_layer_multiplies_input_and_state_by_their_weights_at_every_step(
    kind: str, directions: int
) -> None:
    graph = layer(kind, 20, 24, 32, directions, batch=3)
    assert graph.macs == 3 * 20 * directions * GATES[kind] * 32 * (24 + 32)
    assert all(op.traits.known for op in graph)
    products = [op for op in graph if op.type == "MatMul" and "product" in op.name and op.repeats > 1]
    assert {op.repeats for op in products} == {19}
    for op in products:  # M is the batch: the steps wait for each other
        assert graph.work(op).out_w == 3


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("soc", SOCS)
def test_a_hundred_dependent_steps_take_a_hundred_times_one(kind: str, soc: str) -> None:
    many, two, one = (latency_s(layer(kind, steps, 64, 64), soc) for steps in (100, 2, 1))
    estimate = npusim.estimate(layer(kind, 100, 64, 64), soc)
    steps = [op for op in estimate.operators if op.repeats == 99 and op.latency_s > 0]
    assert many - one > 99 * 0.9 * (two - one)
    assert sum(op.latency_s for op in steps) < many
    machine = npusim.load_soc(soc).npu
    assert many > 100 * float(machine.dispatch_overhead)


def test_weights_that_fit_are_read_once_and_others_at_every_step() -> None:
    small, large = (npusim.estimate(layer("lstm", 100, 64, hidden), SOCS[1]) for hidden in (128, 1024))
    assert small.dram_bytes < 2 * 2 * 4 * 128 * (64 + 128)
    recurrent = 2 * 4 * 1024 * 1024
    room = 4 * 1440 * 1024
    assert large.dram_bytes > 99 * (recurrent - room)


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("soc", SOCS)
def test_both_engines_cost_the_same_steps(kind: str, soc: str) -> None:
    for graph in (layer(kind, 100, 64, 64, 2), layer(kind, 30, 512, 1024)):
        assert latency_s(graph, soc) == pytest.approx(latency_s(graph, soc, engine="event"), rel=0.15)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_host_runs_the_steps_too(device: str) -> None:
    many, one = (npusim.estimate(layer("gru", steps, 64, 64), SOCS[1], device=device) for steps in (50, 1))
    assert many.latency_s > 10 * (one.latency_s - one.latency_s / 2) and not many.warnings


@given(tight_products(), st.integers(2, 50))
@hypothesis_settings(max_examples=30, deadline=None)
def test_an_operator_that_repeats_costs_as_much_as_so_many(arch_and_op: Any, times: int) -> None:
    arch, op = arch_and_op
    often = op.copy()
    often["repeats"] = times
    found = []
    for table in (np.array([often]), np.array([op] * times)):
        results, total = np.zeros(len(table), RESULT_DTYPE), np.zeros(1, TOTAL_DTYPE)
        evaluate(arch, table, results, total[0])
        sums = {
            name: results[name].sum() for name in ("latency_s", "dpu_s", "dma_s", "dram_bytes", "energy_j")
        }
        found.append([*sums.values(), *(float(total[name][0]) for name in TOTAL_DTYPE.names)])
    if np.isfinite(found[0]).all():
        assert found[0] == pytest.approx(found[1], rel=1e-9)


def body_of(width: int) -> tuple[Any, Any, Any]:
    """A body that multiplies its state and adds a slice of a sequence to it: (body, state, slice)."""
    state, part = ops.parameter([1, width], ov.Type.f32), ops.parameter([1, 1, width], ov.Type.f32)
    product = ops.matmul(state, constant(width, width), False, True)
    new = ops.add(product, ops.squeeze(part, ops.constant(np.array([1]))))
    return ov.Model([ops.result(new)], [state, part], "body"), state, part


def iterated(steps: int, width: int = 64) -> Graph:
    x, start = ops.parameter([1, steps, width], ov.Type.f32), ops.parameter([1, width], ov.Type.f32)
    body, state, part = body_of(width)
    node = ops.tensor_iterator()
    node.set_body(body)
    node.set_merged_input(state, start.output(0), body.get_results()[0].output(0))
    node.set_sliced_input(part, x.output(0), 0, 1, 1, -1, 1)
    last = node.get_iter_value(body.get_results()[0].output(0), -1)
    return graph_of([x, start], last)


@pytest.mark.parametrize("steps", [1, 2, 40])
def test_the_body_of_an_iteration_is_counted_as_often_as_it_runs(steps: int) -> None:
    graph = iterated(steps)
    assert graph.macs == steps * 64 * 64
    assert max(op.repeats for op in graph) == max(1, steps - 1)


def test_iterations_wait_for_each_other() -> None:
    many, two, one = (latency_s(iterated(steps)) for steps in (50, 2, 1))
    assert many - one > 0.9 * 49 * (two - one)


def looped(trip_count: Any, inputs: list[Any]) -> Graph:
    x = ops.parameter([4, 16], ov.Type.f32)
    value, go = ops.parameter([4, 16], ov.Type.f32), ops.constant(np.array(True))
    new = ops.matmul(value, constant(16, 16), False, False)
    body = ov.Model([ops.result(new), ops.result(go)], [value], "body")
    node = ops.loop(trip_count, ops.constant(np.array(True)))
    node.set_function(body)
    node.set_special_body_ports([-1, 1])
    node.set_merged_input(value, x.output(0), body.get_results()[0].output(0))
    return graph_of([x, *inputs], node.get_iter_value(body.get_results()[0].output(0), -1))


def test_a_loop_runs_as_often_as_its_trip_count_says() -> None:
    assert looped(ops.constant(np.array(12)), []).macs == 12 * 4 * 16 * 16


def test_a_loop_whose_count_is_a_value_is_refused_by_name() -> None:
    count = ops.parameter([], ov.Type.i64)
    with pytest.raises(ShapeError, match=r"\(Loop\): how often its body runs depends on values"):
        looped(count, [count])


@pytest.mark.parametrize("costlier_first", [True, False])
def test_of_two_branches_the_costlier_is_taken(costlier_first: bool) -> None:
    x, condition = ops.parameter([4, 16], ov.Type.f32), ops.parameter([], ov.Type.boolean)
    bodies = []
    for product in (costlier_first, not costlier_first):
        inner = ops.parameter([4, 16], ov.Type.f32)
        new = ops.matmul(inner, constant(16, 16), False, False) if product else ops.relu(inner)
        bodies.append((ov.Model([ops.result(new)], [inner], "body"), inner))
    node = ops.if_op(condition.output(0))
    node.set_then_body(bodies[0][0])
    node.set_else_body(bodies[1][0])
    node.set_input(x.output(0), bodies[0][1], bodies[1][1])
    results = [body.get_results()[0] for body, _ in bodies]
    graph = graph_of([condition, x], node.set_output(*results))
    assert [op.type for op in graph] == ["MatMul"]
    assert graph.macs == 4 * 16 * 16


EINSUMS = {
    "i,i->": ((7,), (7,)),
    "ij->": ((5, 7),),
    "ii->i": ((5, 5),),
    "bii->b": ((3, 5, 5),),
    "ij,jk,kl->il": ((3, 4), (4, 5), (5, 6)),
    "...ij,...jk->...ik": ((2, 3, 4, 5), (3, 5, 6)),
    "bhqd,bhkd->bhqk": ((2, 3, 4, 5), (2, 3, 6, 5)),
    "bqhd,hde->bqe": ((2, 4, 3, 5), (3, 5, 7)),
    "ij,kl->ijkl": ((2, 3), (4, 5)),
    "bij,b->bij": ((3, 4, 5), (3,)),
    "abc,cd,abd->ab": ((2, 3, 4), (4, 5), (2, 3, 5)),
    "ij,ij->j": ((4, 5), (4, 5)),
    "ijk,k->ij": ((2, 3, 4), (4,)),
    "ba,b": ((3, 4), (3,)),
}


@pytest.mark.few(5)
@pytest.mark.parametrize("equation", EINSUMS)
def test_an_einsum_of_any_operands_has_the_shape_and_the_work_of_its_products(equation: str) -> None:
    shapes = EINSUMS[equation]
    inputs = [ops.parameter(list(shape), ov.Type.f32) for shape in shapes]
    graph = graph_of(inputs, ops.einsum(inputs, equation))
    (result,) = graph.outputs
    assert graph.tensors[result].shape == np.einsum(equation, *(np.ones(shape) for shape in shapes)).shape
    assert all(op.traits.known for op in graph)
    assert graph.macs == multiplied(equation, shapes)


def multiplied(equation: str, shapes: tuple[tuple[int, ...], ...]) -> float:
    """Multiply-accumulates from left to right: one for each value of all labels of two that share a sum.

    A label that one operand alone has, and nobody needs, is summed before.
    """
    terms, _, result = equation.partition("->")
    labels = [list(term.replace("...", "") if "..." not in term else term) for term in terms.split(",")]
    if "..." in equation:  # [2, 3, 4, 5] x [3, 5, 6]
        return 2 * 3 * 4 * 5 * 6
    if "->" not in equation:
        result = "".join(sorted(x for x in set(terms) - {","} if terms.count(x) == 1))
    size = {
        x: n for term, shape in zip(labels, shapes, strict=True) for x, n in zip(term, shape, strict=True)
    }
    left, macs = set(labels[0]), 0.0
    for place, right in enumerate(map(set, labels[1:]), start=1):
        needed = set(result).union(*map(set, labels[place + 1 :]))
        left, right = left & (needed | right), right & (needed | left)
        if (left & right) - needed:
            macs += float(np.prod([size[x] for x in left | right]))
        left = (left | right) & needed
    return macs


@pytest.mark.parametrize("soc", SOCS)
def test_three_dimensions_are_planes_of_two(soc: str) -> None:
    x = ops.parameter([1, 8, 10, 12, 14], ov.Type.f32)
    conv = ops.convolution(x, constant(16, 8, 3, 3, 3), [1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1])
    pooled = ops.max_pool(conv, [2, 2, 2], [1, 1, 1], [0, 0, 0], [0, 0, 0], [2, 2, 2]).output(0)
    wide = ops.convolution_backprop_data(pooled, constant(16, 4, 2, 2, 2), [2, 2, 2])
    depthwise = ops.group_convolution(
        wide, constant(4, 1, 1, 3, 3, 3), [1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1]
    )
    graph = graph_of([x], depthwise)
    image = 10 * 12 * 14
    assert graph.macs == image * 16 * 8 * 27 + (5 * 6 * 7) * 16 * 4 * 8 + image * 4 * 27
    slices = latency_s(graph, soc), latency_s(graph, soc, engine="event")
    assert slices[0] == pytest.approx(slices[1], rel=0.15)
    roofline_s = graph.macs / npusim.load_soc(soc).npu.peak_macs_per_s("fp16")
    assert slices[0] > roofline_s
