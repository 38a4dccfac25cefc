"""The GAT as a PyTorch module, in each form that npusim costs.

Scores are computed for each pair of nodes, or from two vectors (GrAx2). Absent edges are masked by Select, by
multiplying and adding a mask (EffOp), or by adding alone (GrAx1).

Shapes: target scores [.., N, 1] belong to the rows of the softmax, source scores [.., 1, N] to its columns.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional

from npusim.accuracy.views import EdgeView, GraphMatrix, MatrixView, scatter_rows
from npusim.workloads.gnn.spec import attention_layers

MASKED = -9e15
"""What stands for minus infinity where a score is replaced."""
LOWERED = 1e4
"""What an absent edge's score is lowered by where scores are masked by arithmetic: fp16 ends at 65504."""
SLOPE = 0.2
"""Slope of LeakyReLU below zero (Velickovic et al., 2018)."""


def scores_of(target: Tensor, source: Tensor, form: str) -> Tensor:
    """Return attention scores behind LeakyReLU.

    Parameters
    ----------
    target, source : Tensor
        A score of each node in either role, [.., N, 1] both.
    form : str
        `pairs`: added by broadcasting, [.., N, N]; `rank2`: the same as [d, 1] [1, s]^T (GrAx2), exact;
        `literal`: added as vectors, [.., N, 1], so that a row of the softmax is constant (GrAx2);
        `source`: the source's score alone, [.., 1, N] (GrAx2).
    """
    across = source.transpose(-1, -2)
    if form == "literal":
        scores = target + source
    elif form == "source":
        scores = across
    elif form == "rank2":
        one = _ones(target.shape)
        left = torch.cat([target, one], dim=-1)
        right = torch.cat([one.transpose(-1, -2), across], dim=-2)
        scores = torch.matmul(left, right)
    else:
        scores = target + across
    return functional.leaky_relu(scores, SLOPE)


def masked(scores: Tensor, masks: tuple[Tensor, ...], masking: str) -> Tensor:
    """Return scores [.., N, N] in which absent pairs count for nothing.

    Parameters
    ----------
    scores : Tensor
        [.., N, N], [.., N, 1] or [.., 1, N].
    masks : tuple of Tensor
        `select`: the condition [N, N]; `arithmetic`: the 0/1 mask and what is added; `additive`: what is
        added.
    masking : str
        `select`: absent scores are replaced; `arithmetic`: multiplied by 0 and lowered (EffOp); `additive`:
        lowered only (GrAx1).
    """
    if masking == "additive":
        return scores + masks[0]
    if masking == "arithmetic":
        return scores * masks[0] + masks[1]
    shape = (*scores.shape[:-2], *masks[0].shape[-2:])
    absent = torch.full_like(scores.expand(shape), MASKED)
    return torch.where(masks[0], scores, absent)


def _ones(shape: torch.Size) -> Tensor:
    """Return ones that a traced module holds as a constant: a trace must know the sizes as plain numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # it says what is meant here
        return torch.ones([int(size) for size in shape])


class _Layer(nn.Module):
    """Parameters of one layer: transformation, one score vector per head for source and target, bias."""

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
    view : View
        How it sees the graph; with a matrix all pairs are scored and masked.
    masking : str
        `select`, `arithmetic` (EffOp) or `additive` (GrAx1), as for `npusim.accuracy.gat.masked`.
    scores : str
        `pairs`, or one of GrAx2's forms, as for `npusim.accuracy.gat.scores_of`.
    lowered : float
        What masking by arithmetic lowers the score of an absent edge by.
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
        self.plan = attention_layers(widths, heads)
        self.layers = nn.ModuleList(_Layer(i, o, heads if n < last else 1) for n, (i, o) in enumerate(widths))
        self.view = view
        self.masking = masking
        self.scores = scores
        self.lowered = lowered
        self.dropout = dropout

    def forward(self, x: Tensor, *graph: Tensor) -> Tensor:
        """Return log-probabilities [N, classes] for features [N, F] and the view's inputs."""
        prepared = self.prepare(graph)
        for number in range(len(self.layers)):
            if number > 0:  # the features' dropout is the trainer's
                x = functional.dropout(x, self.dropout, self.training)
            x = self.layer(number, x, prepared)
            if number + 1 < len(self.layers):
                x = functional.elu(x)
        return torch.log_softmax(x, dim=1)

    def layer(self, i: int, x: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
        """Return what layer `i` makes of `x`, before its activation."""
        layer = self.layers[i]
        h = layer.linear(x)
        dense = isinstance(self.view, GraphMatrix)
        found: Tensor = (self._all_pairs if dense else self._along_edges)(layer, prepared, h) + layer.bias
        return found

    def prepare(self, graph: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
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
        weights = functional.dropout(self.edge_weights(layer, ends, h), self.dropout, self.training)
        messages = h.index_select(0, source) * weights.unsqueeze(2)
        return scatter_rows(messages, target, nodes).reshape(nodes, width)

    @staticmethod
    def edge_weights(layer: _Layer, ends: tuple[Tensor, ...], h: Tensor) -> Tensor:
        """Return the attention of each edge, [E, heads], for transformed features [N, heads, each]."""
        source, target = ends
        nodes = h.shape[0]
        from_source = (h * layer.source.transpose(0, 1)).sum(dim=2)
        from_target = (h * layer.target.transpose(0, 1)).sum(dim=2)
        scores = from_source.index_select(0, source) + from_target.index_select(0, target)
        scores = functional.leaky_relu(scores, SLOPE)
        most = scatter_rows(scores, target, nodes, "max")
        raised = (scores - most.index_select(0, target)).exp()
        return raised / scatter_rows(raised, target, nodes).index_select(0, target)
