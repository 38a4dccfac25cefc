"""Deployments of a network on a graph: layouts of the edges, partitions and samples, by device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from npusim.documents import Part
from npusim.engines.analytical import mapped_estimate
from npusim.engines.estimate import Compilation
from npusim.errors import InfeasibleError
from npusim.frontends.subgraphs import ExampleGraph, halos, parts_in_order, sample
from npusim.graph import Graph
from npusim.graph.known import Array
from npusim.ops import Family, TensorKind
from npusim.scenario import Scenario, is_module, split_settings
from npusim.techniques import NONE, EdgeData, Stack, get, legal, parse, technique_names
from npusim.techniques.neighbourhoods import matrix_from
from npusim.techniques.tiles import places_of_nodes, tiling_of
from npusim.workloads import import_settings

_FIXED_EDGES = (EdgeData.CONSTANT, EdgeData.LAID_OUT)
_LARGE_NODES = 20_000
"""Nodes from which on parts and samples are compared: a dense matrix of so many takes 0.8 GB."""
_PART_NODES = (4096, 16384)
"""Nodes of a part before its halo: matrices of 34 and 537 MB."""
_MOST_PARTS, _TILE = 256, 64
_MOST_READ = 0.5
"""Share of the graph that a part may read: with more, parts repeat more work than they save."""
_SEEDS = 1024
_FAN_OUT = (15, 10, 5)
"""Neighbours of a node by hop, the last one for all further hops: GraphSAGE's sizes on ogbn-products."""
_RING = 1009
"""Nodes of the ring on which is tested whether answers depend on near nodes alone."""
_CLOSE = 1e-3


class Deployment(Part):
    """One way to compute the answers of all nodes on one device."""

    graph: str
    """What a run reads: the whole graph, a part of it with its halo, or a sampled batch."""
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
    constants_bytes: float = 0.0
    """Weights and other constants of one run's model, as they are stored, in bytes."""
    compile_s: float | None = None
    """Time to compile all models in s; null where the device names no compiler."""
    compile_peak_bytes: float | None = None
    """Most memory in use while compiling, in bytes; null as above."""
    same_answers: float | None = None
    """Share of answers that sampling keeps; null where every neighbour is read, or the graph is too large."""
    is_exact: bool = True
    """Whether every neighbour is read."""
    is_available: bool = True
    """Whether a runtime of today has it."""
    problem: str = ""
    """Why it cannot be advised; empty where it can."""

    @property
    def is_advisable(self) -> bool:
        """Whether it runs today, without a problem, and reads every neighbour."""
        return self.is_exact and self.is_available and not self.problem


Share: TypeAlias = tuple[Deployment, Graph | None]
"""What one run reads, without device and stack, and its network; None where it is not possible."""


@dataclass(frozen=True)
class ExampleModule:
    """A PyTorch module, its example inputs, and how a module becomes a graph.

    `answers` runs the module in PyTorch and returns its results; `traced` returns the graph of other inputs.
    """

    inputs: Mapping[str, Array]
    answers: Callable[[Mapping[str, Array]], list[Array]]
    traced: Callable[[Mapping[str, Array]], Graph]
    is_compared: bool
    """Whether the whole graph is small enough to be run."""

    @classmethod
    def of(cls, scenario: Scenario, *, is_compared: bool) -> ExampleModule | None:
        """Return the module of a scenario with a large graph; None for other networks."""
        network, sizes = scenario.network, [t.shape[:1] for t in scenario.baseline.tensors.values()]
        if max(sizes, default=()) < (_LARGE_NODES,):
            return None
        from npusim.frontends import pyg  # torch is slow to import

        if is_module(network):
            module, inputs = pyg.flattened(network, scenario.inputs)
        elif pyg.MODULE.fullmatch(str(network)):
            described = pyg.module_at(str(network))
            module, inputs = described.module, dict(described.inputs)
        else:
            return None
        precision, roles = import_settings(split_settings(scenario.settings)[0])

        def traced(values: Mapping[str, Array]) -> Graph:
            tensors = pyg.as_tensors(values)
            return pyg.from_pyg(module, tensors, scenario.baseline.name, roles, precision)

        arrays = {name: value.detach().numpy() for name, value in inputs.items()}
        return cls(arrays, partial(pyg.all_results, module), traced, is_compared)


