"""GCNP's figures of full and batched inference, each counted from a network that is built.

Multiply-accumulates are those of the graph in form `csr`, over the nodes answered for. The memory of
full inference holds the edges (a 32-bit neighbour a direction, and where each row starts), the weights,
and what the widest layer keeps until it ends: the hidden features that it reads, their aggregate and its
results side by side; attributes are fed from outside, and elementwise operators work in place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from npusim.config.reading import read_yaml
from npusim.engines.analytical import mapped_estimate
from npusim.errors import ConfigError
from npusim.graph import Graph, GraphStructure
from npusim.ops import CSR_INDEX_BYTES, Role, TensorKind, WorkClass
from npusim.scenario import Scenario
from npusim.validation.evidence import Evidence
from npusim.validation.figures import read_keyed
from npusim.validation.suite import Suite, suite_file
from npusim.validation.unit_models import Machine
from npusim.workloads import GnnSpec, build_gnn, load_statistics

_MIB = 1024.0**2
_SOC = "threadripper-a6000"
_BATCH = 512
_FULL = ("full_inference_kmacs_per_node", "full_inference_memory_mb", "full_inference_speedup_gpu")
_BATCHED = ("batched_kmacs_per_node_cpu_batch512", "batched_speedup_cpu_batch512")
_SIMPLIFIED = "simplified_kmacs_per_node"
_DATASET = r"(?P<dataset>[a-z][a-z0-9_-]*)"
_PATTERNS = [
    re.compile(rf"gcnp\.(?P<figure>{'|'.join(_FULL)})\.{_DATASET}\.(?P<place>[0-3])"),
    re.compile(rf"gcnp\.(?P<figure>{'|'.join(_BATCHED)})\.{_DATASET}\.(?P<store>plain|stored)\.(?P<place>[0-3])"),
    re.compile(rf"gcnp\.(?P<figure>{_SIMPLIFIED})\.(?P<model>sgc)\.(?P<place>[01])"),
]  # fmt: skip
_BRANCHES = [f"gcnp.{name}" for name in (*_FULL, *_BATCHED, _SIMPLIFIED)]


@dataclass(frozen=True, slots=True)
class Key:
    """Parts of a figure's key; empty where the figure has no such part."""

    figure: str
    dataset: str
    place: int
    """Position in the figure's list: of a budget, the power of two."""
    store: str = ""
    model: str = "sage-concat"

    @property
    def budget(self) -> float:
        """How many times fewer channels."""
        return 2.0**self.place


def parse_key(path: str) -> Key | None:
    """Return what a key path asks for, or None where it is no figure of the suite."""
    for pattern in _PATTERNS:
        match = pattern.fullmatch(path)
        if match is not None:
            found: dict[str, Any] = match.groupdict()
            found["place"] = int(found["place"])
            return Key(**({"dataset": "reddit"} | found))
    return None


@cache
def hidden_widths() -> Mapping[str, int]:
    """Return the hidden width of a branch by data set, from the shipped figures."""
    data = read_yaml(suite_file("gcnp", "figures", "gcnp.yaml")).data["gcnp"]["datasets"]
    return {name: int(row[4]) for name, row in data.items()}


@dataclass
class _Networks:
    """Networks of the figures, each built once."""

    _graphs: dict[tuple[Any, ...], Graph] = field(default_factory=dict)

    def graph(self, key: Key, budget: float, order: str = "aggregate_first") -> Graph:
        """Return the network of a figure at a budget."""
        made = (key.model, key.dataset, budget, key.store, key.place if key.model == "sgc" else -1, order)
        if made not in self._graphs:
            self._graphs[made] = _network(key, budget, order)
        return self._graphs[made]

    def latency_s(self, key: Key, budget: float, device: str) -> float:
        """Return the time of a network (s), in whichever order of aggregation and product is quicker."""
        graphs = (self.graph(key, budget, order) for order in ("aggregate_first", "transform_first"))
        return min(_latency_s(graph, device) for graph in graphs)


