"""Deployments of a network on a graph, by device, and sizes to compile it for.

Layouts of the edges, partitions and samples are compared.

*Buckets* are sizes to compile a network for, where the number of nodes changes with each request. A device
with compiled shapes pads a graph to the smallest bucket that holds it. For each number of buckets, the
capacities with the least mean latency over given sizes are found by dynamic programming over the sizes (or
over quantiles of many); each size has edges at the mean degree of the network's own graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from npusim.arch import Soc
from npusim.arch.loading import load_toolchain
from npusim.documents import Part
from npusim.engines.analytical import mapped_estimate
from npusim.engines.estimate import Compilation
from npusim.errors import ConfigError, InfeasibleError, NpusimError
from npusim.frontends.pyg import ExampleGraph, Inputs, Numbers, all_results, as_tensors, sample
from npusim.graph import Graph
from npusim.graph.editor import cut_at
from npusim.mapping import map_graph
from npusim.ops import Family, TensorKind
from npusim.scenario import Scenario
from npusim.studies.stream.following import Versions
from npusim.studies.stream.updates import Size
from npusim.techniques import NONE, EdgeData, Stack, get, legal, parse, technique_names
from npusim.techniques.blocks import TilesParameters, places_of_nodes, tiling_of
from npusim.techniques.neighbourhoods import matrix_from

_FIXED_EDGES = (EdgeData.CONSTANT, EdgeData.LAID_OUT)
_EDGES_AS_INPUT = "grad"
"""Technique that reads the edges of each part or sample as an input: one model serves all."""
_LARGE_NODES = 20_000
"""Nodes from which on parts and samples are compared: a dense matrix of so many takes 0.8 GB."""
_PART_NODES = (4096, 16384)
"""Nodes of a part before its halo: matrices of 34 and 537 MB."""
_MOST_PARTS = 256
_MOST_READ = 0.5
"""Share of the graph that a part may read: with more, parts repeat more work than they save."""
_SEEDS = 1024
_FAN_OUT = (15, 10, 5)
"""Neighbours of a node by hop, the last one for all further hops: GraphSAGE's sizes on ogbn-products."""
_RING = 1009  # nodes of the ring on which is tested whether answers depend on near nodes alone
_CLOSE = 1e-3


class Deployment(Part):
    """One way to compute the answers of all nodes on one device."""

    graph: str
    """What a run reads: the whole graph, a part of it with its halo (layer by layer: with the features that
    the layer before it left of all parts), or a sampled batch."""
    device: str = ""
    """Device that the network is placed on; empty where none was tried."""
    techniques: str = NONE
    """Technique stack."""
    runs: int = 1
    """Runs of the network for the answers of all nodes."""
    all_nodes_s: float | None = None
    """Time between two answers of all nodes, in s; null where it is not possible."""
    memory_bytes: float | None = None
    """DRAM in use while the network runs, in bytes, with constants of all parts; null as above."""
    compile_s: float | None = None
    """Time to compile all models in s; null where the device names no compiler."""
    compile_peak_bytes: float | None = None
    """Most memory in use while compiling, in bytes; null as above."""
    same_answers: float | None = None
    """Share of answers that sampling keeps; null where every neighbour is read, or the graph is too large."""
    is_exact: bool = True
    """Whether every neighbour is read."""
    problem: str = ""
    """Why it cannot be advised; empty where it can."""

    @property
    def is_advisable(self) -> bool:
        """Whether it runs today, without a problem, and reads every neighbour."""
        exists = not any(entry.technique.what_if for entry in parse(self.techniques))
        return exists and self.is_exact and not self.problem


Cached: TypeAlias = Mapping[str, float]
"""Tensors that each layer leaves for the next, with their bytes for all nodes."""
_NOTHING: Cached = MappingProxyType({})
# What one run reads, without device and stack; its inputs, None where it is not possible; what is cached.
Share: TypeAlias = tuple[Deployment, Inputs | None, Cached]