def compare_deployments(
    scenario: Scenario, best: str, example: ExampleModule | None = None
) -> list[Deployment]:
    """Cost deployments to compute all answers, fastest first, impossible ones last.

    Parameters
    ----------
    best : str
        Technique stack to try beside the single layouts of the edges.
    example : ExampleModule, optional
        What parts and samples are made of; without it the graph is whole.
    """
    layouts = [name for name in technique_names() if get(name).edges in _FIXED_EDGES]
    stacks = list(dict.fromkeys([best, *layouts, NONE]))
    deployments = list(_on_devices(scenario, Deployment(graph="whole"), stacks))
    of_machine = split_settings(scenario.settings)[1]
    for share, graph in () if example is None else _shares(scenario.baseline, example):
        if graph is None:
            deployments.append(share)
            continue
        part = scenario.with_(network=graph, settings=of_machine, shapes=None, inputs=None)
        possible = [stack for stack in (*stacks, "grad") if share.is_exact or not _fixes_edges(stack)]
        fastest: dict[str, Deployment] = {}
        for deployment in sorted(_on_devices(part, share, possible), key=_rank):
            fastest.setdefault(deployment.device, deployment)
        deployments.extend(fastest.values())
    return sorted(deployments, key=_rank)


def _rank(deployment: Deployment) -> tuple[bool, float]:
    return bool(deployment.problem), deployment.all_nodes_s or 0.0


def _fixes_edges(stack: str | Stack) -> bool:
    return any(entry.technique.edges in _FIXED_EDGES for entry in parse(stack))


def _on_devices(scenario: Scenario, share: Deployment, stacks: Iterable[str]) -> Iterable[Deployment]:
    """Yield each legal stack on each device."""
    for stack in [each for each in dict.fromkeys(stacks) if legal(scenario.baseline, each) is None]:
        rewritten = scenario.with_(techniques=stack)
        for device in (*scenario.machine.array_devices, *scenario.machine.hosts):
            yield _costed(rewritten.with_(device=device), share)


def _costed(scenario: Scenario, share: Deployment) -> Deployment:
    """Cost one stack on one device; a part with its own constants is a model of its own."""
    stack = parse(scenario.techniques)
    constants = [t for t in scenario.graph.tensors.values() if t.kind is TensorKind.CONSTANT]
    constants_bytes = sum(t.stored_bytes for t in constants)
    figures: dict[str, Any] = {"device": scenario.device, "techniques": str(stack)}
    figures["is_available"] = not any(entry.technique.what_if for entry in stack)
    try:
        estimate = mapped_estimate(scenario.mapped)
    except InfeasibleError as error:
        return share.model_copy(update=figures | {"problem": str(error)})
    models = share.runs if _fixes_edges(stack) else 1
    compilation = estimate.compilation
    if compilation is not None:
        figures["compile_s"] = compilation.compile_s * models
        figures["compile_peak_bytes"] = compilation.memory_peak_bytes
    figures["all_nodes_s"] = share.runs / estimate.throughput_per_s
    figures["constants_bytes"] = constants_bytes
    figures["memory_bytes"] = estimate.memory.dram_peak_bytes + (models - 1) * constants_bytes
    figures["problem"] = compiling_problem(scenario, compilation)
    capacity = scenario.machine.dram.capacity
    if figures["memory_bytes"] > capacity:
        figures["problem"] = f"all models take {figures['memory_bytes'] / 1e9:.2g} GB, and "
        figures["problem"] += f"{scenario.machine.name} has {capacity.text}"
    return share.model_copy(update=figures)


def compiling_problem(scenario: Scenario, compilation: Compilation | None) -> str:
    """Say where compiling takes more memory than the machine has; empty where it does not."""
    peak = 0.0 if compilation is None else compilation.memory_peak_bytes or 0.0
    capacity = scenario.machine.dram.capacity
    if peak <= capacity:
        return ""
    return f"compiling takes about {peak / 1e9:.2g} GB, and {scenario.machine.name} has {capacity.text}"


def hops_of(graph: Graph) -> int:
    """Count the layers along edges: gathers of other nodes' rows, one after the other.

    A gather by the targets of a scatter reads a node's own row.
    """
    dependent = [op for op in graph if not graph.feature_independent.issuperset(op.outputs)]
    scatters = [graph.known(op.inputs[1]) for op in dependent if op.family is Family.SCATTER]
    own, hops = [each for each in scatters if each is not None], dict[str, int]()
    for op in dependent:
        index = graph.known(op.inputs[1]) if op.family is Family.GATHER else None
        is_hop = index is not None and not any(np.array_equal(index, each) for each in own)
        before = max((hops.get(name, 0) for name in op.inputs), default=0)
        hops |= dict.fromkeys(op.outputs, before + is_hop)
    return max((hops.get(name, 0) for name in graph.outputs), default=0)


