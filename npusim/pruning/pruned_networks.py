"""`npusim.prune`: trains, prunes and trains again over seeds, and writes the networks."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
import yaml
from torch_geometric.nn import GCNConv

from npusim.api import as_numbers
from npusim.api.asking import Progress, of_workload, telling
from npusim.api.trusting import parse_seeds
from npusim.arch import Npu, load_soc
from npusim.config.overrides import Settings
from npusim.engines.analytical import mapped_estimate
from npusim.errors import ConfigError, as_list
from npusim.files import make_folder, refuse_unwritable, write_whole
from npusim.frontends.openvino_write import save_model
from npusim.frontends.pyg import MODULE, as_arrays, convert, module_at
from npusim.gnn_models.judging import training_of
from npusim.gnn_models.models import model_instance, module_of
from npusim.gnn_models.networks import GAT, Propagation
from npusim.gnn_models.planetoid import GraphData, read_planetoid
from npusim.gnn_models.training import Recipe, accuracy, cached_retraining, cached_training, one_thread
from npusim.gnn_models.views import EdgeView, MatrixView, dense_adjacency
from npusim.graph import Graph, GraphStructure
from npusim.pruning import channel_pruning
from npusim.pruning.channel_pruning import METHODS, Method, Network, Pruned
from npusim.pruning.document import CurvePoint, NetworkRun, PrunedNetwork, PrunedSeed, PruningReport
from npusim.scenario import Scenario
from npusim.workloads import GnnSpec, build_gnn, load_gnn, load_statistics
from npusim.workloads.gnn.spec import EQUATION_1, BranchChannels, Layer, Pruning

Tell = Callable[[str, float], None]
_ACCURACIES = ("accuracy", "cut_accuracy", "refitted_accuracy")
_STACKS = ("stagr", "stagr+quantgr", "stagr+quantgr+cacheg")
_WHOLE = 1.0
"""Budget of the unpruned network."""
_CLOSE = 1e-3
"""Largest difference of a log-probability to that of a user's module."""
_MASKS = ("train_mask", "val_mask", "test_mask")


