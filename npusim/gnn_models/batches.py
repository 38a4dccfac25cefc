"""Inference in mini-batches on real data: lost edges, neighbourhoods, stored hidden features.

A batch is either a part of the graph, which loses the edges to other parts, or a set of roots with their
neighbourhood, drawn hop by hop by the rules of PyTorch Geometric's NeighborLoader: every neighbour of a root,
at most `hop2` neighbours of each neighbour, each node once. The loader itself needs pyg-lib or torch-sparse,
which are not on every machine; a test compares the two where it runs.
"""

from __future__ import annotations

import hashlib
import io
import time
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, vstack
from torch import Tensor
from torch.nn import functional

from npusim.errors import ConfigError, FileError
from npusim.files import read_arrays, write_whole
from npusim.gnn_models.models import module_of, trained_instance
from npusim.gnn_models.networks import Propagation
from npusim.gnn_models.planetoid import GraphData, read_planetoid
from npusim.gnn_models.training import Recipe, accuracy, cached_training, one_thread
from npusim.scenario import Scenario, split_settings
from npusim.studies.stream import stored as batching
from npusim.studies.stream.following import BatchJudgement
from npusim.workloads import GnnSpec, load_gnn


def in_batches(data: GraphData, batch: int) -> GraphData:
    """Return a data set without the edges between batches of consecutive nodes."""
    source, target = data.edge_index // batch
    return replace(data, edge_index=data.edge_index[:, source == target])


def judge_of(scenario: Scenario, data: Path | None = None) -> Callable[[int], BatchJudgement]:
    """Return a function from a batch size to the accuracy of a scenario's network in mini-batches.

    The model is trained on all edges, or cached. A `ConfigError` refuses a network that is no workload: its
    data set is not known.
    """
    network = scenario.network
    if not isinstance(network, str | Path):
        allowed = "a workload by name or file: mini-batches of others are judged without real data"
        raise ConfigError(f"the network `{scenario.baseline.name}`", allowed=allowed)

    def judged(batch: int) -> BatchJudgement:
        spec = load_gnn(network, split_settings(scenario.settings)[0])
        whole = read_planetoid(spec.dataset, data)
        trained = cached_training(spec, whole, Recipe())
        parts = in_batches(whole, batch)
        instances = [trained_instance(spec, each, trained.parameters) for each in (whole, parts)]
        with one_thread(), torch.no_grad():
            scores = [each.module(*each.inputs.values()).numpy() for each in instances]
        of_all, of_parts = (accuracy(each, whole.y, whole.test) for each in scores)
        lost = 1.0 - parts.edge_index.shape[1] / np.maximum(whole.edge_index.shape[1], 1)
        return BatchJudgement(float(lost), accuracy=of_parts, accuracy_of_all_edges=of_all)

    return judged


Nodes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A batch's nodes and edges; nodes by their numbers in the graph."""

    roots: Nodes
    fresh: Nodes  # neighbours of the roots whose own neighbours are needed, each once
    stored: Nodes  # neighbours of the roots whose hidden features are stored, each once
    supporting: Nodes  # nodes whose attributes are read: roots, fresh, others
    first: csr_array  # edges of layer 1: rows are roots and fresh, columns are `supporting`
    second: csr_array  # edges of layer 2: rows are roots, columns are roots, fresh, stored


def neighbours_of(edge_index: Nodes, nodes: int) -> csr_array:
    """Return the neighbours of each node, the sources of its edges, as a row of a matrix [nodes, nodes].

    Parameters
    ----------
    edge_index : array, shape (2, edges)
        Source above target.
    """
    source, target = edge_index
    return csr_array((np.ones(len(source), np.float32), (target, source)), (nodes, nodes))


def neighbourhood(
    neighbours: csr_array, roots: Nodes, stored: Mask, hop2: int, random: np.random.Generator
) -> Neighbourhood:
    """Return the neighbourhood of a batch; `stored` [nodes] marks nodes with stored features."""
    near = neighbours[roots]
    others = np.setdiff1d(near.indices, roots)
    fresh, held = others[~stored[others]], others[stored[others]]
    computed = np.concatenate([roots, fresh])
    edges = vstack([near, _drawn(neighbours[fresh], hop2, random)], format="csr")
    supporting = np.concatenate([computed, np.setdiff1d(edges.indices, computed)])
    second = near[:, np.concatenate([computed, held])]
    return Neighbourhood(roots, fresh, held, supporting, edges[:, supporting], second)


