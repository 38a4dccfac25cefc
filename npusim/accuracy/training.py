"""Training a model on the public split: short, seeded, on the CPU.

A rehearsal rather than a tour: enough that the numbers mean something, the same every evening.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from npusim.accuracy.planetoid import GraphData

__all__ = ["Recipe", "Trained", "accuracy", "train"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a model is trained; the defaults are GraNNite's (Fig. 19)."""

    learning_rate: float = 0.01
    weight_decay: float = 5e-4
    epochs: int = 100
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Trained:
    """Trained parameters, which every form of the model can load, and how good they are."""

    parameters: dict[str, Tensor]
    epoch: int
    """Epoch of the best accuracy on the validation nodes, whose parameters these are."""
    valid: float
    """Share of validation nodes that are classified correctly."""
    test: float
    """Share of test nodes that are classified correctly."""


def train(model: nn.Module, data: GraphData, recipe: Recipe) -> Trained:
    """Train a model and return the parameters of its best epoch.

    Parameters
    ----------
    model : module
        With `reset` parameters; its view gives the inputs beside the features.
    data : GraphData
        The data set.
    recipe : Recipe
        Learning rate and so on.

    Returns
    -------
    Trained
        The parameters of the epoch with the best validation accuracy.
    """
    with _one_thread():
        return _train(model, data, recipe)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread: graphs of this size train ten times slower on two that wait for each other.

    It also fixes the order of summation, so that every machine with the same torch trains the same model.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train(model: nn.Module, data: GraphData, recipe: Recipe) -> Trained:
    features = _Features(data, sparse=not getattr(model, "maximum", False))
    graph = tuple(model.view.example.values())
    labels = torch.from_numpy(data.y)
    chosen = torch.from_numpy(np.flatnonzero(data.train))
    optimiser = torch.optim.Adam(model.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay)
    share = float(model.dropout)
    best = Trained({}, -1, -1.0, 0.0)
    for epoch in range(recipe.epochs):
        model.train()
        optimiser.zero_grad()
        functional.nll_loss(model(features.dropped(share), *graph)[chosen], labels[chosen]).backward()
        optimiser.step()
        model.eval()
        with torch.no_grad():
            scores = model(features.whole, *graph).numpy()
        valid = accuracy(scores, data.y, data.valid)
        if valid > best.valid:
            parameters = {name: value.detach().clone() for name, value in model.state_dict().items()}
            best = Trained(parameters, epoch, valid, accuracy(scores, data.y, data.test))
    return best


class _Features:
    """The features, nearly all zeros: dropping out and transforming only the non-zeros is many times faster.

    A maximum over neighbours needs the zeros too.
    """

    def __init__(self, data: GraphData, sparse: bool) -> None:
        self.sparse = sparse
        self._kept = torch.from_numpy(data.x).to_sparse().coalesce()
        self.whole = self._form(self._kept.values())

    def _form(self, values: Tensor) -> Tensor:
        features = torch.sparse_coo_tensor(
            self._kept.indices(), values, self._kept.shape, is_coalesced=True, check_invariants=False
        )
        return features if self.sparse else features.to_dense()

    def dropped(self, share: float) -> Tensor:
        """Return the features with a random share of the elements set to zero and the others scaled up."""
        return self._form(functional.dropout(self._kept.values(), share))


def accuracy(scores: np.ndarray, labels: np.ndarray, nodes: np.ndarray) -> float:
    """Share of the nodes in the mask `nodes` [N] whose best score is that of their label."""
    return float((scores[: labels.size].argmax(axis=1) == labels)[nodes].mean())
