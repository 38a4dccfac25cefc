"""Channel pruning of a trained GNN (GCNP, section 3): masks by LASSO, weights refitted.

For a layer with branches Y_k = A^k h W_k the masks beta, one for all branches, minimise

    sum over k of |Y_k - (A^k h * beta) W_k|^2 + penalty |beta|_1

under a penalty that rises until the budget is met. The channels with the largest masks stay. Each branch's
weights are fitted to its old result again, near the old weights where the training graph gives no evidence.
Only training nodes and the graph between them are read: masks need no labels. Baselines choose channels at
random, or by the L1 norm of the weights that read them.

A head of a GAT is a branch (section 3.2). Head k of a layer computes Y_k = P_k h W_k. Its attention P_k is
that of the trained network on the training graph, so that Y_k is linear in the masks and in W_k. One mask
serves all heads. Each head of the layer before keeps equally many channels, its best ones: heads run as one
batched product [heads, N, N] x [heads, N, width], which has one width. A removed channel also leaves its
head's scores, so the score vectors are fitted to the old scores again.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from npusim.gnn_models.networks import GAT, Propagation, layer_propagates
from npusim.gnn_models.planetoid import GraphData
from npusim.gnn_models.views import EdgeView, GraphMatrix, MatrixView, dense_adjacency
from npusim.workloads.gnn.spec import Layer, Pruning, check_budget, kept_channels

Method = Literal["lasso", "random", "max-response"]
"""How channels are chosen."""
METHODS: tuple[Method, ...] = get_args(Method)

_RISE, _FIRST = 1.05, 1e-3
"""Growth factor of the penalty; first penalty, relative to that which clears all masks at once."""
_MAX_STEPS, _CONVERGED = 100, 1e-3
"""Most steps under one penalty; change of the masks in a step below which they have converged."""
_RIDGE = 1e-3
"""Ridge weight of a refit, relative to the mean square of a channel."""


@dataclass(frozen=True, slots=True)
class Reads:
    """Inputs of a layer's branches on the training graph, and the branches' weights."""

    features: tuple[Tensor, ...]
    """A^k h of each branch, [rows, channels]."""
    weights: tuple[Tensor, ...]
    """W_k of each branch, [outputs, channels]."""

    def loss(self, kept: Tensor, weights: Sequence[Tensor]) -> float:
        """Return the squared error of the results with the kept channels over the squared results."""
        error = total = 0.0
        for x, old, new in zip(self.features, self.weights, weights, strict=True):
            wanted = x @ old.T
            error += float((wanted - x[:, kept] @ new.T).square().sum())
            total += float(wanted.square().sum())
        return error / total if total else 0.0


def masks(reads: Reads, keep: int) -> Tensor:
    """Return the masks of a layer's channels by LASSO, [channels]; at least `keep` are not zero.

    The penalty rises from nearly zero to the largest one that leaves `keep` masks. Under each penalty,
    accelerated proximal steps move the masks to the minimum of the squared error of all rows (Beck and
    Teboulle, FISTA, SIAM J. Imaging Sciences 2(1), 2009).
    """
    matrix = _quadratic(reads)
    target = matrix.sum(dim=1)  # all masks 1 give the old results
    step = 0.5 / max(float(torch.linalg.matrix_norm(matrix, 2)), 1e-12)
    beta, penalty = torch.ones(len(target)), _FIRST * 2.0 * float(target.abs().max())
    while penalty > 0.0:
        new = _minimised(matrix, target, beta, step, penalty)
        if int((new != 0).sum()) < keep:
            break
        beta = new
        penalty *= _RISE
    return beta


def _minimised(matrix: Tensor, target: Tensor, beta: Tensor, step: float, penalty: float) -> Tensor:
    """Return the masks that minimise the squared error with a penalty, starting from `beta`."""
    ahead, momentum = beta, 1.0
    for _ in range(_MAX_STEPS):
        new = ahead - step * 2.0 * (matrix @ ahead - target)
        new = torch.sign(new) * torch.relu(new.abs() - step * penalty)
        following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
        ahead = new + (momentum - 1.0) / following * (new - beta)
        moved = float((new - beta).abs().max())
        beta, momentum = new, following
        if moved < _CONVERGED:
            break
    return beta


def _quadratic(reads: Reads) -> Tensor:
    """Return the matrix of the squared error in the masks, [channels, channels]."""
    channels = reads.features[0].shape[1]
    matrix = torch.zeros(channels, channels)
    for x, weight in zip(reads.features, reads.weights, strict=True):
        matrix += (x.T @ x) * (weight.T @ weight)
    return matrix


def chosen(reads: Reads, keep: int, method: Method, seed: int) -> Tensor:
    """Return a score for each channel, [channels]: the channels with the largest scores stay."""
    if method == "random":
        return torch.rand(reads.features[0].shape[1], generator=torch.Generator().manual_seed(seed))
    response = sum(w.abs().sum(dim=0) for w in reads.weights)
    assert isinstance(response, Tensor)
    if method == "max-response":
        return response
    # The weights rank channels whose masks are cleared before the budget is met.
    return masks(reads, keep).abs() + 1e-9 * response / response.max().clamp(min=1e-30)


def refitted(reads: Reads, kept: Tensor) -> tuple[Tensor, ...]:
    """Return each branch's weights on the kept channels, [outputs, kept]: least squares near the old ones."""
    branches = zip(reads.features, reads.weights, strict=True)
    return tuple(fitted(x[:, kept], old[:, kept], x @ old.T) for x, old in branches)


