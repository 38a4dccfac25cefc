"""Training of a model on the public split: short, seeded, on the CPU; with a cache of parameters.

A cached file's label holds the data, the recipe and the sources; a file whose label differs is not used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from npusim.errors import FileError
from npusim.files import write_whole
from npusim.gnn_models.models import trainable
from npusim.gnn_models.planetoid import GraphData
from npusim.locate import cache_dir
from npusim.workloads import GnnSpec
from npusim.workloads.gnn.spec import EQUATION_1


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a model is trained; the defaults are GraNNite's (Fig. 19), but for its batches of 64.

    Features stay as published, and the parameters are those after the last epoch: GraNNite mentions neither
    scaling nor the choice of an epoch.
    """

    learning_rate: float = 0.01
    weight_decay: float = 5e-4
    epochs: int = 100
    batch: int | None = None
    """Training nodes of a step, drawn at random; None: all. Messages come from the whole graph."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Trained:
    """Trained parameters, which every form of the model can load, and their accuracy."""

    parameters: dict[str, Tensor]
    valid: float  # share of validation nodes that are classified correctly
    test: float  # share of test nodes that are classified correctly


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: graphs of this size train ten times slower on two.

    One thread also fixes the order of summation: every machine with the same torch trains the same model.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_VALIDATED_EVERY = 5  # epochs between two validations where the best epoch is kept


@one_thread()
def train(
    model: nn.Module,
    data: GraphData,
    recipe: Recipe,
    tell: Callable[[float], None] | None = None,
    keep_best: bool = False,
) -> Trained:
    """Train a model; `tell` is called with the fraction done.

    With `keep_best`, the parameters of the best epoch on the validation nodes are kept, the initial ones
    included; otherwise the weights of the last epoch.
    """
    features = _Features(data)
    if hasattr(model, "take_sparse"):
        model.take_sparse(features.whole)
    graph = tuple(model.view.example.values())
    labels = torch.from_numpy(data.y)
    chosen = torch.from_numpy(np.flatnonzero(data.train))
    optimiser = torch.optim.Adam(model.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay)
    dropout = float(model.dropout)
    best = (_valid(model, features, graph, data), _state(model)) if keep_best else (0.0, {})
    for epoch in range(recipe.epochs):
        model.train()
        for nodes in (chosen,) if recipe.batch is None else _shuffled(chosen).split(recipe.batch):
            optimiser.zero_grad()
            functional.nll_loss(model(features.dropped(dropout), *graph)[nodes], labels[nodes]).backward()
            optimiser.step()
        if tell is not None:
            tell((epoch + 1) / recipe.epochs)
        if keep_best and (epoch + 1) % _VALIDATED_EVERY == 0:
            valid = _valid(model, features, graph, data)
            best = (valid, _state(model)) if valid > best[0] else best
    if keep_best:
        model.load_state_dict(best[1])
    model.eval()
    with torch.no_grad():
        scores = model(features.whole, *graph).numpy()
    return Trained(_state(model), accuracy(scores, data.y, data.valid), accuracy(scores, data.y, data.test))


def _shuffled(nodes: Tensor) -> Tensor:
    return nodes[torch.randperm(len(nodes))]


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _valid(model: nn.Module, features: _Features, graph: tuple[Tensor, ...], data: GraphData) -> float:
    """Return the share of validation nodes that a model classifies correctly."""
    model.eval()
    with torch.no_grad():
        return accuracy(model(features.whole, *graph).numpy(), data.y, data.valid)


class _Features:
    """The features as a sparse matrix: dropout and transformation of the non-zeros only."""

    def __init__(self, data: GraphData) -> None:
        places = self._places = torch.from_numpy(np.stack(np.nonzero(data.x)))
        self._values = torch.from_numpy(data.x[tuple(places.numpy())])
        self._shape = tuple(data.x.shape)
        self.whole = self._matrix(self._values)

    def _matrix(self, values: Tensor) -> Tensor:
        return torch.sparse_coo_tensor(
            self._places, values, self._shape, is_coalesced=True, check_invariants=False
        )

    def dropped(self, share: float) -> Tensor:
        """Return the features after dropout."""
        return self._matrix(functional.dropout(self._values, share))


def accuracy(scores: np.ndarray, labels: np.ndarray, nodes: np.ndarray) -> float:
    """Return the share of the nodes in the mask `nodes` [N] that the scores classify correctly."""
    return float((scores[: labels.size].argmax(axis=1) == labels)[nodes].mean())


_FIGURES = ("valid", "test")
_SOURCES = ("models", "networks", "planetoid", "training", "views")  # decide the result


def cached_training(
    spec: GnnSpec,
    data: GraphData,
    recipe: Recipe,
    retrain: bool = False,
    tell: Callable[[float], None] | None = None,
) -> Trained:
    """Return a model's trained parameters: from the cache, or trained and then cached."""
    path = cache_dir("trained") / f"{spec.model}-{data.name}-{_label(spec, data, recipe)}.npz"
    trained = None if retrain else _read(path)
    if trained is None:
        trained = train(trainable(spec, data, recipe.seed), data, recipe, tell)
        _write(path, trained)
    return trained


