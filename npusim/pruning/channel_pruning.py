"""Channel pruning of a trained GNN (GCNP, section 3): masks by LASSO, weights refitted.

For a layer with branches Y_k = A^k h W_k the masks beta, one for all branches, minimise

    sum over k of |Y_k - (A^k h * beta) W_k|^2 + penalty |beta|_1

under a penalty that rises until the budget is met. The channels with the largest masks stay, and each
branch's weights are fitted to its old result again, close to what they were where the training graph tells
nothing. Only training nodes and the graph between them are looked at: nodes of neither validation nor test,
labelled or not, for masks need no labels. Baselines choose channels at random, or by the L1 norm of the
weights that read them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from npusim.accuracy.gat import GAT
from npusim.accuracy.planetoid import GraphData
from npusim.accuracy.propagation import Propagation, layer_propagates
from npusim.accuracy.views import MatrixView, dense_adjacency
from npusim.workloads.gnn.spec import Layer, Pruning, check_budget, kept_channels

Method = Literal["lasso", "random", "max-response"]
"""How channels are chosen."""
METHODS: tuple[Method, ...] = get_args(Method)

_RISE, _FIRST = 1.05, 1e-3
"""Factor by which the penalty rises, and the first one over that which would clear all masks at once."""
_STEPS, _SETTLED = 100, 1e-3
"""Most steps under a penalty, and the change of the masks by a step from which on they are at the minimum."""
_RIDGE = 1e-3
"""Weight of staying at the old weights in a refit, over the mean square of a channel."""


@dataclass(frozen=True, slots=True)
class Reads:
    """What a layer reads on the training graph, and the weights that read it."""

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

    The penalty rises from next to nothing, and under each the masks are moved to the minimum by accelerated
    proximal steps (Beck and Teboulle, FISTA, SIAM J. Imaging Sciences 2(1), 2009), on the squared error of
    all rows at once. They are those of the largest penalty that leaves `keep` of them.
    """
    matrix = _quadratic(reads)
    target = matrix.sum(dim=1)  # all masks 1 give the old results
    step = 0.5 / max(float(torch.linalg.matrix_norm(matrix, 2)), 1e-12)
    beta, penalty = torch.ones(len(target)), _FIRST * 2.0 * float(target.abs().max())
    while penalty > 0.0:
        found = _settled(matrix, target, beta, step, penalty)
        if int((found != 0).sum()) < keep:
            break
        beta = found
        penalty *= _RISE
    return beta


def _settled(matrix: Tensor, target: Tensor, beta: Tensor, step: float, penalty: float) -> Tensor:
    """Return the masks that minimise the squared error with a penalty, from those of the penalty before."""
    ahead, momentum = beta, 1.0
    for _ in range(_STEPS):
        new = ahead - step * 2.0 * (matrix @ ahead - target)
        new = torch.sign(new) * torch.relu(new.abs() - step * penalty)
        following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
        ahead = new + (momentum - 1.0) / following * (new - beta)
        moved = float((new - beta).abs().max())
        beta, momentum = new, following
        if moved < _SETTLED:
            break
    return beta


def _quadratic(reads: Reads) -> Tensor:
    """Return the matrix of the squared error in the masks, [channels, channels]."""
    found = torch.zeros(reads.features[0].shape[1], reads.features[0].shape[1])
    for x, weight in zip(reads.features, reads.weights, strict=True):
        found += (x.T @ x) * (weight.T @ weight)
    return found


def chosen(reads: Reads, keep: int, method: Method, seed: int) -> Tensor:
    """Return a score for each channel, [channels]: those with the largest scores stay."""
    if method == "random":
        return torch.rand(reads.features[0].shape[1], generator=torch.Generator().manual_seed(seed))
    response = sum(w.abs().sum(dim=0) for w in reads.weights)
    assert isinstance(response, Tensor)
    if method == "max-response":
        return response
    # Channels whose masks are all cleared before the budget is met are told apart by their weights.
    return masks(reads, keep).abs() + 1e-9 * response / response.max().clamp(min=1e-30)


