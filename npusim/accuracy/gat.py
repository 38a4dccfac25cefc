"""The GAT as a PyTorch module, in each form that npusim costs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from npusim.accuracy.attention import LOWERED, SLOPE, masked, scores_of
from npusim.accuracy.views import EdgeView, GraphMatrix, MatrixView, scatter_rows

__all__ = ["GAT"]


class _Layer(nn.Module):
    """Parameters of one layer: transformation, one score vector a head for source and target, bias."""

    def __init__(self, inputs: int, outputs: int, heads: int) -> None:
        super().__init__()
        self.heads, self.each = heads, outputs // heads
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.source = nn.Parameter(torch.empty(heads, 1, self.each))
        self.target = nn.Parameter(torch.empty(heads, 1, self.each))
        self.bias = nn.Parameter(torch.zeros(outputs))
        for weight in (self.linear.weight, self.source, self.target):
            nn.init.xavier_uniform_(weight)


class GAT(nn.Module):
    """Graph attention.

    Parameters
    ----------
    widths : list of (int, int)
        Inputs and outputs of each layer.
    heads : int
        Heads of each layer but the last, which has one.
    view : View
        How it sees the graph; with a matrix all pairs are scored and masked.
    masking : str
        `select`, `arithmetic` (EffOp) or `additive` (GrAx1), as for `npusim.accuracy.attention.masked`.
    scores : str
        `pairs`, or one of GrAx2's forms, as for `npusim.accuracy.attention.scores_of`.
    lowered : float
        What masking by arithmetic lowers the score of an absent edge by.
    dropout : float
        Share of features, activations and attention weights dropped while training.
    """

    def __init__(
        self,
        widths: list[tuple[int, int]],
        heads: int,
        view: EdgeView | GraphMatrix,
        masking: str = "select",
        scores: str = "pairs",
        lowered: float = LOWERED,
        dropout: float = 0.6,
    ) -> None:
        super().__init__()
        last = len(widths) - 1
        self.layers = nn.ModuleList(_Layer(i, o, heads if n < last else 1) for n, (i, o) in enumerate(widths))
        self.view = view
        self.masking = masking
        self.scores = scores
        self.lowered = lowered
        self.dropout = dropout

    def forward(self, x: Tensor, *graph: Tensor) -> Tensor:
        """Return log-probabilities [N, classes] for features [N, F] and the view's inputs."""
        prepared = self._prepare(graph)
        for number, layer in enumerate(self.layers):
            if number > 0:  # the features' dropout is the trainer's
                x = functional.dropout(x, self.dropout, self.training)
            h = layer.linear(x)
            dense = isinstance(self.view, GraphMatrix)
            x = (self._all_pairs if dense else self._along_edges)(layer, prepared, h) + layer.bias
            if number + 1 < len(self.layers):
                x = functional.elu(x)
        return torch.log_softmax(x, dim=1)

    def _prepare(self, graph: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return source and target of the edges, or the masks that the masking takes."""
        if not isinstance(self.view, GraphMatrix):
            return self.view.prepare(*graph)
        if isinstance(self.view, MatrixView) and self.masking != "select":
            return self.view.matrices(*graph)  # finished masks
        adjacency = self.view.matrix(*graph)
        if self.masking == "select":
            return (adjacency > 0,)
        negative = (adjacency - 1.0) * self.lowered
        return (adjacency, negative) if self.masking == "arithmetic" else (negative,)

    def _all_pairs(self, layer: _Layer, masks: tuple[Tensor, ...], h: Tensor) -> Tensor:
        nodes, width = h.shape
        source, target = layer.source[0], layer.target[0]
        if layer.heads > 1:
            h = h.reshape(nodes, layer.heads, layer.each).transpose(0, 1)
            source, target = layer.source, layer.target
        to, since = (torch.matmul(h, weight.transpose(-1, -2)) for weight in (target, source))
        scores = masked(scores_of(to, since, self.scores), masks, self.masking)
        weights = functional.dropout(torch.softmax(scores, dim=-1), self.dropout, self.training)
        mixed = torch.matmul(weights, h)
        return mixed if layer.heads == 1 else mixed.transpose(0, 1).reshape(nodes, width)

    def _along_edges(self, layer: _Layer, ends: tuple[Tensor, ...], h: Tensor) -> Tensor:
        source, target = ends
        nodes, width = h.shape
        h = h.reshape(nodes, layer.heads, layer.each)
        from_source = (h * layer.source.transpose(0, 1)).sum(dim=2)
        from_target = (h * layer.target.transpose(0, 1)).sum(dim=2)
        scores = from_source.index_select(0, source) + from_target.index_select(0, target)
        scores = functional.leaky_relu(scores, SLOPE)
        most = scatter_rows(scores, target, nodes, "max")
        raised = (scores - most.index_select(0, target)).exp()
        weights = raised / scatter_rows(raised, target, nodes).index_select(0, target)
        weights = functional.dropout(weights, self.dropout, self.training)
        messages = h.index_select(0, source) * weights.unsqueeze(2)
        return scatter_rows(messages, target, nodes).reshape(nodes, width)
