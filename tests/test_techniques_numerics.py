"""What each technique does to the numbers: exact where it says so, and the traps where it is not."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.graph import GraphStructure
from npusim.plugins import announced
from npusim.techniques import parse, technique_names
from npusim.workloads import GnnSpec, build_gnn

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

pytest.importorskip("openvino")

from npusim.frontends.half import LARGEST, in_half  # noqa: E402
from npusim.frontends.openvino_ir import openvino  # noqa: E402
from npusim.frontends.openvino_write import run_model  # noqa: E402
from npusim.gnn_models.models import ModelInstance, Rewritten, TrainedWorkload, model_instance, trainable  # noqa: E402
from npusim.gnn_models.networks import MASKED, SLOPE, SparseMaximum  # noqa: E402
from npusim.gnn_models.number_formats import quantised  # noqa: E402
from npusim.gnn_models.planetoid import GraphData  # noqa: E402
from npusim.gnn_models.views import ABSENT, dense_adjacency, scatter_rows  # noqa: E402

NODES, FEATURES, CLASSES = 40, 24, 3
PADDING = "nodepad:capacity=50"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Sums in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def data() -> GraphData:
    """A random graph with words for features, one lonely node and one with many neighbours."""
    random = np.random.default_rng(7)
    pairs = random.integers(0, NODES - 1, size=(2, 3 * NODES))  # the last node stays alone
    pairs = np.concatenate([pairs, np.stack([np.zeros(15, int), np.arange(1, 16)])], axis=1)
    both = np.concatenate([pairs, pairs[::-1]], axis=1)
    both = np.unique(both[:, both[0] != both[1]], axis=1).astype(np.int64)
    x = (random.random((NODES, FEATURES)) < 0.3).astype(np.float32)
    label = np.arange(NODES) % CLASSES
    return GraphData("random", x, both, label, *(np.arange(NODES) % 4 == k for k in (0, 1, 2)))


def form_of(model: str, stack: str, data: GraphData, **settings: object) -> Rewritten:
    """The model with random parameters, the same for every stack."""
    spec = GnnSpec(dataset="random", model=model, hidden=8, **settings)
    edges = data.edge_index.shape[1]
    structure = GraphStructure(
        "random", NODES, edges, FEATURES, CLASSES,
        degree_histogram=tuple(np.bincount(np.bincount(data.edge_index[1], minlength=NODES)).tolist()),
    )  # fmt: skip
    reference = trainable(spec, data, 0)
    torch.manual_seed(1)
    for parameter in reference.parameters():
        torch.nn.init.uniform_(parameter, -1.0, 1.0)
    workload = TrainedWorkload(spec, data, build_gnn(spec, structure), reference.state_dict())
    return workload.rewritten(parse(stack))


def outputs(
    model: str, stack: str, data: GraphData, numbers: str = "fp32", **settings: object
) -> torch.Tensor:
    return torch.from_numpy(form_of(model, stack, data, **settings).scores(numbers))[:NODES]


SAME_NUMBERS = [
    ("gcn", stack)
    for stack in (
        "graphsplit", "preg", "stagr", "grad", PADDING, f"preg+{PADDING}", f"grad+{PADDING}", "effop",
        f"{PADDING}+effop", "stagr+grasp", "stagr+symg", "stagr+cacheg", "grad+symg+cacheg",
        f"graphsplit+preg+stagr+{PADDING}+grasp+symg+cacheg",
    )
] + [
    ("gat", stack)
    for stack in (
        "graphsplit", "stagr", "grad", PADDING, f"grad+{PADDING}", "effop", "stagr+effop", "stagr+grasp",
        "effop+grax1", "stagr+grax1", "grad+effop+grax1", "grax2:form=rank2",
        f"grad+{PADDING}+effop+grax1+grax2:form=rank2",
    )
] + [
    ("sage-mean", stack)
    for stack in (
        "graphsplit", "preg", "stagr", "grad", PADDING, f"preg+{PADDING}", "effop", f"{PADDING}+effop",
    )
] + [
    ("sage-max", stack)
    for stack in ("graphsplit", "stagr", "grad", PADDING, "effop", f"grad+{PADDING}+effop", "stagr+grasp")
]  # fmt: skip


@pytest.mark.few(5)
@pytest.mark.parametrize(("model", "stack"), SAME_NUMBERS)
def test_techniques_that_promise_the_same_numbers_keep_them(model: str, stack: str, data: GraphData) -> None:
    torch.testing.assert_close(
        outputs(model, stack, data), outputs(model, "none", data), atol=2e-5, rtol=1e-4
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("model", ["gat", "sage-mean"])
@pytest.mark.parametrize("stack", ["none", "stagr", PADDING])
def test_the_form_along_edges_gives_the_same_numbers(model: str, stack: str, data: GraphData) -> None:
    found = outputs(model, stack, data, form="edges")
    torch.testing.assert_close(found, outputs(model, "none", data), atol=2e-5, rtol=1e-4)


def test_every_technique_is_covered_here() -> None:
    named = {name for _, stack in SAME_NUMBERS for name in parse(stack).names}
    others = set(technique_names()) - named - set(announced("npusim.techniques"))
    assert others == {"grax3", "quantgr", "padded", "blocks", "tiles", "csr"}  # all have tests of their own


@pytest.mark.few(2)
@pytest.mark.parametrize("stack", ["graphsplit", "stagr+grasp", "stagr+symg", "stagr+cacheg"])
def test_placement_and_storage_keep_every_bit(stack: str, data: GraphData) -> None:
    without = "stagr" if "stagr" in stack else "none"
    assert torch.equal(outputs("gcn", stack, data), outputs("gcn", without, data))


def module_of(model: str, data: GraphData, **settings: object) -> ModelInstance:
    torch.manual_seed(1)
    instance = model_instance(GnnSpec(dataset="random", model=model, hidden=8, layers=1, **settings), data)
    instance.module.eval()
    return instance


def test_the_models_are_those_of_torch_geometric(data: GraphData) -> None:
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

    x, edges = torch.from_numpy(data.x), torch.from_numpy(data.edge_index)
    gcn = module_of("gcn", data).module
    theirs = GCNConv(FEATURES, CLASSES)
    torch.nn.init.zeros_(gcn.layers[0][0].bias)  # ours comes before the aggregation, as GraNNite's
    theirs.lin.weight.data = gcn.layers[0][0].weight.data
    torch.testing.assert_close(gcn(x, edges), theirs(x, edges).log_softmax(1), atol=1e-5, rtol=1e-4)
    gat = module_of("gat", data).module
    theirs = GATConv(FEATURES, CLASSES)
    layer = gat.layers[0]
    theirs.lin.weight.data, theirs.bias.data = layer.linear.weight.data, layer.bias.data
    theirs.att_src.data, theirs.att_dst.data = layer.source.data, layer.target.data
    torch.testing.assert_close(gat(x, edges), theirs(x, edges).log_softmax(1), atol=1e-5, rtol=1e-4)
    for kind in ("mean", "max"):  # so many neighbours that none is left out; the lonely node counts itself
        form = module_of(f"sage-{kind}", data, neighbours=NODES, order="aggregate_first")
        theirs = SAGEConv(FEATURES, CLASSES, aggr=kind)
        theirs.lin_l.weight.data = form.module.neighbours[0].weight.data
        theirs.lin_l.bias.data = form.module.neighbours[0].bias.data
        theirs.lin_r.weight.data = form.module.root[0].weight.data
        lonely = torch.tensor([[NODES - 1], [NODES - 1]])
        expected = theirs(x, torch.cat([edges, lonely], dim=1)).log_softmax(1)
        torch.testing.assert_close(form.module(*form.inputs.values()), expected, atol=1e-5, rtol=1e-4)


# SymG: storage


def test_the_norm_of_which_symg_stores_a_triangle_is_symmetric_to_the_bit(data: GraphData) -> None:
    norm = form_of("gcn", "grad+symg", data).inputs["norm"]
    assert norm.shape == (NODES, NODES) and np.array_equal(norm, norm.T)


# NodePad: two ways to pad


def test_padding_with_self_loops_keeps_the_numbers_but_doubles_the_step_of_8_bits(data: GraphData) -> None:
    edges = data.edge_index[:, data.edge_index.max(0) < NODES]
    zeros = dense_adjacency(edges, NODES, True, "norm", 50)
    added = np.tile(np.arange(NODES, 50), (2, 1))
    loops = dense_adjacency(np.concatenate([edges, added], axis=1), NODES, True, "norm", 50)
    assert np.array_equal(zeros[:NODES, :NODES], loops[:NODES, :NODES])
    assert not zeros[NODES:].any()
    assert np.array_equal(loops[NODES:, NODES:], np.eye(10, dtype=np.float32))
    form = form_of("gcn", f"grad+{PADDING}", data)
    found = [run_model(form.model, {**form.inputs, "norm": norm})[0][:NODES] for norm in (zeros, loops)]
    assert np.array_equal(*found)


# EffOp, GrAx1: masks


@pytest.fixture(scope="module")
def attention() -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of all pairs, and who is linked; each node is linked to itself."""
    torch.manual_seed(0)
    adjacency = (torch.rand(NODES, NODES) < 0.1).float().fill_diagonal_(1.0)
    return 3.0 * torch.randn(NODES, NODES), adjacency