def fitted(x: Tensor, start: Tensor, wanted: Tensor) -> Tensor:
    """Return weights [outputs, channels] near `start` that map `x` to `wanted` [rows, outputs]."""
    missing = wanted - x @ start.T
    gram = x.T @ x
    ridge = _RIDGE * float(gram.diagonal().mean()) + 1e-9
    return start + torch.linalg.solve(gram + ridge * torch.eye(x.shape[1]), x.T @ missing).T


@dataclass(frozen=True, slots=True)
class Pruned:
    """A pruned network before further training."""

    module: Propagation | GAT
    cut: Propagation | GAT
    """The same channels with the old weights, not refitted."""
    kept: Mapping[int, tuple[int, ...]]
    """Input channels that layer i keeps, by their number in the trained network."""
    seconds: float
    """Time of the pruning (s)."""


def training_edges(data: GraphData) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges [2, E] between training nodes, and the mask of these nodes [N]."""
    known = ~(data.valid | data.test)
    place = np.cumsum(known) - 1
    inside = known[data.edge_index].all(axis=0)
    return place[data.edge_index[:, inside]], known


def on_training_graph(module: Propagation, data: GraphData) -> tuple[Propagation, Tensor]:
    """Return the module on the graph between the training nodes, and these nodes' features."""
    edges, known = training_edges(data)
    kind, loops = ("mean", False) if module.mean else ("norm", True)
    view = MatrixView({kind: dense_adjacency(edges, int(known.sum()), loops, kind)}, constant=True)
    small = like(module, module.plan, view, columns_of(module))
    small.load_state_dict(module.state_dict())
    small.eval()
    return small, torch.from_numpy(data.x[known])


def like(
    module: Propagation,
    layers: Sequence[Layer],
    view: EdgeView | GraphMatrix,
    columns: Mapping[tuple[int, int], Tensor] | None = None,
) -> Propagation:
    """Return a module of the same kind with other channels and another view of the graph.

    Fewer connections overfit less: dropout scales with the root of a layer's remaining share (Han et al.,
    Learning both Weights and Connections for Efficient Neural Networks, NIPS 2015, section 3.2).
    """
    shares = (new.parameters / old.parameters for new, old in zip(layers, module.plan, strict=True))
    dropout = [rate * math.sqrt(share) for rate, share in zip(module.dropouts, shares, strict=True)]
    keywords = {"bias": module.bias, "jumping": module.jumping, "normalise": module.normalise}
    return Propagation(
        layers, view, module.mean, columns, module.transform_first, dropout=dropout, **keywords
    )


def columns_of(module: Propagation) -> dict[tuple[int, int], Tensor]:
    """Return the channels that branches pick by index."""
    return {(i, b): module.get_buffer(f"columns_{i}_{b}") for i, b in module.picked}


@torch.no_grad()
def inputs_of(module: Propagation, x: Tensor) -> list[Tensor]:
    """Return the inputs of each layer, [rows, channels] each."""
    prepared = module.prepare(())
    inputs: list[Tensor] = []
    results: list[Tensor] = []
    for i, layer in enumerate(module.plan):
        if not layer_propagates(layer) and module.jumping:
            x = torch.cat(results, dim=1)
        if not layer_propagates(layer) and module.normalise:
            x = torch.nn.functional.normalize(x, dim=1)
        inputs.append(x)
        x = torch.relu(module.layer(i, x, prepared))
        results.append(x)
    return inputs