def _shares(baseline: Graph, example: ExampleModule) -> Iterable[Share]:
    """Yield parts with halos and a sampled batch of a large graph, or why there are none."""
    graph = ExampleGraph.of(example.inputs)
    if graph is None or graph.nodes < _LARGE_NODES:
        return
    hops = hops_of(baseline)
    if not hops or not _is_local(example, graph, hops + 1):
        problem = "an answer depends on more than the neighbours within its layers"
        yield Deployment(graph="parts or samples", problem=problem), None
        return
    yield from _parts(baseline, example, graph, hops)
    yield _sampled(example, graph, hops)


def _is_local(example: ExampleModule, graph: ExampleGraph, hops: int) -> bool:
    """Whether answers on a ring of nodes stay the same where only the next `hops` neighbours are read."""
    nodes = np.arange(_RING)
    ends = np.stack([np.roll(nodes, shift) for shift in (-1, -2)]).ravel(), np.tile(nodes, 2)
    few = graph.inputs_on(example.inputs, nodes, np.arange(min(2 * _RING, graph.edges)))
    few[graph.edge_input] = np.stack(ends)
    ring = replace(graph, nodes=_RING, sources=ends[0], targets=ends[1])
    part_of = np.where(nodes < _RING // 8, 0, 1)
    near, between = halos(ring, part_of, hops).of_part(ring, 0)
    try:
        whole, part = example.answers(few)[0], example.answers(ring.inputs_on(few, near, between))[0]
    except RuntimeError:  # whatever the module asks of its inputs
        return False
    seeds = part_of[near] == 0
    if len(whole) != _RING or len(part) != len(near):
        return False
    difference = np.abs(whole[near[seeds]] - part[seeds]).max()
    return bool(difference <= _CLOSE * np.abs(whole).max())


def _parts(baseline: Graph, example: ExampleModule, graph: ExampleGraph, hops: int) -> Iterable[Share]:
    """Yield partitions along the order that leaves fewest tiles; the largest part is costed for all."""
    tiling = tiling_of(baseline)
    if tiling is None:
        ones = np.ones(graph.edges, np.float32)
        matrix = matrix_from(ones, graph.targets, graph.sources, (graph.nodes,) * 2)
        place = places_of_nodes(matrix, _TILE)
    else:
        place = tiling.layout.place
    for count in dict.fromkeys(min(_MOST_PARTS, -(-graph.nodes // size)) for size in _PART_NODES):
        split = halos(graph, parts_in_order(place, count), hops)
        largest = int(np.argmax(split.nodes))
        halo = split.nodes.sum() / graph.nodes - 1.0
        name = f"{count} parts, halo of {hops} hops {halo:.2g}x"
        read = split.nodes[largest] / graph.nodes
        if read > _MOST_READ:
            problem = f"a part reads {read:.0%} of the nodes: edges lead everywhere"
            yield Deployment(graph=name, problem=problem, runs=count), None
            continue
        inputs = graph.inputs_on(example.inputs, *split.of_part(graph, largest))
        yield _traced(example, graph, Deployment(graph=name, runs=count), inputs)


def _sampled(example: ExampleModule, graph: ExampleGraph, hops: int) -> Share:
    """Return a batch of random seeds with sampled neighbours."""
    fan_out = [_FAN_OUT[min(hop, len(_FAN_OUT) - 1)] for hop in range(hops)]
    seeds = np.sort(np.random.default_rng(0).permutation(graph.nodes)[:_SEEDS])
    inputs = graph.inputs_on(example.inputs, *sample(graph, seeds, fan_out))
    runs = -(-graph.nodes // len(seeds))
    same: float | None = None
    if example.is_compared:
        whole, batch = example.answers(example.inputs)[0][seeds], example.answers(inputs)[0][: len(seeds)]
        same = float(np.mean(whole.argmax(-1) == batch.argmax(-1)))
    name = f"{runs} batches of {len(seeds)}, {'+'.join(map(str, fan_out))} sampled"
    share = Deployment(graph=name, runs=runs, is_exact=False, same_answers=same)
    return _traced(example, graph, share, inputs)


def _traced(
    example: ExampleModule, graph: ExampleGraph, share: Deployment, inputs: Mapping[str, Array]
) -> Share:
    if not inputs[graph.edge_input].size:
        return share.model_copy(update={"problem": "no edge lies in it"}), None
    return share, example.traced(inputs)