def scores_of(target: torch.Tensor, source: torch.Tensor, form: str) -> torch.Tensor:
    """A twin of GrAx2 and what it replaces: scores of pairs from a score of each node in either role."""
    across, ones = source.T, torch.ones_like(target)
    scores = {
        "pairs": lambda: target + across,
        "literal": lambda: target + source,
        "source": lambda: across,
        "rank2": lambda: torch.cat([target, ones], 1) @ torch.cat([ones.T, across]),
    }[form]()
    return torch.nn.functional.leaky_relu(scores, SLOPE)


def masked(scores: torch.Tensor, masks: tuple[torch.Tensor, ...], masking: str) -> torch.Tensor:
    """A twin of EffOp (arithmetic), GrAx1 (additive) and what they replace (select)."""
    if masking == "additive":
        return scores + masks[0]
    if masking == "arithmetic":
        return scores * masks[0] + masks[1]
    return torch.where(masks[0], scores, MASKED)


def masked_maximum(gathered: torch.Tensor, mask: torch.Tensor, masking: str) -> torch.Tensor:
    """A twin of GrAx3 (pool) and what it replaces (select)."""
    kept = torch.where(mask > 0, gathered, ABSENT) if masking == "select" else gathered * mask
    return kept.amax(dim=1)


def weights_of(
    scores: torch.Tensor, adjacency: torch.Tensor, masking: str, lowered: float = 1e4
) -> torch.Tensor:
    negative = (adjacency - 1.0) * lowered
    masks = {"select": (adjacency > 0,), "arithmetic": (adjacency, negative), "additive": (negative,)}[
        masking
    ]
    return torch.softmax(masked(scores, masks, masking), dim=-1)


