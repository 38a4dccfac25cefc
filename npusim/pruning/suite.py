"""GCNP's figures of full and batched inference, each counted from a network that is built.

Multiply-accumulates are those of the graph in form `csr`, per node that the inference answers for. The memory
of full inference holds the edges (a 32-bit neighbour per direction, and the start of each row), the weights,
and the features of the widest layer: its hidden inputs, their aggregate and its results, side by side.
Attributes are inputs from outside, and elementwise operators work in place.

Times are those of the network as the authors' code runs it with torch: products before aggregation in full
inference, a gathered row for each edge in batches, and every branch normalised, one kernel for each operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from npusim.arch import Soc, load_soc
from npusim.calibration.fits import FiguresFit, FiguresFits, FitPlan, load_plan
from npusim.calibration.least_squares import Floats
from npusim.config.reading import read_yaml
from npusim.engines.analytical import mapped_estimate
from npusim.errors import ConfigError
from npusim.graph import Graph, GraphStructure
from npusim.ops import CSR_INDEX_BYTES, Role, TensorKind, WorkClass
from npusim.scenario import Scenario
from npusim.studies.perturbation import moved
from npusim.validation.figures import Key, PathPredictor, shipped_figures
from npusim.validation.suite import suite_file
from npusim.workloads import GnnSpec, build_gnn, load_statistics

_MIB = 1024.0**2
SOC = "threadripper-a6000"
_BATCH = 512


@cache
def hidden_widths() -> Mapping[str, int]:
    """Return the hidden width of a branch by data set, from the shipped figures."""
    data = read_yaml(suite_file("gcnp", "figures", "gcnp.yaml")).data["gcnp"]["datasets"]
    return {name: int(row[4]) for name, row in data.items()}


def budget_of(key: Key) -> float:
    """Return how many times fewer channels a figure's network has; lists over budgets double it."""
    if key["budget"]:
        return float(key["budget"])
    return 1.0 if key["model"] == "sgc" else 2.0 ** int(key["place"])


@cache
def _network(model: str, dataset: str, store: str, budget: float, preprocessed: bool) -> Graph:
    """Return the network that a figure counts; `store` is empty for full inference."""
    return _built(model, dataset, store, budget, {"preprocessed": preprocessed} if model == "sgc" else {})


@cache
def timed_network(dataset: str, store: str, budget: float) -> Graph:
    """Return the network whose time was measured."""
    keys = {"branch_norm": True, "normalise": True, "order": f"{'aggregate' if store else 'transform'}_first"}
    return _built("sage-concat", dataset, store, budget, keys)


def _built(model: str, dataset: str, store: str, budget: float, keys: Mapping[str, Any]) -> Graph:
    """Return a network with further keys; one that normalises its branches gathers a batch's rows."""
    keys = {"model": model, "dataset": dataset, "hidden": hidden_widths()[dataset], **keys}
    if budget > 1.0:
        keys["pruning"] = {"budget": budget, "scheme": "batched" if store else "full"}
    if store:
        stored = "visited" if store == "stored" else 0.0
        keys["batch"] = {"roots": _BATCH, "stored": stored, "fetched": "branch_norm" in keys}
    spec = GnnSpec.model_validate({"form": "csr", "precision": "fp32", **keys})
    return build_gnn(spec, load_statistics(dataset))


def kept_bytes(graph: Graph, structure: GraphStructure) -> float:
    """Return the memory of full inference (B): edges, weights and the features of the widest layer."""
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
    """Return whether a tensor holds features of an earlier layer."""
    writer = graph.writer(name)
    if writer is None or graph.tensors[name].kind is not TensorKind.ACTIVATION:
        return False
    return writer.region.split("/")[0] != layer and name not in graph.structural


def predict(key: Key) -> float:
    """Return the prediction of a figure, in its unit."""
    model, dataset, store, budget = key["model"], key["dataset"], key["store"], budget_of(key)
    if dataset not in hidden_widths():
        known = ", ".join(hidden_widths())
        raise ConfigError(f"the data set `{dataset}`", key=f"gcnp.{key['figure']}", allowed=known)
    structure = load_statistics(dataset)
    figure = key["figure"]
    if "speedup" in figure:
        first_s = _time_s(dataset, "plain" if store else "", 1.0, key["device"])
        return first_s / _time_s(dataset, store, budget, key["device"])
    if key["device"]:
        seconds = _time_s(dataset, store, budget, key["device"])
        return 1e3 * seconds if store else structure.nodes / seconds / 1e6
    graph = _network(model, dataset, store, budget, model == "sgc" and key["place"] == "1")
    if figure == "full_inference_memory_mb":
        return kept_bytes(graph, structure) / _MIB
    return graph.macs / (_BATCH if store else structure.nodes) / 1e3


@cache
def _time_s(dataset: str, store: str, budget: float, device: str) -> float:
    return time_on(SOC, timed_network(dataset, store, budget), device)


def time_on(soc: str | Soc, graph: Graph, device: str) -> float:
    """Return the time of a network (s), without the preparation of the matrix of edges."""
    estimate = mapped_estimate(Scenario(graph, soc, device=device).mapped)
    beforehand = {op.name for op in graph if graph.structural.issuperset(op.outputs)}
    return estimate.latency_s - sum(o.latency_s for o in estimate.operators if o.name in beforehand)


FIGURES = PathPredictor(predict)


class TimesFit(FiguresFit):
    """Fit of a device to the times of full inference (GPU) or of batches (CPU), by data set."""

    def __init__(self, device: str) -> None:
        self.machine, self.device = load_soc(SOC), device
        figure_name = {"gpu": "full_inference_mnodes_per_s", "cpu": "batched_latency_ms"}[device]
        rows = [row for row in shipped_figures("gcnp") if row[1]["figure"] == figure_name]
        keys = [key for _, key in rows]
        nodes = np.array([load_statistics(key["dataset"]).nodes for key in keys])
        published = np.array([figure.value for figure, _ in rows])
        measured_s = nodes / published / 1e6 if device == "gpu" else published / 1e3
        self.graphs = [timed_network(key["dataset"], key["store"], budget_of(key)) for key in keys]
        labels = [figure.id.removeprefix("gcnp.") for figure, _ in rows]
        groups = [key["dataset"] for key in keys]
        super().__init__(load_plan("gcnp", FitPlan), device, labels, measured_s, groups, ["s"] * len(rows))

    def predicted(self, values: Mapping[str, float]) -> Floats:
        """Return the times of all figures (s)."""
        homes = {("devices", *name.split(".")): value for name, value in values.items()}
        machine = moved(self.machine, homes)
        return np.array([time_on(machine, graph, self.device) for graph in self.graphs])


GCNP = FiguresFits("gcnp", TimesFit)