def reads_of(
    module: Propagation, i: int, x: Tensor, outputs: Mapping[int, Tensor], branches: Sequence[int]
) -> Reads:
    """Return the inputs of branches of a layer, and the weights of the outputs that stay."""
    prepared = module.prepare(())
    features, weights = [], []
    with torch.no_grad():
        for b in branches:
            features.append(module.power(module.read(i, b, x), module.plan[i].branches[b].order, prepared))
            weight = module.layers[i][b].weight.detach()
            weights.append(weight[outputs[b]] if b in outputs else weight)
    return Reads(tuple(features), tuple(weights))


def split(kept: Tensor, layer: Layer) -> dict[int, Tensor]:
    """Return the outputs of each branch of a layer among the next layer's kept channels."""
    if layer.average:
        return dict.fromkeys(range(len(layer.branches)), kept)
    outputs, start = {}, 0
    for b, branch in enumerate(layer.branches):
        outputs[b] = _within(kept, start, branch.outputs)
        start += branch.outputs
    return outputs


def _within(kept: Tensor, start: int, width: int) -> Tensor:
    """Return the channels from `start` on, counted from there."""
    return kept[(kept >= start) & (kept < start + width)] - start


def best(scores: Tensor, layer: Layer, keep: int, multiple: int) -> Tensor:
    """Return the channels with the best scores, in order: a multiple per branch, and at least one."""
    order = scores.argsort(descending=True)[: min(keep, len(scores))]
    if layer.average:
        return order.sort().values
    channels, start = [], 0
    for branch in layer.branches:
        width = branch.outputs
        count = len(_within(order, start, width))
        count = min(width, max(multiple, round(count / multiple) * multiple))
        channels.append(start + scores[start : start + width].argsort(descending=True)[:count])
        start += width
    return torch.cat(channels).sort().values


def prune(
    module: Propagation, data: GraphData, pruning: Pruning, method: Method = "lasso", seed: int = 0
) -> Pruned:
    """Prune a trained network, which stays as it is.

    Raises
    ------
    ConfigError
        Where the budget or the scheme does not fit the network.
    """
    check_budget(module.plan, pruning)
    began = time.perf_counter()
    small, x = on_training_graph(module, data)
    pruned = _Pruner(small, inputs_of(small, x), pruning, method, seed).run(module)
    return replace(pruned, seconds=time.perf_counter() - began)