def _drawn(rows: csr_array, most: int, random: np.random.Generator) -> csr_array:
    """Return at most `most` neighbours of each row, drawn without replacement."""
    counts = np.diff(rows.indptr)
    if not (counts > most).any():
        return rows
    order = np.lexsort((random.random(rows.nnz), np.repeat(np.arange(len(counts)), counts)))
    rank = np.arange(rows.nnz) - np.repeat(rows.indptr[:-1], counts)
    kept = np.sort(order[rank < most])
    ends = np.concatenate([[0], np.cumsum(np.minimum(counts, most))])
    return csr_array((rows.data[kept], rows.indices[kept], ends), rows.shape)


def model_digest(module: Propagation) -> str:
    """Return a hash of a model's parameters."""
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().numpy().tobytes())
    return digest.hexdigest()


class HiddenStore:
    """Hidden features of layer 1 of one model, by node, with the batch that computed them."""

    def __init__(self, nodes: int, width: int, model: str, age_limit: int | None = None) -> None:
        self.features = torch.zeros(nodes, width)
        self.written = np.full(nodes, -1, np.int64)
        """Batch that computed each node's features; -1 where none are stored."""
        self.model, self.age_limit = model, age_limit

    def held(self, now: int) -> npt.NDArray[np.bool_]:
        """Return the mask of nodes whose features are stored and not too old [nodes]."""
        known = self.written >= 0
        return known if self.age_limit is None else known & (now - self.written <= self.age_limit)

    def write(self, nodes: Nodes, features: Tensor, now: int) -> None:
        """Store features [nodes, width] that were computed in batch `now`."""
        self.features[torch.from_numpy(nodes)] = features
        self.written[nodes] = now

    def read(self, nodes: Nodes, model: str) -> Tensor:
        """Return features [nodes, width]; a `ConfigError` for features of another model."""
        if model != self.model:
            raise _other_model("store", "those of the model that reads them")
        return self.features[torch.from_numpy(nodes)]

    def save(self, path: Path) -> None:
        """Write the store to a file, whole or not at all."""
        held = io.BytesIO()
        np.savez(held, features=self.features.numpy(), written=self.written, model=np.array(self.model))
        write_whole(path, held.getvalue())

    def load(self, path: Path) -> None:
        """Load features from a file, as computed before the first batch.

        Raises
        ------
        FileError, ConfigError
            Where the file cannot be read, or holds features of another model or graph.
        """
        arrays = read_arrays(path, "name a new file")
        if not arrays.keys() >= {"features", "written", "model"}:
            raise FileError(str(path), "holds no stored features", "name a new file")
        features, written, model = (arrays[name] for name in ("features", "written", "model"))
        if str(model) != self.model or features.shape != tuple(self.features.shape):
            allowed = "a store of this network's parameters; name a new file for others"
            raise _other_model(str(path), allowed)
        self.features = torch.from_numpy(features)
        self.written = np.where(written >= 0, 0, -1)


def _other_model(file: str, allowed: str) -> ConfigError:
    return ConfigError("stored hidden features of another model", file=file, allowed=allowed)


