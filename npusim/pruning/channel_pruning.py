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
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch_geometric.utils import subgraph

from npusim.gnn_models.networks import GAT, Propagation
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


Network = Propagation | GAT
Weights = Mapping[tuple[int, int], Tensor]
"""Weights by layer and branch."""


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
    channels = reads.features[0].shape[1]
    matrix = torch.zeros(channels, channels)  # of the quadratic form of the masks
    for x, weight in zip(reads.features, reads.weights, strict=True):
        matrix += (x.T @ x) * (weight.T @ weight)
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

    module: Network
    cut: Network
    """The same channels with the old weights, not refitted."""
    kept: Mapping[int, tuple[int, ...]]
    """Input channels that layer i keeps, by their number in the trained network."""
    seconds: float
    """Time of the pruning (s)."""


def on_training_graph(module: Network, data: GraphData) -> tuple[Network, Tensor]:
    """Return the module on the graph between the training nodes, and these nodes' features."""
    known = torch.from_numpy(~(data.valid | data.test))
    inside, _ = subgraph(known, torch.from_numpy(data.edge_index), relabel_nodes=True)
    edges, nodes = inside.numpy(), int(known.sum())
    if isinstance(module, GAT):
        small = like(module, module.plan, EdgeView(edges, nodes, add_loops=True))
    else:
        kind, loops = ("mean", False) if module.mean else ("norm", True)
        view = MatrixView({kind: dense_adjacency(edges, nodes, loops, kind)}, constant=True)
        small = like(module, module.plan, view)
    return small.eval(), torch.from_numpy(data.x)[known]


def like(
    module: Network,
    layers: Sequence[Layer],
    view: EdgeView | GraphMatrix,
    columns: Mapping[tuple[int, int], Tensor] | None = None,
) -> Network:
    """Return a module of the same kind with other channels and another view of the graph.

    It has the same parameters where the channels are the same. Fewer connections overfit less: dropout scales
    with the root of the remaining share (Han et al., Learning both Weights and Connections for Efficient
    Neural Networks, NIPS 2015, section 3.2), by layer, or once for a GAT, which has one rate.
    """
    other: Network
    if isinstance(module, GAT):
        widths = [(layer.inputs, layer.outputs) for layer in layers]
        new, old = (sum(layer.parameters for layer in each) for each in (layers, module.plan))
        other = GAT(widths, len(layers[0].branches), view, dropout=module.dropout * math.sqrt(new / old))
    else:
        shares = (new.parameters / old.parameters for new, old in zip(layers, module.plan, strict=True))
        dropout = [rate * math.sqrt(share) for rate, share in zip(module.dropouts, shares, strict=True)]
        if columns is None:
            columns = {(i, b): module.get_buffer(f"columns_{i}_{b}") for i, b in module.picked}
        keywords = {"bias": module.bias, "jumping": module.jumping, "normalise": module.normalise}
        first = module.transform_first
        other = Propagation(layers, view, module.mean, columns, first, dropout=dropout, **keywords)
    if tuple(layers) == module.plan:
        other.load_state_dict(module.state_dict())
    return other


@torch.no_grad()
def inputs_of(module: Network, x: Tensor) -> list[Tensor]:
    """Return the inputs of each layer, [rows, channels] each."""
    prepared = module.prepare(tuple(module.view.example.values()))
    inputs: list[Tensor] = []
    results: list[Tensor] = []
    for i in range(len(module.plan)):
        inputs.append(module.joined(i, x, results))
        x = module.activation(module.layer(i, inputs[-1], prepared))
        results.append(x)
    return inputs


def branch_weights(module: Network, i: int) -> list[Tensor]:
    """Return the weight of each branch of a layer, [outputs, channels]; they share the module's memory."""
    layer = module.layers[i]
    if isinstance(module, GAT):
        return list(layer.linear.weight.detach().chunk(layer.heads))
    return [branch.weight.detach() for branch in layer]


