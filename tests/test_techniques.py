"""What each technique rewrites, on every model and in every form; what it refuses, and why."""

from collections import Counter
from functools import cache

import pytest
from shape_rules import misfits

from npusim.errors import IllegalTechniqueError
from npusim.graph import Editor, Graph
from npusim.ops import DType, Family, Role, Storage, TensorKind
from npusim.techniques import apply, legal, technique_names
from npusim.workloads import GnnSpec, build_gnn, load_statistics

FORMS = {
    "gcn": ("edges", "dense", "csr"),
    "gat": ("dense", "edges", "csr"),
    "sage-mean": ("gathered", "edges", "dense", "csr"),
    "sage-max": ("gathered", "edges"),
    "sage-concat": ("edges", "dense", "csr"),
}
ALL = [(model, form) for model, forms in FORMS.items() for form in forms]


@cache
def graph_of(model: str, form: str = "", dataset: str = "cora", heads: int = 1) -> Graph:
    spec = GnnSpec(model=model, dataset=dataset, form=form or FORMS[model][0], heads=heads)
    return build_gnn(spec, load_statistics(dataset))


def types(graph: Graph) -> Counter[str]:
    return Counter(op.type for op in graph)


def fingerprint(graph: Graph) -> tuple[object, ...]:
    operators = [(op.name, op.type, op.inputs, op.outputs, str(dict(op.attrs)), op.device) for op in graph]
    return operators, sorted(graph.tensors.values(), key=lambda t: t.name), graph.outputs, graph.meta


def big(graph: Graph) -> list:
    """Matrices over the nodes that lie in memory before the inference."""
    n = graph.meta.capacity or graph.structure.nodes
    return [t for t in graph.tensors.values() if t.shape == (n, n) and t.kind is not TensorKind.ACTIVATION]


# --- every technique ---


@pytest.mark.parametrize("name", technique_names())
@pytest.mark.parametrize(("model", "form"), ALL)
def test_every_technique_applies_or_refuses_with_the_reason(model: str, form: str, name: str) -> None:
    graph = graph_of(model, form)
    before = fingerprint(graph)
    reason = legal(graph, name)
    if reason is None:
        done = apply(graph, name)
        assert done.techniques == name
        assert misfits(done) == []
        assert fingerprint(done) != before
        assert fingerprint(apply(graph, name)) == fingerprint(done)
        assert done.outputs and all(
            done.tensors[t].shape[-1] == graph.structure.classes for t in done.outputs
        )
    else:
        assert reason.startswith(f"{name} needs ")
        assert f"; {graph.name} has none" in reason or reason.endswith("makes it)")
        with pytest.raises(IllegalTechniqueError, match=f"technique `{name}`: {name} needs"):
            apply(graph, name)
    assert fingerprint(graph) == before


@pytest.mark.few(4)
@pytest.mark.parametrize(("model", "form"), ALL)
def test_every_pair_of_techniques_applies_or_refuses_with_the_reason(model: str, form: str) -> None:
    graph = graph_of(model, form)
    names = technique_names()
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            stack = f"{second}+{first}"
            reason = legal(graph, stack)
            if reason is not None:
                assert reason.startswith((f"{first} ", f"{second} ")), reason
                continue
            done = apply(graph, stack)
            assert done.techniques == f"{first}+{second}"
            assert misfits(done) == [], stack
            assert fingerprint(done) != fingerprint(apply(graph, first)), stack


@pytest.mark.parametrize(("model", "form"), ALL)
def test_no_technique_leaves_the_graph_as_it_is(model: str, form: str) -> None:
    graph = graph_of(model, form)
    assert fingerprint(apply(graph, "none")) == fingerprint(graph)
    assert apply(graph, "none").techniques == "none"


def test_a_stack_may_be_applied_in_two_goes_but_not_backwards() -> None:
    graph = graph_of("gcn")
    assert fingerprint(apply(apply(graph, "stagr"), "symg")) == fingerprint(apply(graph, "stagr+symg"))
    assert "stagr has been applied" in str(legal(apply(graph, "stagr"), "stagr"))
    assert "preg comes before quantgr" in str(legal(apply(graph, "quantgr"), "preg"))


def test_stagr_and_grad_exclude_each_other() -> None:
    reason = "stagr excludes grad: the mask is either a constant or an input"
    assert legal(graph_of("gcn"), "grad+stagr") == reason
    assert legal(apply(graph_of("gcn"), "grad"), "stagr") == reason


# --- the refusals, word for word ---


