"""GAT, GraphSAGE, and networks by Eq. 1 of GCNP as PyTorch modules.

GAT works along edges, or scores each pair of nodes, where absent edges are masked by Select. Target scores
[.., N, 1] belong to the rows of the softmax, source scores [.., 1, N] to its columns. GraphSAGE samples its
neighbours beforehand.

A network by Eq. 1 has branches of powers of the adjacency; a GCN has one branch of power 1. A pruned network
has narrower weights, and a branch that reads fewer channels picks them by index.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from npusim.gnn_models.views import EdgeView, GraphMatrix, View, scatter_rows
from npusim.workloads.gnn.spec import Layer, attention_layers

MASKED = -9e15
"""Stands for minus infinity where a score is replaced."""
SLOPE = 0.2
"""Slope of LeakyReLU below zero (Velickovic et al., 2018)."""


class _Attention(nn.Module):
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


class Network(nn.Module):
    """Layers with an activation behind all but the last; log-probabilities as the result.

    A subclass computes `layer`, and sets `how` its view aggregates, and `dropouts`, the rates for the inputs
    of each layer; the trainer applies the first one, `dropout`, to the features.
    """

    view: View
    how: str
    dropouts: tuple[float, ...]

    def forward(self, x: Tensor, *graph: Tensor) -> Tensor:
        """Return log-probabilities [N, classes] for features [N, F] and the view's inputs."""
        prepared = self.prepare(graph)
        results: list[Tensor] = []
        for i, rate in enumerate(self.dropouts):
            x = self.joined(i, x, results)
            if i > 0:
                x = functional.dropout(x, rate, self.training)
            x = self.layer(i, x, prepared)
            if i + 1 < len(self.dropouts):
                x = self.activation(x)
            results.append(x)
        return torch.log_softmax(x, dim=1)

    def prepare(self, graph: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the tensors that every aggregation needs, from the view's inputs."""
        return self.view.operands(self.how, *graph)

    def aggregate(self, prepared: tuple[Tensor, ...], x: Tensor) -> Tensor:
        """Return the aggregated features of each node's neighbours, [N, F]."""
        return self.view.aggregate(self.how, prepared, x)

    def activation(self, x: Tensor) -> Tensor:
        """Return the result of the activation between layers."""
        return torch.relu(x)

    def joined(self, i: int, x: Tensor, results: list[Tensor]) -> Tensor:
        """Return the input of layer `i`, from the result of the layer before and of all layers."""
        return x


class GAT(Network):
    """Graph attention; with a matrix all pairs are scored and masked."""

    def __init__(self, widths: list[tuple[int, int]], heads: int, view: View, dropout: float = 0.6) -> None:
        super().__init__()
        last = len(widths) - 1
        self.plan = attention_layers(widths, heads)
        self.layers = nn.ModuleList(
            _Attention(i, o, heads if n < last else 1) for n, (i, o) in enumerate(widths)
        )
        self.view, self.dropout, self.dropouts = view, dropout, (dropout,) * len(widths)

    def activation(self, x: Tensor) -> Tensor:
        """Return the result of the activation between layers."""
        return functional.elu(x)

    def layer(self, i: int, x: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
        """Return the result of layer `i` before its activation."""
        layer = self.layers[i]
        h = layer.linear(x)
        dense = isinstance(self.view, GraphMatrix)
        result: Tensor = (self._all_pairs if dense else self._along_edges)(layer, prepared, h) + layer.bias
        return result

    def prepare(self, graph: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return source and target of the edges, or who is linked, [N, N]."""
        if isinstance(self.view, EdgeView):
            return self.view.prepare(*graph)
        assert isinstance(self.view, GraphMatrix), "neighbours side by side are for GraphSAGE"
        return (self.view.matrix(*graph) > 0,)

    def _all_pairs(self, layer: _Attention, linked: tuple[Tensor, ...], h: Tensor) -> Tensor:
        nodes, width = h.shape
        source, target = layer.source[0], layer.target[0]
        if layer.heads > 1:
            h = h.reshape(nodes, layer.heads, layer.each).transpose(0, 1)
            source, target = layer.source, layer.target
        to, since = (torch.matmul(h, weight.transpose(-1, -2)) for weight in (target, source))
        scores = functional.leaky_relu(to + since.transpose(-1, -2), SLOPE)
        present = torch.where(linked[0], scores, torch.full_like(scores, MASKED))
        weights = functional.dropout(torch.softmax(present, dim=-1), self.dropout, self.training)
        mixed = torch.matmul(weights, h)
        return mixed if layer.heads == 1 else mixed.transpose(0, 1).reshape(nodes, width)

    def _along_edges(self, layer: _Attention, ends: tuple[Tensor, ...], h: Tensor) -> Tensor:
        source, target = ends
        nodes, width = h.shape
        h = h.reshape(nodes, layer.heads, layer.each)
        weights = functional.dropout(self.edge_weights(layer, ends, h), self.dropout, self.training)
        messages = h.index_select(0, source) * weights.unsqueeze(2)
        return scatter_rows(messages, target, nodes).reshape(nodes, width)

    @staticmethod
    def edge_weights(layer: _Attention, ends: tuple[Tensor, ...], h: Tensor) -> Tensor:
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


class SparseMaximum(nn.Module):
    """Maximum over neighbours of features that are not negative and nearly all zeros.

    Only cells in which some neighbour has a non-zero can have a maximum other than 0: a hundred times fewer
    than all. `places` are the indices of the non-zero features [2, Z], rows in ascending order; `ends` source
    and target of each edge [E].
    """

    which: Tensor
    cell: Tensor
    cells: Tensor

    def __init__(self, places: Tensor, ends: tuple[Tensor, Tensor], shape: tuple[int, int]) -> None:
        super().__init__()
        source, target = ends
        self.shape = shape
        rows = torch.arange(shape[0] + 1)
        start = torch.searchsorted(places[0].contiguous(), rows)
        length = (start[1:] - start[:-1]).index_select(0, source)
        first = torch.cumsum(length, 0) - length
        within = torch.arange(int(length.sum())) - torch.repeat_interleave(first, length)
        which = torch.repeat_interleave(start.index_select(0, source), length) + within
        key = torch.repeat_interleave(target, length) * shape[1] + places[1].index_select(0, which)
        cells, cell = torch.unique(key, return_inverse=True)
        cells = torch.stack([cells // shape[1], cells % shape[1]])
        for name, value in (("which", which), ("cell", cell), ("cells", cells)):
            self.register_buffer(name, value, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the maxima of sparse features [N, F] as a sparse matrix [N, F]."""
        values = x.coalesce().values().index_select(0, self.which)
        most = torch.zeros(self.cells.shape[1]).scatter_reduce(0, self.cell, values, "amax")
        return torch.sparse_coo_tensor(
            self.cells, most, self.shape, is_coalesced=True, check_invariants=False
        )


class SAGE(Network):
    """GraphSAGE: (aggregate(x) W^T + b) + x W_root^T per layer, as in PyTorch Geometric's SAGEConv.

    `maximum` takes the neighbours' maximum instead of their mean. A matrix as the view serves the mean only.
    """

    def __init__(
        self,
        widths: list[tuple[int, int]],
        view: View,
        maximum: bool,
        aggregate_first: bool,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.neighbours = nn.ModuleList(nn.Linear(i, o) for i, o in widths)
        self.root = nn.ModuleList(nn.Linear(i, o, bias=False) for i, o in widths)
        self.view, self.maximum, self.how = view, maximum, "max" if maximum else "mean"
        self.aggregate_first, self.dropout = aggregate_first, dropout
        self.dropouts = (dropout,) * len(widths)
        self.sparse_maximum: SparseMaximum | None = None
        """Maximum of sparse features; training sets it."""

    def layer(self, i: int, x: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
        """Return the result of layer `i` before its activation."""
        linear = self.neighbours[i]
        if self.aggregate_first:
            mixed: Tensor = linear(self.aggregate(prepared, x))
        else:
            mixed = self.aggregate(prepared, linear(x))
        return mixed + self.root[i](x)

    def take_sparse(self, features: Tensor) -> None:
        """Prepare the maximum of features with the sparsity of `features` [N, F]."""
        if self.maximum and self.aggregate_first and isinstance(self.view, EdgeView):
            ends = self.view.prepare(*self.view.example.values())
            nodes, width = features.shape
            self.sparse_maximum = SparseMaximum(features.indices(), ends, (nodes, width))

    def aggregate(self, prepared: tuple[Tensor, ...], x: Tensor) -> Tensor:
        """Return the aggregated features of each node's neighbours, [N, F]."""
        if x.is_sparse and self.sparse_maximum is not None:
            return self.sparse_maximum(x)
        return super().aggregate(prepared, x)


class Propagation(Network):
    """A network by Eq. 1.

    Parameters
    ----------
    mean : bool
        Whether neighbours are averaged; otherwise GCN's weights apply, which the view's matrix holds.
    columns : mapping of (layer, branch) to Tensor, optional
        Channels that a branch reads where it does not read all of them.
    transform_first : bool
        Whether a branch multiplies before it aggregates.
    bias : bool
        Whether branches have a bias, added where they multiply; a dense layer always has one.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        view: View,
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
        self.plan, self.view, self.mean, self.how = tuple(layers), view, mean, "mean" if mean else "norm"
        self.transform_first, self.bias = transform_first, bias
        self.jumping, self.normalise = jumping, normalise
        self.dropouts = (dropout,) * len(self.plan) if isinstance(dropout, float) else tuple(dropout)
        self.dropout = self.dropouts[0]
        self.layers = nn.ModuleList(
            nn.ModuleList(
                nn.Linear(branch.inputs, branch.outputs, bias or not layer.propagates)
                for branch in layer.branches
            )
            for layer in layers
        )
        self.picked = set(columns or ())
        for (i, b), channels in (columns or {}).items():
            self.register_buffer(f"columns_{i}_{b}", channels)

    def joined(self, i: int, x: Tensor, results: list[Tensor]) -> Tensor:
        """Return the input of layer `i`: of a dense layer all results so far (jumping), normalised."""
        if self.plan[i].propagates:
            return x
        x = torch.cat(results, dim=1) if self.jumping else x
        return functional.normalize(x, dim=1) if self.normalise else x

    def layer(self, i: int, x: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
        """Return the result of layer `i` before its activation."""
        parts = [self.branch(i, b, x, prepared) for b in range(len(self.plan[i].branches))]
        if self.plan[i].average:
            return sum(parts[1:], parts[0]) * (1.0 / len(parts))
        return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]

    def branch(self, i: int, b: int, x: Tensor, prepared: tuple[Tensor, ...]) -> Tensor:
        """Return the result of one branch of layer `i`."""
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
            x = self.aggregate(prepared, x)
        return x