def refitted(reads: Reads, kept: Tensor) -> tuple[Tensor, ...]:
    """Return each branch's weights on the kept channels, [outputs, kept]: least squares near the old ones."""
    found = []
    for x, old in zip(reads.features, reads.weights, strict=True):
        found.append(fitted(x[:, kept], old[:, kept], x @ old.T))
    return tuple(found)


def fitted(x: Tensor, start: Tensor, wanted: Tensor) -> Tensor:
    """Return weights [outputs, channels] near `start` that make `wanted` [rows, outputs] of `x`."""
    missing = wanted - x @ start.T
    gram = x.T @ x
    ridge = _RIDGE * float(gram.diagonal().mean()) + 1e-9
    return start + torch.linalg.solve(gram + ridge * torch.eye(x.shape[1]), x.T @ missing).T


@dataclass(frozen=True, slots=True)
class Pruned:
    """A pruned network, not yet trained again."""

    module: Propagation | GAT
    cut: Propagation | GAT
    """The same channels with the weights as they were, not refitted."""
    kept: Mapping[int, tuple[int, ...]]
    """Input channels that layer i keeps, by number among those of the trained network."""
    seconds: float
    """Time of the pruning (s)."""


def training_edges(data: GraphData) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges [2, E] between nodes of neither validation nor test, and which nodes [N] these are."""
    known = ~(data.valid | data.test)
    place = np.cumsum(known) - 1
    inside = known[data.edge_index].all(axis=0)
    return place[data.edge_index[:, inside]], known


def on_training_graph(module: Propagation, data: GraphData) -> tuple[Propagation, Tensor]:
    """Return the module with the graph between the training nodes alone, and these nodes' features."""
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
    view: object,
    columns: Mapping[tuple[int, int], Tensor] | None = None,
) -> Propagation:
    """Return a module of the same kind with other channels and another view of the graph.

    Fewer connections overfit less: dropout goes with the root of a layer's share of them (Han et al.,
    Learning both Weights and Connections for Efficient Neural Networks, NIPS 2015, section 3.2).
    """
    shares = (new.parameters / old.parameters for new, old in zip(layers, module.plan, strict=True))
    dropout = [rate * math.sqrt(share) for rate, share in zip(module.dropouts, shares, strict=True)]
    return Propagation(
        layers, view, module.mean, columns, module.transform_first,  # type: ignore[arg-type]
        bias=module.bias, jumping=module.jumping, normalise=module.normalise, dropout=dropout,
    )  # fmt: skip


def columns_of(module: Propagation) -> dict[tuple[int, int], Tensor]:
    """Return the channels that branches pick."""
    return {(i, b): module.get_buffer(f"columns_{i}_{b}") for i, b in module.picked}


@torch.no_grad()
def inputs_of(module: Propagation, x: Tensor) -> list[Tensor]:
    """Return what each layer reads, [rows, channels] each."""
    prepared = module.prepare(())
    found: list[Tensor] = []
    results: list[Tensor] = []
    for i, layer in enumerate(module.plan):
        if not layer_propagates(layer) and module.jumping:
            x = torch.cat(results, dim=1)
        if not layer_propagates(layer) and module.normalise:
            x = torch.nn.functional.normalize(x, dim=1)
        found.append(x)
        x = module.layer(i, x, prepared)
        x = torch.relu(x)
        results.append(x)
    return found


def reads_of(
    module: Propagation, i: int, x: Tensor, outputs: Mapping[int, Tensor], branches: Sequence[int]
) -> Reads:
    """Return what branches of a layer read, and the weights of those outputs that stay."""
    prepared = module.prepare(())
    features, weights = [], []
    with torch.no_grad():
        for b in branches:
            features.append(module.power(module.read(i, b, x), module.plan[i].branches[b].order, prepared))
            weight = module.layers[i][b].weight.detach()
            weights.append(weight[outputs[b]] if b in outputs else weight)
    return Reads(tuple(features), tuple(weights))


def split(kept: Tensor, layer: Layer) -> dict[int, Tensor]:
    """Return the outputs of each branch of a layer that the next layer's kept channels come from."""
    if layer.average:
        return dict.fromkeys(range(len(layer.branches)), kept)
    found, start = {}, 0
    for b, branch in enumerate(layer.branches):
        mine = kept[(kept >= start) & (kept < start + branch.outputs)]
        found[b] = mine - start
        start += branch.outputs
    return found