@pytest.mark.parametrize(
    ("model", "stack", "reason"),
    [
        ("gat", "stagr+symg", "symg needs a symmetric constant or input norm matrix; gat-cora has none"),
        (
            "sage-mean",
            "stagr+symg",
            "symg needs a symmetric constant or input norm matrix; sage-mean-cora has none",
        ),
        (
            "gcn",
            "symg",
            "symg needs a symmetric constant or input norm matrix; gcn-cora has none "
            "(stagr or grad makes one)",
        ),
        (
            "gcn",
            "cacheg",
            "cacheg needs a constant or input matrix over the nodes that two or more operators read; "
            "gcn-cora has none (stagr or grad makes one)",
        ),
        ("gcn", "grax1", "grax1 needs a masked softmax (Select, or Multiply and Add); gcn-cora has none"),
        (
            "sage-max",
            "grax1",
            "grax1 needs a masked softmax (Select, or Multiply and Add); sage-max-cora has none",
        ),
        ("gcn", "grax2", "grax2 needs a broadcast addition of attention scores; gcn-cora has none"),
        (
            "gat",
            "grax3",
            "grax3 needs a masked maximum over gathered neighbours [N, K, F]; gat-cora has none",
        ),
        (
            "gat",
            "preg",
            "preg needs a degree normalisation (root, power or quotient) that the model computes from the "
            "edges alone; gat-cora has none",
        ),
        ("gcn", "nodepad:capacity=2000", "nodepad:capacity=2000 is too small; gcn-cora has 2708 nodes"),
        (
            "gcn",
            "stagr+effop",
            "effop needs a Select on a mask or a Gather of neighbours that is summed; gcn-cora has none",
        ),
    ],
)
def test_refusals_say_what_is_missing(model: str, stack: str, reason: str) -> None:
    assert legal(graph_of(model), stack) == reason


def network(nodes: bool = False) -> Graph:
    """A perceptron of two layers: no edges anywhere."""
    editor = Editor("mlp", load_statistics("cora") if nodes else None)
    x = editor.input("x", (64, 32), role=Role.FEATURES)
    h = editor.matmul(x, editor.constant("w0", (32, 16), role=Role.WEIGHT), "first")
    h = editor.unary("Relu", h, "relu")
    editor.outputs = [editor.matmul(h, editor.constant("w1", (16, 4), role=Role.WEIGHT), "second")]
    return editor.finish()


@pytest.mark.parametrize("name", [n for n in technique_names() if n != "quantgr"])
def test_a_network_without_a_data_graph_refuses_all_but_quantgr(name: str) -> None:
    assert str(legal(network(), name)).startswith(f"{name} needs ")
    assert legal(network(), "quantgr") is None


def test_nodepad_needs_a_dimension_of_nodes() -> None:
    assert legal(network(nodes=True), "nodepad") == "nodepad needs a dimension of 2708 nodes; mlp has none"


# --- stagr, grad, graphsplit, preg ---


@pytest.mark.parametrize("form", ["edges", "dense"])
@pytest.mark.parametrize(("stack", "kind"), [("stagr", TensorKind.CONSTANT), ("grad", TensorKind.INPUT)])
def test_gcn_becomes_the_authors_graph(form: str, stack: str, kind: TensorKind) -> None:
    done = apply(graph_of("gcn", form), stack)
    assert [op.type for op in done] == [
        "MatMul",
        "Add",
        "MatMul",
        "Relu",
        "MatMul",
        "Add",
        "MatMul",
        "LogSoftmax",
    ]
    (norm,) = big(done)
    assert (norm.name, norm.role, norm.kind, norm.symmetric) == ("norm", Role.NORM, kind, True)
    readers = done.readers("norm")
    assert [op.inputs[0] for op in readers] == ["norm", "norm"]
    assert norm.density == pytest.approx(13264 / 2708**2)
    assert norm.block_density == pytest.approx(done.structure.adjacency_block_density[16])
    assert not any(t.role is Role.EDGES for t in done.tensors.values())


@pytest.mark.parametrize("form", ["gathered", "edges", "dense"])
def test_sage_mean_reads_one_sampled_norm_that_is_not_symmetric(form: str) -> None:
    done = apply(graph_of("sage-mean", form), "stagr")
    (norm,) = big(done)
    assert norm.role is Role.NORM and not norm.symmetric
    assert len(done.readers(norm.name)) == 2
    assert norm.density == pytest.approx(done.meta.sampled_edges / 2708**2)
    assert types(done) == Counter(MatMul=6, Add=4, Relu=1, LogSoftmax=1)


def test_stagr_folds_the_comparison_of_gat_and_grad_keeps_it() -> None:
    (mask,) = big(apply(graph_of("gat"), "stagr"))
    assert (mask.name, mask.role, mask.dtype) == ("mask", Role.MASK, DType.BOOL)
    with_input = apply(graph_of("gat"), "grad")
    (mask,) = big(with_input)
    assert mask.dtype is DType.FP16 and mask.structural
    assert types(with_input)["Greater"] == 1
    assert mask.density == pytest.approx(13264 / 2708**2)


