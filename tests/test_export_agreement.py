"""What npusim builds is what OpenVINO converts: operator for operator, on real models and real data."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from graph_agreement import assert_agreement

from npusim.graph import GraphStructure
from npusim.ops import Role
from npusim.workloads import GnnSpec, build_gnn

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
pytest.importorskip("openvino")

from torch_geometric.nn import SAGEConv  # noqa: E402

from npusim.frontends.openvino_ir import graph_of_model, import_model  # noqa: E402
from npusim.frontends.pyg import from_pyg  # noqa: E402
from npusim.gnn_models.export import (  # noqa: E402
    Model,
    save_model,
    trained_model,
)
from npusim.gnn_models.models import TrainedWorkload, trainable  # noqa: E402
from npusim.gnn_models.planetoid import GraphData, read_planetoid  # noqa: E402
from npusim.gnn_models.training import Recipe, Trained, train  # noqa: E402
from npusim.techniques import apply, parse  # noqa: E402
from npusim.workloads import load_spec  # noqa: E402

RECIPE = Recipe(epochs=40)
PADDED = "grad+nodepad:capacity=3000"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other cost more than these small products."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def cora(planetoid_root: Path) -> GraphData:
    return read_planetoid("cora", planetoid_root)


@pytest.fixture(scope="module")
def trained(cora: GraphData) -> dict[str, Trained]:
    """One training per model; every form loads the same parameters."""
    specs = {name: load_spec(f"{name}-cora") for name in ("gcn", "gat")}
    return {name: train(trainable(spec, cora, RECIPE.seed), cora, RECIPE) for name, spec in specs.items()}


@pytest.mark.laws
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("workload", "stack"),
    [
        ("gcn-cora", "stagr"),
        ("gcn-cora", PADDED),
        ("gat-cora", "none"),
        ("gat-cora", "effop"),
        ("gat-cora", "grad+effop+grax1+grax2:form=rank2"),
    ],
)
def test_the_exported_file_agrees_with_the_built_graph_operator_for_operator(
    workload: str, stack: str, cora: GraphData, trained: dict[str, Trained], tmp_path: Path
) -> None:
    spec = load_spec(workload)
    model: Model = trained_model(spec, parse(stack), cora, RECIPE, trained[spec.model])
    save_model(model.converted, tmp_path / "model.xml", half=True)
    imported = import_model(tmp_path / "model.xml")
    assert_agreement(model.graph, imported)
    assert model.test == pytest.approx(model.trained.test, abs=0.002)
    assert model.test > 0.75


def test_the_exported_norm_has_the_statistics_of_the_built_one(
    cora: GraphData, trained: dict[str, Trained], tmp_path: Path
) -> None:
    model = trained_model(load_spec("gcn-cora"), parse("stagr"), cora, RECIPE, trained["gcn"])
    save_model(model.converted, tmp_path / "model.xml", half=True)
    (built,), (read,) = (g.with_role(Role.NORM) for g in (model.graph, import_model(tmp_path / "model.xml")))
    assert read.density == pytest.approx(built.density, rel=1e-9)
    assert read.block_density == pytest.approx(built.block_density, rel=1e-6)
    assert read.symmetric and built.symmetric
    assert read.stored_bytes == built.stored_bytes


SMALL = GraphStructure("small", nodes=24, edges=96, features=12, classes=3, degree_histogram=(0, 0, 0, 0, 24))


@pytest.fixture(scope="module")
def ring() -> GraphData:
    """A ring of 24 nodes, each linked to the two next on either side."""
    import numpy as np

    nodes = np.arange(24)
    target = np.repeat(nodes, 4)
    source = (target + np.tile([-2, -1, 1, 2], 24)) % 24
    random = np.random.default_rng(0)
    x = random.random((24, 12), dtype=np.float32)
    y = nodes % 3
    split = [nodes % 4 == k for k in (0, 1, 2)]
    return GraphData("small", x, np.stack([source, target]), y, *split)


PADDING = "nodepad:capacity=30"
GCN, DENSE_GCN = {"model": "gcn"}, {"model": "gcn", "form": "dense"}
GAT, HEADS = {"model": "gat"}, {"model": "gat", "heads": 4}
GAT_EDGES = {"model": "gat", "form": "edges"}
MEAN = {"model": "sage-mean", "neighbours": 5}
MEAN_EDGES, DENSE_MEAN = MEAN | {"form": "edges"}, MEAN | {"form": "dense"}
MAX = {"model": "sage-max", "neighbours": 5}
MAX_EDGES = MAX | {"form": "edges"}

AGREEING = [
    (GCN, "none"),
    (GCN, "preg+stagr"),
    (GCN, "graphsplit+stagr+grasp+symg+cacheg"),
    (GCN, PADDING),
    (GCN | {"layers": 1}, "grad"),
    (GCN | {"order": "aggregate_first", "layers": 3}, "none"),
    (DENSE_GCN, "none"),
    (GCN, "preg"),
    (GCN, "effop"),
    (DENSE_GCN, "preg"),
    (GAT, "stagr"),
    (GAT, "grad"),
    (GAT, PADDING),
    (GAT, "grax1"),
    (GAT, "effop+grax1"),
    (GAT, "stagr+effop"),
    (GAT, "stagr+grax1"),
    (GAT, "grad+grax1"),
    (GAT, "grax2:form=literal"),
    (GAT, "grax2:form=source"),
    (GAT, "effop+grax2:form=rank2"),
    (GAT, "stagr+effop+grax1+grax2:form=literal"),
    (GAT, "stagr+effop+grax1+grax2:form=source"),
    (GAT, f"grad+{PADDING}+effop"),
    (GAT, f"grad+{PADDING}+effop+grax1+grax2:form=rank2"),
    (HEADS, "none"),
    (HEADS, "effop+grax1"),
    (HEADS, "grax2:form=literal"),
    (HEADS, "grax2:form=rank2"),
    (GAT_EDGES, "none"),
    (GAT_EDGES, PADDING),
    (GAT_EDGES, "stagr"),
    (GAT_EDGES | {"heads": 4}, "none"),
    (MEAN, "none"),
    (MEAN, "stagr"),
    (MEAN, f"grad+{PADDING}"),
    (MEAN, PADDING),
    (MEAN, "preg"),
    (MEAN, "effop"),
    (MEAN_EDGES, "none"),
    (MEAN_EDGES, PADDING),
    (MEAN_EDGES, f"grad+{PADDING}"),
    (MEAN_EDGES, "preg"),
    (DENSE_MEAN, "none"),
    (DENSE_MEAN, "preg"),
    (DENSE_MEAN, "stagr"),
    (MAX, "none"),
    (MAX, "stagr"),
    (MAX, "grad"),
    (MAX, PADDING),
    (MAX, "effop"),
    (MAX, "stagr+effop"),
    (MAX, "grad+effop"),
    (MAX, "grax3"),
    (MAX, "grax3:maximum=reduce"),
    (MAX, "stagr+grax3"),
    (MAX, f"grad+{PADDING}+grax3"),
    (MAX_EDGES, "none"),
    (MAX_EDGES, PADDING),
    (MAX_EDGES, "grad"),
]
"""Workloads and stacks that a model file holds; the scores of two forms of GrAx2 are other scores."""


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("settings", "stack"),
    AGREEING,
    ids=lambda v: v if isinstance(v, str) else "-".join(str(x) for x in v.values()),
)
def test_every_form_agrees_and_computes_the_same(
    settings: dict[str, object], stack: str, ring: GraphData
) -> None:
    spec = GnnSpec(dataset="small", hidden=8, **settings)
    built = build_gnn(spec, SMALL)
    reference = trainable(spec, ring, 0).eval()
    torch.manual_seed(1)
    for parameter in reference.parameters():  # zeros would be folded away: a bias that adds nothing
        torch.nn.init.uniform_(parameter, -1.0, 1.0)
    form = TrainedWorkload(spec, ring, built, reference.state_dict()).rewritten(parse(stack))
    assert_agreement(apply(built, stack), graph_of_model(form.model, "rewritten"))
    with torch.no_grad():
        expected = reference(torch.from_numpy(ring.x), *reference.view.example.values())
    found = torch.from_numpy(form.scores("fp32"))[:24]
    if "literal" not in stack and "source" not in stack:
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    elif "literal" in stack:
        assert not torch.allclose(found, expected, atol=1e-2)


class TransformFirst(SAGEConv):
    """SAGEConv that transforms the messages, not their mean or maximum."""

    def forward(self, x, edge_index):  # type: ignore[no-untyped-def]
        sent = self.lin_l(x)
        return self.propagate(edge_index, x=(sent, sent)) + self.lin_r(x)


class TwoLayers(torch.nn.Module):
    """GraphSAGE as a user of PyTorch Geometric writes it."""

    def __init__(self, convolution: type[SAGEConv], aggregation: str) -> None:
        super().__init__()
        self.first = convolution(12, 8, aggr=aggregation)
        self.last = convolution(8, 3, aggr=aggregation)

    def forward(self, x, edge_index):  # type: ignore[no-untyped-def]
        return torch.log_softmax(self.last(torch.relu(self.first(x, edge_index)), edge_index), dim=1)


@pytest.mark.few(1)
@pytest.mark.parametrize("order", ["aggregate_first", "transform_first"])
@pytest.mark.parametrize("aggregation", ["mean", "max"])
def test_sage_along_edges_is_sageconv_operator_for_operator(
    aggregation: str, order: str, ring: GraphData
) -> None:
    convolution = SAGEConv if order == "aggregate_first" else TransformFirst
    module = TwoLayers(convolution, aggregation).eval()
    torch.manual_seed(1)
    for parameter in module.parameters():  # zeros would be folded away
        torch.nn.init.uniform_(parameter, -1.0, 1.0)
    inputs = {"x": torch.from_numpy(ring.x), "edge_index": torch.from_numpy(ring.edge_index)}
    spec = GnnSpec(dataset="small", hidden=8, model=f"sage-{aggregation}", form="edges", order=order)
    assert_agreement(build_gnn(spec, SMALL), from_pyg(module, inputs))


@pytest.mark.laws
def test_quantgr_exports_products_of_8_bits_that_a_reader_understands(
    cora: GraphData, trained: dict[str, Trained], tmp_path: Path
) -> None:
    model = trained_model(load_spec("gcn-cora"), parse("stagr+quantgr"), cora, RECIPE, trained["gcn"])
    save_model(model.converted, tmp_path / "model.xml", half=True)
    imported = import_model(tmp_path / "model.xml")
    assert Counter(op.type for op in imported if op.type != "FakeQuantize") == Counter(
        op.type for op in model.graph
    )
    assert imported.macs == model.graph.macs
    assert (tmp_path / "model.bin").stat().st_size < 1.1 * 2708**2
    assert model.test == pytest.approx(model.trained.test, abs=0.006)
