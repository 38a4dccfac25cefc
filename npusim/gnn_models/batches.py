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
from torch import Tensor
from torch.nn import functional

from npusim.errors import ConfigError, FileError
from npusim.files import read_arrays, write_whole
from npusim.gnn_models.judging import outputs_of
from npusim.gnn_models.models import model_instance, module_of
from npusim.gnn_models.networks import Propagation
from npusim.gnn_models.planetoid import GraphData, read_planetoid
from npusim.gnn_models.training import Recipe, accuracy, cached_training, one_thread
from npusim.scenario import Scenario, split_settings
from npusim.studies.stream.following import BatchJudgement
from npusim.studies.stream.stored import (
    Arrivals,
    CountedBatches,
    Period,
    Runner,
    StoredBatches,
    StoredFeatures,
    StorePlan,
)
from npusim.techniques import parse
from npusim.workloads import GnnSpec, build_gnn, load_gnn, load_statistics


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
        graph, stack = build_gnn(spec, load_statistics(spec.dataset), str(network)), parse("none")
        parts, accuracies = in_batches(whole, batch), []
        for dataset in (whole, parts):
            instance = model_instance(spec, graph, stack, dataset)
            instance.module.load_state_dict(trained.parameters)
            instance.module.eval()
            accuracies.append(accuracy(outputs_of(instance, "fp32"), whole.y, whole.test))
        lost = 1.0 - parts.edge_index.shape[1] / np.maximum(whole.edge_index.shape[1], 1)
        return BatchJudgement(float(lost), accuracy=accuracies[1], accuracy_of_all_edges=accuracies[0])

    return judged


Nodes = npt.NDArray[np.int64]
Rows = tuple[Nodes, Nodes]


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A batch's nodes and edges; nodes by their numbers in the graph."""

    roots: Nodes
    fresh: Nodes  # neighbours of the roots whose own neighbours are needed, each once
    stored: Nodes  # neighbours of the roots whose hidden features are stored, each once
    supporting: Nodes  # nodes whose attributes are read: roots, fresh, others
    first: Rows  # layer 1: rows are roots and fresh, columns are positions in `supporting`
    second: Rows  # layer 2: rows are roots, columns are positions in roots, fresh, stored


