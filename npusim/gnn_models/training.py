"""Training of a model on the public split: short, seeded, on the CPU; with a cache of parameters.

A cached file's label holds the data, the recipe and the sources; a file whose label differs is not used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, replace
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
    seconds: float = 0.0  # time that the training took


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

    def evaluated() -> Trained:
        model.eval()
        with torch.no_grad():
            scores = model(features.whole, *graph).numpy()
        state = {name: value.detach().clone() for name, value in model.state_dict().items()}
        return Trained(state, *(accuracy(scores, data.y, nodes) for nodes in (data.valid, data.test)))

    best = evaluated() if keep_best else None
    for epoch in range(1, recipe.epochs + 1):
        model.train()
        steps = (chosen,)
        if recipe.batch is not None:
            steps = chosen[torch.randperm(len(chosen))].split(recipe.batch)
        for nodes in steps:
            optimiser.zero_grad()
            functional.nll_loss(model(features.dropped(dropout), *graph)[nodes], labels[nodes]).backward()
            optimiser.step()
        if tell is not None:
            tell(epoch / recipe.epochs)
        if best is not None and epoch % _VALIDATED_EVERY == 0:
            now = evaluated()
            best = now if now.valid > best.valid else best
    if best is None:
        return evaluated()
    model.load_state_dict(best.parameters)
    model.eval()
    return best


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


_SOURCES = ("models", "networks", "planetoid", "training", "views")  # decide the result
_NETWORK = "model layers hidden heads neighbours order power normalise pruning channels"  # keys that do, too


def cached_training(
    spec: GnnSpec,
    data: GraphData,
    recipe: Recipe,
    retrain: bool = False,
    tell: Callable[[float], None] | None = None,
) -> Trained:
    """Return a model's trained parameters: from the cache, or trained and then cached."""
    label = f"{spec.model}-{data.name}", [str(getattr(spec, key)) for key in _NETWORK.split()]
    path = _path(*label, recipe, data)
    return _cached(path, lambda: train(trainable(spec, data, recipe.seed), data, recipe, tell), retrain)


def cached_retraining(model: nn.Module, data: GraphData, recipe: Recipe, label: str) -> float:
    """Train a model from its present parameters on, or load the cached result; return the seconds it took.

    `label` says what the model is; its parameters decide the result, too. The best epoch is kept.
    """
    arrays = [value.numpy() for value in model.state_dict().values()]
    path = _path(f"again-{data.name}", label, recipe, data, arrays)
    torch.manual_seed(recipe.seed)
    trained = _cached(path, lambda: train(model, data, recipe, keep_best=True))
    model.load_state_dict(trained.parameters)
    model.eval()
    return trained.seconds


def _path(
    name: str, label: object, recipe: Recipe, data: GraphData, parameters: Sequence[np.ndarray] = ()
) -> Path:
    """Return the file of a training, whose name has a hash of everything that decides the result."""
    digest = sha256(repr((label, astuple(recipe), torch.__version__, _sources())).encode())
    for part in (*parameters, data.x, data.edge_index, data.y, data.train, data.valid):
        digest.update(np.ascontiguousarray(part).tobytes())
    return cache_dir("trained") / f"{name}-{digest.hexdigest()[:24]}.npz"


@cache
def _sources() -> str:
    folder = Path(__file__).parent
    return sha256(b"".join((folder / f"{name}.py").read_bytes() for name in _SOURCES)).hexdigest()


_FIGURES = ("valid", "test", "seconds")


def _cached(path: Path, train_now: Callable[[], Trained], retrain: bool = False) -> Trained:
    """Return a training of the cache; a missing or damaged one is made, and written whole or not at all.

    A full disk is no error.
    """
    if not retrain:
        with suppress(OSError, ValueError, KeyError, EOFError, BadZipFile), path.open("rb") as stream:
            arrays = dict(np.load(stream, allow_pickle=False))
            figures = {name: float(arrays.pop(f"figure/{name}")) for name in _FIGURES}
            return Trained({name: torch.from_numpy(value) for name, value in arrays.items()}, **figures)
    began = time.perf_counter()
    trained = replace(train_now(), seconds=time.perf_counter() - began)
    arrays = {name: value.numpy() for name, value in trained.parameters.items()}
    buffer = BytesIO()
    arrays |= {f"figure/{name}": np.float64(getattr(trained, name)) for name in _FIGURES}
    np.savez(buffer, **arrays)
    with suppress(FileError):
        write_whole(path, buffer.getvalue())
    return trained
