"""Cache of trained parameters: the same training is never done twice.

A file's label holds the data, the recipe and the versions of the sources; a file whose label differs is not
used.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple
from functools import cache
from hashlib import sha256
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch

from npusim.accuracy.planetoid import GraphData
from npusim.accuracy.training import Recipe, Trained, train
from npusim.accuracy.variants import trainable
from npusim.locate import cache_dir
from npusim.workloads import GnnSpec

__all__ = ["kept_or_trained"]

_FIGURES = ("valid", "test")
_SOURCES = (
    "attention", "gat", "gathered", "gcn", "maxima", "planetoid", "sage", "training", "variants", "views",
)  # fmt: skip
"""Files that decide what a training gives."""


def kept_or_trained(
    spec: GnnSpec,
    data: GraphData,
    recipe: Recipe,
    retrain: bool = False,
    tell: Callable[[float], None] | None = None,
) -> Trained:
    """Return a model's trained parameters: from the cache, or trained and then kept there.

    Parameters
    ----------
    spec : GnnSpec
        The network; its form and precision do not matter to the training.
    data : GraphData
        The data set.
    recipe : Recipe
        How it is trained, and the seed.
    retrain : bool
        Whether to train even if the cache has it.
    tell : callable, optional
        Is told after each epoch which share of a training is done.
    """
    path = cache_dir("trained") / f"{spec.model}-{data.name}-{_label(spec, data, recipe)}.npz"
    found = None if retrain else _read(path)
    if found is None:
        found = train(trainable(spec, data, recipe.seed), data, recipe, tell)
        _write(path, found)
    return found


def _label(spec: GnnSpec, data: GraphData, recipe: Recipe) -> str:
    """Return what tells this training from every other."""
    network = (spec.model, spec.layers, spec.hidden, spec.heads, spec.neighbours, spec.order)
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
    """Put a training into the cache, whole or not at all; a cache that is full is no reason to fail."""
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
