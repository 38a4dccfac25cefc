"""EffOp, GrAx1, GrAx2, GrAx3 and QuantGr: which operators stand where afterwards, and in which format."""

from collections import Counter

import pytest
from shape_rules import misfits
from test_techniques import graph_of, types

from npusim.graph import Editor
from npusim.ops import DType, Role, TensorKind
from npusim.techniques import apply


def layer(graph, part: str) -> list[str]:
    return [op.type for op in graph if op.region == part]


# --- attention ---


def test_effop_leaves_no_control_flow_in_gat() -> None:
    done = apply(graph_of("gat"), "effop")
    assert not {"Select", "Greater", "Broadcast"} & set(types(done))
    scores = ["MatMul", "MatMul", "Reshape", "Add", "PRelu", "Multiply", "Add", "Softmax"]
    assert layer(done, "layer0/attention") == scores


def test_effop_alone_makes_its_masks_of_the_adjacency_where_that_is_made() -> None:
    done = apply(graph_of("gat"), "graphsplit+effop")
    absent = done.writer("preprocess/mask_negative")
    scaled = done.writer(absent.inputs[0])
    assert (absent.type, scaled.type, scaled.inputs[0]) == ("Add", "Multiply", "preprocess/adjacency")
    assert [done.tensors[op.inputs[1]].shape for op in (absent, scaled)] == [(1, 1), (1, 1)]
    assert {absent.device, scaled.device} == {"cpu"}
    assert "edge_index" in done.tensors
    assert len(done.readers("preprocess/mask_negative")) == 2


def test_the_masks_of_effop_are_constants_after_stagr() -> None:
    done = apply(graph_of("gat"), "stagr+effop")
    for name in ("mask_present", "mask_negative"):
        mask = done.tensors[name]
        assert (mask.kind, mask.role, mask.shape) == (TensorKind.CONSTANT, Role.MASK, (2708, 2708))
        assert mask.dtype is DType.FP16 and len(done.readers(name)) == 2
    assert done.tensors["mask_present"].density + done.tensors["mask_negative"].density == pytest.approx(1.0)


def test_the_masks_of_effop_are_inputs_after_grad() -> None:
    done = apply(graph_of("gat"), "grad+effop")
    masks = [done.tensors[name] for name in ("mask", "mask_negative")]
    assert all(t.kind is TensorKind.INPUT and t.structural and t.role is Role.MASK for t in masks)
    assert {t.name for t in done.tensors.values() if t.kind is TensorKind.INPUT} == {
        "x",
        "mask",
        "mask_negative",
    }


@pytest.mark.parametrize("form", ["gathered", "edges"])
def test_effop_alone_sums_neighbours_with_a_matrix_made_in_the_graph(form: str) -> None:
    done = apply(graph_of("sage-mean", form), "effop")
    products = [op for op in done if op.region.endswith("aggregate")]
    assert [op.type for op in products] == ["MatMul", "MatMul"]
    assert len({op.inputs[0] for op in products}) == 1
    matrix = done.tensors[products[0].inputs[0]]
    assert (matrix.kind, matrix.shape) == (TensorKind.ACTIVATION, (2708, 2708))
    assert matrix.name in done.structural


@pytest.mark.parametrize("before", ["", "effop+", "stagr+", "grad+"])
def test_grax1_masks_by_an_addition_alone(before: str) -> None:
    done = apply(graph_of("gat"), f"{before}grax1")
    assert not {"Select", "Greater", "Broadcast"} & set(types(done))
    assert "Multiply" not in layer(done, "layer0/attention")
    for softmax in (op for op in done if op.type == "Softmax"):
        addition = done.writer(softmax.inputs[0])
        assert addition is not None and addition.type == "Add"
        assert done.tensors[addition.inputs[1]].density > 0.99


@pytest.mark.parametrize("heads", [1, 8])
def test_literal_and_source_work_on_vectors(heads: int) -> None:
    graph = graph_of("gat", heads=heads)
    stack = (heads,) if heads > 1 else ()
    for form, vector in (("literal", (*stack, 2708, 1)), ("source", (*stack, 1, 2708))):
        done = apply(graph, f"effop+grax1+grax2:form={form}")
        assert misfits(done) == []
        prelu = next(op for op in done if op.type == "PRelu" and op.region == "layer0/attention")
        assert done.outputs_of(prelu)[0].shape == vector
        softmax = next(op for op in done if op.type == "Softmax" and op.region == "layer0/attention")
        assert done.inputs_of(softmax)[0].shape == (*stack, 2708, 2708)


def test_literal_needs_no_transpose_and_source_no_target_score() -> None:
    literal = apply(graph_of("gat"), "effop+grax1+grax2")
    assert layer(literal, "layer0/attention") == ["MatMul", "MatMul", "Add", "PRelu", "Add", "Softmax"]
    source = apply(graph_of("gat"), "effop+grax1+grax2:form=source")
    assert layer(source, "layer0/attention") == ["MatMul", "Reshape", "PRelu", "Add", "Softmax"]


def test_rank2_is_a_product_with_an_inner_dimension_of_two_that_stays_floating() -> None:
    done = apply(graph_of("gat"), "effop+grax2:form=rank2+quantgr")
    product = done.operators["layer0/attention/rank2/matmul"]
    assert [t.shape for t in done.inputs_of(product)] == [(2708, 2), (2, 2708)]
    assert {t.dtype for t in (*done.inputs_of(product), *done.outputs_of(product))} == {DType.FP16}