class Neighbours:
    """Neighbours of each node in compressed rows.

    Parameters
    ----------
    edge_index : array, shape (2, edges)
        Source above target; a node's neighbours are the sources of its edges.
    """

    def __init__(self, edge_index: Nodes, nodes: int) -> None:
        source, target = edge_index
        self.columns = source[np.argsort(target, kind="stable")]
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=nodes))])

    def of(self, nodes: Nodes) -> Rows:
        """Return all neighbours of some nodes."""
        counts = self.starts[nodes + 1] - self.starts[nodes]
        starts = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(starts[-1]) + np.repeat(self.starts[nodes] - starts[:-1], counts)
        return starts, self.columns[places]

    def drawn(self, nodes: Nodes, most: int, random: np.random.Generator) -> Rows:
        """Return at most `most` neighbours of each node, drawn without replacement."""
        starts, columns = self.of(nodes)
        counts = np.diff(starts)
        if not (counts > most).any():
            return starts, columns
        rows = np.repeat(np.arange(len(nodes)), counts)
        order = np.lexsort((random.random(len(columns)), rows))
        rank = np.arange(len(columns)) - np.repeat(starts[:-1], counts)
        kept = np.sort(order[rank < most])
        return np.concatenate([[0], np.cumsum(np.minimum(counts, most))]), columns[kept]

    def around(
        self, roots: Nodes, stored: npt.NDArray[np.bool_], hop2: int, random: np.random.Generator
    ) -> Neighbourhood:
        """Return the neighbourhood of a batch; `stored` [nodes] marks nodes with stored features."""
        own = np.zeros(len(stored), bool)
        own[roots] = True
        starts, columns = self.of(roots)
        neighbours = np.unique(columns)
        others = neighbours[~own[neighbours]]
        fresh, held = others[~stored[others]], others[stored[others]]
        deeper = self.drawn(fresh, hop2, random)
        lengths = np.concatenate([np.diff(starts), np.diff(deeper[0])])
        rows = np.concatenate([[0], np.cumsum(lengths)])
        ends = np.concatenate([columns, deeper[1]])
        computed = np.concatenate([roots, fresh])
        place = np.full(len(stored), -1)
        place[computed] = np.arange(len(computed))
        further = np.unique(ends)
        further = further[place[further] < 0]
        supporting = np.concatenate([computed, further])
        hidden = place.copy()
        hidden[held] = len(computed) + np.arange(len(held))
        place[further] = len(computed) + np.arange(len(further))
        return Neighbourhood(roots, fresh, held, supporting, (rows, place[ends]), (starts, hidden[columns]))


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

    @property
    def bytes(self) -> float:
        """Memory of the stored features, and of a 32-bit batch number per node (B)."""
        return float((self.written >= 0).sum() * self.features.shape[1] * 4 + len(self.written) * 4)

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
        self.neighbours = Neighbours(data.edge_index, data.nodes)

    def on(self, edge_index: Nodes) -> BatchedNetwork:
        """Return the network on other edges between the same nodes."""
        other = copy(self)
        other.neighbours = Neighbours(edge_index, self.data.nodes)
        return other

    def store(self, age_limit: int | None = None) -> HiddenStore:
        """Return an empty store."""
        return HiddenStore(self.data.nodes, self.module.plan[0].outputs, self.model, age_limit)

    @torch.no_grad()
    def answers(self, batch: Neighbourhood, store: HiddenStore | None) -> tuple[Tensor, Tensor]:
        """Return log-probabilities [roots, classes] and hidden features of layer 1 [roots, width]."""
        x = self.x[torch.from_numpy(batch.supporting)]
        rows = len(batch.roots) + len(batch.fresh)
        hidden = self._layer(0, x, batch.first, rows, len(batch.supporting))
        own = hidden[: len(batch.roots)]
        if len(batch.stored):
            assert store is not None, "only a store holds features"
            hidden = torch.cat([hidden, store.read(batch.stored, self.model)])
        last = self._layer(1, hidden, batch.second, len(batch.roots), len(hidden))
        if self.module.normalise:
            last = functional.normalize(last, dim=1)
        return torch.log_softmax(self.module.layers[2][0](last), dim=1), own

    def _layer(self, i: int, x: Tensor, rows: Rows, count: int, columns: int) -> Tensor:
        """Return ReLU of the concatenated branches, for the first `count` rows of `x`."""
        starts, places = rows
        lengths = np.maximum(np.diff(starts), 1)
        values = torch.from_numpy(np.repeat(1.0 / lengths, np.diff(starts)).astype(np.float32))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
            indices = torch.from_numpy(starts), torch.from_numpy(places)
            mean = torch.sparse_csr_tensor(*indices, values, (count, columns), check_invariants=False)
        parts = []
        for b, branch in enumerate(self.module.plan[i].branches):
            read = self.module.read(i, b, x)
            read = mean @ read if branch.order else read[:count]
            parts.append(self.module.layers[i][b](read))
        return torch.relu(torch.cat(parts, dim=1))

    def fill(self, store: HiddenStore, nodes: Nodes, now: int) -> None:
        """Compute and store the hidden features of nodes from all their neighbours."""
        every = np.ones(self.data.nodes, bool)
        batch = self.neighbours.around(nodes, every, 0, np.random.default_rng())
        x = self.x[torch.from_numpy(batch.supporting)]
        with torch.no_grad():
            store.write(nodes, self._layer(0, x, batch.first, len(nodes), len(x)), now)


@dataclass
class _Pass:
    """A pass over batches, without a store or with one, and its counts."""

    store: HiddenStore | None
    hop2: int
    kept: float  # share of the roots whose hidden features are stored
    supporting: list[int] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    storing_s: list[float] = field(default_factory=list)
    right: int = 0
    answered: int = 0
    ages: float = 0.0
    read: int = 0

    @property
    def accuracy(self) -> float:
        return self.right / max(1, self.answered)

    @property
    def mean_age(self) -> float:
        return self.ages / max(1, self.read)

    def answer(self, network: BatchedNetwork, roots: Nodes, now: int) -> None:
        """Classify batch `now` and store the hidden features of a share of its roots."""
        random, store = np.random.default_rng(now), self.store
        began = time.process_time()
        held = store.held(now) if store is not None else np.zeros(network.data.nodes, bool)
        batch = network.neighbours.around(roots, held, self.hop2, random)
        scores, hidden = network.answers(batch, store)
        self.latency_s.append(time.process_time() - began)
        self.supporting.append(len(batch.supporting))
        labels = torch.from_numpy(network.data.y[roots])
        self.right += int((scores.argmax(dim=1) == labels).sum())
        self.answered += len(roots)
        if store is not None:
            self.ages += float((now - store.written[batch.stored]).sum())
            self.read += len(batch.stored)
            chosen = np.flatnonzero(random.random(len(roots)) < self.kept)
            began = time.process_time()
            store.write(roots[chosen], hidden[torch.from_numpy(chosen)], now)
            self.storing_s.append(time.process_time() - began)