@pytest.mark.parametrize("heads", [1, 8])
def test_attention_along_edges_becomes_the_dense_attention(heads: int) -> None:
    edges = apply(graph_of("gat", "edges", heads=heads), "stagr")
    dense = apply(graph_of("gat", "dense", heads=heads), "stagr")
    assert misfits(edges) == []
    for type_ in ("Select", "Softmax", "PRelu", "Elu", "LogSoftmax", "Broadcast"):
        assert types(edges)[type_] == types(dense)[type_]
    assert not types(edges)["Gather"] and not types(edges)["ScatterElementsUpdate"]
    assert [t.name for t in big(edges)] == ["mask"]
    assert len(edges.readers("mask")) == 2


def test_sage_max_keeps_its_gather_but_on_prepared_neighbours() -> None:
    done = apply(graph_of("sage-max"), "stagr")
    assert done.tensors["mask"].kind is TensorKind.CONSTANT and done.tensors["mask"].dtype is DType.BOOL
    assert done.tensors["neighbours"].kind is TensorKind.CONSTANT
    assert types(done)["Gather"] == 2 and not types(done)["Greater"]


@pytest.mark.parametrize(("model", "form"), ALL)
def test_graphsplit_wishes_the_cpu_for_preprocessing_alone(model: str, form: str) -> None:
    graph = graph_of(model, form)
    done = apply(graph, "graphsplit")
    moved = {op.name for op in done if op.device == "cpu"}
    assert moved and all(set(graph.operators[name].outputs) <= graph.structural for name in moved)
    assert types(done) == types(graph)
    assert not any(done.operators[name].family is Family.COMPARE for name in moved)
    left = [op for op in graph if set(op.outputs) <= graph.structural and op.name not in moved]
    assert all(op.family is Family.COMPARE for op in left)


@pytest.mark.parametrize(
    ("model", "form"), [("gcn", "edges"), ("gcn", "dense"), ("sage-mean", "gathered"), ("sage-mean", "edges")]
)
def test_preg_takes_degrees_out_and_leaves_the_mask_to_the_edges(model: str, form: str) -> None:
    done = apply(graph_of(model, form), "preg")
    assert not {"Power", "Divide", "ReduceSum"} & set(types(done))
    assert done.tensors["edge_norm"].kind is TensorKind.INPUT
    assert any(t.role is Role.EDGES for t in done.tensors.values())
    products = [op for op in done if op.region.endswith("aggregate") and op.type == "MatMul"]
    assert len(products) == 2
    matrix = done.tensors[products[0].inputs[0]]
    assert matrix.role is Role.NORM and matrix.kind is TensorKind.ACTIVATION
    assert matrix.symmetric == (model == "gcn")


def test_stagr_freezes_what_preg_leaves() -> None:
    plain, after = apply(graph_of("gcn"), "stagr"), apply(graph_of("gcn"), "preg+stagr")
    assert types(plain) == types(after)
    assert big(plain)[0] == big(after)[0]


def test_what_preg_adds_runs_where_graphsplit_put_the_preprocessing() -> None:
    done = apply(graph_of("gcn"), "graphsplit+preg")
    assert {op.device for op in done if op.type == "ScatterNDUpdate"} == {"cpu"}


# --- nodepad ---


@pytest.mark.parametrize(("model", "form"), ALL)
def test_nodepad_pads_nodes_and_nothing_else(model: str, form: str) -> None:
    graph = graph_of(model, form)
    if form == "dense" and model != "gat":
        graph = apply(graph, "preg")
    if (model, form) == ("gcn", "csr"):
        graph = apply(graph, "stagr")
    done = apply(graph, "nodepad:capacity=3000")
    assert misfits(done) == []
    assert done.meta.capacity == 3000 and done.structure == graph.structure
    for name, tensor in done.tensors.items():
        old = graph.tensors[name]
        if tensor.role in (Role.WEIGHT, Role.BIAS):
            assert tensor == old
        if tensor.shape != old.shape and tensor.kind is not TensorKind.ACTIVATION:
            assert tensor.density * tensor.elements == pytest.approx(old.density * old.elements)
    if "edge_index" in done.tensors:
        assert done.tensors["edge_index"] == graph.tensors["edge_index"]


def test_nodepad_alone_rounds_up_to_whole_thousands() -> None:
    assert apply(graph_of("gcn"), "nodepad").meta.capacity == 3000
    assert apply(graph_of("gcn", dataset="citeseer"), "nodepad").meta.capacity == 4000


def test_blocks_of_a_padded_matrix_are_those_of_the_statistics() -> None:
    done = apply(graph_of("gcn"), "stagr+nodepad:capacity=3000")
    assert done.tensors["norm"].block_density == pytest.approx(done.structure.padded_block_density(16, 3000))
    assert done.tensors["norm"].density == pytest.approx(done.structure.adjacency_density(3000))