@pytest.mark.parametrize("masking", ["arithmetic", "additive"])
def test_masking_by_arithmetic_gives_select_s_weights(
    masking: str, attention: tuple[torch.Tensor, torch.Tensor]
) -> None:
    assert torch.equal(weights_of(*attention, masking), weights_of(*attention, "select"))


def test_a_mask_weaker_than_ten_lets_absent_pairs_into_the_vote(
    attention: tuple[torch.Tensor, torch.Tensor],
) -> None:
    leaks = {
        lowered: float((weights_of(*attention, "additive", lowered) * (1 - attention[1])).sum(-1).max())
        for lowered in (1e4, 100.0, 10.0, 5.0)
    }
    assert leaks[1e4] == 0
    assert leaks[100.0] < 1e-30
    assert 1e-3 < leaks[10.0] < leaks[5.0]
    assert leaks[5.0] > 0.5


def test_in_fp16_a_mask_of_minus_9e15_is_not_a_number_and_one_of_minus_1e4_is_fine(
    attention: tuple[torch.Tensor, torch.Tensor],
) -> None:
    scores, adjacency = (t.half() for t in attention)
    absent = 1 - adjacency
    trap = absent * torch.tensor(-9e15).half()  # -infinity, and 0 times it for each edge that is there
    assert torch.isnan(trap[adjacency > 0]).all()
    fine = torch.softmax((scores * adjacency + absent * torch.tensor(-1e4).half()).float(), dim=-1)
    expected = weights_of(scores.float(), attention[1], "select")
    torch.testing.assert_close(fine, expected, atol=1e-3, rtol=0)


