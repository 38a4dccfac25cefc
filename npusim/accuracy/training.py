"""Training of a model on the public split: short, seeded, on the CPU; with a cache of parameters.

A cached file's label holds the data, the recipe and the sources; a file whose label differs is not used.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from npusim.accuracy.models import trainable
from npusim.accuracy.planetoid import GraphData
from npusim.locate import cache_dir
from npusim.workloads import GnnSpec
from npusim.workloads.gnn.spec import EQUATION_1


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a model is trained; the defaults are GraNNite's (Fig. 19).

    The features are taken as published and the parameters are those after the last epoch: GraNNite speaks of
    neither scaling nor of choosing an epoch.
    """

    learning_rate: float = 0.01
    weight_decay: float = 5e-4
    epochs: int = 100
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Trained:
    """Trained parameters, which every form of the model can load, and how good they are."""

    parameters: dict[str, Tensor]
    valid: float
    """Share of validation nodes that are classified correctly."""
    test: float
    """Share of test nodes that are classified correctly."""


def train(
    model: nn.Module,
    data: GraphData,
    recipe: Recipe,
    tell: Callable[[float], None] | None = None,
    keep_best: bool = False,
) -> Trained:
    """Train a model.

    Parameters
    ----------
    keep_best : bool
        Whether the parameters of the epoch that answers the validation nodes best are kept, those handed in
        among them; otherwise those of the last epoch are.
    """
    with one_thread():
        return _train(model, data, recipe, tell or (lambda _: None), keep_best)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: graphs of this size train ten times slower on two.

    It also fixes the order of summation, so that every machine with the same torch trains the same model.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_JUDGED = 5
"""Epochs after which the validation nodes are asked, where the best epoch is kept."""


def _train(
    model: nn.Module, data: GraphData, recipe: Recipe, tell: Callable[[float], None], keep_best: bool
) -> Trained:
    features = _Features(data)
    take_sparse = getattr(model, "take_sparse", None)
    if take_sparse is not None:
        take_sparse(features.whole)
    graph = tuple(model.view.example.values())
    labels = torch.from_numpy(data.y)
    chosen = torch.from_numpy(np.flatnonzero(data.train))
    optimiser = torch.optim.Adam(model.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay)
    share = float(model.dropout)
    best = (_valid(model, features, graph, data), _state(model)) if keep_best else None
    for epoch in range(recipe.epochs):
        model.train()
        optimiser.zero_grad()
        functional.nll_loss(model(features.dropped(share), *graph)[chosen], labels[chosen]).backward()
        optimiser.step()
        tell((epoch + 1) / recipe.epochs)
        if best is not None and (epoch + 1) % _JUDGED == 0:
            share_now = _valid(model, features, graph, data)
            best = (share_now, _state(model)) if share_now > best[0] else best
    if best is not None:
        model.load_state_dict(best[1])
    model.eval()
    with torch.no_grad():
        scores = model(features.whole, *graph).numpy()
    return Trained(_state(model), accuracy(scores, data.y, data.valid), accuracy(scores, data.y, data.test))


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _valid(model: nn.Module, features: _Features, graph: tuple[Tensor, ...], data: GraphData) -> float:
    """Return the share of validation nodes that a model classifies correctly."""
    model.eval()
    with torch.no_grad():
        return accuracy(model(features.whole, *graph).numpy(), data.y, data.valid)


class _Features:
    """The features as a sparse matrix: dropout and transformation of the non-zeros alone."""

    def __init__(self, data: GraphData) -> None:
        places = torch.from_numpy(np.stack(np.nonzero(data.x)))
        self._places = places
        self._values = torch.from_numpy(data.x[tuple(places.numpy())])
        self._shape = tuple(data.x.shape)
        self.whole = self._matrix(self._values)

    def _matrix(self, values: Tensor) -> Tensor:
        return torch.sparse_coo_tensor(
            self._places, values, self._shape, is_coalesced=True, check_invariants=False
        )

    def dropped(self, share: float) -> Tensor:
        """Return the features with a random share of the elements set to zero and the others scaled up."""
        return self._matrix(functional.dropout(self._values, share))


def accuracy(scores: np.ndarray, labels: np.ndarray, nodes: np.ndarray) -> float:
    """Share of the nodes in the mask `nodes` [N] whose best score is that of their label."""
    return float((scores[: labels.size].argmax(axis=1) == labels)[nodes].mean())


_FIGURES = ("valid", "test")
_SOURCES = ("models", "networks", "planetoid", "training", "views")
"""Modules that decide the result of a training."""


def cached_training(
    spec: GnnSpec,
    data: GraphData,
    recipe: Recipe,
    retrain: bool = False,
    tell: Callable[[float], None] | None = None,
) -> Trained:
    """Return a model's trained parameters: from the cache, or trained and then cached."""
    path = cache_dir("trained") / f"{spec.model}-{data.name}-{_label(spec, data, recipe)}.npz"
    found = None if retrain else _read(path)
    if found is None:
        found = train(trainable(spec, data, recipe.seed), data, recipe, tell)
        _write(path, found)
    return found


def _label(spec: GnnSpec, data: GraphData, recipe: Recipe) -> str:
    """Return what tells this training from every other."""
    network: tuple[object, ...] = (
        spec.model,
        spec.layers,
        spec.hidden,
        spec.heads,
        spec.neighbours,
        spec.order,
    )
    if spec.model in EQUATION_1:
        network = (*network, spec.power, spec.normalise, str(spec.pruning), str(spec.channels))
    elif spec.pruning is not None:
        network = (*network, str(spec.pruning))
    told = sha256(repr((network, astuple(recipe), torch.__version__, _sources())).encode())
    nodes, words = np.nonzero(data.x)
    for part in (nodes, words, data.x[nodes, words], data.edge_index, data.y, data.train):
        told.update(np.ascontiguousarray(part).tobytes())
    return told.hexdigest()[:24]


@cache
def _sources() -> str:
    folder = Path(__file__).parent
    return sha256(b"".join((folder / f"{name}.py").read_bytes() for name in _SOURCES)).hexdigest()


def _read(path: Path) -> Trained | None:
    """Return what a file of the cache holds; None where there is none or it is damaged."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            held = {name: file[name] for name in file.files}
        figures = {name: float(held.pop(f"figure/{name}")) for name in _FIGURES}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
    return Trained({name: torch.from_numpy(value) for name, value in held.items()}, **figures)


def _write(path: Path, trained: Trained) -> None:
    """Write a training to the cache atomically; a full disk is no error."""
    held = {name: value.numpy() for name, value in trained.parameters.items()}
    held |= {f"figure/{name}": np.float64(getattr(trained, name)) for name in _FIGURES}
    draft = None
    try:
        descriptor, draft = tempfile.mkstemp(dir=path.parent, suffix=".npz")
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, **held)
        os.replace(draft, path)
    except OSError:
        if draft is not None:
            with suppress(OSError):
                os.unlink(draft)