class _Pruner:
    """Prunes layer after layer, from the last."""

    def __init__(
        self, small: Propagation, inputs: list[Tensor], pruning: Pruning, method: Method, seed: int
    ) -> None:
        self.small, self.inputs, self.pruning = small, inputs, pruning
        self.method, self.seed = method, seed
        self.plan = small.plan
        self.kept: dict[int, Tensor] = {}
        """Input channels that stay, by layer."""
        self.attributes: dict[int, Tensor] = {}
        """Attributes that a branch of layer 1 reads, by branch."""
        self.weights: dict[tuple[int, int], Tensor] = {}
        self.cut: dict[tuple[int, int], Tensor] = {}
        """Old weights of the channels that stay."""

    def run(self, module: Propagation) -> Pruned:
        """Return the pruned network on the whole graph."""
        last = len(self.plan) - 1
        if self.small.jumping:
            self._jumping(last)
        else:
            for i in range(last if self.pruning.scheme == "full" else 1, 0, -1):
                self._layer(i, self.plan[i - 1])
        for i in range(last + 1):
            self._refit(i)
        if self.pruning.scheme == "batched":
            self._neighbours()
        kept = {i: tuple(channels.tolist()) for i, channels in self.kept.items()}
        return Pruned(self._module(module, self.weights), self._module(module, self.cut), kept, 0.0)

    def _layer(self, i: int, before: Layer) -> None:
        quota = sum(kept_channels(b.outputs, self.pruning) for b in before.branches)
        quota = quota if not before.average else kept_channels(before.outputs, self.pruning)
        reads = self._reads(i)
        scores = chosen(reads, quota, self.method, self.seed + i)
        self.kept[i] = best(scores, before, quota, self.pruning.multiple)

    def _jumping(self, last: int) -> None:
        """Choose the channels of all layers by the classifier that reads them side by side."""
        together = Layer(tuple(b for layer in self.plan[:last] for b in layer.branches), 0)
        self._layer(last, together)
        start = 0
        for i in range(1, last):
            width = self.plan[i - 1].outputs
            self.kept[i] = _within(self.kept[last], start, width)
            start += width

    def _outputs(self, i: int) -> dict[int, Tensor]:
        """Return the outputs of each branch of a layer that stay; empty: all."""
        last = len(self.plan) - 1
        if self.small.jumping and i < last and last in self.kept:
            start = sum(layer.outputs for layer in self.plan[:i])
            return split(_within(self.kept[last], start, self.plan[i].outputs), self.plan[i])
        return split(self.kept[i + 1], self.plan[i]) if i + 1 in self.kept else {}

    def _reads(self, i: int) -> Reads:
        branches = range(len(self.plan[i].branches))
        return reads_of(self.small, i, self.inputs[i], self._outputs(i), branches)

    def _refit(self, i: int) -> None:
        reads = self._reads(i)
        kept = self.kept.get(i, slice(None))
        new = refitted(reads, self.kept[i]) if i in self.kept else reads.weights
        self.weights.update({(i, b): weight for b, weight in enumerate(new)})
        self.cut.update({(i, b): weight[:, kept] for b, weight in enumerate(reads.weights)})

    def _neighbours(self) -> None:
        """Prune the attributes that the neighbours' branches of layer 1 read, but not below their outputs."""
        layer, outputs = self.plan[0], self._outputs(0)
        for b, branch in enumerate(layer.branches):
            if not branch.order:
                continue
            reads = reads_of(self.small, 0, self.inputs[0], outputs, [b])
            keep = max(kept_channels(branch.inputs, self.pruning), reads.weights[0].shape[0])
            if keep >= branch.inputs:
                continue
            scores = chosen(reads, keep, self.method, self.seed)
            self.attributes[b] = scores.argsort(descending=True)[:keep].sort().values
            self.weights[0, b] = refitted(reads, self.attributes[b])[0]
            self.cut[0, b] = reads.weights[0][:, self.attributes[b]]

    def _module(self, module: Propagation, weights: Mapping[tuple[int, int], Tensor]) -> Propagation:
        """Return the pruned network with the given weights."""
        layers = []
        for i, layer in enumerate(self.plan):
            inputs = len(self.kept[i]) if i in self.kept else layer.inputs
            branches = tuple(
                branch.model_copy(update=_sizes(weights[i, b])) for b, branch in enumerate(layer.branches)
            )
            layers.append(Layer(branches, inputs, layer.average))
        columns = {(0, b): channels for b, channels in self.attributes.items()}
        pruned = like(module, layers, module.view, columns)
        with torch.no_grad():
            for (i, b), weight in weights.items():
                pruned.layers[i][b].weight.copy_(weight)
                bias = module.layers[i][b].bias
                if bias is not None:
                    kept = self._outputs(i).get(b)
                    pruned.layers[i][b].bias.copy_(bias if kept is None else bias[kept])
        return pruned