def test_openvino_s_saturated_constants_keep_select_s_minus_9e15_harmless(data: GraphData) -> None:
    found = outputs("gat", f"grad+{PADDING}", data, "fp16")
    torch.testing.assert_close(found, outputs("gat", "none", data), atol=0.1, rtol=0.02)


def in_fp16(values: list[float], *factors: float) -> np.ndarray:
    """Return numbers times factors, one after the other, as fp16 computes it."""
    ov = openvino()
    x = ov.opset13.parameter([len(values)], ov.Type.f32)
    x.output(0).set_names({"x"})
    result = x
    for factor in factors:
        result = ov.opset13.multiply(result, np.float32(factor))
    return run_model(in_half(ov.Model([result], [x])), {"x": np.array(values, np.float32)})[0]


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20))
def test_emulated_fp16_is_the_processor_s_fp16(values: list[float]) -> None:
    numbers = np.array(values, np.float32)
    held = np.clip(numbers, -LARGEST, LARGEST).astype(np.float16).astype(np.float32)
    assert np.array_equal(in_fp16(values, 1.0), held)


@given(st.floats(0.0, 2.0**17, width=32), st.floats(-4.0, 4.0, width=16))
def test_results_in_emulated_fp16_overflow(value: float, factor: float) -> None:
    held = np.float32(np.float16(min(value, LARGEST)))
    with np.errstate(over="ignore"):
        assert in_fp16([value], factor)[0] == np.float32(np.float16(held * np.float32(factor)))


def test_0_times_infinity_is_no_number() -> None:
    assert np.isnan(in_fp16([100.0], 1e4, 0.0)).all()


def test_every_result_in_emulated_fp16_is_a_number_of_fp16(data: GraphData) -> None:
    found = outputs("gcn", "stagr", data, "fp16")
    assert torch.equal(found, found.half().float())
    assert 0 < float((found - outputs("gcn", "stagr", data)).abs().max()) < 0.1


# GrAx2: scores


def test_grax2_literal_makes_attention_a_plain_mean() -> None:
    torch.manual_seed(0)
    target, source = torch.randn(NODES, 1), torch.randn(NODES, 1)
    adjacency = (torch.rand(NODES, NODES) < 0.2).float().fill_diagonal_(1.0)
    weights = weights_of(scores_of(target, source, "literal"), adjacency, "additive")
    torch.testing.assert_close(weights, adjacency / adjacency.sum(1, keepdim=True), atol=1e-6, rtol=1e-5)


def test_grax2_rank2_is_exact_and_source_is_exact_without_the_kink() -> None:
    torch.manual_seed(0)
    target, source = torch.randn(NODES, 1), torch.randn(NODES, 1)
    adjacency = torch.ones(NODES, NODES)
    pairs = scores_of(target, source, "pairs")
    torch.testing.assert_close(scores_of(target, source, "rank2"), pairs, atol=1e-6, rtol=1e-6)
    above = scores_of(target.abs(), source.abs(), "pairs")  # LeakyReLU is straight there
    alone = scores_of(target.abs(), source.abs(), "source")
    torch.testing.assert_close(
        weights_of(alone.expand(NODES, NODES), adjacency, "additive"),
        weights_of(above, adjacency, "additive"),
    )
    bent = weights_of(scores_of(target, source, "source").expand(NODES, NODES), adjacency, "additive")
    assert not torch.allclose(bent, weights_of(pairs, adjacency, "additive"), atol=1e-3)


