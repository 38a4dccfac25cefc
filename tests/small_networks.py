"""A small random graph with a split of its nodes, and GNNs on it."""

import numpy as np

from npusim.gnn_models.planetoid import GraphData
from npusim.workloads import GnnSpec

NODES, FEATURES, CLASSES = 60, 12, 3


def data(seed: int = 0) -> GraphData:
    random = np.random.default_rng(seed)
    pairs = random.integers(0, NODES, (2, 150))
    pairs = np.unique(np.concatenate([pairs, pairs[::-1]], axis=1), axis=1)
    pairs = pairs[:, pairs[0] != pairs[1]]
    x = random.random((NODES, FEATURES)).astype(np.float32)
    places = np.arange(NODES)
    split = (places < 20, (places >= 40) & (places < 50), places >= 50)
    return GraphData("cora", x, pairs.astype(np.int64), random.integers(0, CLASSES, NODES), *split)


def spec(**keys: object) -> GnnSpec:
    return GnnSpec.model_validate({"model": "sage-concat", "dataset": "cora", "hidden": 8} | keys)
