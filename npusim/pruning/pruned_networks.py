"""Trains, prunes and trains again over seeds; writes pruned modules, workloads and OpenVINO models."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import yaml

from npusim.config.overrides import Settings
from npusim.engines.analytical import mapped_estimate
from npusim.errors import ConfigError, FileError
from npusim.files import refuse_unwritable, write_whole
from npusim.frontends.openvino_write import save_model
from npusim.frontends.pyg import MODULE, convert
from npusim.gnn_models.judging import training_of
from npusim.gnn_models.models import model_instance, module_of
from npusim.gnn_models.networks import GAT, Propagation
from npusim.gnn_models.planetoid import GraphData, read_planetoid
from npusim.gnn_models.training import Recipe, accuracy, cached_retraining, cached_training, one_thread
from npusim.gnn_models.views import EdgeView
from npusim.graph import Graph, GraphStructure
from npusim.pruning import channel_pruning
from npusim.pruning.channel_pruning import Method, Network, Pruned
from npusim.pruning.document import CurvePoint, NetworkRun, PrunedNetwork, PrunedSeed, PruningReport
from npusim.scenario import Scenario
from npusim.techniques import parse
from npusim.workloads import GnnSpec, build_gnn, load_gnn, load_statistics
from npusim.workloads.gnn.spec import EQUATION_1, Layer, Pruning

Tell = Callable[[str, float], None]
_ACCURACIES = ("accuracy", "cut_accuracy", "refitted_accuracy")
_WHOLE = 1.0
"""Budget of the unpruned network."""


@dataclass(frozen=True)
class Plan:
    """Budgets, methods and seeds of a pruning, and the machines that run the results."""

    budgets: Sequence[float]
    scheme: str = "full"
    multiple: int = 1
    methods: Sequence[Method] = channel_pruning.METHODS
    seeds: Sequence[int] = (0,)
    socs: Sequence[str] = ()
    stacks: Sequence[str] = ("stagr", "stagr+quantgr", "stagr+quantgr+cacheg")
    recipe: Recipe = field(default_factory=Recipe)

    def pruning(self, budget: float) -> Pruning:
        """Return the settings of a budget."""
        return Pruning.model_validate({"budget": budget, "scheme": self.scheme, "multiple": self.multiple})


def run_pruning(
    workload: str,
    plan: Plan,
    data: Path | None = None,
    output: Path | None = None,
    overrides: Settings = (),
    tell: Tell | None = None,
) -> PruningReport:
    """Prune a workload's network on real data.

    Parameters
    ----------
    workload : str
        Name or file of a GNN: gcn, gat or a model by Eq. 1; or a trained module of GCNConv as `model.py:net`,
        whose example inputs are a data object with classes and masks.
    output : Path, optional
        Folder for parameters (.pt), workloads (.yaml) and OpenVINO models (.xml) of the first seed; NAME-1x
        is the unpruned network.
    tell : callable, optional
        Progress callback (message, fraction).

    Raises
    ------
    ConfigError
        Where the network cannot be pruned by the budget or scheme, or the data set has no split.
    FileError
        Where the raw data is missing, or the folder cannot be written.
    """
    own: Network | None = None
    if MODULE.fullmatch(workload):
        if overrides or data is not None:
            raise ConfigError("--set or --data", file="prune", allowed="neither for a module: it has its own")
        from npusim.pruning.own_network import own_network

        spec, graph_data, own = own_network(workload)
        structure = GraphStructure(
            graph_data.name,
            graph_data.nodes,
            graph_data.edge_index.shape[1],
            graph_data.features,
            graph_data.classes,
        )
    else:
        spec = load_gnn(workload, overrides)
    if spec.model not in ("gcn", "gat", *EQUATION_1):
        allowed = f"gcn, gat, {', '.join(EQUATION_1)}: networks by Eq. 1"
        raise ConfigError(f"`{spec.model}`", file="prune", allowed=allowed)
    if spec.pruning is not None or spec.channels is not None or spec.batch is not None:
        raise ConfigError("a workload that is pruned or batched", file="prune", allowed="the whole network")
    if own is None:
        graph_data, structure = read_planetoid(spec.dataset, data), load_statistics(spec.dataset)
    for budget in plan.budgets:  # refused before minutes of training, not after
        keys = spec.model_dump(exclude_unset=True) | {"pruning": plan.pruning(budget).model_dump()}
        pruned = GnnSpec.model_validate(keys)
        channels = pruned.equation_layers if spec.model in EQUATION_1 else pruned.widths
        channels(graph_data.features, graph_data.classes)
    if output is not None:
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"cannot be made ({error.strerror})"
            raise FileError(str(output), problem, "choose another one") from None
        refuse_unwritable(output / "network.pt")
    work = _Work(workload, spec, plan, graph_data, structure, own, tell or (lambda _, __: None))
    with one_thread(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        networks, first, curve = work.networks()
    files = _write(work, first, output) if output is not None else []
    accuracies = {network.budget: network.accuracy for network in networks if network.method == "lasso"}
    accuracies[_WHOLE] = mean(work.baselines)
    graphs = {budget: work.graph(pruned.module.plan) for budget, pruned in first.items()}
    runs = []
    for soc, stack, (budget, graph) in product(plan.socs, plan.stacks, graphs.items()):
        estimate = mapped_estimate(Scenario(graph, soc, stack).mapped)
        run = NetworkRun(
            budget=budget,
            soc=soc,
            techniques=stack,
            latency_s=estimate.latency_s,
            energy_j=estimate.energy_j,
            dram_peak_bytes=estimate.memory.dram_peak_bytes,
            accuracy=accuracies[budget],
        )
        runs.append(run)
    return PruningReport(
        workload=workload,
        scheme=plan.scheme,
        multiple=plan.multiple,
        training=training_of(plan.recipe),
        baseline_accuracy=accuracies[_WHOLE],
        networks=networks,
        runs=runs,
        curve=curve,
        files=files,
    )


class _Work:
    """The work of one command."""

    def __init__(
        self,
        name: str,
        spec: GnnSpec,
        plan: Plan,
        data: GraphData,
        structure: GraphStructure,
        own: Network | None,
        tell: Tell,
    ) -> None:
        self.name, self.spec, self.plan, self.data, self.tell = name, spec, plan, data, tell
        self.structure, self.own = structure, own
        self.baselines: list[float] = []
        self.x = torch.from_numpy(data.x)

    def accuracy(self, module: Network) -> float:
        """Return the share of test nodes that a module classifies correctly."""
        module.eval()
        with torch.no_grad():
            scores = module(self.x, *module.view.example.values())
            return accuracy(scores.numpy(), self.data.y, self.data.test)

    def trained(self, seed: int) -> Network:
        """Return the trained network of a seed; a user's own is the same for all seeds."""
        if self.own is not None:
            return self.own
        module = module_of(self.spec, self.data)
        trained = cached_training(self.spec, self.data, replace(self.plan.recipe, seed=seed))
        module.load_state_dict(trained.parameters)
        return module

    def networks(self) -> tuple[list[PrunedNetwork], dict[float, Pruned], list[CurvePoint]]:
        """Return the networks by budget and method, the first seed's by LASSO, and the curve.

        The first seed's networks include the unpruned one, at budget 1.
        """
        cases = [(budget, method) for budget in self.plan.budgets for method in self.plan.methods]
        results: dict[tuple[float, Method], list[tuple[Pruned, PrunedSeed]]] = {case: [] for case in cases}
        first: dict[float, Pruned] = {}
        curve: list[CurvePoint] = []
        steps, done = len(self.plan.seeds) * (len(cases) + 1), 0
        for seed in self.plan.seeds:
            self.tell(f"seed {seed}: training", done / steps)
            module = self.trained(seed)
            baseline, done = self.accuracy(module), done + 1
            self.baselines.append(baseline)
            curve = curve or self.curve(module, seed)
            first.setdefault(_WHOLE, Pruned(module, module, {}, 0.0))
            for budget, method in cases:
                self.tell(f"seed {seed}: {budget:g}x by {method}", done / steps)
                pruned = channel_pruning.prune(module, self.data, self.plan.pruning(budget), method, seed)
                results[budget, method].append((pruned, self.retrained(pruned, seed, baseline)))
                done += 1
        first |= {budget: pairs[0][0] for (budget, method), pairs in results.items() if method == "lasso"}
        return [self.network(*case, results[case]) for case in cases], first, curve

    def network(
        self, budget: float, method: Method, pairs: Sequence[tuple[Pruned, PrunedSeed]]
    ) -> PrunedNetwork:
        """Return means over the seeds; channels and work are of the first seed."""
        plan, seeds = pairs[0][0].module.plan, [seed for _, seed in pairs]
        lost = [100.0 * (seed.baseline_accuracy - seed.accuracy) for seed in seeds]
        return PrunedNetwork(
            budget=budget,
            method=method,
            **{key: mean(getattr(seed, key) for seed in seeds) for key in _ACCURACIES},
            lost_points=mean(lost),
            lost_error_points=stdev(lost) / len(lost) ** 0.5 if len(lost) > 1 else None,
            macs=self.graph(plan, "csr").macs,
            weight_bytes=self.spec.dtype.bytes * sum(layer.parameters for layer in plan),
            channels=[[(b.order, b.inputs, b.outputs) for b in layer.branches] for layer in plan],
            seeds=seeds,
        )

    def retrained(self, pruned: Pruned, seed: int, baseline: float) -> PrunedSeed:
        """Train a pruned network again and judge it."""
        before, recipe = self.accuracy(pruned.module), replace(self.plan.recipe, seed=seed)
        label = f"{self.spec!r} {pruned.module.plan!r}"
        retraining_s = cached_retraining(pruned.module, self.data, recipe, label)
        return PrunedSeed(
            seed=seed,
            baseline_accuracy=baseline,
            cut_accuracy=self.accuracy(pruned.cut),
            refitted_accuracy=before,
            accuracy=self.accuracy(pruned.module),
            pruning_s=pruned.seconds,
            retraining_s=retraining_s,
        )

    def keys(self, layers: Sequence[Layer]) -> dict[str, Any]:
        """Return the keys of the workload file of a pruned network."""
        keys = self.spec.model_dump(exclude_unset=True, exclude={"pruning", "channels"})
        if self.spec.model in ("gcn", "gat"):
            return keys | {"hidden": layers[0].outputs}
        channels = [[branch.model_dump() for branch in layer.branches] for layer in layers]
        return keys | {"channels": channels}

    def graph(self, layers: Sequence[Layer], form: str | None = None) -> Graph:
        """Return a pruned network's operator graph."""
        keys = self.keys(layers) | ({"form": form} if form else {})
        return build_gnn(GnnSpec.model_validate(keys), self.structure)

    def curve(self, module: Network, seed: int) -> list[CurvePoint]:
        """Prune layer 2 alone by rising shares and refit it, by every method."""
        if len(module.plan) < 2 or (isinstance(module, Propagation) and module.jumping):
            return []
        small, x = channel_pruning.on_training_graph(module, self.data)
        reads = channel_pruning.reads_of(small, 1, channel_pruning.inputs_of(small, x)[1], {})
        channels, points = reads.features[0].shape[1], []
        for method, tenths in product(self.plan.methods, range(10)):
            share = tenths / 10
            keep = max(1, round(channels * (1.0 - share)))
            order = channel_pruning.chosen(reads, keep, method, seed).argsort(descending=True)
            kept = order[:keep].sort().values
            weights = channel_pruning.refitted(reads, kept)
            point = CurvePoint(
                method=method,
                share_pruned=share,
                loss=reads.loss(kept, weights),
                accuracy=self.accuracy(channel_pruning.with_weights(module, 1, kept, weights)),
            )
            points.append(point)
        return points