def compare_deployments(scenario: Scenario, best: str, *, is_run: bool = False) -> list[Deployment]:
    """Return the cost of each way to compute the answers of all nodes, on each device.

    The network runs on the whole graph at once, on one part after the other, or on samples of neighbours.

    Parameters
    ----------
    best : str
        Technique stack to try; also tried are the network itself and each technique that fixes the edges.
    is_run : bool
        Run the whole network, to compare the answers of samples.

    Returns
    -------
    list of Deployment
        Fastest first; behind them those that cannot run or be advised, each with its `problem`. On the whole
        graph all stacks, on parts and samples the fastest stack of each device.
    """
    fixing = [name for name in technique_names() if get(name).edges in _FIXED_EDGES]
    stacks = list(dict.fromkeys([best, *fixing, NONE]))
    deployments = list(_on_devices(scenario, Deployment(graph="whole"), stacks))
    module, graph = _example_of(scenario) or (None, None)
    shares = () if graph is None else _shares(scenario.baseline, module, graph, is_run=is_run)
    for share, inputs, cached in shares:
        if inputs is None or not all(array.size for array in inputs.values()):
            deployments.append(share.model_copy(update={"problem": share.problem or "no edge lies in it"}))
            continue
        part = scenario.with_(network=module, inputs=as_tensors(inputs))
        # Neighbours are sampled anew for each batch: a model compiled for fixed edges would serve but one.
        tried = [each for each in (*stacks, _EDGES_AS_INPUT) if share.is_exact or not fixes_edges(each)]
        deployments.extend(_fastest_per_device(_on_devices(part, share, tried, cached)))
    return sorted(deployments, key=_rank)


def _fastest_per_device(deployments: Iterable[Deployment]) -> Iterable[Deployment]:
    """Return the deployment of each device that ranks first."""
    slowest_first = sorted(deployments, key=_rank, reverse=True)
    return {each.device: each for each in slowest_first}.values()


def _example_of(scenario: Scenario) -> tuple[Any, ExampleGraph] | None:
    """Return the module of a scenario, and the large graph of its inputs; None for other networks."""
    structure = scenario.baseline.structure
    return None if structure is None or structure.nodes < _LARGE_NODES else scenario.example


def _rank(deployment: Deployment) -> tuple[bool, float]:
    """Return the sort key of deployments: those without a problem first, then by time."""
    return bool(deployment.problem), deployment.all_nodes_s or 0.0


def fixes_edges(stack: str | Stack) -> bool:
    """Return whether a stack holds for the edges of the example alone."""
    return any(entry.technique.edges in _FIXED_EDGES for entry in parse(stack))


def _on_devices(
    scenario: Scenario, share: Deployment, stacks: Iterable[str], cached: Cached = _NOTHING
) -> Iterable[Deployment]:
    """Yield each legal stack on each device; see `_costed`."""
    for stack in [each for each in dict.fromkeys(stacks) if legal(scenario.baseline, each) is None]:
        rewritten = scenario.with_(techniques=stack)
        for device in (*scenario.machine.array_devices, *scenario.machine.hosts):
            yield _costed(rewritten.with_(device=device), share, cached)


def _costed(scenario: Scenario, share: Deployment, cached: Cached = _NOTHING) -> Deployment:
    """Cost one stack on one device; a part with its own constants is a model of its own.

    Layers behind `cached` tensors are compiled and launched apart, and read them from DRAM.
    """
    stack = parse(scenario.techniques)
    figures: dict[str, Any] = {"device": scenario.device, "techniques": str(stack)}
    try:
        mapped = scenario.mapped
        if cached:
            if not cached.keys() <= scenario.graph.tensors.keys():
                return share.model_copy(update=figures | {"problem": "it leaves no features between layers"})
            mapped = map_graph(cut_at(scenario.graph, cached), scenario.machine, scenario.run)
        estimate = mapped_estimate(mapped)
    except InfeasibleError as error:
        return share.model_copy(update=figures | {"problem": str(error)})
    models = share.runs if fixes_edges(stack) else 1
    compilation = estimate.compilation
    if compilation is not None:
        figures["compile_s"] = compilation.compile_s * models
        figures["compile_peak_bytes"] = compilation.memory_peak_bytes
    constants = [t for t in scenario.graph.tensors.values() if t.kind is TensorKind.CONSTANT]
    of_others = (models - 1) * sum(t.stored_bytes for t in constants)
    memory_bytes = estimate.memory.dram_peak_bytes + of_others + sum(cached.values())
    figures["all_nodes_s"] = share.runs / estimate.throughput_per_s
    figures["memory_bytes"] = memory_bytes
    figures["problem"] = memory_problem(scenario.machine, compilation, memory_bytes)
    return share.model_copy(update=figures)


def memory_problem(machine: Soc, compilation: Compilation | None, running_bytes: float = 0.0) -> str:
    """Say where compiling or running takes more memory than the machine has; empty where it does not."""
    peak = 0.0 if compilation is None else compilation.memory_peak_bytes or 0.0
    for what, needed in (("compiling takes about", peak), ("all models take", running_bytes)):
        if needed > machine.dram.capacity:
            return f"{what} {needed / 1e9:.2g} GB, and {machine.name} has {machine.dram.capacity.text}"
    return ""