class BatchedNetwork:
    """A trained network `sage-concat` of two layers that classifies batches of target nodes."""

    def __init__(self, module: Propagation, data: GraphData) -> None:
        self.module, self.data = module, data
        self.model = model_digest(module)
        self.x = torch.from_numpy(data.x)
        self.neighbours = neighbours_of(data.edge_index, data.nodes)

    def on(self, edge_index: Nodes) -> BatchedNetwork:
        """Return the network on other edges between the same nodes."""
        other = copy(self)
        other.neighbours = neighbours_of(edge_index, self.data.nodes)
        return other

    def store(self, age_limit: int | None = None) -> HiddenStore:
        """Return an empty store."""
        return HiddenStore(self.data.nodes, self.module.plan[0].outputs, self.model, age_limit)

    @torch.no_grad()
    def answers(self, batch: Neighbourhood, store: HiddenStore | None) -> tuple[Tensor, Tensor]:
        """Return log-probabilities [roots, classes] and hidden features of layer 1 [roots, width]."""
        hidden = self._layer(0, self.x[torch.from_numpy(batch.supporting)], batch.first)
        own = hidden[: len(batch.roots)]
        if len(batch.stored):
            assert store is not None, "only a store holds features"
            hidden = torch.cat([hidden, store.read(batch.stored, self.model)])
        last = self._layer(1, hidden, batch.second)
        if self.module.normalise:
            last = functional.normalize(last, dim=1)
        return torch.log_softmax(self.module.layers[2][0](last), dim=1), own

    def _layer(self, i: int, x: Tensor, edges: csr_array) -> Tensor:
        """Return ReLU of the concatenated branches, for the rows of the edges."""
        counts = np.diff(edges.indptr)
        shares = np.repeat(1.0 / np.maximum(counts, 1), counts).astype(np.float32)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
            parts = map(torch.from_numpy, (edges.indptr, edges.indices, shares))
            mean = torch.sparse_csr_tensor(*parts, edges.shape, check_invariants=False)
        branches = []
        for b, branch in enumerate(self.module.plan[i].branches):
            read = self.module.read(i, b, x)
            read = mean @ read if branch.order else read[: len(counts)]
            branches.append(self.module.layers[i][b](read))
        return torch.relu(torch.cat(branches, dim=1))

    def fill(self, store: HiddenStore, nodes: Nodes, now: int) -> None:
        """Compute and store the hidden features of nodes from all their neighbours."""
        every = np.ones(self.data.nodes, bool)
        batch = neighbourhood(self.neighbours, nodes, every, 0, np.random.default_rng())
        with torch.no_grad():
            store.write(nodes, self._layer(0, self.x[torch.from_numpy(batch.supporting)], batch.first), now)


@dataclass
class _Pass:
    """A pass over batches, without a store or with one, and its counts."""

    store: HiddenStore | None
    hop2: int
    kept: float  # share of the roots whose hidden features are stored
    supporting: list[int] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    storing_s: list[float] = field(default_factory=list)
    is_right: list[Mask] = field(default_factory=list)
    ages: list[Nodes] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        return float(np.concatenate(self.is_right).mean()) if self.is_right else 0.0

    def answer(self, network: BatchedNetwork, roots: Nodes, now: int) -> None:
        """Classify batch `now` and store the hidden features of a share of its roots."""
        random, store = np.random.default_rng(now), self.store
        began = time.process_time()
        held = store.held(now) if store is not None else np.zeros(network.data.nodes, bool)
        batch = neighbourhood(network.neighbours, roots, held, self.hop2, random)
        scores, hidden = network.answers(batch, store)
        self.latency_s.append(time.process_time() - began)
        self.supporting.append(len(batch.supporting))
        self.is_right.append(scores.argmax(dim=1).numpy() == network.data.y[roots])
        if store is not None:
            self.ages.append(now - store.written[batch.stored])
            chosen = np.flatnonzero(random.random(len(roots)) < self.kept)
            began = time.process_time()
            store.write(roots[chosen], hidden[torch.from_numpy(chosen)], now)
            self.storing_s.append(time.process_time() - began)


def _compared(plain: _Pass, stored: _Pass) -> dict[str, float]:
    """Return what a store changes, by field of `CountedBatches` and of `Period`."""
    ages = np.concatenate(stored.ages)
    return {
        "skipped_share": 1.0 - sum(stored.supporting) / sum(plain.supporting),
        "accuracy": plain.accuracy,
        "accuracy_stored": stored.accuracy,
        "mean_age": float(ages.mean()) if len(ages) else 0.0,
    }


def age_0_difference(network: BatchedNetwork, roots: Nodes) -> float:
    """Return the largest difference of log-probabilities between fresh stored features and computed ones."""
    store, nodes, none = network.store(), network.data.nodes, np.zeros(network.data.nodes, bool)
    network.fill(store, np.arange(nodes), 0)
    random = np.random.default_rng(0)
    computed, read = (
        neighbourhood(network.neighbours, roots, held, nodes, random) for held in (none, store.held(0))
    )
    return float((network.answers(computed, None)[0] - network.answers(read, store)[0]).abs().max())