@torch.no_grad()
def reads_of(
    module: Network, i: int, x: Tensor, outputs: Mapping[int, Tensor], branches: Sequence[int] | None = None
) -> Reads:
    """Return the inputs of branches of a layer, default all, and the weights of the outputs that stay."""
    weights = branch_weights(module, i)
    numbers = range(len(weights)) if branches is None else branches
    prepared = module.prepare(tuple(module.view.example.values()))
    if isinstance(module, GAT):
        features = _attended(module, i, x, prepared)
    else:
        orders = [branch.order for branch in module.plan[i].branches]
        features = [module.power(module.read(i, b, x), orders[b], prepared) for b in numbers]
    return Reads(
        tuple(features), tuple(weights[b][outputs[b]] if b in outputs else weights[b] for b in numbers)
    )


def _attended(module: GAT, i: int, x: Tensor, ends: tuple[Tensor, ...]) -> list[Tensor]:
    """Return the inputs of a layer weighted by the attention of each head."""
    layer = module.layers[i]
    h = layer.linear(x).reshape(len(x), layer.heads, layer.each)
    attention = module.edge_weights(layer, ends, h)
    messages = x.index_select(0, ends[0])
    blank = torch.zeros(len(x), x.shape[1])
    return [blank.index_add(0, ends[1], messages * share.unsqueeze(1)) for share in attention.unbind(1)]


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
    module: Network, data: GraphData, pruning: Pruning, method: Method = "lasso", seed: int = 0
) -> Pruned:
    """Prune a trained network, which stays as it is.

    Raises
    ------
    ConfigError
        Where the budget or the scheme does not fit the network.
    """
    check_budget(module.plan, pruning)
    began = time.perf_counter()
    pruner = _Pruner(module, data, pruning, method, seed)
    weights, cut = pruner.weights()
    modules = pruner.built(weights, True), pruner.built(cut, False)
    kept = {i: tuple(channels.tolist()) for i, channels in pruner.kept.items()}
    return Pruned(*modules, kept, time.perf_counter() - began)


