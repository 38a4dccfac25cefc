"""The GCN as a PyTorch module, in each form that npusim costs.

All forms share their parameters and give the same answers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from npusim.accuracy.views import EdgeView, GraphMatrix, scatter_rows


class GCN(nn.Module):
    """Graph convolution: each layer a Linear with its bias, then the aggregation.

    Parameters
    ----------
    view : View
        How it sees the graph: edges, a matrix made of them in the graph, or a finished matrix.
    aggregate_first : bool
        Whether a layer aggregates its inputs and not its outputs.
    """

    def __init__(
        self,
        widths: list[tuple[int, int]],
        view: EdgeView | GraphMatrix,
        aggregate_first: bool = False,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(inputs, outputs) for inputs, outputs in widths)
        self.view = view
        self.aggregate_first = aggregate_first
        self.dropout = dropout

    def forward(self, x: Tensor, *graph: Tensor) -> Tensor:
        """Return log-probabilities [N, classes] for features [N, F] and the view's inputs."""
        prepared = self._prepare(graph)
        for number, layer in enumerate(self.layers):
            if number > 0:  # the features' dropout is the trainer's
                x = functional.dropout(x, self.dropout, self.training)
            if self.aggregate_first:
                x = layer(self._aggregate(prepared, x))
            else:
                x = self._aggregate(prepared, layer(x))
            if number + 1 < len(self.layers):
                x = torch.relu(x)
        return torch.log_softmax(x, dim=1)

    def _prepare(self, graph: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if isinstance(self.view, GraphMatrix):
            return (self.view.matrix(*graph),)
        source, target = self.view.prepare(*graph)
        degree = scatter_rows(self.view.ones_like_edges(), target, self.view.nodes)
        factor = degree.pow(-0.5)
        weights = factor.index_select(0, source) * factor.index_select(0, target)
        return source, target, weights.unsqueeze(1)

    def _aggregate(self, prepared: tuple[Tensor, ...], x: Tensor) -> Tensor:
        if len(prepared) == 1:
            return torch.matmul(prepared[0], x)
        source, target, weights = prepared
        return scatter_rows(x.index_select(0, source) * weights, target, x.shape[0])