def prune(
    network: str | Path,
    budget: str | float | Sequence[float],
    *,
    scheme: str = "full",
    multiple: str | int = "1",
    data: str | Path | None = None,
    seeds: str | Sequence[int] = "0",
    soc: str | Sequence[str] | None = None,
    models: str | Path | None = None,
    settings: Settings = (),
    progress: Progress | None = None,
) -> PruningReport:
    """Prune the channels of a trained GNN (GCNP): LASSO beside random and largest-weight choices.

    Trains on Planetoid's public split, prunes on the training nodes and their graph, refits, trains again.
    `npusim estimate DIR/NAME-4x.yaml` costs what was written. Needs the extra `gnn`.

    Parameters
    ----------
    network : str or Path
        Name or file of a GNN, or a trained module of GCNConv (model.py:net) whose example inputs are a data
        object with y, train_mask, val_mask and test_mask.
    budget : float, sequence of float, or str with commas
        Times fewer channels, such as 4 or 2,4,8; above 1.
    scheme : {"full", "batched"}
        full: all layers, attributes kept; batched: layer 2 and what the neighbours' branch of layer 1 reads.
    multiple : int, or "auto"
        Channels of a branch are kept in multiples of N; auto: of what the machines of --soc work on side by
        side, 16 on a MAC grid.
    data : str or Path, optional
        Folder with the raw data sets, as cora/raw/ind.cora.x and so on. None: the environment variable
        NPUSIM_DATA
    seeds : sequence of int, or str
        Trainings, such as 0-2 or 0,3,7.
    soc : sequence of str, or str with commas, optional
        Machines to cost the pruned networks on, parted by commas.
    models : str or Path, optional
        Folder for parameters (.pt), workloads (.yaml) and OpenVINO models (.xml); NAME-1x is whole.
    settings : settings
        Of the workload; paths begin with `workload`.
    progress : callable, optional
        Called with the share that is done, 1.0 and the present step.

    Command lines
    -------------
        npusim prune sage-concat-cora --budget 4 --scheme full --data planetoid --models pruned
        npusim prune model.py:net --budget 4 --models pruned
        npusim prune gcn-cora --budget 2,4,8 --seeds 0-2 --data planetoid -o pruned.json
        npusim prune sage-concat-cora --budget 2,4,8 --multiple 16 --soc core-ultra-series2 --data planetoid
    """
    own_settings = of_workload(settings, "")
    budgets, trainings, socs = parse_budgets(budget), parse_seeds(seeds), as_list(soc)
    lanes, tell = parse_multiple(str(multiple), socs), telling(progress) or (lambda step, share: None)
    source = _source(str(network), own_settings, data)
    work = _Work(str(network), budgets, scheme, lanes, trainings, tell, *source)
    work.refuse_impossible()
    if models is not None:
        make_folder(Path(models))
        refuse_unwritable(Path(models) / "network.pt")
    with one_thread(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        networks, first, curve = work.networks()
    baseline = mean(seed.baseline_accuracy for seed in networks[0].seeds)
    accuracies = {network.budget: network.accuracy for network in networks if network.method == "lasso"}
    return PruningReport(
        workload=str(network),
        scheme=work.scheme,
        multiple=work.multiple,
        training=training_of(Recipe()),
        baseline_accuracy=baseline,
        networks=networks,
        files=[] if models is None else work.write(first, Path(models)),
        runs=work.runs(first, socs, accuracies | {_WHOLE: baseline}),
        curve=curve,
    )


def _source(
    network: str, settings: Sequence[Any], data: str | Path | None
) -> tuple[GnnSpec, GraphData, GraphStructure, Propagation | None]:
    """Return a workload with its data set, or a user's module with its own data and parameters."""
    if MODULE.fullmatch(network):
        if settings or data is not None:
            raise ConfigError("--set or --data", file="prune", allowed="neither for a module: it has its own")
        spec, graph_data, own = own_network(network)
        sizes = graph_data.nodes, graph_data.edge_index.shape[1], graph_data.features, graph_data.classes
        return spec, graph_data, GraphStructure(graph_data.name, *sizes), own
    spec = load_gnn(network, settings)
    if spec.model not in ("gcn", "gat", *EQUATION_1):
        allowed = f"gcn, gat, {', '.join(EQUATION_1)}: networks by Eq. 1"
        raise ConfigError(f"`{spec.model}`", file="prune", allowed=allowed)
    if spec.pruning is not None or spec.channels is not None or spec.batch is not None:
        raise ConfigError("a workload that is pruned or batched", file="prune", allowed="the whole network")
    raw = None if data is None else Path(data)
    return spec, read_planetoid(spec.dataset, raw), load_statistics(spec.dataset), None


def parse_multiple(text: str, socs: Sequence[str]) -> int:
    """Return the multiple in which channels are kept; refuse a misspelt machine before minutes of work.

    Raises
    ------
    ConfigError
        For anything but a whole number of at least 1, or ``auto`` without a machine.
    UnknownNameError
        For an unknown machine.
    """
    machines = [load_soc(name) for name in socs]
    if text == "auto" and machines:
        devices = [list(machine.devices.values()) for machine in machines]
        grids = [[one.dpu.channel_lanes for one in each if isinstance(one, Npu)] for each in devices]
        lanes = [[getattr(one, "product_lanes", None) or 1.0 for one in each] for each in devices]
        return max(int(max(own or other)) for own, other in zip(grids, lanes, strict=True))
    if not text.isdecimal() or not 1 <= int(text[:9]) <= 4096:
        allowed = "a whole number from 1 to 4096, or auto with --soc"
        raise ConfigError(f"`{text}`", file="--multiple", allowed=allowed)
    return int(text)


def parse_budgets(budget: str | float | Sequence[float]) -> list[float]:
    """Return the budgets of a number, a list, or a text such as ``2,4,8``.

    Raises
    ------
    ConfigError
        Where a part is no number above 1.

    Examples
    --------
    >>> parse_budgets("2,4")
    [2.0, 4.0]
    """
    allowed = "numbers above 1, such as 4 or 2,4,8; 4 keeps a quarter"
    texts = str(budget) if isinstance(budget, int | float) else budget
    budgets = as_numbers(texts, float, "--budget", allowed, 1e6)
    if not budgets or not min(budgets) > 1.0:
        raise ConfigError(f"`{budget}`", file="--budget", allowed=allowed)
    return list(dict.fromkeys(budgets))


def own_network(what: str) -> tuple[GnnSpec, GraphData, Propagation]:
    """Return a module of a user's file as a gcn, its data and its trained parameters.

    Raises
    ------
    ConfigError
        Where its answers are not those of graph convolutions with ReLUs between them, or its example inputs
        are no data object with classes and masks of the nodes.
    """
    named = module_at(what)
    kind, needed = type(named.module).__name__, ("x", "edge_index", "y", *_MASKS)
    absent = [key for key in needed if getattr(named.example, key, None) is None]
    if absent:
        found = f"no `{absent[0]}` in the example inputs of {what}"
        raise ConfigError(found, allowed=f"a data object with x, edge_index, y, {', '.join(_MASKS)}")
    convolutions = [layer for layer in named.module.modules() if isinstance(layer, GCNConv)]
    inner = {layer.out_channels for layer in convolutions[:-1]}
    if not convolutions or len(inner) > 1:
        found = f"{kind} with {len(convolutions)} GCNConv"
        raise ConfigError(found, allowed="one or more GCNConv, with one width between them")
    arrays = as_arrays({key: getattr(named.example, key) for key in needed})
    ends = arrays["edge_index"][:, arrays["edge_index"][0] != arrays["edge_index"][1]]
    masks = (arrays[key].astype(bool) for key in _MASKS)
    data = GraphData(named.name, arrays["x"], np.unique(ends, axis=1), arrays["y"].reshape(-1), *masks)
    layers, parameters = list[Layer](), dict[str, torch.Tensor]()
    for i, layer in enumerate(convolutions):
        inputs, outputs = layer.in_channels, layer.out_channels
        layers.append(Layer((BranchChannels(order=1, inputs=inputs, outputs=outputs),), inputs))
        bias = torch.zeros(outputs) if layer.bias is None else layer.bias.detach()
        parameters |= {f"layers.{i}.0.weight": layer.lin.weight.detach(), f"layers.{i}.0.bias": bias}
    matrix = dense_adjacency(data.edge_index, data.nodes, True, "norm")
    view = MatrixView({"norm": matrix}, constant=True).sparse()
    network = Propagation(tuple(layers), view, False, bias=True)
    network.load_state_dict(parameters)
    with torch.no_grad():
        ours = network.eval()(torch.from_numpy(data.x))
        theirs = torch.log_softmax(named.module(*named.inputs.values()), dim=1)
    if ours.shape != theirs.shape or float((ours - theirs).abs().max()) > _CLOSE:
        found = f"{kind} answers otherwise than its GCNConv with ReLUs between them"
        raise ConfigError(found, allowed="such a network, on edges in both directions, in its trained state")
    keys = {"model": "gcn", "dataset": "own", "layers": len(layers), "precision": "fp32"}
    return GnnSpec.model_validate(keys | ({"hidden": inner.pop()} if inner else {})), data, network


@dataclass(frozen=True)
class _Work:
    """The work of one command."""

    name: str
    budgets: Sequence[float]
    scheme: str
    multiple: int
    seeds: Sequence[int]
    tell: Tell
    spec: GnnSpec
    data: GraphData
    structure: GraphStructure
    own: Network | None
    """A user's own network, which is the same for all seeds."""

    def pruning(self, budget: float) -> Pruning:
        """Return the settings of a budget."""
        return Pruning.model_validate({"budget": budget, "scheme": self.scheme, "multiple": self.multiple})

    def refuse_impossible(self) -> None:
        """Refuse budgets that the network cannot give, before minutes of training."""
        for budget in self.budgets:
            keys = self.spec.model_dump(exclude_unset=True) | {"pruning": self.pruning(budget).model_dump()}
            spec = GnnSpec.model_validate(keys)
            channels = spec.equation_layers if spec.model in EQUATION_1 else spec.widths
            channels(self.data.features, self.data.classes)

    def accuracy(self, module: Network) -> float:
        """Return the share of test nodes that a module classifies correctly."""
        module.eval()
        with torch.no_grad():
            scores = module(torch.from_numpy(self.data.x), *module.view.example.values())
            return accuracy(scores.numpy(), self.data.y, self.data.test)

    def trained(self, seed: int) -> Network:
        """Return the trained network of a seed."""
        if self.own is not None:
            return self.own
        module = module_of(self.spec, self.data)
        trained = cached_training(self.spec, self.data, Recipe(seed=seed))
        module.load_state_dict(trained.parameters)
        return module

    def networks(self) -> tuple[list[PrunedNetwork], dict[float, Pruned], list[CurvePoint]]:
        """Return the networks by budget and method, the first seed's by LASSO, and the curve.

        The first seed's networks include the unpruned one, at budget 1.
        """
        cases = list(product(self.budgets, METHODS))
        results: dict[tuple[float, Method], list[tuple[Pruned, PrunedSeed]]] = {case: [] for case in cases}
        first: dict[float, Pruned] = {}
        curve: list[CurvePoint] = []
        steps = len(self.seeds) * (len(cases) + 1)
        for turn, seed in enumerate(self.seeds):
            done = turn * (len(cases) + 1)
            self.tell(f"seed {seed}: training", done / steps)
            module = self.trained(seed)
            baseline = self.accuracy(module)
            curve = curve or self.curve(module, seed)
            first.setdefault(_WHOLE, Pruned(module, module, {}, 0.0))
            for number, (budget, method) in enumerate(cases, 1):
                self.tell(f"seed {seed}: {budget:g}x by {method}", (done + number) / steps)
                pruned = channel_pruning.prune(module, self.data, self.pruning(budget), method, seed)
                results[budget, method].append((pruned, self.retrained(pruned, seed, baseline)))
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
            macs=self.graph(plan, form="csr").macs,
            weight_bytes=self.spec.dtype.bytes * sum(layer.parameters for layer in plan),
            channels=[[(b.order, b.inputs, b.outputs) for b in layer.branches] for layer in plan],
            seeds=seeds,
        )

    def retrained(self, pruned: Pruned, seed: int, baseline: float) -> PrunedSeed:
        """Train a pruned network again and judge it."""
        before, recipe = self.accuracy(pruned.module), Recipe(seed=seed)
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
        return keys | {"channels": [[branch.model_dump() for branch in layer.branches] for layer in layers]}

    def graph(self, layers: Sequence[Layer], **changes: str) -> Graph:
        """Return a pruned network's operator graph."""
        return build_gnn(GnnSpec.model_validate(self.keys(layers) | changes), self.structure)

    def curve(self, module: Network, seed: int) -> list[CurvePoint]:
        """Prune layer 2 alone by rising shares and refit it, by every method."""
        if len(module.plan) < 2 or (isinstance(module, Propagation) and module.jumping):
            return []
        small, x = channel_pruning.on_training_graph(module, self.data)
        reads = channel_pruning.reads_of(small, 1, channel_pruning.inputs_of(small, x)[1], {})
        channels, points = reads.features[0].shape[1], []
        for method, tenths in product(METHODS, range(10)):
            keep = max(1, round(channels * (1.0 - tenths / 10)))
            order = channel_pruning.chosen(reads, keep, method, seed).argsort(descending=True)
            kept = order[:keep].sort().values
            weights = channel_pruning.refitted(reads, kept)
            point = CurvePoint(
                method=method,
                share_pruned=tenths / 10,
                loss=reads.loss(kept, weights),
                accuracy=self.accuracy(channel_pruning.with_weights(module, 1, kept, weights)),
            )
            points.append(point)
        return points

    def runs(
        self, networks: dict[float, Pruned], socs: Sequence[str], accuracies: dict[float, float]
    ) -> list[NetworkRun]:
        """Return networks by budget on every machine under every stack."""
        graphs, runs = {budget: self.graph(one.module.plan) for budget, one in networks.items()}, []
        for soc, stack, (budget, graph) in product(socs, _STACKS, graphs.items()):
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
        return runs

    def write(self, networks: dict[float, Pruned], folder: Path) -> list[str]:
        """Write networks by budget: parameters, workload file, OpenVINO model."""
        name = self.name.rpartition(":")[2] if MODULE.fullmatch(self.name) else Path(self.name).stem
        files, data = [], self.data
        for budget, pruned in networks.items():
            module, stem = pruned.module, folder / f"{name}-{budget:g}x"
            buffer = io.BytesIO()
            torch.save({"parameters": module.state_dict(), "kept": dict(pruned.kept)}, buffer)
            write_whole(stem.with_suffix(".pt"), buffer.getvalue())
            if self.own is None:
                text = yaml.safe_dump(self.keys(module.plan), sort_keys=False, default_flow_style=None)
                write_whole(stem.with_suffix(".yaml"), text.encode())
            if isinstance(module, GAT):
                spec = GnnSpec.model_validate(self.keys(module.plan))
                instance = model_instance(spec, data)
                instance.module.load_state_dict(module.state_dict())
                network, inputs = instance.module, instance.inputs
            else:
                view = EdgeView(data.edge_index, data.nodes, add_loops=not module.mean)
                network = channel_pruning.like(module, module.plan, view)
                inputs = {"x": torch.from_numpy(data.x), **view.example}
            with one_thread():
                model = convert(network.eval(), inputs)
            save_model(model, stem.with_suffix(".xml"), half=self.spec.precision == "fp16")
            endings = (".pt", ".yaml", ".xml") if self.own is None else (".pt", ".xml")
            files += [str(stem.with_suffix(ending)) for ending in endings]
        return files