def _stem(name: str) -> str:
    """Return the beginning of file names: a workload's, or a module's name in its file."""
    return name.rpartition(":")[2] if MODULE.fullmatch(name) else Path(name).stem


def _write(work: _Work, first: dict[float, Pruned], folder: Path) -> list[str]:
    """Write the first seed's networks, unpruned and by LASSO: parameters, workload file, OpenVINO model."""
    files, data = [], work.data
    for budget, pruned in first.items():
        module, stem = pruned.module, folder / f"{_stem(work.name)}-{budget:g}x"
        held = io.BytesIO()
        torch.save({"parameters": module.state_dict(), "kept": dict(pruned.kept)}, held)
        write_whole(stem.with_suffix(".pt"), held.getvalue())
        endings = [".pt", ".xml"]
        if work.own is None:
            text = yaml.safe_dump(work.keys(module.plan), sort_keys=False, default_flow_style=None)
            write_whole(stem.with_suffix(".yaml"), text.encode())
            endings.insert(1, ".yaml")
        if isinstance(module, GAT):
            spec = GnnSpec.model_validate(work.keys(module.plan))
            instance = model_instance(spec, work.graph(module.plan), parse("none"), data)
            instance.module.load_state_dict(module.state_dict())
            network, inputs = instance.module, instance.inputs
        else:
            view = EdgeView(data.edge_index, data.nodes, add_loops=not module.mean)
            network, inputs = channel_pruning.like(module, module.plan, view), {"x": work.x, **view.example}
        with one_thread():
            model = convert(network.eval(), inputs)
        save_model(model, stem.with_suffix(".xml"), half=work.spec.precision == "fp16")
        files += [str(stem.with_suffix(ending)) for ending in endings]
    return files
