"""Rewrites along known edges: equal to the module in PyTorch, and as fast as the forms written by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
pytest.importorskip("openvino")

import gnn_forms as forms  # noqa: E402
from torch_geometric import nn as pyg  # noqa: E402

from npusim import advise, estimate  # noqa: E402
from npusim.frontends.pyg import from_pyg  # noqa: E402
from npusim.frontends.valued import ValuedNetwork, valued_module  # noqa: E402
from npusim.graph import Editor  # noqa: E402
from npusim.ops import Family, Role  # noqa: E402
from npusim.scenario import Scenario  # noqa: E402
from npusim.studies.fitting_stacks import interval_s  # noqa: E402
from npusim.techniques import apply, get, legal, parse, rewritings  # noqa: E402

ROUNDING = 1e-5
"""Of the largest output: sums in another order, in fp32."""
HOSTS = "core-ultra-series2"
STACKS = ("padded", "blocks", "blocks+padded", "padded+stagr", "stagr")


def error(network: ValuedNetwork, stack: str) -> float:
    graph = apply(network.graph, stack)
    ours, theirs = network.outputs(graph, network.rewritten(graph))[0], network.answers(network.inputs)[0]
    return float(np.abs(ours - theirs).max() / max(1e-9, np.abs(theirs).max()))


def layer(kind: str) -> torch.nn.Module:
    width = 6
    match kind:
        case "gin":
            return pyg.GINConv(torch.nn.Linear(width, width))
        case "edge":
            return pyg.EdgeConv(torch.nn.Linear(2 * width, width))
        case "mean" | "max" | "min":
            return pyg.SAGEConv(width, width, aggr=kind)
        case "gcn":
            return pyg.GCNConv(width, width)
        case "attention":
            return pyg.TransformerConv(width, 3, heads=2)
        case "gat":
            return pyg.GATConv(width, 3, heads=2, add_self_loops=False)
        case "gatv2":
            return pyg.GATv2Conv(width, 3, heads=2)
    many = ["mean", "min", "max", "std"]
    return pyg.PNAConv(width, width, many, ["identity", "amplification"], torch.ones(4).long())


KINDS = ("gin", "edge", "mean", "max", "min", "gcn", "attention", "gat", "gatv2", "pna")


@pytest.mark.laws
@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
    nodes=st.integers(3, 260),
    density=st.floats(0.2, 4.0),
    batch=st.integers(1, 12),
    seed=st.integers(0, 1 << 16),
)
def test_rewrites_on_random_graphs_are_the_module(kinds, nodes, density, batch, seed):
    """Nodes without edges, repeated edges, self-loops, hubs; graphs that share no edge."""
    torch.manual_seed(seed)
    count = max(1, int(density * nodes))
    target = (nodes * torch.rand(count) ** 2).long()
    offset = torch.randint(0, max(1, nodes // batch), (count,))
    first = target - target % max(1, nodes // batch)
    ends = torch.stack([(first + offset).clamp(max=nodes - 1), target])
    if "gatv2" in kinds:  # it removes self-loops, so that their number decides a size
        ends = ends[:, ends[0] != ends[1]]
        ends = ends if ends.numel() else torch.tensor([[0], [1]])
    network = valued_module(
        forms.Layers(*map(layer, kinds)).eval(), {"x": torch.randn(nodes, 6), "links": ends}, "net"
    )
    legal_stacks = [stack for stack in STACKS if legal(network.graph, stack) is None]
    assert "padded" in legal_stacks
    for stack in legal_stacks:
        assert error(network, stack) < ROUNDING, stack


NETWORKS = {
    "gin": ("blocks", forms.gin, forms.gin_by_hand),
    "transformer": ("padded+stagr", forms.transformer, forms.transformer_by_hand),
    "transformer of all pairs": (
        "stagr+grax1",
        lambda: forms.transformer(2000, 12000),
        lambda: forms.transformer_by_hand(2000, 0),
    ),
    "rgcn": ("padded", forms.rgcn, forms.rgcn_by_hand),
    "edgeconv": ("padded+stagr", forms.edgeconv, forms.edgeconv_by_hand),
    "schnet": ("padded+stagr", forms.schnet, forms.schnet_by_hand),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", NETWORKS)
def test_rewrites_gain_what_forms_by_hand_gain(name):
    stack, network, by_hand = NETWORKS[name]
    torch.manual_seed(0)
    module, inputs = network()
    plain = estimate(module.eval(), inputs=inputs, soc=HOSTS).latency_s
    module, by_hand_inputs = by_hand()
    hand = estimate(module.eval(), inputs=by_hand_inputs, soc=HOSTS).latency_s
    rewritten = interval_s(Scenario(network()[0].eval(), HOSTS, inputs=inputs), stack)
    assert plain / rewritten >= 0.8 * plain / hand


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("gin", lambda: forms.gin(9, 20)),
        ("transformer", lambda: forms.transformer(200, 900)),
        ("rgcn", lambda: forms.rgcn(150, 700)),
        ("edgeconv", lambda: forms.edgeconv(150, 700)),
        ("schnet", lambda: forms.schnet(5, 15)),
    ],
)
def test_exports_are_the_module(name, make):
    torch.manual_seed(0)
    module, inputs = make()
    stack = NETWORKS[name][0]
    assert error(valued_module(module.eval(), inputs, name), stack) < ROUNDING


@pytest.mark.laws
def test_edges_are_known_by_what_is_done_with_them():
    torch.manual_seed(0)
    module, inputs = forms.schnet(5, 15)
    graph = from_pyg(module.eval(), inputs)
    assert {t.name for t in graph.with_role(Role.EDGES)} == {
        "bonds",
        "molecule",
    }  # kinds of atoms are features
    module, inputs = forms.rgcn(50, 200)
    assert {t.name for t in from_pyg(module, inputs).with_role(Role.EDGES)} == {"links", "kind"}
    named = from_pyg(module, inputs, roles={"kind": Role.FEATURES})
    assert {t.name for t in named.with_role(Role.EDGES)} == {"links"}
    assert not [r for r in rewritings(graph) if "neighbours follow from the features" in r.what]


def test_two_types_of_nodes_have_a_matrix_of_their_sizes():
    torch.manual_seed(0)
    module = pyg.SAGEConv((6, 4), 5)
    ends = torch.stack([torch.randint(0, 30, (90,)), torch.randint(0, 20, (90,))])

    class Rated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = module

        def forward(self, user: torch.Tensor, item: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
            return self.layer((user, item), rates)

    inputs = {"user": torch.rand(30, 6), "item": torch.rand(20, 4), "rates": ends}
    network = valued_module(Rated().eval(), inputs, "rated")
    for stack in ("stagr", "grad", "padded"):
        assert error(network, stack) < ROUNDING, stack


def test_hubs_do_not_pad_the_others():
    ends = torch.stack([torch.arange(4000) % 3000, torch.cat([torch.zeros(1000), torch.arange(3000)]).long()])
    graph = from_pyg(pyg.SAGEConv(4, 4), {"x": torch.rand(3000, 4), "e": ends})
    slots = [op for op in apply(graph, "padded") if op.type == "Gather" and "slots" in op.name]
    rows = sum(apply(graph, "padded").tensors[op.outputs[0]].elements for op in slots) / 4
    assert rows < 2 * ends.shape[1]


@pytest.mark.laws
def test_a_device_that_is_faster_is_named_and_what_cannot_be_compiled_is_not_advised():
    torch.manual_seed(0)
    ends = forms.edges(40000, 200000)
    layers = pyg.SAGEConv(32, 32), pyg.SAGEConv(32, 8)
    inputs = {"x": torch.rand(40000, 32), "ends": ends}
    advice = advise(from_pyg(forms.Layers(*layers).eval(), inputs), HOSTS, samples=0)
    best = min(
        (layout for layout in advice.deployments if not layout.problem), key=lambda layout: layout.all_nodes_s
    )
    assert best.device == "gpu" and "Run it on the GPU with padded" in advice.conclusion
    dense = next(
        layout for layout in advice.deployments if (layout.device, layout.techniques) == ("npu", "stagr")
    )
    assert "GB" in dense.problem and "stagr" not in advice.today.techniques
    assert advice.deployments[-1].problem and advice.deployments[0].all_nodes_s == best.all_nodes_s


def test_without_values_the_reason_says_so():
    graph = from_pyg(pyg.SAGEConv(4, 4), {"x": torch.rand(9, 4), "e": torch.randint(0, 9, (2, 20))})
    scatters = [op for op in graph if op.family is Family.SCATTER]
    assert scatters and legal(graph, "padded") is None and legal(graph, "grad+padded") is not None
    editor = Editor.of(graph)
    editor.meta = replace(graph.meta, known=type(graph.meta.known)())
    assert "example inputs" in str(legal(editor.finish(), "padded"))
    assert get("padded").exact and parse("padded+blocks").names == ("blocks", "padded")
