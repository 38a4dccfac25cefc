"""An exported file answers for any edges that it takes; what it holds of the example is no input of it."""

import numpy as np
import pytest

from npusim import advise

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
openvino = pytest.importorskip("openvino")

from torch import nn  # noqa: E402
from torch_geometric import nn as layers  # noqa: E402

from npusim.errors import NpusimError  # noqa: E402
from npusim.frontends.openvino_ir import input_name  # noqa: E402
from npusim.frontends.openvino_nodes import UnwritableError  # noqa: E402
from npusim.frontends.openvino_write import results_of  # noqa: E402
from npusim.frontends.valued import valued_module  # noqa: E402
from npusim.studies.agreement import NumericalRewriting  # noqa: E402

NODES, EDGES, WIDTH = 60, 240, 16
ROUNDING = 2e-3
"""Of the largest output: weights in fp16."""


def loop_free(count=EDGES, seed=0):
    """Return random pairs of different nodes [2, E]."""
    source, steps = torch.randint(1, NODES, (2, count), generator=torch.Generator().manual_seed(seed))
    return torch.stack([source, (source + steps) % NODES])


def odd(ends):
    """Return as many edges: some are self-loops, some repeat, node 0 has none."""
    other = ends.clone()
    other[:, :3] = torch.tensor([[5, 7, 7], [5, 7, 7]])
    other[:, 3:20] = other[:, 20:21]
    other[other == 0] = 1
    return other


EDGE_SETS = {"other": loop_free(seed=1), "permuted": loop_free().flip(0), "odd": odd(loop_free())}


def inputs_of(*names):
    random = torch.Generator().manual_seed(2)
    every = {
        "x": torch.rand(NODES, WIDTH, generator=random),
        "edge_index": loop_free(),
        "edge_weight": torch.rand(EDGES, generator=random),
        "edge_type": torch.randint(0, 4, (EDGES,), generator=random),
    }
    return {name: every[name] for name in names}


WEIGHTED = ("x", "edge_index", "edge_weight")
CASES = {
    "GCN": (lambda: layers.GCNConv(WIDTH, 8), WEIGHTED),
    "APPNP": (lambda: layers.APPNP(2, 0.1), WEIGHTED),
    "Cheb": (lambda: layers.ChebConv(WIDTH, 8, 2), WEIGHTED),
    "SG": (lambda: layers.SGConv(WIDTH, 8, 2), WEIGHTED),
    "TAG": (lambda: layers.TAGConv(WIDTH, 8, 2), WEIGHTED),
    "Graph": (lambda: layers.GraphConv(WIDTH, 8), WEIGHTED),
    "RGAT": (lambda: layers.RGATConv(WIDTH, 8, 4), ("x", "edge_index", "edge_type")),
    "plain": (lambda: layers.SAGEConv(WIDTH, 8), ("x", "edge_index")),
}


def check_file(file, module, inputs):
    """Check a file on other edges and features, where it takes them; return the names of its inputs."""
    compiled = openvino.Core().compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    names = {input_name(port) for port in compiled.inputs}
    for ends in EDGE_SETS.values() if "edge_index" in names else [inputs["edge_index"]]:
        other = {name: value[torch.randperm(len(value))] for name, value in inputs.items()}
        values = {name: other[name] if name in names else value for name, value in inputs.items()}
        values["edge_index"] = ends
        want = module(**values).detach().numpy()
        fed = {name: value.numpy() for name, value in values.items() if name in names}
        (ours,) = results_of(compiled, fed)
        assert np.abs(ours - want).max() <= ROUNDING * np.abs(want).max()
    return names


_FAST = ("GCN", "RGAT", "plain")


@pytest.mark.parametrize("stack", ["none", "stagr", "padded"])
@pytest.mark.parametrize(
    "case", [case if case in _FAST else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_a_file_is_right_for_all_edges_that_it_takes(case, stack, tmp_path):
    make, names = CASES[case]
    torch.manual_seed(0)
    module, inputs = make().eval(), inputs_of(*names)
    file = tmp_path / "exported.xml"
    try:
        numbers = NumericalRewriting(valued_module(module, inputs, case))
        numbers.refuse_wrong(numbers.judge(stack))
        numbers.save(stack, file)
    except NpusimError:  # refused: nothing wrong was written
        assert not file.exists() and stack != "none"
        return
    taken = check_file(file, module, inputs)
    assert ("edge_index" in taken) == (stack == "none") and "x" in taken


@pytest.mark.laws
def test_advice_names_the_inputs_that_its_file_has(tmp_path):
    make, names = CASES["GCN"]
    torch.manual_seed(0)
    module, inputs, file = make().eval(), inputs_of(*names), tmp_path / "exported.xml"
    advice = advise(module, inputs=inputs, samples=0, export=file)
    taken = check_file(file, module, inputs)
    assert ("edge_index" in taken) == ("edge_index" in advice.benchmark)
    held = any("holds for the example's edge_index" in note for note in advice.notes)
    assert held == ("edge_index" not in taken)


class Atoms(nn.Module):
    """Looks whole numbers up; a wrong file has the example's rows as a constant."""

    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(9, WIDTH), layers.GINConv(nn.Linear(WIDTH, 8))

    def forward(self, atoms, edge_index):
        return self.layer(self.table(atoms), edge_index)


def test_whole_numbers_are_others_too():
    network = valued_module(
        Atoms().eval(),
        {"atoms": torch.arange(NODES) % 9, "edge_index": loop_free()},
        "atoms",
    )
    for stack in ("none", "padded"):
        graph = NumericalRewriting(network).graph(stack)
        for other in network.other_inputs(graph, 2):
            assert (other["atoms"] != network.inputs["atoms"]).any()
            assert set(other["atoms"]) <= set(network.inputs["atoms"])
            assert (other["edge_index"] != network.inputs["edge_index"]).any() == (stack == "none")


def test_a_file_that_is_wrong_on_other_edges_is_not_written(monkeypatch, tmp_path):
    network = valued_module(layers.GCNConv(WIDTH, 8).eval(), inputs_of(*WEIGHTED), "gcn")
    monkeypatch.setattr(type(network), "fixed_inputs", lambda *_: [])
    numbers = NumericalRewriting(network)
    agreement = numbers.judge("stagr")
    assert not agreement.kept
    with pytest.raises(UnwritableError, match="other edges or features"):
        numbers.refuse_wrong(agreement)