def _network(key: Key, budget: float, order: str) -> Graph:
    scheme = "batched" if key.store else "full"
    keys: dict[str, Any] = {"pruning": {"budget": budget, "scheme": scheme}} if budget > 1.0 else {}
    if key.store:
        keys["batch"] = {"roots": _BATCH, "stored": "visited" if key.store == "stored" else 0.0}
    if key.model == "sgc":
        keys["preprocessed"] = key.place == 1
    keys |= {"model": key.model, "dataset": key.dataset, "hidden": hidden_widths()[key.dataset]}
    spec = GnnSpec.model_validate(keys | {"form": "csr", "precision": "fp32", "order": order})
    return build_gnn(spec, load_statistics(key.dataset))


def kept_bytes(graph: Graph, structure: GraphStructure) -> float:
    """Return the memory of full inference: edges, weights and what the widest layer keeps (B).

    A layer keeps the hidden features that it reads, their aggregates and its branches' results until it ends;
    they lie side by side as they come, and what works element by element does so in place.
    """
    edges = (structure.edges + structure.nodes + 1) * CSR_INDEX_BYTES
    weights = sum(t.bytes for t in graph.with_role(Role.WEIGHT))
    kept: dict[str, float] = {}
    read: dict[str, set[str]] = {}
    for op in graph:
        layer = op.region.split("/")[0]
        if op.traits.work_class is WorkClass.CONTRACTION:
            kept[layer] = kept.get(layer, 0.0) + sum(t.bytes for t in graph.outputs_of(op))
            own = read.setdefault(layer, set())
            own |= {t for t in op.inputs if _is_handed_on(graph, t, layer)}
    widest = max(size + sum(graph.tensors[t].bytes for t in read[layer]) for layer, size in kept.items())
    return edges + weights + widest


def _is_handed_on(graph: Graph, name: str, layer: str) -> bool:
    """Whether a tensor holds features that an earlier layer made."""
    writer = graph.writer(name)
    if writer is None or graph.tensors[name].kind is not TensorKind.ACTIVATION:
        return False
    return writer.region.split("/")[0] != layer and name not in graph.structural


def predict(key: Key, networks: _Networks) -> float:
    """Return the prediction for a key."""
    if key.dataset not in hidden_widths():
        known = ", ".join(hidden_widths())
        raise ConfigError(f"the data set `{key.dataset}`", key=f"gcnp.{key.figure}", allowed=known)
    graph = networks.graph(key, key.budget if key.model != "sgc" else 1.0)
    structure = load_statistics(key.dataset)
    if "kmacs" in key.figure:
        return graph.macs / (_BATCH if key.store else structure.nodes) / 1e3
    if key.figure == "full_inference_memory_mb":
        return kept_bytes(graph, structure) / _MIB
    device = "cpu" if key.store else "gpu"
    base = Key(key.figure, key.dataset, 0, "plain" if key.store else "")
    return networks.latency_s(base, 1.0, device) / networks.latency_s(key, key.budget, device)


def _latency_s(graph: Graph, device: str) -> float:
    """Return the time of the network itself (s): the matrix of the edges is there beforehand."""
    estimate = mapped_estimate(Scenario(graph, _SOC, device=device).mapped)
    beforehand = {op.name for op in graph if graph.structural.issuperset(op.outputs)}
    return estimate.latency_s - sum(o.latency_s for o in estimate.operators if o.name in beforehand)


@dataclass(frozen=True)
class GcnpFigures:
    """The suite's predictor."""

    def evidence(self, suite: Suite, path: Path | None, machines: Mapping[str, Machine]) -> Evidence:
        """Return the figures of a file with their predictions; data sets' rows are no figures."""
        assert path is not None, "the suite needs a file"
        figures, notes = read_keyed(path, lambda name: parse_key(name) is not None, _BRANCHES)
        keys, networks = [], _Networks()
        for figure in figures:
            key = parse_key(figure.id)
            assert key is not None
            keys.append(key)
        return Evidence(
            ids=[figure.id for figure in figures],
            columns={
                name: np.array([str(getattr(key, name)) for key in keys], object)
                for name in ("figure", "dataset", "store", "model", "place")
            },
            measured=np.array([figure.value for figure in figures]),
            predicted=np.array([predict(key, networks) for key in keys]),
            unit="",
            dimensions=("figure", "dataset"),
            notes=[
                note for note in notes if "gcnp." in note and "datasets" not in note and "source" not in note
            ],
        )


FIGURES = GcnpFigures()
"""The predictor of the suite `gcnp`."""