def counted(
    network: BatchedNetwork, row: batching.StoredBatches, plan: batching.StorePlan, seed: int = 0
) -> batching.CountedBatches:
    """Classify all test nodes in random batches, without and with stored features."""
    data = network.data
    order = np.random.default_rng(seed).permutation(np.flatnonzero(data.test))
    store = network.store(plan.age_limit)
    if row.stored > 0.0:
        if plan.file is not None and plan.file.exists():
            store.load(plan.file)
        network.fill(store, np.flatnonzero(data.train | data.valid), 0)
    plain, stored = (_Pass(held, plan.hop2, row.stored) for held in (None, store))
    for now, first in enumerate(range(0, len(order), row.roots)):
        for each in (plain, stored):
            each.answer(network, order[first : first + row.roots], now)
    if plan.file is not None:
        store.save(plan.file)
    return batching.CountedBatches(
        supporting_nodes=float(np.mean(plain.supporting)),
        supporting_nodes_stored=float(np.mean(stored.supporting)),
        latency_s=median(plain.latency_s),
        latency_stored_s=median(stored.latency_s),
        storing_s=median(stored.storing_s),
        largest_difference=age_0_difference(network, order[: row.roots]),
        **_compared(plain, stored),
    )


def arrivals(
    networks: Callable[[int], BatchedNetwork], roots: int, plan: batching.StorePlan, seed: int = 0
) -> batching.Arrivals:
    """Classify test nodes that arrive with their edges, batch by batch.

    Parameters
    ----------
    networks : callable
        Model by the number of its renewals.
    """
    data = networks(0).data
    order = np.random.default_rng(seed).permutation(np.flatnonzero(data.test))
    length = plan.renewed_after or -(-len(order) // roots)
    present, periods, now = ~data.test, [], 0
    for number, first in enumerate(range(0, len(order), roots * length)):
        network = networks(number)
        store = network.store(plan.age_limit)
        network = network.on(_between(data, present))
        began = time.process_time()
        network.fill(store, np.flatnonzero(data.train | data.valid), now)
        refill_s = time.process_time() - began
        plain, stored = (_Pass(held, plan.hop2, max(plan.stored)) for held in (None, store))
        for begin in range(first, min(len(order), first + roots * length), roots):
            batch = order[begin : begin + roots]
            present[batch] = True
            network = network.on(_between(data, present))
            for each in (plain, stored):
                each.answer(network, batch, now)
            now += 1
        period = batching.Period(
            batches=len(plain.latency_s),
            nodes=int(present.sum()),
            refill_s=refill_s,
            longest_latency_s=max(plain.latency_s),
            longest_latency_stored_s=max(map(sum, zip(stored.latency_s, stored.storing_s, strict=True))),
            **_compared(plain, stored),
        )
        periods.append(period)
    return batching.Arrivals(
        roots=roots, age_limit=plan.age_limit, renewed_after=plan.renewed_after, periods=periods
    )


def _between(data: GraphData, present: Mask) -> Nodes:
    """Return the edges between present nodes."""
    return data.edge_index[:, present[data.edge_index].all(axis=0)]


def runner_of(data: Path | None = None) -> batching.Runner:
    """Return a function that counts batches on the real data set of a workload."""

    def run(
        spec: GnnSpec, plan: batching.StorePlan, rows: list[batching.StoredBatches]
    ) -> batching.StoredFeatures:
        graph = read_planetoid(spec.dataset, data)
        with one_thread():
            return run_batches(spec, graph, plan, rows)

    return run


def run_batches(
    spec: GnnSpec, data: GraphData, plan: batching.StorePlan, rows: Sequence[batching.StoredBatches]
) -> batching.StoredFeatures:
    """Return predicted batches with their counts, and a stream of the smallest batches over time."""

    def network(renewals: int) -> BatchedNetwork:
        module = module_of(spec, data)
        module.load_state_dict(cached_training(spec, data, Recipe(seed=renewals)).parameters)
        return BatchedNetwork(module.eval(), data)

    first = network(0)
    return batching.StoredFeatures(
        hop2=plan.hop2,
        age_limit=plan.age_limit,
        batches=[row.model_copy(update={"counted": counted(first, row, plan)}) for row in rows],
        arrivals=arrivals(network, min(plan.roots), replace(plan, file=None)),
    )