class _Pruner:
    """Chooses the channels of layer after layer, from the last, and refits the weights that read them."""

    def __init__(self, module: Network, data: GraphData, pruning: Pruning, method: Method, seed: int) -> None:
        self.module, self.pruning, self.method, self.seed = module, pruning, method, seed
        self.small, x = on_training_graph(module, data)
        self.inputs = inputs_of(self.small, x)
        self.plan, self.last = module.plan, len(module.plan) - 1
        self.jumping = isinstance(module, Propagation) and module.jumping
        self.kept: dict[int, Tensor] = {}
        """Input channels that stay, by layer."""
        self.attributes: dict[tuple[int, int], Tensor] = {}
        """Attributes that a branch of layer 1 reads, by layer and branch."""

    def weights(self) -> tuple[Weights, Weights]:
        """Choose the channels; return the weights on them, refitted and as they were."""
        if self.jumping:
            together = Layer(tuple(b for layer in self.plan[: self.last] for b in layer.branches), 0)
            self._choose(self.last, together)  # by the classifier, which reads all layers side by side
            for i in range(1, self.last):
                self.kept[i] = self._of_classifier(i - 1)
        else:
            for i in range(self.last if self.pruning.scheme == "full" else 1, 0, -1):
                self._choose(i, self.plan[i - 1])
        weights: dict[tuple[int, int], Tensor] = {}
        cut: dict[tuple[int, int], Tensor] = {}
        for i in range(self.last + 1):
            reads, kept = self._reads(i), self.kept.get(i, slice(None))
            new = refitted(reads, self.kept[i]) if i in self.kept else reads.weights
            weights |= {(i, b): weight for b, weight in enumerate(new)}
            cut |= {(i, b): weight[:, kept] for b, weight in enumerate(reads.weights)}
        if self.pruning.scheme == "batched":
            self._choose_attributes(weights, cut)
        return weights, cut

    def outputs(self, i: int) -> dict[int, Tensor]:
        """Return the outputs of each branch of a layer that stay; empty: all."""
        if self.jumping and i < self.last and self.last in self.kept:
            return split(self._of_classifier(i), self.plan[i])
        return split(self.kept[i + 1], self.plan[i]) if i + 1 in self.kept else {}

    def _of_classifier(self, i: int) -> Tensor:
        """Return the outputs of a layer that a classifier of all layers keeps."""
        start = sum(layer.outputs for layer in self.plan[:i])
        return _within(self.kept[self.last], start, self.plan[i].outputs)

    def _reads(self, i: int, branches: Sequence[int] | None = None) -> Reads:
        reads: Reads = reads_of(self.small, i, self.inputs[i], self.outputs(i), branches)
        return reads

    def _choose(self, i: int, before: Layer) -> None:
        quota = sum(kept_channels(b.outputs, self.pruning) for b in before.branches)
        quota = quota if not before.average else kept_channels(before.outputs, self.pruning)
        scores = chosen(self._reads(i), quota, self.method, self.seed + i)
        if isinstance(self.small, GAT):
            heads = len(before.branches)  # as many channels of each
            width = len(scores) // heads
            order = scores.reshape(heads, width).argsort(dim=1, descending=True)[:, : quota // heads]
            self.kept[i] = (order + width * torch.arange(heads).unsqueeze(1)).flatten().sort().values
        else:
            self.kept[i] = best(scores, before, quota, self.pruning.multiple)

    def _choose_attributes(
        self, weights: dict[tuple[int, int], Tensor], cut: dict[tuple[int, int], Tensor]
    ) -> None:
        """Prune the attributes that the neighbours' branches of layer 1 read, but not below their outputs."""
        for b, branch in enumerate(self.plan[0].branches):
            reads = self._reads(0, [b])
            keep = max(kept_channels(branch.inputs, self.pruning), reads.weights[0].shape[0])
            if branch.order and keep < branch.inputs:
                scores = chosen(reads, keep, self.method, self.seed)
                attributes = scores.argsort(descending=True)[:keep].sort().values
                self.attributes[0, b] = attributes
                weights[0, b] = refitted(reads, attributes)[0]
                cut[0, b] = reads.weights[0][:, attributes]

    @torch.no_grad()
    def built(self, weights: Weights, refit: bool) -> Network:
        """Return the pruned network with the given weights, on the whole graph.

        Score vectors of a GAT are refitted to the old scores, or cut.
        """
        layers = []
        for i, layer in enumerate(self.plan):
            sizes = (weights[i, b].shape for b in range(len(layer.branches)))
            branches = tuple(
                branch.model_copy(update={"inputs": inputs, "outputs": outputs})
                for branch, (outputs, inputs) in zip(layer.branches, sizes, strict=True)
            )
            read = len(self.kept[i]) if i in self.kept else layer.inputs
            layers.append(Layer(branches, read, layer.average))
        pruned = like(self.module, layers, self.module.view, self.attributes)
        for (i, b), weight in weights.items():
            rows = self.outputs(i).get(b, slice(None))
            branch_weights(pruned, i)[b].copy_(weight)
            bias, old_bias = _branch_bias(pruned, i, b), _branch_bias(self.module, i, b)
            if bias is not None and old_bias is not None:
                bias.copy_(old_bias[rows])
            if isinstance(self.module, GAT):
                x, old_weight = self.inputs[i], branch_weights(self.module, i)[b]
                for name in ("source", "target"):
                    vector = getattr(self.module.layers[i], name)[b, 0]
                    scores = vector[rows].unsqueeze(0)
                    if refit:
                        read_x = x[:, self.kept.get(i, slice(None))] @ weight.T
                        scores = fitted(read_x, scores, x @ (old_weight.T @ vector).unsqueeze(1))
                    getattr(pruned.layers[i], name)[b].copy_(scores)
        return pruned


def _branch_bias(module: Network, i: int, b: int) -> Tensor | None:
    """Return the bias of a branch of a layer, which shares the module's memory; None where it has none."""
    layer = module.layers[i]
    bias: Tensor | None = layer.bias.chunk(layer.heads)[b] if isinstance(module, GAT) else layer[b].bias
    return bias


def with_weights(module: Network, i: int, kept: Tensor, weights: Sequence[Tensor]) -> Network:
    """Return a module whose layer `i` has weights 0 for the channels that it does not keep."""
    other = copy.deepcopy(module)
    for weight, new in zip(branch_weights(other, i), weights, strict=True):
        weight.zero_()
        weight[:, kept] = new
    return other