def age_0_difference(network: BatchedNetwork, roots: Nodes) -> float:
    """Return the largest difference of log-probabilities between fresh stored features and computed ones."""
    store, nodes = network.store(), np.arange(network.data.nodes)
    network.fill(store, nodes, 0)
    random, most = np.random.default_rng(0), network.data.nodes
    none = np.zeros(network.data.nodes, bool)
    computed, read = (network.neighbours.around(roots, held, most, random) for held in (none, store.held(0)))
    return float((network.answers(computed, None)[0] - network.answers(read, store)[0]).abs().max())


def counted(network: BatchedNetwork, row: StoredBatches, plan: StorePlan, seed: int = 0) -> CountedBatches:
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
    return CountedBatches(
        supporting_nodes=float(np.mean(plain.supporting)),
        supporting_nodes_stored=float(np.mean(stored.supporting)),
        skipped_share=1.0 - sum(stored.supporting) / sum(plain.supporting),
        latency_s=median(plain.latency_s),
        latency_stored_s=median(stored.latency_s),
        storing_s=median(stored.storing_s),
        accuracy=plain.accuracy,
        accuracy_stored=stored.accuracy,
        mean_age=stored.mean_age,
        largest_difference=age_0_difference(network, order[: row.roots]),
    )


def arrivals(
    networks: Callable[[int], BatchedNetwork], roots: int, plan: StorePlan, seed: int = 0
) -> Arrivals:
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
    known = np.flatnonzero(data.train | data.valid)
    for number, first in enumerate(range(0, len(order), roots * length)):
        network = networks(number)
        store = network.store(plan.age_limit)
        network = network.on(_between(data, present))
        began = time.process_time()
        network.fill(store, known, now)
        refill_s = time.process_time() - began
        plain, stored = (_Pass(held, plan.hop2, max(plan.stored)) for held in (None, store))
        for begin in range(first, min(len(order), first + roots * length), roots):
            batch = order[begin : begin + roots]
            present[batch] = True
            network = network.on(_between(data, present))
            for each in (plain, stored):
                each.answer(network, batch, now)
            now += 1
        periods.append(_period(plain, stored, int(present.sum()), refill_s))
    return Arrivals(roots=roots, age_limit=plan.age_limit, renewed_after=plan.renewed_after, periods=periods)


def _between(data: GraphData, present: npt.NDArray[np.bool_]) -> Nodes:
    """Return the edges between present nodes."""
    return data.edge_index[:, present[data.edge_index].all(axis=0)]


def _period(plain: _Pass, stored: _Pass, nodes: int, refill_s: float) -> Period:
    whole = (latency + storing for latency, storing in zip(stored.latency_s, stored.storing_s, strict=True))
    return Period(
        batches=len(plain.latency_s),
        nodes=nodes,
        skipped_share=1.0 - sum(stored.supporting) / sum(plain.supporting),
        refill_s=refill_s,
        longest_latency_s=max(plain.latency_s),
        longest_latency_stored_s=max(whole),
        accuracy=plain.accuracy,
        accuracy_stored=stored.accuracy,
        mean_age=stored.mean_age,
    )


def runner_of(data: Path | None = None) -> Runner:
    """Return a function that counts batches on the real data set of a workload."""

    def run(spec: GnnSpec, plan: StorePlan, rows: list[StoredBatches]) -> StoredFeatures:
        graph = read_planetoid(spec.dataset, data)
        with one_thread():
            return run_batches(spec, graph, plan, rows)

    return run


def run_batches(
    spec: GnnSpec, data: GraphData, plan: StorePlan, rows: Sequence[StoredBatches]
) -> StoredFeatures:
    """Return predicted batches with their counts, and a stream of the smallest batches over time."""

    def network(renewals: int) -> BatchedNetwork:
        module = module_of(spec, data)
        module.load_state_dict(cached_training(spec, data, Recipe(seed=renewals)).parameters)
        return BatchedNetwork(module.eval(), data)

    first = network(0)
    return StoredFeatures(
        hop2=plan.hop2,
        age_limit=plan.age_limit,
        batches=[row.model_copy(update={"counted": counted(first, row, plan)}) for row in rows],
        arrivals=arrivals(network, min(plan.roots), replace(plan, file=None)),
    )