def test_vectors_are_broadcast_where_no_mask_does_it() -> None:
    graph = Editor.of(graph_of("gat"))
    for name in ("layer0/attention/select", "layer1/attention/select"):
        graph.rewire(name, graph.operators[name].inputs[1])
    done = apply(graph.finish(), "grax2:form=source")
    assert misfits(done) == []
    assert types(done)["Broadcast"] == 2


# --- SAGE-max ---


def test_effop_masks_the_neighbours_of_sage_max_by_arithmetic() -> None:
    done = apply(graph_of("sage-max"), "stagr+effop")
    assert layer(done, "layer0/aggregate") == ["Gather", "Multiply", "Add", "ReduceMax"]
    assert done.tensors["mask_present"].shape == (2708, 10, 1)


@pytest.mark.parametrize("before", ["", "effop+", "stagr+", "grad+", "stagr+effop+"])
def test_grax3_multiplies_and_pools(before: str) -> None:
    done = apply(graph_of("sage-max"), f"{before}grax3")
    assert layer(done, "layer0/aggregate") == ["Gather", "Multiply", "Reshape", "MaxPool", "Reshape"]
    pool = next(op for op in done if op.type == "MaxPool")
    assert pool.attrs["kernel"] == (10, 1)
    assert done.work(pool).elements == 2708 * 10 * 1433
    reduced = apply(graph_of("sage-max"), f"{before}grax3:maximum=reduce")
    assert layer(reduced, "layer0/aggregate") == ["Gather", "Multiply", "ReduceMax"]


# --- QuantGr ---


@pytest.mark.parametrize("mask", ["stagr", "grad+nodepad:capacity=3000"])
def test_quantgr_halves_norm_weights_features_and_products_of_gcn(mask: str) -> None:
    before, after = (apply(graph_of("gcn"), stack) for stack in (mask, f"{mask}+quantgr"))
    assert types(before) == types(after)
    halved = {n for n, t in after.tensors.items() if t.bytes * 2 == before.tensors[n].bytes}
    kept = {n: after.tensors[n].dtype for n in set(after.tensors) - halved}
    assert {
        "norm",
        "x",
        "layer0/combine/matmul",
        "layer0/aggregate/matmul",
        "layer1/combine/matmul",
    } <= halved
    assert set(kept) == {
        "layer0/combine/add/bias",
        "layer1/combine/add/bias",
        "layer1/aggregate/matmul",
        "readout/logsoftmax",
    }
    assert set(kept.values()) == {DType.FP16}
    assert after.meta.precision is DType.INT8


@pytest.mark.parametrize(("who", "device"), [("cpu", "cpu"), ("npu", None)])
def test_inputs_that_arrive_floating_are_converted_by_whom_one_says(who: str, device: str | None) -> None:
    done = apply(graph_of("gcn"), f"grad+quantgr:inputs={who}")
    converts = {op.inputs[0]: op for op in done if op.type == "Convert"}
    assert set(converts) == {"x", "norm"}
    assert {op.device for op in converts.values()} == {device}
    norm = done.outputs_of(converts["norm"])[0]
    assert (norm.dtype, norm.role, norm.symmetric) == (DType.INT8, Role.NORM, True)
    assert len(done.readers(norm.name)) == 2


def test_storage_techniques_reach_a_converted_norm() -> None:
    done = apply(graph_of("gcn"), "grad+quantgr:inputs=cpu+symg+cacheg")
    norm = done.tensors["norm/int8"]
    assert (norm.storage.value, norm.cached) == ("triangle", True)


def test_a_norm_made_in_the_graph_is_converted_where_it_is_made() -> None:
    done = apply(graph_of("gcn", "dense"), "graphsplit+quantgr")
    converts = [op for op in done if op.type == "Convert" and done.outputs_of(op)[0].dtype is DType.INT8]
    assert [(op.inputs, op.device) for op in converts] == [(("preprocess/norm",), "cpu")]


def test_gat_stays_floating_on_the_dsps_and_converts_behind_them() -> None:
    done = apply(graph_of("gat"), "stagr+effop+quantgr")
    made = Counter(done.writer(op.inputs[0]).type for op in done if op.type == "Convert")
    assert made == Counter(Softmax=2, Elu=1)
    for op in done:
        if op.type in ("Softmax", "Elu", "PRelu", "LogSoftmax"):
            assert {t.dtype for t in (*done.inputs_of(op)[:1], *done.outputs_of(op))} == {DType.FP16}
        if op.type == "MatMul":
            assert {t.dtype for t in done.inputs_of(op)} == {DType.INT8}
    assert {done.tensors[n].dtype for n in ("mask_present", "mask_negative")} == {DType.FP16}


def test_the_pooling_of_sage_max_runs_in_8_bits_from_gather_to_product() -> None:
    done = apply(graph_of("sage-max"), "stagr+grax3+quantgr")
    for op in done:
        if op.region == "layer0/aggregate":
            assert {t.dtype for t in done.outputs_of(op)} == {DType.INT8}
    assert done.tensors["mask_present"].dtype is DType.INT8
    assert done.tensors["x"].dtype is DType.INT8


def test_integers_and_booleans_of_the_graph_are_not_touched() -> None:
    before, after = graph_of("gcn"), apply(graph_of("gcn"), "quantgr")
    for name in before.structural & set(after.tensors):
        assert after.tensors[name] == before.tensors[name]