@pytest.mark.parametrize("model", ["gcn", "sage-mean"])
def test_nodepad_does_not_divide_by_the_degrees_of_added_nodes(model: str) -> None:
    reason = str(legal(graph_of(model, "dense"), "nodepad"))
    assert reason.startswith("nodepad needs preprocess/norm ready: an added node has degree 0")
    for before in ("preg", "stagr", "grad"):
        assert legal(graph_of(model, "dense"), f"{before}+nodepad") is None


def test_nodepad_refuses_where_channels_are_as_many_as_nodes() -> None:
    graph = build_gnn(GnnSpec(model="gcn", dataset="cora", hidden=2708), load_statistics("cora"))
    assert "nodepad cannot tell nodes from channels" in str(legal(graph, "nodepad"))


# --- storage: the measured table ---


@pytest.mark.parametrize(
    ("stack", "dataset", "megabytes"),
    [
        ("stagr", "cora", 14.67),
        ("stagr+grasp", "cora", 0.943),
        ("stagr+quantgr", "cora", 7.33),
        ("stagr+quantgr+grasp", "cora", 0.930),
        ("stagr+nodepad:capacity=3000", "cora", 18.0),
        ("grad+nodepad:capacity=3000+grasp", "cora", 1.15),
        ("grad+nodepad:capacity=3000+quantgr", "cora", 9.0),
        ("grad+nodepad:capacity=3000+quantgr+grasp", "cora", 1.14),
        ("stagr", "citeseer", 22.1),
        ("stagr+grasp", "citeseer", 1.41),
        ("stagr+quantgr", "citeseer", 11.07),
        ("stagr+quantgr+grasp", "citeseer", 1.40),
    ],
)
def test_norm_takes_the_measured_bytes(stack: str, dataset: str, megabytes: float) -> None:
    done = apply(graph_of("gcn", dataset=dataset), stack)
    assert done.tensors["norm"].stored_bytes / 1e6 == pytest.approx(megabytes, rel=5e-3)


@pytest.mark.parametrize(
    ("stack", "dataset", "megabytes"),
    [
        ("grasp", "cora", 0.584),
        ("stagr+quantgr+grasp", "cora", 0.534),
        ("grasp", "citeseer", 1.75),
        ("stagr+quantgr+grasp", "citeseer", 1.65),
    ],
)
def test_features_take_the_measured_bytes(stack: str, dataset: str, megabytes: float) -> None:
    done = apply(graph_of("gcn", dataset=dataset), stack)
    assert done.tensors["x"].stored_bytes / 1e6 == pytest.approx(megabytes, rel=5e-3)


def test_symg_stores_the_triangle_with_its_diagonal() -> None:
    done = apply(graph_of("gcn"), "stagr+symg")
    assert done.tensors["norm"].storage is Storage.TRIANGLE
    assert done.tensors["norm"].stored_bytes == 7_335_972
    assert apply(graph_of("gcn"), "stagr+quantgr+symg").tensors["norm"].stored_bytes == 7_335_972 / 2


def test_after_grasp_symg_takes_the_norm_and_leaves_the_features_compressed() -> None:
    done = apply(graph_of("gcn"), "stagr+grasp+symg")
    assert done.tensors["norm"].storage is Storage.TRIANGLE
    assert done.tensors["x"].storage is Storage.ZVC


def test_grasp_compresses_by_kind_and_only_what_shrinks() -> None:
    done = apply(graph_of("gcn"), "stagr+grasp:features=off")
    assert [t.name for t in done.tensors.values() if t.storage is Storage.ZVC] == ["norm"]
    done = apply(graph_of("gcn"), "stagr+grasp:matrix=off")
    assert [t.name for t in done.tensors.values() if t.storage is Storage.ZVC] == ["x"]
    dense = apply(graph_of("gcn"), "stagr+grasp")
    assert all(t.storage is Storage.DENSE for t in dense.tensors.values() if t.density == 1.0)


@pytest.mark.parametrize(
    ("model", "stack", "names"),
    [
        ("gcn", "stagr+cacheg", ["norm"]),
        ("gcn", "grad+nodepad+quantgr+cacheg", ["norm"]),
        ("sage-mean", "stagr+cacheg", ["norm"]),
        ("gat", "stagr+cacheg", ["mask"]),
        ("gat", "stagr+effop+cacheg", ["mask_negative", "mask_present"]),
        ("gat", "grad+grax1+cacheg", ["mask_negative"]),
    ],
)
def test_cacheg_keeps_the_matrices_that_layers_share(model: str, stack: str, names: list[str]) -> None:
    done = apply(graph_of(model), stack)
    assert sorted(t.name for t in done.tensors.values() if t.cached) == names