def layers_of(graph: Graph) -> tuple[int, set[str]]:
    """Count the layers along edges, and return the tensors that a later layer gathers of the ones before.

    A layer gathers other nodes' rows. A gather by the targets of a scatter reads a node's own row.
    """
    dependent = [op for op in graph if not graph.feature_independent.issuperset(op.outputs)]
    scatters = [graph.known(op.inputs[1]) for op in dependent if op.family is Family.SCATTER]
    own, hops, cached = [each for each in scatters if each is not None], dict[str, int](), set[str]()
    for op in dependent:
        index = graph.known(op.inputs[1]) if op.family is Family.GATHER else None
        is_hop = index is not None and not any(np.array_equal(index, each) for each in own)
        before = max((hops.get(name, 0) for name in op.inputs), default=0)
        hops |= dict.fromkeys(op.outputs, before + is_hop)
        cached |= {op.inputs[0]} if is_hop and before else set()
    return max((hops.get(name, 0) for name in graph.outputs), default=0), cached


def _shares(baseline: Graph, module: Any, graph: ExampleGraph, *, is_run: bool) -> Iterable[Share]:
    """Yield parts with halos, parts layer by layer, and a sampled batch, or why there are none."""
    hops, names = layers_of(baseline)
    cached = {name: float(baseline.tensors[name].bytes) for name in names}
    if not hops or not _is_local(module, graph, hops + 1):
        problem = "an answer depends on more than the neighbours within its layers"
        yield Deployment(graph="parts or samples", problem=problem), None, _NOTHING
        return
    ends, shape = (graph.targets, graph.sources), (graph.nodes, graph.nodes)
    size = TilesParameters().size
    tiling = tiling_of(baseline, size)
    ones = np.ones(graph.edges, np.float32)
    place = tiling[0].place if tiling else places_of_nodes(matrix_from(ones, *ends, shape), size)
    counts = list(dict.fromkeys(min(_MOST_PARTS, -(-graph.nodes // size)) for size in _PART_NODES))
    for count in counts:
        part_of = place * count // graph.nodes
        yield *_part(graph, part_of, hops, f"{count} parts, halo of {hops} hops"), _NOTHING
        if hops > 1 and count == counts[0]:
            yield *_part(graph, part_of, 1, f"{count} parts layer by layer, cached features, halo"), cached
    yield *_sampled(module, graph, hops, is_run=is_run), _NOTHING


def _is_local(module: Any, graph: ExampleGraph, hops: int) -> bool:
    """Whether answers on a ring of nodes stay the same where only the next `hops` neighbours are read."""
    nodes = np.arange(_RING)
    few = graph.inputs_on(nodes, np.arange(min(2 * _RING, graph.edges)))
    few[graph.edge_input] = np.stack([np.r_[np.roll(nodes, -1), np.roll(nodes, -2)], np.tile(nodes, 2)])
    ring = ExampleGraph(_RING, graph.edge_input, few)
    near, between = ring.with_halo(nodes < _RING // 8, hops)
    try:
        whole, part = (all_results(module, each)[0] for each in (few, ring.inputs_on(near, between)))
    except RuntimeError:  # whatever the module asks of its inputs
        return False
    if len(whole) != _RING or len(part) != len(near):
        return False
    difference = np.abs(whole[near] - part)[near < _RING // 8].max()
    return bool(difference <= _CLOSE * np.abs(whole).max())


def _part(graph: ExampleGraph, part_of: Numbers, hops: int, name: str) -> tuple[Deployment, Inputs | None]:
    """Return the largest part with its halo, which stands for all parts."""
    sizes = graph.nodes_with_halos(part_of, hops)
    largest, read = int(np.argmax(sizes)), sizes.max() / graph.nodes
    halo = sizes.sum() / graph.nodes - 1.0
    share = Deployment(graph=f"{name} {halo:.2g}x", runs=len(sizes))
    if read > _MOST_READ:
        problem = f"a part reads {read:.0%} of the nodes: edges lead everywhere"
        return share.model_copy(update={"problem": problem}), None
    return share, graph.inputs_on(*graph.with_halo(part_of == largest, hops))


def _sampled(
    module: Any, graph: ExampleGraph, hops: int, *, is_run: bool
) -> tuple[Deployment, Inputs | None]:
    """Return a batch of random seeds with sampled neighbours."""
    fan_out = [_FAN_OUT[min(hop, len(_FAN_OUT) - 1)] for hop in range(hops)]
    seeds = np.sort(np.random.default_rng(0).permutation(graph.nodes)[:_SEEDS])
    runs = -(-graph.nodes // len(seeds))
    name = f"{runs} batches of {len(seeds)}, {'+'.join(map(str, fan_out))} sampled"
    share = Deployment(graph=name, runs=runs, is_exact=False)
    inputs = graph.inputs_on(*sample(graph, seeds, fan_out))
    if is_run:
        whole, batch = (all_results(module, each)[0] for each in (graph.inputs, inputs))
        same = whole[seeds].argmax(-1) == batch[: len(seeds)].argmax(-1)
        share = share.model_copy(update={"same_answers": float(np.mean(same))})
    return share, inputs


_MOST_CAPACITIES = 24
_MOST_BUCKETS = 8
_ENOUGH = 1.05
"""Mean latency over the least one up to which fewer buckets are advised."""


class Buckets(Part):
    """A number of buckets, and what it gives for the sizes."""

    capacities: list[int]
    """Nodes of each bucket."""
    techniques: str
    """Technique stack, the fastest one that takes edges as an input."""
    latency_s: float
    """Mean latency over the sizes."""
    padding: float
    """Mean share of the computed nodes that are padding."""
    compile_s: float
    """Time to compile all buckets."""
    memory_bytes: float
    """Memory of all compiled versions."""
    advised: bool = False
    """Whether these are the fewest buckets within 5 % of the least mean latency."""


def compare_buckets(scenario: Scenario, stacks: Iterable[str], sizes: Sequence[int]) -> list[Buckets]:
    """Return the best capacities for one bucket, two, and so on.

    Parameters
    ----------
    stacks : iterable of str
        Technique stacks that take edges as an input; the fastest one at the largest size is taken.
    sizes : sequence of int
        Numbers of nodes of requests, as often as they occur.

    Raises
    ------
    ConfigError
        For sizes below 2, none at all, or a network that is not built on a data graph.
    InfeasibleError
        Where the machine has too little memory for the largest size.
    """
    structure = scenario.baseline.structure
    if structure is None or not len(sizes) or min(sizes) < 2:
        found = "no size" if not len(sizes) else f"a size of {min(sizes)} nodes"
        found = f"the network `{scenario.baseline.name}`" if structure is None else found
        raise ConfigError(found, file="--sizes", allowed="numbers of nodes of 2 or more, on a data graph")
    versions = Versions(scenario, structure, load_toolchain())
    capacities = np.unique(np.quantile(sizes, np.linspace(0, 1, _MOST_CAPACITIES), method="higher"))
    degree = structure.edges / 2.0 / structure.nodes
    courses = {n: Size(n, max(1, round(degree * n))) for n in capacities.astype(int).tolist()}
    largest, possible = max(courses), list[tuple[float, str]]()
    problem: NpusimError = ConfigError("no stack", file="--sizes", allowed="a network that takes its edges")
    for stack in (each for each in stacks if legal(scenario.baseline, each) is None):
        try:
            possible.append((versions.version(stack, courses[largest]).latency_s, stack))
        except InfeasibleError as error:
            problem = error
    if not possible:
        raise problem
    stack = min(possible)[1]
    known = [versions.version(stack, courses[n]) for n in courses]
    latencies = np.array([version.latency_s for version in known])
    counts = np.bincount(np.searchsorted(capacities, sizes), minlength=len(capacities))
    rows = list[Buckets]()
    for chosen in _best_choices(counts, latencies):
        runs_on = np.array(chosen)[np.searchsorted(chosen, np.arange(len(counts)))]
        computed = float(counts @ capacities[runs_on])
        rows.append(
            Buckets(
                capacities=capacities[chosen].astype(int).tolist(),
                techniques=stack,
                latency_s=float(counts @ latencies[runs_on] / counts.sum()),
                padding=1.0 - float(np.sum(sizes)) / computed,
                compile_s=sum(known[i].compile_s for i in chosen),
                memory_bytes=sum(known[i].memory_bytes for i in chosen),
            )
        )
    enough = _ENOUGH * min(each.latency_s for each in rows)
    place = next(i for i, each in enumerate(rows) if each.latency_s <= enough)
    rows[place] = rows[place].model_copy(update={"advised": True})
    return rows


def _best_choices(counts: np.ndarray, latencies: np.ndarray) -> list[list[int]]:
    """Return for one capacity, two, and so on, which are chosen so that the summed latency is least."""
    before = np.concatenate([[0], np.cumsum(counts)])
    last = len(counts) - 1
    # By largest capacity: least summed latency of the graphs up to it, and the capacities.
    best = [(before[i + 1] * latencies[i], [i]) for i in range(last + 1)]
    choices = [best[last][1]]
    for _ in range(min(_MOST_BUCKETS, last + 1) - 1):
        longer: list[tuple[float, list[int]]] = []
        for i in range(last + 1):
            ways = [
                (best[j][0] + (before[i + 1] - before[j + 1]) * latencies[i], [*best[j][1], i])
                for j in range(i)
            ]
            longer.append(min(ways, default=(inf, [])))
        best = longer
        choices.append(best[last][1])
    return choices