def cached_retraining(model: nn.Module, data: GraphData, recipe: Recipe, label: str) -> float:
    """Train a model from its present parameters on, or load the cached result; return the seconds it took.

    `label` says what the model is; its parameters decide the result, too. The best epoch is kept.
    """
    digest = sha256(repr((label, astuple(recipe), torch.__version__, _sources())).encode())
    arrays = (value.numpy() for value in _state(model).values())
    for part in (*arrays, data.x, data.edge_index, data.y, data.train, data.valid):
        digest.update(np.ascontiguousarray(part).tobytes())
    path = cache_dir("trained") / f"again-{data.name}-{digest.hexdigest()[:24]}.npz"
    trained = _read(path)
    if trained is None:
        began = time.perf_counter()
        torch.manual_seed(recipe.seed)
        trained = train(model, data, recipe, keep_best=True)
        trained.parameters[_SECONDS] = torch.tensor(time.perf_counter() - began)
        _write(path, trained)
    seconds = float(trained.parameters.pop(_SECONDS))
    model.load_state_dict(trained.parameters)
    model.eval()
    return seconds


_SECONDS = "retraining_s"


def _label(spec: GnnSpec, data: GraphData, recipe: Recipe) -> str:
    """Return a hash of everything that decides the result of a training."""
    network: tuple[object, ...] = (spec.model, spec.layers, spec.hidden)
    network += (spec.heads, spec.neighbours, spec.order)
    if spec.model in EQUATION_1:
        network = (*network, spec.power, spec.normalise, str(spec.pruning), str(spec.channels))
    elif spec.pruning is not None:
        network = (*network, str(spec.pruning))
    digest = sha256(repr((network, astuple(recipe), torch.__version__, _sources())).encode())
    nodes, words = np.nonzero(data.x)
    for part in (nodes, words, data.x[nodes, words], data.edge_index, data.y, data.train):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:24]


@cache
def _sources() -> str:
    folder = Path(__file__).parent
    return sha256(b"".join((folder / f"{name}.py").read_bytes() for name in _SOURCES)).hexdigest()


def _read(path: Path) -> Trained | None:
    """Return a training of the cache; None where the file is missing or damaged."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        figures = {name: float(arrays.pop(f"figure/{name}")) for name in _FIGURES}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
    return Trained({name: torch.from_numpy(value) for name, value in arrays.items()}, **figures)


def _write(path: Path, trained: Trained) -> None:
    """Write a training to the cache, whole or not at all; a full disk is no error."""
    arrays = {name: value.numpy() for name, value in trained.parameters.items()}
    arrays |= {f"figure/{name}": np.float64(getattr(trained, name)) for name in _FIGURES}
    buffer = BytesIO()
    np.savez(buffer, **arrays)
    with suppress(FileError):
        write_whole(path, buffer.getvalue())
