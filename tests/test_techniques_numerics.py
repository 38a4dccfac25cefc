"""What each technique does to the numbers: exact where it says so, and the traps where it is not."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.graph import GraphStructure
from npusim.plugins import announced
from npusim.techniques import apply, parse, technique_names
from npusim.workloads import GnnSpec, build_gnn

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from npusim.gnn_models.judging import LARGEST, run_in_half, to_half  # noqa: E402
from npusim.gnn_models.models import (  # noqa: E402  # noqa: E402
    ModelInstance,
    from_triangle,
    from_zvc,
    model_instance,
    to_triangle,
    to_zvc,
    trainable,
)
from npusim.gnn_models.networks import SparseMaximum, masked, scores_of  # noqa: E402  # noqa: E402
from npusim.gnn_models.planetoid import GraphData  # noqa: E402
from npusim.gnn_models.views import dense_adjacency, masked_maximum, scatter_rows  # noqa: E402

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


def form_of(model: str, stack: str, data: GraphData, **settings: object) -> ModelInstance:
    """The model with random parameters, the same for every stack."""
    spec = GnnSpec(dataset="random", model=model, hidden=8, **settings)
    edges = data.edge_index.shape[1]
    structure = GraphStructure(
        "random", NODES, edges, FEATURES, CLASSES,
        degree_histogram=tuple(np.bincount(np.bincount(data.edge_index[1], minlength=NODES)).tolist()),
    )  # fmt: skip
    graph = apply(build_gnn(spec, structure), stack)
    form = model_instance(spec, graph, parse(stack), data)
    reference = trainable(spec, data, 0)
    torch.manual_seed(1)
    for parameter in reference.parameters():
        torch.nn.init.uniform_(parameter, -1.0, 1.0)
    form.module.load_state_dict(reference.state_dict())
    form.module.eval()
    return form


def outputs(model: str, stack: str, data: GraphData, **settings: object) -> torch.Tensor:
    form = form_of(model, stack, data, **settings)
    with torch.no_grad():
        return form.module(*form.inputs.values())[:NODES]


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


def test_the_models_are_those_of_torch_geometric(data: GraphData) -> None:
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

    x, edges = torch.from_numpy(data.x), torch.from_numpy(data.edge_index)
    gcn = form_of("gcn", "none", data, layers=1).module
    theirs = GCNConv(FEATURES, CLASSES)
    torch.nn.init.zeros_(gcn.layers[0][0].bias)  # ours comes before the aggregation, as GraNNite's
    theirs.lin.weight.data = gcn.layers[0][0].weight.data
    torch.testing.assert_close(gcn(x, edges), theirs(x, edges).log_softmax(1), atol=1e-5, rtol=1e-4)
    gat = form_of("gat", "none", data, layers=1).module
    theirs = GATConv(FEATURES, CLASSES)
    layer = gat.layers[0]
    theirs.lin.weight.data, theirs.bias.data = layer.linear.weight.data, layer.bias.data
    theirs.att_src.data, theirs.att_dst.data = layer.source.data, layer.target.data
    torch.testing.assert_close(gat(x, edges), theirs(x, edges).log_softmax(1), atol=1e-5, rtol=1e-4)
    for kind in ("mean", "max"):  # so many neighbours that none is left out; the lonely node counts itself
        form = form_of(f"sage-{kind}", "none", data, layers=1, neighbours=NODES, order="aggregate_first")
        theirs = SAGEConv(FEATURES, CLASSES, aggr=kind)
        theirs.lin_l.weight.data = form.module.neighbours[0].weight.data
        theirs.lin_l.bias.data = form.module.neighbours[0].bias.data
        theirs.lin_r.weight.data = form.module.root[0].weight.data
        lonely = torch.tensor([[NODES - 1], [NODES - 1]])
        expected = theirs(x, torch.cat([edges, lonely], dim=1)).log_softmax(1)
        torch.testing.assert_close(form.module(*form.inputs.values()), expected, atol=1e-5, rtol=1e-4)


# SymG and GraSp: storage


@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_a_symmetric_matrix_survives_its_triangle_bit_for_bit(nodes: int, seed: int) -> None:
    half = np.random.default_rng(seed).standard_normal((nodes, nodes)).astype(np.float32)
    matrix = half + half.T
    packed = to_triangle(matrix)
    assert packed.size == nodes * (nodes + 1) // 2
    assert np.array_equal(from_triangle(packed).view(np.uint32), matrix.view(np.uint32))


def test_a_matrix_that_is_not_symmetric_is_refused_by_the_triangle() -> None:
    with pytest.raises(ValueError, match="symmetric"):
        to_triangle(np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=3), st.integers(0, 2**32 - 1))
def test_an_array_survives_its_bitmap_bit_for_bit(shape: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    dense = random.standard_normal(shape).astype(np.float32)
    array = np.where(random.random(shape) < 0.2, dense, np.float32(0))
    bitmap, values = to_zvc(array)
    assert (bitmap.nbytes, values.size) == (-(-array.size // 8), np.count_nonzero(array))
    assert np.array_equal(from_zvc(bitmap, values, array.shape).view(np.uint32), array.view(np.uint32))


# NodePad: two ways to pad


def test_padding_with_self_loops_keeps_the_numbers_but_doubles_the_step_of_8_bits(data: GraphData) -> None:
    zeros, loops = (
        dense_adjacency(data.edge_index[:, data.edge_index.max(0) < NODES], NODES, True, "norm", 50, padding)
        for padding in ("zeros", "loops")
    )
    assert np.array_equal(zeros[:NODES, :NODES], loops[:NODES, :NODES])
    assert not zeros[NODES:].any()
    assert np.array_equal(loops[NODES:, NODES:], np.eye(10, dtype=np.float32))
    form = form_of("gcn", f"grad+{PADDING}", data)
    with torch.no_grad():
        found = [form.module(form.inputs["x"], torch.from_numpy(norm))[:NODES] for norm in (zeros, loops)]
    assert torch.equal(*found)


# EffOp, GrAx1: masks


@pytest.fixture(scope="module")
def attention() -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of all pairs, and who is linked; each node is linked to itself."""
    torch.manual_seed(0)
    adjacency = (torch.rand(NODES, NODES) < 0.1).float().fill_diagonal_(1.0)
    return 3.0 * torch.randn(NODES, NODES), adjacency


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