def best(scores: Tensor, layer: Layer, keep: int, multiple: int) -> Tensor:
    """Return the channels with the best scores, in order; of each branch in multiples, and at least one."""
    widths = [branch.outputs for branch in layer.branches]
    order = scores.argsort(descending=True)[: min(keep, len(scores))]
    if layer.average:
        return order.sort().values
    found, start = [], 0
    for width in widths:
        mine = int(((order >= start) & (order < start + width)).sum())
        count = min(width, max(multiple, round(mine / multiple) * multiple))
        found.append(start + scores[start : start + width].argsort(descending=True)[:count])
        start += width
    return torch.cat(found).sort().values


def prune(
    module: Propagation, data: GraphData, pruning: Pruning, method: Method = "lasso", seed: int = 0
) -> Pruned:
    """Prune a trained network.

    Parameters
    ----------
    module : Propagation
        Trained; it stays as it is.
    pruning : Pruning
        Budget, scheme and multiple.

    Raises
    ------
    ConfigError
        Where the budget or the scheme does not fit the network.
    """
    check_budget(module.plan, pruning)
    began = time.perf_counter()
    small, x = on_training_graph(module, data)
    return replace(
        _Pruner(small, inputs_of(small, x), pruning, method, seed).run(module),
        seconds=time.perf_counter() - began,
    )


class _Pruner:
    """Prunes layer after layer, from the last."""

    def __init__(
        self, small: Propagation, inputs: list[Tensor], pruning: Pruning, method: Method, seed: int
    ) -> None:
        self.small, self.inputs, self.pruning = small, inputs, pruning
        self.method, self.seed = method, seed
        self.plan = small.plan
        self.kept: dict[int, Tensor] = {}
        """Input channels of each layer that stay."""
        self.attributes: dict[int, Tensor] = {}
        """Attributes that a branch of layer 1 reads, by branch."""
        self.weights: dict[tuple[int, int], Tensor] = {}
        self.cut: dict[tuple[int, int], Tensor] = {}
        """Weights as they were, of the channels that stay."""

    def run(self, module: Propagation) -> Pruned:
        """Prune, and put the pruned weights into a module that sees the whole graph."""
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
        """Channels of all layers are chosen by the classifier that reads them side by side."""
        together = Layer(tuple(b for layer in self.plan[:last] for b in layer.branches), 0)
        self._layer(last, together)
        start = 0
        for i in range(1, last):
            width = self.plan[i - 1].outputs
            kept = self.kept[last]
            self.kept[i] = kept[(kept >= start) & (kept < start + width)] - start
            start += width

    def _outputs(self, i: int) -> dict[int, Tensor]:
        """Outputs of each branch of a layer that stay; none given: all."""
        last = len(self.plan) - 1
        if self.small.jumping and i < last and last in self.kept:
            start = sum(layer.outputs for layer in self.plan[:i])
            kept = self.kept[last]
            width = self.plan[i].outputs
            return split(kept[(kept >= start) & (kept < start + width)] - start, self.plan[i])
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
        """The neighbours' branches of layer 1 read fewer attributes, but no fewer than they put out."""
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
        """Return the pruned network with those weights."""
        layers, columns = [], {}
        for i, layer in enumerate(self.plan):
            inputs = len(self.kept[i]) if i in self.kept else layer.inputs
            branches = tuple(
                branch.model_copy(
                    update={"inputs": weights[i, b].shape[1], "outputs": weights[i, b].shape[0]}
                )
                for b, branch in enumerate(layer.branches)
            )
            layers.append(Layer(branches, inputs, layer.average))
        columns = {(0, b): channels for b, channels in self.attributes.items()}
        found = like(module, layers, module.view, columns)
        with torch.no_grad():
            for (i, b), weight in weights.items():
                found.layers[i][b].weight.copy_(weight)
                bias = module.layers[i][b].bias
                if bias is not None:
                    kept = self._outputs(i).get(b)
                    found.layers[i][b].bias.copy_(bias if kept is None else bias[kept])
        return found
