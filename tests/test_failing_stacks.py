"""A stack that fails, whatever the reason, leaves a row with the reason and the other stacks as they were."""

import pytest

from npusim import advise

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
pytest.importorskip("nncf")

from torch_geometric.nn import GCN, GCNConv  # noqa: E402

from npusim.frontends import quantising  # noqa: E402
from npusim.frontends.openvino_nodes import UnwritableError  # noqa: E402
from npusim.frontends.valued import valued_module  # noqa: E402
from npusim.gnn_models.judging import judge_module  # noqa: E402
from npusim.studies.agreement import NumericalRewriting  # noqa: E402

NODES, EDGES, WIDTH, CLASSES = 300, 900, 16, 5


def trained(layers=1):
    """Return convolutions whose biases are not zero, as after training, and their inputs."""
    torch.manual_seed(0)
    module = GCNConv(WIDTH, CLASSES) if layers == 1 else GCN(WIDTH, WIDTH, layers, CLASSES)
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, 0, 0.1)
    return module.eval(), {
        "x": torch.rand(NODES, WIDTH),
        "edge_index": torch.randint(0, NODES, (2, EDGES)),
    }


class Labelled:
    test_mask = torch.ones(NODES, dtype=torch.bool)

    def __init__(self, x, edge_index):
        self.x, self.edge_index = x, edge_index
        self.y = torch.arange(NODES) % CLASSES


@pytest.mark.laws
@pytest.mark.parametrize("layers", [1, 2])
def test_trained_convolutions_are_rounded_to_8_bits(layers):
    module, inputs = trained(layers)
    judged = NumericalRewriting(valued_module(module, inputs, "trained")).judge("stagr+quantgr")
    assert judged.kept and judged.rounded_products == 2 * layers
    report = judge_module(module, Labelled(**inputs), ["stagr+quantgr"])
    assert report.results[-1].numbers == "int8" and report.results[-1].agreement > 0.9


@pytest.mark.parametrize("error", [ValueError("of a library"), MemoryError(), IndexError("list index")])
def test_whatever_fails_says_so(monkeypatch, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(quantising, "quantised", fails)
    module, inputs = trained()
    judge = NumericalRewriting(valued_module(module, inputs, "trained")).judge
    with pytest.raises(UnwritableError, match=f"with stagr\\+quantgr: {type(error).__name__}"):
        judge("stagr+quantgr")


@pytest.mark.laws
def test_advice_keeps_the_other_stacks_where_one_fails(monkeypatch):
    def fails(*_, **__):
        raise MemoryError

    monkeypatch.setattr(quantising, "quantised", fails)
    module, inputs = trained(layers=2)
    advice = advise(module, inputs=inputs, samples=0)
    assert advice.agreement and "quantgr" not in advice.today.techniques
    assert any("quantgr were not compared" in note and "MemoryError" in note for note in advice.notes)


def test_accuracy_keeps_the_other_stacks_where_one_fails(monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("of a library")

    monkeypatch.setattr(quantising, "quantised", fails)
    module, inputs = trained()
    report = judge_module(module, Labelled(**inputs), ["stagr+quantgr", "stagr"])
    assert {row.techniques for row in report.results} == {"none", "stagr"}
    assert [(one.techniques, one.reason) for one in report.skipped] == [
        ("stagr+quantgr", "RuntimeError: of a library")
    ]
