"""Blocks and phases of operators: by names and by structure, in built and imported networks; their shares."""

import io
from collections import Counter

import pytest
from hypothesis import given, settings
from rich.console import Console
from strategies import graphs
from test_techniques import ALL, graph_of
from test_techniques_structure import anonymous

import npusim
from npusim.frontends.pyg import from_pyg
from npusim.graph import Editor, Graph, Phase
from npusim.graph.regions import _SAID, block_of, module_path
from npusim.ops import DType, Family, Role, op_type
from npusim.reporting.estimate import estimate_page, part_s, time_by_region
from npusim.techniques import apply, legal
from npusim.techniques.preprocessing import preprocessing_operators
from npusim.workloads import load_workload

STACKS = ("none", "stagr", "grad", "effop", "preg", "stagr+effop", "stagr+effop+grax1+grax2", "stagr+grax3")
LAID_OUT = (Family.VIEW, Family.CONVERT)
"""What only changes the form of a result may count with what makes it or with what reads it."""


def without_phases(graph: Graph) -> Graph:
    """The same graph, whose regions name blocks alone."""
    operators = [op.with_(region=op.region.split("/")[0]) for op in graph]
    return Graph(graph.name, graph.tensors.values(), operators, graph.outputs, structure=graph.structure)


@pytest.mark.few(3)
@pytest.mark.parametrize(("model", "form"), ALL)
def test_structure_tells_the_phases_that_the_builders_know(model: str, form: str) -> None:
    base = graph_of(model, form)
    for stack in STACKS:
        if legal(base, stack) is None:
            graph = apply(base, stack)
            told = without_phases(graph).regions
            for op in graph:
                own = graph.regions[op.name]
                assert told[op.name].block == own.block
                assert told[op.name].phase is own.phase or op.family in LAID_OUT, (stack, op.name)
                said = _SAID.get(op.region.split("/")[-1])
                assert said is None or own.phase is said, (stack, op.name)


@pytest.mark.few(3)
@pytest.mark.parametrize(("model", "form"), ALL)
def test_a_graph_without_names_has_the_same_phases(model: str, form: str) -> None:
    built = without_phases(graph_of(model, form))
    imported = anonymous(graph_of(model, form))
    pairs = zip(built, (imported.operators[f"o{number}"] for number in range(len(built))), strict=True)
    for ours, theirs in pairs:
        assert imported.regions[theirs.name].phase is built.regions[ours.name].phase, ours.name
        assert imported.regions[theirs.name].block in {*(f.value for f in Family), "preprocess"}


@pytest.mark.parametrize(
    ("path", "block"),
    [
        ("layer0/aggregate", "layer0"),
        ("convs.1.aggr_module", "convs.1"),
        ("conv1.nn.0", "conv1"),
        ("layer1.0.conv1", "layer1.0"),
        ("model.layers.12.self_attn.q_proj", "model.layers.12"),
        ("bert/encoder/layer/3/attention/self", "bert/encoder/layer/3"),
        ("backbone/stage2/block1/expand", "backbone/stage2/block1"),
        ("layers.1.blocks.4.mlp.fc1", "layers.1.blocks.4"),
        ("head/classes", "head/classes"),
        ("preprocess", "preprocess"),
        ("", ""),
    ],
)
def test_a_block_is_the_path_up_to_its_number(path: str, block: str) -> None:
    assert block_of(path) == block


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("__module.conv1.lin/aten::linear/MatMul", "conv1.lin"),
        ("aten::relu/Relu", ""),
        ("/layers.0/self_attn/q_proj/MatMul", "layers.0/self_attn/q_proj"),
        ("resnet/block1/conv/Conv2D", "resnet/block1/conv"),
        ("Conv_12", ""),
    ],
)
def test_an_imported_node_says_in_its_name_which_module_it_is_of(name: str, path: str) -> None:
    assert module_path(name) == path


def test_blocks_of_networks_that_are_no_gnns() -> None:
    bert, resnet = load_workload("bert-base"), load_workload("resnet-50")
    layers = [f"layer{i}" for i in range(12)]
    assert [b for b in dict.fromkeys(r.block for r in bert.regions.values()) if b in layers] == layers
    assert len({r.block for r in resnet.regions.values()} & {"stage1/block0", "stage4/block2", "stem"}) == 3
    found = Counter((r.phase, bert.operators[name].type) for name, r in bert.regions.items())
    assert found[Phase.ATTENTION, "MatMul"] == found[Phase.AGGREGATION, "MatMul"] == 12
    assert found[Phase.COMBINATION, "MatMul"] == 73 and found[Phase.ATTENTION, "Softmax"] == 12
    assert {r.phase for r in resnet.regions.values()} == {Phase.COMBINATION, Phase.ACTIVATION, Phase.OTHER}


def test_a_name_that_all_operators_have_is_no_block() -> None:
    editor = Editor("net")
    x = editor.input("x", (8, 16))
    for number in range(2):
        editor.region = f"resnet50/conv{number}"
        x = editor.unary("Relu", x, f"r{number}")
    editor.region = ""
    editor.outputs = [editor.unary("Elu", x, "last")]
    blocks = [r.block for r in editor.finish().regions.values()]
    assert blocks == ["conv0", "conv1", "conv1"]


