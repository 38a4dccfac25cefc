"""Channel pruning of a graph attention network: a head is a branch (GCNP, section 3.2).

Head k of a layer puts out Y_k = P_k h W_k, where P_k is its attention. The attention is held as the trained
network has it on the training graph, so that Y_k is linear in the masks and in W_k. One mask serves all
heads. Each head of the layer before keeps equally many channels, those with its largest masks: heads run as
one batched product [heads, N, N] x [heads, N, width], which has one width.

A removed channel leaves its head's scores, too. Score vectors are fitted to the old scores again.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from npusim.accuracy.gat import GAT
from npusim.accuracy.planetoid import GraphData
from npusim.accuracy.views import EdgeView
from npusim.pruning.channel_pruning import (
    Method,
    Pruned,
    Reads,
    chosen,
    fitted,
    refitted,
    training_edges,
)
from npusim.workloads.gnn.spec import Layer, Pruning, check_budget, kept_channels

Parameters = Mapping[tuple[int, str], Tensor]
"""Weights, score vectors and biases of a pruned network, by layer and name."""


def attention_on_training_graph(module: GAT, data: GraphData) -> tuple[GAT, Tensor]:
    """Return the module along the edges between the training nodes alone, and these nodes' features."""
    edges, known = training_edges(data)
    view = EdgeView(edges, int(known.sum()), add_loops=True)
    return attention_like(module, module.plan, view).eval(), torch.from_numpy(data.x[known])


def attention_like(module: GAT, layers: Sequence[Layer], view: EdgeView) -> GAT:
    """Return a module with other channels and view; with its parameters where channels are the same.

    Dropout, one rate of all layers, goes with the root of the share of connections (Han et al., NIPS 2015).
    """
    widths = [(layer.inputs, layer.outputs) for layer in layers]
    new, old = (sum(layer.parameters for layer in each) for each in (layers, module.plan))
    found = GAT(widths, len(layers[0].branches), view, dropout=module.dropout * math.sqrt(new / old))
    if tuple(layers) == module.plan:
        found.load_state_dict(module.state_dict())
    return found


@torch.no_grad()
def attention_inputs(module: GAT, x: Tensor) -> list[Tensor]:
    """Return what each layer reads, [rows, channels] each."""
    prepared = module.prepare(tuple(module.view.example.values()))
    found = []
    for i in range(len(module.layers)):
        found.append(x)
        x = functional.elu(module.layer(i, x, prepared))
    return found


def attention_reads(module: GAT, i: int, x: Tensor, outputs: Tensor | None = None) -> Reads:
    """Return what each head of a layer reads, weighed by its attention, and the weights of its outputs.

    Parameters
    ----------
    outputs : Tensor, optional
        Outputs that stay, by number among those of all heads; default all.
    """
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
    """Prune a trained GAT.

    Parameters
    ----------
    module : GAT
        Trained, along edges; it stays as it is.
    pruning : Pruning
        Budget and multiple; scheme `full`.

    Raises
    ------
    ConfigError
        Where the budget or the scheme does not fit the network.
    """
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
    cut, fit = _parameters(small, inputs, kept, False), _parameters(small, inputs, kept, True)
    told = {i: tuple(channels.tolist()) for i, channels in kept.items()}
    seconds = time.perf_counter() - began
    return Pruned(_with_parameters(module, fit), _with_parameters(module, cut), told, seconds)


def _best_of_heads(scores: Tensor, heads: int, each: int) -> Tensor:
    """Return the channels with the best scores of each head, in order."""
    width = len(scores) // heads
    order = scores.reshape(heads, width).argsort(dim=1, descending=True)[:, :each]
    return (order + width * torch.arange(heads).unsqueeze(1)).flatten().sort().values


@torch.no_grad()
def _parameters(small: GAT, inputs: Sequence[Tensor], kept: Mapping[int, Tensor], refit: bool) -> Parameters:
    """Return the parameters of the channels that stay, fitted to the old results or as they were."""
    found: dict[tuple[int, str], Tensor] = {}
    for i, layer in enumerate(small.layers):
        x, each = inputs[i], layer.each
        channels = kept.get(i, torch.arange(x.shape[1]))
        outputs = kept.get(i + 1, torch.arange(layer.heads * each))
        reads = attention_reads(small, i, x, kept.get(i + 1))
        fit = refit and i in kept
        new = refitted(reads, channels) if fit else [w[:, channels] for w in reads.weights]
        found[i, "linear.weight"] = torch.cat(list(new))
        found[i, "bias"] = layer.bias[outputs]
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
            found[i, name] = torch.stack(parts)
    return found


def _with_parameters(module: GAT, parameters: Parameters) -> GAT:
    """Return the pruned network with those parameters, on the whole graph."""
    layers = []
    for i, layer in enumerate(module.plan):
        outputs, inputs = parameters[i, "linear.weight"].shape
        sizes = {"inputs": inputs, "outputs": outputs // len(layer.branches)}
        branches = tuple(branch.model_copy(update=sizes) for branch in layer.branches)
        layers.append(Layer(branches, inputs))
    assert isinstance(module.view, EdgeView)
    found = attention_like(module, layers, module.view)
    found.load_state_dict({f"layers.{i}.{name}": value for (i, name), value in parameters.items()})
    return found


def with_attention_layer(module: GAT, kept: Tensor, weights: Sequence[Tensor]) -> GAT:
    """Return a module whose layer 2 has zeros in place of the channels that it does not keep."""
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.layers[1].linear.weight.zero_()
        other.layers[1].linear.weight[:, kept] = torch.cat(list(weights))
    return other
