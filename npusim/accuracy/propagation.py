"""Networks by Eq. 1 of GCNP as a PyTorch module: branches of powers of the adjacency, side by side.

A pruned network is the same module with narrower weights; a branch that reads fewer channels than the layer
is handed picks them by index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from npusim.accuracy.views import EdgeView, GraphMatrix, scatter_rows
from npusim.workloads.gnn.spec import Layer


class Propagation(nn.Module):
    """A network by Eq. 1.

    Parameters
    ----------
    layers : sequence of Layer
        Channels of each layer and branch.
    view : View
        How it sees the graph: edges, or a matrix [N, N].
    mean : bool
        Whether neighbours are averaged; otherwise GCN's weights, which the view's matrix holds, are applied.
    columns : mapping of (layer, branch) to Tensor, optional
        Channels that a branch reads, where it does not read all of them.
    transform_first : bool
        Whether a branch multiplies before it aggregates.
    bias : bool
        Whether branches have one, added where they multiply; a dense layer always has.
    dropout : float or sequence of float
        Share of what a layer reads that is set to zero in training, of all layers or of each.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        view: EdgeView | GraphMatrix,
        mean: bool,
        columns: Mapping[tuple[int, int], Tensor] | None = None,
        transform_first: bool = False,
        *,
        bias: bool = False,
        jumping: bool = False,
        normalise: bool = False,
        dropout: float | Sequence[float] = 0.5,
    ) -> None:
        super().__init__()
        self.plan, self.view, self.mean = tuple(layers), view, mean
        self.transform_first, self.bias = transform_first, bias
        self.jumping, self.normalise = jumping, normalise
        self.dropouts = (dropout,) * len(self.plan) if isinstance(dropout, float) else tuple(dropout)
        self.dropout = self.dropouts[0]  # of the attributes, which the trainer drops
        self.layers = nn.ModuleList(
            nn.ModuleList(
                nn.Linear(branch.inputs, branch.outputs, bias or not layer_propagates(layer))
                for branch in layer.branches
            )
            for layer in layers
        )
        self.picked = set(columns or ())
        for (i, b), channels in (columns or {}).items():
            self.register_buffer(f"columns_{i}_{b}", channels)

    def forward(self, x: Tensor, *graph: Tensor) -> Tensor:
        """Return log-probabilities [N, classes] for features [N, F] and the view's inputs."""
        prepared = self.prepare(graph)
        results: list[Tensor] = []
        for i in range(len(self.plan)):
            dense = not layer_propagates(self.plan[i])
            if dense and self.jumping:
                x = torch.cat(results, dim=1)
            if dense and self.normalise:
                x = functional.normalize(x, dim=1)
            if i > 0:
                x = functional.dropout(x, self.dropouts[i], self.training)
            x = self.layer(i, x, prepared)
            if i + 1 < len(self.plan):
                x = torch.relu(x)
            results.append(x)
        return torch.log_softmax(x, dim=1)

    def layer(self, i: int, x: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
        """Return what layer `i` makes of `x`, before its activation."""
        parts = [self.branch(i, b, x, prepared) for b in range(len(self.plan[i].branches))]
        if self.plan[i].average:
            return sum(parts[1:], parts[0]) * (1.0 / len(parts))
        return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]

    def branch(self, i: int, b: int, x: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
        """Return what one branch of layer `i` makes of `x`."""
        order, linear = self.plan[i].branches[b].order, self.layers[i][b]
        x = self.read(i, b, x)
        if self.transform_first:
            return self.power(linear(x), order, prepared)
        return linear(self.power(x, order, prepared))

    def read(self, i: int, b: int, x: Tensor) -> Tensor:
        """Return the channels of `x` that a branch reads."""
        if (i, b) not in self.picked:
            return x
        return x.index_select(1, self.get_buffer(f"columns_{i}_{b}"))

    def power(self, x: Tensor, order: int, prepared: tuple[Tensor, ...]) -> Tensor:
        """Return A^order x."""
        for _ in range(order):
            x = self._aggregate(prepared, x)
        return x

    def prepare(self, graph: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return what aggregation needs of the view's inputs, made once."""
        if isinstance(self.view, GraphMatrix):
            return (self.view.matrix(*graph),)
        source, target = self.view.prepare(*graph)
        count = scatter_rows(self.view.ones_like_edges(), target, self.view.nodes)
        if self.mean:
            return source, target, count.clamp(min=1.0).view(-1, 1)
        factor = count.pow(-0.5)
        weights = factor.index_select(0, source) * factor.index_select(0, target)
        return source, target, weights.unsqueeze(1)

    def _aggregate(self, prepared: tuple[Tensor, ...], x: Tensor) -> Tensor:
        if isinstance(self.view, GraphMatrix):
            if x.is_sparse and prepared[0].is_sparse:
                return torch.sparse.mm(prepared[0], x)
            return torch.matmul(prepared[0], x)
        messages = x.index_select(0, prepared[0])
        if self.mean:
            return scatter_rows(messages, prepared[1], self.view.nodes) / prepared[2]
        return scatter_rows(messages * prepared[2], prepared[1], self.view.nodes)


def layer_propagates(layer: Layer) -> bool:
    """Whether a layer aggregates from neighbours; a dense one does not."""
    return any(branch.order for branch in layer.branches)