@pytest.mark.parametrize(("lowered", "finite"), [(9e15, False), (1e4, True)])
def test_the_trap_shows_in_a_whole_network_emulated_in_fp16(
    lowered: float, finite: bool, data: GraphData
) -> None:
    form = form_of("gat", "effop", data)
    form.module.lowered = lowered
    assert bool(torch.isfinite(run_in_half(form.module, form.inputs, saturate=False)).all()) == finite
    with torch.no_grad():  # in fp32 nothing is wrong
        assert bool(torch.isfinite(form.module(*form.inputs.values())).all())


def test_openvino_s_saturated_constants_keep_select_s_minus_9e15_harmless(data: GraphData) -> None:
    form = form_of("gat", f"grad+{PADDING}", data)
    found = run_in_half(form.module, form.inputs)[:NODES]
    torch.testing.assert_close(found, outputs("gat", "none", data), atol=0.1, rtol=0.02)


@given(st.floats(-1e6, 1e6, width=32))
def test_emulated_fp16_is_the_processor_s_fp16(value: float) -> None:
    number = torch.tensor(value)
    assert to_half(number, saturate=False) == number.half().float()
    assert abs(float(to_half(number))) <= LARGEST


def test_every_result_in_emulated_fp16_is_a_number_of_fp16(data: GraphData) -> None:
    form = form_of("gcn", "stagr", data)
    before = {name: value.clone() for name, value in form.module.state_dict().items()}
    found = run_in_half(form.module, form.inputs)
    assert torch.equal(found, found.half().float())
    assert 0 < float((found - outputs("gcn", "stagr", data)).abs().max()) < 0.1
    assert all(torch.equal(value, before[name]) for name, value in form.module.state_dict().items())


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
    exact = masked_maximum(gathered, (mask > 0,), "select")
    found = masked_maximum(gathered, (mask,), "pool")
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
    from npusim.gnn_models.judging import quantised

    form = form_of("gcn", "grad", data)
    return quantised(form.module, form.inputs)


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
    from npusim.gnn_models.judging import quantised

    form = form_of("gat", "stagr+effop+grax1+grax2:form=rank2", data)
    model = quantised(form.module, form.inputs)
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
    from npusim.gnn_models.judging import run_int8

    form = form_of(model, stack, data)
    expected = outputs(model, stack, data).numpy()
    found = run_int8(form.module, form.inputs)[:NODES]
    assert 0 < np.abs(found - expected).max() < 0.05 * np.ptp(expected)