# GrAx3: the maximum over neighbours


@pytest.mark.parametrize("maximum", ["pool", "reduce"])
def test_grax3_is_exact_where_features_are_not_negative(maximum: str, data: GraphData) -> None:
    assert torch.equal(
        outputs("sage-max", f"grax3:maximum={maximum}", data), outputs("sage-max", "none", data)
    )


def test_grax3_lets_the_zero_of_a_missing_neighbour_win_over_negative_features() -> None:
    torch.manual_seed(0)
    gathered = torch.randn(500, 10, 16)
    mask = (torch.arange(10) < torch.randint(1, 11, (500, 1))).float().unsqueeze(2)
    exact = masked_maximum(gathered, mask, "select")
    found = masked_maximum(gathered, mask, "pool")
    missing = (mask.sum(1) < 10).expand_as(exact)
    assert torch.equal(found, torch.where(missing, exact.clamp(min=0), exact))
    assert 0.8 < float((found == exact).float().mean()) < 0.95


def test_the_maximum_of_sparse_features_is_that_of_dense_ones(data: GraphData) -> None:
    x = torch.from_numpy(data.x)
    source, target = torch.from_numpy(data.edge_index)
    sparse = x.to_sparse().coalesce()
    found = SparseMaximum(sparse.indices(), (source, target), tuple(x.shape))(sparse).to_dense()
    assert torch.equal(found, scatter_rows(x[source], target, NODES, "max"))


# QuantGr: 8 bits by NNCF


@pytest.fixture(scope="module")
def nncf_model(data: GraphData) -> object:
    pytest.importorskip("nncf")
    form = form_of("gcn", "grad", data)
    return quantised(form.model, form.inputs)


def test_quantgr_rounds_products_to_signed_symmetric_static_levels(nncf_model: object) -> None:
    rounded = [op for op in nncf_model.get_ops() if op.get_type_name() == "FakeQuantize"]
    assert len(rounded) == 5  # features, norm, and what enters the other products
    for op in rounded:
        low, high = (float(op.input_value(port).get_node().get_data().item()) for port in (1, 2))
        assert op.get_attributes()["levels"] == 256
        assert low == pytest.approx(-high * 128 / 127, rel=1e-5)
    integers = [
        op for op in nncf_model.get_ops()
        if op.get_type_name() == "Constant" and op.get_element_type().get_type_name() == "i8"
    ]  # fmt: skip
    assert len(integers) == 2  # the weights
    assert min(int(op.get_data().min()) for op in integers) >= -127


def test_quantgr_leaves_attention_scores_and_masks_floating(data: GraphData) -> None:
    pytest.importorskip("nncf")
    form = form_of("gat", "stagr+effop+grax1+grax2:form=rank2", data)
    model = quantised(form.model, form.inputs)
    rounded = [op for op in model.get_ops() if op.get_type_name() == "FakeQuantize"]
    readers = {port.get_node().get_type_name() for op in rounded for port in op.output(0).get_target_inputs()}
    assert readers == {"MatMul"}
    assert all(op.input_value(0).get_node().get_type_name() != "Concat" for op in rounded)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("model", "stack"),
    [("gcn", "stagr"), ("gat", "effop"), ("sage-mean", "grad"), ("sage-max", "none"), ("sage-max", "grax3")],
)
def test_quantgr_changes_outputs_by_little(model: str, stack: str, data: GraphData) -> None:
    pytest.importorskip("nncf")
    expected = outputs(model, stack, data).numpy()
    found = outputs(model, stack, data, "int8").numpy()
    assert 0 < np.abs(found - expected).max() < 0.05 * np.ptp(expected)
