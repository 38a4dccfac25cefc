"""Modules whose sizes depend on values: a note names the line and what to write instead."""

import inspect
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("openvino")

import npusim  # noqa: E402
from npusim.frontends.model_structure import user_line  # noqa: E402
from npusim.frontends.pyg import advice_of_module  # noqa: E402

X, EDGES = torch.ones(5, 4), torch.tensor([[0, 1, 2], [1, 2, 3]])


class Counted(torch.nn.Module):
    def forward(self, x: Any, edge_index: Any) -> Any:
        nodes = edge_index.max() + 1
        return torch.zeros(nodes, 4).index_add(0, edge_index[1], x[edge_index[0]])


class Masked(torch.nn.Module):
    def forward(self, x: Any, edge_index: Any) -> Any:
        chosen = x[x[:, 0] > 0]
        return chosen + x[edge_index[0, 0]]


class Found(torch.nn.Module):
    def forward(self, x: Any, edge_index: Any) -> Any:
        rows = (x[:, 0] > 0).nonzero()
        return rows, edge_index


class Fixed(torch.nn.Module):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return torch.zeros(x.shape[0], 4).index_add(0, edge_index[1], x[edge_index[0]])


def place(module: type, line: int) -> str:
    """Where the `line`-th line of a module's `forward` stands."""
    _, first = inspect.getsourcelines(module.forward)
    return f"{__file__}:{first + line}, in forward"


def test_a_size_that_is_computed_from_values_is_that_of_the_example_with_its_line() -> None:
    graph = npusim.from_pyg(Counted(), {"x": X, "edge_index": EDGES})
    assert graph.tensors[graph.outputs[0]].shape == (4, 4)
    assert any(place(Counted, 2) in note and "use a fixed number" in note for note in graph.meta.notes)
    assert not npusim.from_pyg(Fixed(), {"x": X, "edge_index": EDGES}).meta.notes


@pytest.mark.parametrize(
    ("module", "line", "advice"),
    [
        (Masked, 1, "torch.where(mask, x, 0)"),
        (Found, 1, "multiply by the mask"),
        (Counted, 2, "a fixed number"),
    ],
)
def test_the_line_comes_with_what_to_write(module: type, line: int, advice: str) -> None:
    said = advice_of_module(module(), (X, EDGES))
    assert said.startswith(place(module, line)) and advice in said


def test_a_module_of_fixed_sizes_has_no_such_line() -> None:
    assert advice_of_module(Fixed(), (X, EDGES)) == ""


def test_self_loops_are_handed_in() -> None:
    gnn = pytest.importorskip("torch_geometric.nn")

    class Layers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = gnn.GATConv(4, 2)

        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.layer(x, edge_index)

    said = advice_of_module(Layers(), (X, EDGES))
    assert place(Layers, 1) in said and "add_self_loops=False" in said


def test_the_innermost_line_that_is_no_library_is_named() -> None:
    exported = (
        '  File "/home/me/train.py", line 9, in main\n  File "/home/me/net.py", line 3, in forward\n'
        '  File "/usr/lib/site-packages/torch/functional.py", line 99, in unique\n'
    )
    assert user_line(exported) == "/home/me/net.py:3, in forward"
    traced = "/x/site-packages/torch/functional.py(9): unique\n/home/me/net.py(3): forward\n"
    assert user_line(traced) == "/home/me/net.py:3, in forward"
    assert user_line("") == ""