def _sizes(weight: Tensor, branches: int = 1) -> dict[str, int]:
    return {"inputs": weight.shape[1], "outputs": weight.shape[0] // branches}


Parameters = Mapping[tuple[int, str], Tensor]
"""Weights, score vectors and biases of a pruned network, by layer and name."""


def attention_on_training_graph(module: GAT, data: GraphData) -> tuple[GAT, Tensor]:
    """Return the module along the edges between the training nodes, and these nodes' features."""
    edges, known = training_edges(data)
    view = EdgeView(edges, int(known.sum()), add_loops=True)
    return attention_like(module, module.plan, view).eval(), torch.from_numpy(data.x[known])


def attention_like(module: GAT, layers: Sequence[Layer], view: EdgeView) -> GAT:
    """Return a module with other channels and view; it shares the parameters where channels are the same.

    Dropout, one rate for all layers, scales as in `like`.
    """
    widths = [(layer.inputs, layer.outputs) for layer in layers]
    new, old = (sum(layer.parameters for layer in each) for each in (layers, module.plan))
    other = GAT(widths, len(layers[0].branches), view, dropout=module.dropout * math.sqrt(new / old))
    if tuple(layers) == module.plan:
        other.load_state_dict(module.state_dict())
    return other


@torch.no_grad()
def attention_inputs(module: GAT, x: Tensor) -> list[Tensor]:
    """Return the inputs of each layer, [rows, channels] each."""
    prepared = module.prepare(tuple(module.view.example.values()))
    inputs = []
    for i in range(len(module.layers)):
        inputs.append(x)
        x = functional.elu(module.layer(i, x, prepared))
    return inputs


def attention_reads(module: GAT, i: int, x: Tensor, outputs: Tensor | None = None) -> Reads:
    """Return the inputs of each head weighted by its attention, and the weights of the outputs that stay."""
    layer, view = module.layers[i], module.view
    ends = module.prepare(tuple(view.example.values()))
    with torch.no_grad():
        h = layer.linear(x).reshape(len(x), layer.heads, layer.each)
        weights = module.edge_weights(layer, ends, h)
    messages = x.index_select(0, ends[0])
    features = []
    for head in range(layer.heads):
        blank = torch.zeros(len(x), x.shape[1])
        features.append(blank.index_add(0, ends[1], messages * weights[:, head : head + 1]))
    stay = torch.arange(layer.heads * layer.each) if outputs is None else outputs
    rows = layer.linear.weight.detach()
    parts = (rows[stay[stay // layer.each == head]] for head in range(layer.heads))
    return Reads(tuple(features), tuple(parts))


def prune_attention(
    module: GAT, data: GraphData, pruning: Pruning, method: Method = "lasso", seed: int = 0
) -> Pruned:
    """Prune a trained GAT along edges, which stays as it is; errors as for `prune`."""
    check_budget(module.plan, pruning)
    began = time.perf_counter()
    small, x = attention_on_training_graph(module, data)
    inputs = attention_inputs(small, x)
    kept: dict[int, Tensor] = {}
    for i in range(len(module.plan) - 1, 0, -1):
        before = module.plan[i - 1]
        each = kept_channels(before.branches[0].outputs, pruning)
        reads = attention_reads(small, i, inputs[i], kept.get(i + 1))
        scores = chosen(reads, each * len(before.branches), method, seed + i)
        kept[i] = _best_of_heads(scores, len(before.branches), each)
    cut, fit = (_parameters(small, inputs, kept, refit) for refit in (False, True))
    channels = {i: tuple(tensor.tolist()) for i, tensor in kept.items()}
    seconds = time.perf_counter() - began
    return Pruned(_with_parameters(module, fit), _with_parameters(module, cut), channels, seconds)


def _best_of_heads(scores: Tensor, heads: int, each: int) -> Tensor:
    """Return the channels with the best scores of each head, in order."""
    width = len(scores) // heads
    order = scores.reshape(heads, width).argsort(dim=1, descending=True)[:, :each]
    return (order + width * torch.arange(heads).unsqueeze(1)).flatten().sort().values


@torch.no_grad()
def _parameters(small: GAT, inputs: Sequence[Tensor], kept: Mapping[int, Tensor], refit: bool) -> Parameters:
    """Return the parameters of the channels that stay, refitted to the old results or unchanged."""
    parameters: dict[tuple[int, str], Tensor] = {}
    for i, layer in enumerate(small.layers):
        x, each = inputs[i], layer.each
        channels = kept.get(i, torch.arange(x.shape[1]))
        outputs = kept.get(i + 1, torch.arange(layer.heads * each))
        reads = attention_reads(small, i, x, kept.get(i + 1))
        fit = refit and i in kept
        new = refitted(reads, channels) if fit else [w[:, channels] for w in reads.weights]
        parameters[i, "linear.weight"] = torch.cat(list(new))
        parameters[i, "bias"] = layer.bias[outputs]
        for name in ("source", "target"):
            vectors = getattr(layer, name).flatten()
            parts = []
            for head, weight in enumerate(new):
                mine = outputs[outputs // each == head]
                vector = vectors[mine].unsqueeze(0)
                if refit:
                    rows = slice(head * each, (head + 1) * each)
                    wanted = x @ (layer.linear.weight[rows].T @ vectors[rows]).unsqueeze(1)
                    vector = fitted(x[:, channels] @ weight.T, vector, wanted)
                parts.append(vector)
            parameters[i, name] = torch.stack(parts)
    return parameters


def _with_parameters(module: GAT, parameters: Parameters) -> GAT:
    """Return the pruned network with its parameters, on the whole graph."""
    layers = []
    for i, layer in enumerate(module.plan):
        sizes = _sizes(parameters[i, "linear.weight"], len(layer.branches))
        branches = tuple(branch.model_copy(update=sizes) for branch in layer.branches)
        layers.append(Layer(branches, sizes["inputs"]))
    assert isinstance(module.view, EdgeView)
    pruned = attention_like(module, layers, module.view)
    pruned.load_state_dict({f"layers.{i}.{name}": value for (i, name), value in parameters.items()})
    return pruned


def with_attention_layer(module: GAT, kept: Tensor, weights: Sequence[Tensor]) -> GAT:
    """Return a module whose layer 2 has weights 0 for the channels that it does not keep."""
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.layers[1].linear.weight.zero_()
        other.layers[1].linear.weight[:, kept] = torch.cat(list(weights))
    return other
