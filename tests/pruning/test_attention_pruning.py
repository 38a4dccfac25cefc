"""Channel pruning of a GAT, a head a branch: answers, workload and traced module; on a small graph."""

import copy
from collections import Counter
from pathlib import Path

import pytest
from graph_agreement import assert_agreement

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from small_networks import CLASSES, FEATURES, NODES, data  # noqa: E402

from npusim.errors import ConfigError  # noqa: E402
from npusim.frontends.openvino_ir import import_model  # noqa: E402
from npusim.frontends.openvino_write import save_model  # noqa: E402
from npusim.frontends.pyg import convert  # noqa: E402
from npusim.gnn_models.models import model_instance, module_of  # noqa: E402
from npusim.gnn_models.networks import GAT  # noqa: E402
from npusim.graph import GraphStructure  # noqa: E402
from npusim.pruning.channel_pruning import (  # noqa: E402
    METHODS,
    Method,
    inputs_of,
    on_training_graph,
    prune,
    reads_of,
)
from npusim.workloads import GnnSpec, build_gnn  # noqa: E402
from npusim.workloads.gnn.spec import Pruning  # noqa: E402


def spec(**keys: object) -> GnnSpec:
    return GnnSpec.model_validate({"model": "gat", "dataset": "cora", "hidden": 24, "heads": 4} | keys)


def answers(module: GAT) -> torch.Tensor:
    module.eval()
    with torch.no_grad():
        return module(torch.from_numpy(data().x), *module.view.example.values())


def trained(**keys: object) -> GAT:
    torch.manual_seed(1)
    module = module_of(spec(**keys), data())
    assert isinstance(module, GAT)
    for layer in module.layers:
        torch.nn.init.normal_(layer.bias, std=0.3)
    return module


@pytest.mark.few(1)
@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_every_head_keeps_equally_many_channels(layers: int, method: Method) -> None:
    module = trained(layers=layers)
    both = prune(module, data(), Pruning(budget=3.0), method)
    for i in range(1, layers):
        assert Counter(channel // 6 for channel in both.kept[i]) == dict.fromkeys(range(4), 2)
    assert both.module.plan == both.cut.plan
    assert [layer.inputs for layer in both.module.plan] == [FEATURES, *[8] * (layers - 1)]
    assert answers(both.module).shape == (NODES, CLASSES)


@pytest.mark.parametrize("layers", [2, 3])
def test_a_budget_that_keeps_all_channels_changes_nothing(layers: int) -> None:
    module = trained(layers=layers)
    both = prune(module, data(), Pruning(budget=1.001))
    for pruned in (both.cut, both.module):
        assert pruned.plan == module.plan
        assert torch.allclose(answers(pruned), answers(module), atol=1e-5)


@pytest.mark.few(1)
@pytest.mark.parametrize("method", METHODS)
def test_a_cut_network_answers_as_the_whole_one_with_those_channels_at_zero(method: Method) -> None:
    module = trained(layers=3)
    both = prune(module, data(), Pruning(budget=2.0), method)
    masked = copy.deepcopy(module)
    with torch.no_grad():
        for i, layer in enumerate(masked.layers[:-1]):
            gone = [c for c in range(24) if c not in both.kept[i + 1]]
            layer.linear.weight[gone] = 0.0
            layer.bias[gone] = 0.0
    assert torch.allclose(answers(masked), answers(both.cut), atol=1e-5)
    assert not torch.allclose(answers(masked), answers(module), atol=1e-2)


def test_heads_read_what_their_attention_makes_of_the_inputs() -> None:
    small, x = on_training_graph(trained(), data())
    inputs = inputs_of(small, x)
    for i, layer in enumerate(small.layers):
        reads = reads_of(small, i, inputs[i], {})
        pairs = zip(reads.features, reads.weights, strict=True)
        parts = torch.cat([features @ weight.T for features, weight in pairs], dim=1)
        wanted = small.layer(i, inputs[i], small.prepare(tuple(small.view.example.values())))
        assert torch.allclose(parts + layer.bias, wanted, atol=1e-5)


def test_channels_that_nothing_reads_go_first_and_cost_nothing() -> None:
    module = trained()
    read = [6 * head + part for head in range(4) for part in (1, 3, 4)]
    silent = [channel for channel in range(24) if channel not in read]
    with torch.no_grad():
        module.layers[1].linear.weight[:, silent] = 0.0
        for name in ("source", "target"):  # nor do scores depend on them
            getattr(module.layers[0], name).view(-1)[silent] = 0.0
    both = prune(module, data(), Pruning(budget=2.0))
    assert list(both.kept[1]) == read
    for pruned in (both.cut, both.module):
        assert torch.allclose(answers(pruned), answers(module), atol=1e-4)


def test_validation_and_test_nodes_are_not_looked_at() -> None:
    module, moved = trained(), data()
    moved.x[40:] = 9.0
    kept = [prune(module, each, Pruning(budget=2.0)).kept for each in (data(), moved)]
    assert kept[0] == kept[1]


@pytest.mark.few(1)
@pytest.mark.parametrize("form", ["edges", "dense"])
def test_the_traced_module_is_the_built_workload_operator_for_operator(form: str, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    found = data()
    both = prune(trained(), found, Pruning(budget=2.0))
    pruned = spec(hidden=both.module.plan[0].outputs, form=form)
    structure = GraphStructure("cora", NODES, found.edge_index.shape[1], FEATURES, CLASSES)
    built = build_gnn(pruned, structure)
    asked = spec(pruning={"budget": 2.0}, form=form)
    assert build_gnn(asked, structure).macs == built.macs
    instance = model_instance(pruned, found)
    instance.module.load_state_dict(both.module.state_dict())
    x = instance.inputs.values()
    assert torch.allclose(instance.module.eval()(*x), answers(both.module), atol=1e-5)
    save_model(convert(instance.module, instance.inputs), tmp_path / "model.xml", half=True)
    assert_agreement(built, import_model(tmp_path / "model.xml"))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("pruning", "complaint"),
    [({"budget": 7.0}, "at most 6"), ({"budget": 2.0, "scheme": "batched"}, "full: gat has one width")],
)
def test_what_heads_cannot_give_is_refused(pruning: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        spec(pruning=pruning).widths(FEATURES, CLASSES)


def test_channels_of_heads_are_kept_in_multiples() -> None:
    asked = spec(hidden=128, heads=2, pruning={"budget": 8.0, "multiple": 16})
    assert asked.widths(FEATURES, CLASSES) == [(FEATURES, 32), (32, CLASSES)]