def test_a_product_of_features_with_themselves_scores_pairs() -> None:
    editor = Editor("knn")
    x = editor.input("x", (64, 16))
    scores = editor.matmul(x, x, "scores", transpose_b=True)
    picked = editor.op("TopK", (scores,), (64, 9), DType.INT64, "nearest", axes=(1,))
    editor.outputs = [editor.gather(x, picked, "neighbours")]
    graph = editor.finish()
    assert [graph.regions[n].phase for n in ("scores", "neighbours")] == [Phase.ATTENTION, Phase.AGGREGATION]


def test_an_attention_along_edges_and_its_blocks_are_found_in_a_module() -> None:
    torch = pytest.importorskip("torch")
    nn = pytest.importorskip("torch_geometric.nn")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.GATConv(16, 8, heads=2, add_self_loops=False)
            self.conv2 = nn.GINConv(torch.nn.Linear(16, 4))

        def forward(self, x: object, edge_index: object) -> object:
            return torch.log_softmax(self.conv2(torch.relu(self.conv1(x, edge_index)), edge_index), -1)

    graph = from_pyg(Net(), {"x": torch.rand(50, 16), "edge_index": torch.randint(0, 50, (2, 200))})
    types = {(r.block, r.phase, graph.operators[name].type) for name, r in graph.regions.items()}
    assert {block for block, _, _ in types} == {"conv1", "conv2", "preprocess"}
    assert ("conv1", Phase.ATTENTION, "Exp") in types and ("conv1", Phase.ATTENTION, "Gather") in types
    assert ("conv1", Phase.COMBINATION, "MatMul") in types and ("conv1", Phase.ACTIVATION, "Relu") in types
    assert ("conv2", Phase.AGGREGATION, "ScatterElementsUpdate") in types
    assert ("conv2", Phase.ACTIVATION, "LogSoftmax") in types
    before = {op.name for op in preprocessing_operators(graph)}
    assert before == {n for n, r in graph.regions.items() if r.phase is Phase.PREPROCESSING} != set()


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_every_operator_has_a_block_and_a_phase(graph: Graph) -> None:
    assert list(graph.regions) == list(graph.operators)
    assert all(region.block and isinstance(region.phase, Phase) for region in graph.regions.values())


# --- shares of time


@pytest.mark.parametrize("engine", ["analytical", "event"])
@pytest.mark.parametrize("hint", ["latency", "throughput"])
def test_the_parts_add_up_to_the_whole(engine: str, hint: str) -> None:
    e = npusim.estimate("gat-cora", "core-ultra-series2", engine=engine, hint=hint)
    found = time_by_region(e)
    phases = sum(s for sums in found.by_phase.values() for s in sums.values())
    blocks = sum(s for sums in found.by_block.values() for s in sums.values())
    assert phases == pytest.approx(blocks) == pytest.approx(sum(part_s(op) for op in e.operators))
    if hint == "latency":
        assert phases + found.launch_s == pytest.approx(e.latency_s) == pytest.approx(found.whole_s)
    assert set(found.control) == {"Gather", "Greater", "ScatterElementsUpdate", "Select"}
    assert found.control["Select"][0] == 2
    listed = [op for op in e.operators if op.control_flow and op.critical_s != 0.0]
    assert found.control_s == pytest.approx(sum(part_s(op) for op in listed))


def test_pages_tell_where_the_time_goes() -> None:
    e = npusim.estimate("gat-cora", "core-ultra-series2")
    stream = io.StringIO()
    Console(file=stream, width=100, color_system=None).print(estimate_page(e, details=True))
    text = stream.getvalue()
    for heading in ("time by phase", "time by block", "control flow"):
        assert heading in text
    rows = {line.split()[0]: line.split() for line in text.partition("time by phase")[2].splitlines() if line}
    assert {"preprocessing", "attention", "aggregation", "combination", "activation"} <= set(rows)
    assert "all" in rows and "%" in rows["preprocessing"]
    html = estimate_page(e).html()
    assert (
        "phases of the network" in html
        and "Blocks of the network by phase" in html
        and "Control flow: " in html
    )


def test_control_flow_is_a_trait_of_the_type() -> None:
    controlling = {
        name for name in ("Select", "Greater", "Gather", "ScatterElementsUpdate", "TopK", "NonZero")
    }
    assert all(op_type(name).control_flow for name in controlling)
    assert not any(
        op_type(name).control_flow for name in ("MatMul", "Softmax", "Elu", "ReduceMax", "Unknown")
    )


def test_a_mask_that_is_an_input_is_no_feature() -> None:
    editor = Editor("masked")
    mask = editor.input("mask", (8, 8), role=Role.MASK, structural=True)
    x = editor.input("x", (8, 8))
    scores = editor.eltwise("Add", editor.matmul(x, x, "scores"), mask, "masked")
    weights = editor.unary("Softmax", scores, "softmax", axes=(1,))
    editor.outputs = [editor.matmul(weights, editor.unary("Relu", x, "values"), "sum")]
    phases = {name: region.phase for name, region in editor.finish().regions.items()}
    assert phases["sum"] is Phase.AGGREGATION and phases["values"] is Phase.ACTIVATION
    assert {phases[name] for name in ("scores", "masked", "softmax")} == {Phase.ATTENTION}
