"""Stream of graph updates: recompile, pad and mask, keep several versions, or infer in mini-batches.

Which entries of a mask change follows from the model: a GCN's norm holds the degrees of both ends, so a new
edge changes the rows and columns of its ends; an attention mask changes in the two entries of the edge alone.
"""

from bisect import bisect
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf, isinf
from typing import Any, NamedTuple

import numpy as np

from npusim.arch import Soc
from npusim.arch.loading import Toolchain, load_toolchain
from npusim.cost import Unit, empty_ops, scattered_writes
from npusim.errors import ConfigError, InfeasibleError, NpusimError
from npusim.graph import Graph, GraphStructure
from npusim.mapping import Run, map_graph
from npusim.ops import Family, Role, TensorKind
from npusim.scenario import Scenario
from npusim.studies.stream.document import CapacityCost, Followed, Name, Strategy, best_by_rate
from npusim.studies.stream.updates import Rates, Size, Update, response_times, sizes
from npusim.techniques import EdgeData, Stack, apply, parse, technique_with
from npusim.techniques.preprocessing import nodes_of


def entries_changed(model: str, update: Update, size: Size, neighbours: int) -> float:
    """Return how many entries of the mask an update changes, at the mean degree.

    Parameters
    ----------
    model : str
        A model of the kind `gnn`; of those by Eq. 1 all but sage-concat have GCN's norm.
    """
    degree = size.degree
    sampled = min(degree, float(neighbours))
    # Entries that change where one node's degree does: its row, and for a symmetric norm its column.
    of_sage = {"sage-mean": sampled, "sage-max": float(neighbours), "sage-concat": degree}
    per_node = (of_sage | {"gat": 0.0}).get(model, 2.0 * degree + 1.0)
    edges = update.counts.get("add_edge", 0) + update.counts.get("remove_edge", 0)
    added, removed = update.counts.get("add_node", 0), update.counts.get("remove_node", 0)
    # An edge stands in two entries; a node in one (its loop); one that leaves takes its edges along.
    return edges * (2.0 * per_node + 2.0) + added + removed * ((1.0 + degree) * per_node + 2.0 * degree + 1.0)


class MaskKeeper:
    """The CPU that writes the changed entries."""

    def __init__(self, graph: Graph, soc: Soc, run: Run, batches: int = 1) -> None:
        """Take the masks of a network; of as many graphs as there are batches."""
        self._cpu: Any = np.array([run.row(soc)[str(soc.named("cpu"))]])
        masks = [t for role in (Role.NORM, Role.MASK, Role.ADJACENCY) for t in graph.with_role(role)]
        self._copies = max(1, sum(t.structural for t in masks))
        """Masks that hold the same entries (EffOp's pair)."""
        self._reach = batches * sum(float(t.bytes) for t in masks)
        """Bytes among which the entries lie."""
        self._item = max((t.dtype.bytes for t in masks), default=2.0)
        nodes = nodes_of(graph)
        self._by_nodes = [(float(t.bytes), nodes, t.shape.count(nodes)) for t in masks] if nodes else []

    def updates_s(self, entries: Sequence[float]) -> list[float]:
        """Return the time to write so many entries at each update (s): read-modify-writes on the CPU."""
        numbers = np.array(entries)
        return self._written_s(numbers, numbers * self._copies * self._item, self._reach)

    def layouts_s(self, capacities: Sequence[int], sizes: Sequence[Size]) -> list[float]:
        """Return the time to write the masks for each other number of nodes: zeros, then entries (s)."""
        parts = [stored * (np.array(capacities) / nodes) ** sides for stored, nodes, sides in self._by_nodes]
        wholes = sum(parts, start=np.zeros(len(capacities)))
        return self._written_s(np.array([2.0 * s.edges + s.nodes for s in sizes]), wholes, wholes)

    def _written_s(self, entries: Any, written: Any, reach: Any) -> list[float]:
        """Return the times of scattered writes among `reach` bytes, `written` bytes in all (s)."""
        op, times_s = empty_ops(1), np.zeros(len(entries))
        op["unit"] = Unit.HOST
        reaches = np.full(entries.shape, reach)
        scattered_writes(self._cpu, op, times_s, entries * self._copies, written, reaches)
        times: list[float] = np.where(entries > 0.0, times_s, 0.0).tolist()
        return times


_MOST_ESTIMATES = 80
"""Versions that are estimated for a stream whose graph never outgrows its capacity."""
_MOST_VERSIONS = 1_000
"""Capacities that a network is compiled for."""
KNOTS = 17
"""Numbers of nodes at which inferences are estimated; between them latency is interpolated."""


def resized(structure: GraphStructure, size: Size) -> GraphStructure:
    """Return the statistics of a data graph with other numbers of nodes and edges, clustered as before."""
    if (size.nodes, 2 * size.edges) == (structure.nodes, structure.edges):
        return structure
    share = (2 * size.edges + size.nodes) / max(1, structure.nonzeros) * (structure.nodes / size.nodes) ** 2
    density = {block: min(1.0, value * share) for block, value in structure.adjacency_block_density.items()}
    clustered = replace(structure, adjacency_block_density=density, degree_histogram=())
    return replace(clustered, nodes=size.nodes, edges=2 * size.edges)


class Version(NamedTuple):
    """A compiled network."""

    latency_s: float
    compile_s: float
    memory_bytes: float


class Versions:
    """The compiled versions of a network, each compiled and estimated once."""

    def __init__(self, scenario: Scenario, start: GraphStructure, toolchain: Toolchain) -> None:
        self.scenario, self.start, self.toolchain = scenario, start, toolchain
        self.progress: Callable[..., None] = lambda *steps: None
        self._kept: dict[tuple[str, int, int | None], Version] = {}

    def graph(self, stack: str, size: Size, capacity: int | None = None) -> Graph:
        """Return the rewritten network on a graph of some size, padded where there is a capacity."""
        padding = technique_with(edges=EdgeData.CAPACITY).name
        steps = [*parse(stack).to_data(), *([f"{padding}:capacity={capacity}"] if capacity else [])]
        return apply(self.scenario.on_structure(resized(self.start, size)), steps)

    def version(self, stack: str, size: Size, capacity: int | None = None) -> Version:
        """Return the network compiled; of graphs that differ in edges alone the first stands for all."""
        key = (stack, 0 if capacity else size.nodes, capacity)
        if key not in self._kept:
            self.progress(len(self._kept), max(_MOST_ESTIMATES, len(self._kept)), stack)
            graph = self.graph(stack, size, capacity)
            mapped = map_graph(graph, self.scenario.machine, self.scenario.run)
            operators = sum(op.family is not Family.VIEW for op in graph)
            constants = sum(t.stored_bytes for t in graph.tensors.values() if t.kind is TensorKind.CONSTANT)
            self._kept[key] = Version(
                float(mapped.total["latency_s"]),
                self.toolchain.compile_s(operators, constants),
                self.toolchain.version_bytes(operators, constants),
            )
        return self._kept[key]

    def by_nodes(self, stack: str, course: Sequence[Size]) -> dict[int, Version]:
        """Return a version for each number of nodes, interpolated where there are many."""
        counts = sorted({size.nodes for size in course})
        by_nodes = {size.nodes: size for size in course}
        places = np.unique(np.linspace(0, len(counts) - 1, KNOTS).round().astype(int))
        knots = [counts[i] for i in places]
        known = np.array([self.version(stack, by_nodes[n]) for n in knots])
        lines = np.array([np.interp(counts, knots, figure) for figure in known.T])
        return {n: Version(*values) for n, values in zip(counts, lines.T.tolist(), strict=True)}


class BatchJudgement(NamedTuple):
    """What it does to the answers that edges between mini-batches are lost."""

    lost_edges: float
    """Share of the edges that run between batches."""
    accuracy: float | None = None
    """Share of the test nodes that a trained model classifies correctly; None where nothing was trained."""
    accuracy_of_all_edges: float | None = None
    """The same with all edges."""


def expected_judgement(nodes: int, batch: int) -> BatchJudgement:
    """Return the share of edges between batches that are drawn at random: that of pairs of nodes."""
    full, rest = divmod(nodes, batch)
    within = full * batch * (batch - 1) + rest * (rest - 1)
    return BatchJudgement(1.0 - within / (nodes * (nodes - 1)) if nodes > 1 else 0.0)


class Costs(NamedTuple):
    """The costs of one strategy."""

    steps_s: Any
    """Times to compile, correct the mask and infer, before the updates and at each: shape (3, steps)."""
    versions: Sequence[Version]
    inferences: int
    """Inferences after each update."""

    @property
    def sums_s(self) -> list[float]:
        """Time to compile, to correct the mask and to infer in all (s)."""
        sums: list[float] = self.steps_s.cumsum(1)[:, -1].tolist()
        return sums

    @property
    def totals(self) -> dict[str, Any]:
        """Compilations, time (s) and memory (B) in all."""
        memory_bytes = sum(version.memory_bytes for version in self.versions)
        return {"compilations": len(self.versions), "total_s": sum(self.sums_s), "memory_bytes": memory_bytes}

    def strategy(
        self,
        name: Name,
        techniques: str,
        nodes: Sequence[int],
        batches: BatchJudgement | None = None,
        rates: Rates | None = None,
    ) -> Strategy:
        """Return the totals; `nodes` are those that it is compiled for at the start."""
        times: dict[str, float] = {}
        (startup_s, *compile_s), mask_s, (_, *inference_s) = self.steps_s.tolist()
        if rates is not None:
            update_times_s = [sum(parts) for parts in zip(compile_s, mask_s[1:], strict=True)]
            times = response_times(
                update_times_s, [time_s / self.inferences for time_s in inference_s], rates
            )
        updates = len(compile_s)
        update_s = (sum(compile_s) + sum(mask_s)) / updates if updates else 0.0
        return Strategy(
            name=name,
            techniques=techniques,
            **self.totals,
            versions=len(self.versions),
            **dict(zip(("compile_s", "mask_s", "inference_s"), self.sums_s, strict=True)),
            largest_version_bytes=max(version.memory_bytes for version in self.versions),
            cumulative_s=self.steps_s.sum(0).cumsum().tolist(),
            compiled_nodes=list(nodes),
            startup_s=startup_s,
            update_s=update_s,
            latency_s=sum(inference_s) / (updates * self.inferences) if updates else 0.0,
            most_updates_per_s=1.0 / update_s if update_s > 0.0 else None,
            **(batches or BatchJudgement(0.0))._asdict(),
            **times,
        )


class Course(NamedTuple):
    """A stream of updates that a compiled network follows."""

    compiled: Versions
    stack: str
    """Techniques of the ways that write a mask."""
    sizes: Sequence[Size]
    """The graph before the first update and after each."""
    entries: Sequence[float]
    """Entries of the mask that change at each of them; none before the first."""
    keeper: MaskKeeper
    inferences: int
    """Inferences after each update."""

    @property
    def most(self) -> int:
        """Most nodes at any time."""
        return max(size.nodes for size in self.sizes)

    def frozen(self, stack: str, changed: Sequence[bool]) -> Costs:
        """Compile at each update that changes anything: baked-in edges never come back, and have no mask."""
        return self._recompiled(stack, np.zeros(len(self.sizes)), changed)

    def by_nodes(self) -> Costs:
        """Compile for each number of nodes not seen before; a version that was there before is reused."""
        nodes = [size.nodes for size in self.sizes]
        is_new = np.zeros(len(nodes), bool)
        is_new[np.unique(nodes, return_index=True)[1]] = True
        return self._recompiled(self.stack, self._mask_s(nodes), is_new[1:].tolist())

    def _mask_s(self, compiled_nodes: Sequence[int]) -> Any:
        """Return the time to correct the mask at each update, or write it again for another version (s)."""
        mask_s = np.array(self.keeper.updates_s(self.entries))
        changed = [i for i in range(1, len(mask_s)) if compiled_nodes[i] != compiled_nodes[i - 1]]
        capacities, sizes = [compiled_nodes[i] for i in changed], [self.sizes[i] for i in changed]
        mask_s[changed] += np.array(self.keeper.layouts_s(capacities, sizes))
        return mask_s

    def _recompiled(self, stack: str, mask_s: Any, needed: Sequence[bool]) -> Costs:
        versions = self.compiled.by_nodes(stack, self.sizes)
        run, compiled = [versions[size.nodes] for size in self.sizes], [True, *needed]
        compile_s = np.where(compiled, [version.compile_s for version in run], 0.0)
        used = [version for version, is_compiled in zip(run, compiled, strict=True) if is_compiled]
        return self._costs(compile_s, mask_s, [version.latency_s for version in run], used)

    def kept(self, capacities: Sequence[int]) -> Costs:
        """Compile for several capacities beforehand and run the smallest that holds the graph.

        A graph that outgrows the largest has another compiled, with the room to spare that the largest had.
        """
        start, known = self.sizes[0], sorted(capacities)
        spare = known[-1] - start.nodes
        versions = [self.compiled.version(self.stack, _held(start, c), c) for c in known]
        nodes = np.array([size.nodes for size in self.sizes])
        compile_s = np.zeros(len(nodes))
        compile_s[0] = sum(version.compile_s for version in versions)
        while (outgrown := nodes > known[-1]).any():
            first = int(outgrown.argmax())
            known.append(int(nodes[first]) + spare)
            if len(known) > _MOST_VERSIONS:
                found = f"found {capacities[-1]}, which the graph outgrows more than {_MOST_VERSIONS:,} times"
                raise NpusimError(f"--capacity: {found}; allowed: a larger one, or fewer updates")
            versions.append(self.compiled.version(self.stack, self.sizes[first], known[-1]))
            compile_s[first] = versions[-1].compile_s
        run = np.searchsorted(known, nodes)
        latency_s = np.array([version.latency_s for version in versions])[run]
        return self._costs(compile_s, self._mask_s(np.array(known)[run].tolist()), latency_s, versions)

    def batched(self, batch: int, lost_edges: float) -> Costs:
        """Compile for a batch of nodes, and infer batch by batch; edges between batches change nothing."""
        start, share = self.sizes[0], 1.0 - lost_edges
        counts = np.array([-(-size.nodes // batch) for size in self.sizes])
        size = _held(Size(batch, round(start.edges * share / counts[0])), batch)
        version, scenario = self.compiled.version(self.stack, size), self.compiled.scenario
        graph = self.compiled.graph(self.stack, size)
        keeper = MaskKeeper(graph, scenario.machine, scenario.run, int(counts[0]))
        compile_s = np.zeros(len(counts))
        compile_s[0] = version.compile_s
        mask_s = keeper.updates_s([share * entries for entries in self.entries])
        return self._costs(compile_s, mask_s, version.latency_s, [version], counts)

    def _costs(
        self, compile_s: Any, mask_s: Any, latency_s: Any, versions: Sequence[Version], runs: Any = 1
    ) -> Costs:
        """Return the costs by step, given the latency of a run and the runs of an inference at each."""
        inference_s = np.full(len(compile_s), self.inferences * runs * np.asarray(latency_s))
        inference_s[0] = 0.0
        return Costs(np.array([compile_s, mask_s, inference_s]), versions, self.inferences)


def _held(size: Size, capacity: int) -> Size:
    """Return a size cut to a capacity."""
    nodes = min(size.nodes, capacity)
    return Size(nodes, min(size.edges, nodes * (nodes - 1) // 2))


_WAYS = (EdgeData.CONSTANT, EdgeData.INPUT, EdgeData.CAPACITY)
"""What the strategies do with the edges: recompile, update a mask, leave room for more nodes."""
_ROUND = 1000
"""Without a capacity, nodes are rounded up to whole thousands, as NodePad does."""
_BLOBS = 4
_MOST_GROWTH = 64
"""Largest capacity that the search for the break-even tries, over the most nodes of the stream."""
_SHOWN = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0)
"""Capacities that are listed, over the most nodes of the stream."""


def follow(
    scenario: Scenario,
    updates: Sequence[Update],
    toolchain: Toolchain | None = None,
    *,
    capacity: int | None = None,
    kept: Sequence[int] = (),
    batch: int | None = None,
    judge: Callable[[int], BatchJudgement] | None = None,
    inferences: int = 1,
    rates: Rates | None = None,
    seed: int | None = None,
    progress: Callable[..., None] | None = None,
) -> Followed:
    """Follow a stream of updates in five ways, and find which is best at which rate.

    Parameters
    ----------
    scenario : Scenario
        A network on the data graph before the first update; techniques on top of StaGr, GrAd and NodePad; a
        SoC with a CPU, which keeps the mask.
    toolchain : Toolchain, optional
        What compiling costs; None: the shipped one.
    capacity : int, optional
        Nodes that pad and mask is compiled for, again with as much room where the graph outgrows it; None:
        the most of the stream, rounded up to whole thousands.
    kept : sequence of int
        Capacities of several kept blobs; empty: four in equal steps up to that of pad and mask.
    batch : int, optional
        Nodes of a mini-batch; None: a thousand, or half of the graph where that is less.
    judge : callable, optional
        Returns what batches of so many nodes lose, edges and accuracy; None: they are drawn at random.
    rates : Rates, optional
        Rates at which updates and requests come, for response times; None: no response times.
    inferences, seed : int
        Inferences after each update, at least 1; seed of the stream, for the document.
    progress : callable, optional
        Called with versions estimated, the most there may be, and the technique stack.

    Raises
    ------
    ConfigError
        For a network that cannot be built on other data graphs; see `Scenario.on_structure`.
    NpusimError
        For a technique that a strategy brings itself, or an impossible capacity or number of inferences.
    """
    own = parse(scenario.techniques)
    frozen, masked = _stacks(own)
    toolchain = toolchain or load_toolchain()
    course = _course(scenario, masked, updates, toolchain, inferences)
    course.compiled.progress = progress or course.compiled.progress
    start, end = course.sizes[0], course.sizes[-1]
    if capacity is not None and capacity < start.nodes:
        allowed = f"at least the {start.nodes} nodes of the graph"
        raise NpusimError(f"--capacity: found {capacity}; allowed: {allowed}")
    chosen = capacity if capacity is not None else -(-course.most // _ROUND) * _ROUND
    blobs, size = _kept_capacities(kept, start, chosen), _batch(batch, start)
    recompile = course.frozen(frozen, [any(update.counts.values()) for update in updates])
    paddings = {chosen: course.kept([chosen])}
    for nodes in {-(-round(course.most * times) // 10) * 10 for times in _SHOWN}:
        with suppress(InfeasibleError):
            paddings[nodes] = course.kept([nodes])
    judged = judge(size) if judge is not None else expected_judgement(start.nodes, size)
    padded = course.compiled.graph(masked, start, chosen).techniques
    strategies = [
        recompile.strategy("recompile", frozen, [start.nodes], rates=rates),
        course.by_nodes().strategy("recompile on nodes", masked, [start.nodes], rates=rates),
        paddings[chosen].strategy("pad and mask", padded, [chosen], rates=rates),
        course.kept(blobs).strategy("several kept blobs", masked, blobs, rates=rates),
        course.batched(size, judged.lost_edges).strategy("mini-batches", masked, [size], judged, rates),
    ]
    breakeven, is_limit = _breakeven(course, sum(recompile.sums_s))
    latency_s = {c: course.compiled.version(masked, start, c).latency_s for c in sorted(paddings)}
    return Followed(
        workload=scenario.baseline.name,
        soc=scenario.machine.name,
        techniques=str(own),
        toolchain=toolchain.name,
        updates=len(updates),
        inferences_per_update=inferences,
        seed=seed,
        nodes=(start.nodes, end.nodes, course.most),
        edges=(start.edges, end.edges, max(size.edges for size in course.sizes)),
        capacity=chosen,
        strategies=strategies,
        best_by_rate=best_by_rate(strategies),
        breakeven_capacity=breakeven,
        breakeven_is_limit=is_limit,
        breakeven_inferences=_breakeven_inferences(recompile, paddings[chosen], len(updates), inferences),
        capacities=[
            CapacityCost(capacity=c, **paddings[c].totals, latency_s=s) for c, s in latency_s.items()
        ],
        notes=_notes(toolchain, course.sizes, strategies[-1]),
        conclusion=_conclusion(strategies),
    )


def _stacks(own: Stack) -> tuple[str, str]:
    """Return the stack with constant edges and the one with a mask; refuse what a strategy brings itself."""
    constant, masking, padding = (technique_with(edges=edges).name for edges in _WAYS)
    for technique in (entry.technique for entry in own):
        if technique.gives_matrix or technique.edges in _WAYS:
            brought = f"each way to follow a stream brings its own of {constant}, {masking} and {padding}"
            raise NpusimError(f"--techniques: found {technique.name}; {brought}")
    return str(parse([*own.to_data(), constant])), str(parse([*own.to_data(), masking]))


def _course(
    scenario: Scenario, masked: str, updates: Sequence[Update], toolchain: Toolchain, inferences: int
) -> Course:
    """Return the stream and the time to correct the mask at each update; at the start there is none."""
    if inferences < 1:
        raise NpusimError(f"--inferences: found {inferences}; allowed: a whole number of at least 1")
    structure = scenario.baseline.structure
    if structure is None:
        raise ConfigError(f"the network `{scenario.baseline.name}`", allowed="a network on a data graph")
    versions = Versions(scenario, structure, toolchain)
    start = Size(structure.nodes, structure.edges // 2)
    course = [start, *sizes(start, updates)]
    graph = versions.graph(masked, start)
    keeper = MaskKeeper(graph, scenario.machine, scenario.run)
    model, neighbours = graph.meta.model, graph.meta.neighbours or 0
    changed = [entries_changed(model, u, size, neighbours) for u, size in zip(updates, course, strict=False)]
    return Course(versions, masked, course, [0.0, *changed], keeper, inferences)


def _kept_capacities(kept: Sequence[int], start: Size, most: int) -> list[int]:
    """Return the capacities that are compiled beforehand, rising; at least one holds the graph."""
    if not kept:
        steps = range(1, _BLOBS + 1)
        return sorted({-(-(start.nodes * (_BLOBS - k) + most * k) // _BLOBS) for k in steps})
    if min(kept) < 1 or max(kept) < start.nodes:
        allowed = f"capacities of 1 or more, the largest at least the {start.nodes} nodes of the graph"
        raise NpusimError(f"--kept: found {', '.join(map(str, kept))}; allowed: {allowed}")
    return sorted(set(kept))


def _batch(batch: int | None, start: Size) -> int:
    """Return the nodes of a mini-batch."""
    if batch is not None and not 1 <= batch < start.nodes:
        allowed = f"from 1 to {start.nodes - 1}: one batch of all {start.nodes} nodes is pad and mask"
        raise NpusimError(f"--batch: found {batch}; allowed: {allowed}")
    return batch if batch is not None else max(1, min(_ROUND, start.nodes // 2))


def _breakeven(course: Course, limit_s: float) -> tuple[int | None, bool]:
    """Return the largest capacity (nodes) that graphs can be padded to in at most `limit_s` in all.

    The second result says whether the range that is searched or the memory set it, not the time. The least
    capacity is the most nodes of the stream; None, False where even that takes longer. From there on nothing
    is compiled twice, and time only grows with the capacity.

    Parameters
    ----------
    limit_s : float
        Time that recompiling takes for the whole stream.
    """

    def padded_total_s(capacity: int) -> float:
        with suppress(InfeasibleError):  # memory does not hold it
            return sum(course.kept([capacity]).sums_s)
        return inf

    low = course.most
    if padded_total_s(low) > limit_s:
        return None, False
    while padded_total_s(2 * low) <= limit_s:
        low *= 2
        if low >= course.most * _MOST_GROWTH:
            return low, True
    # It lies from `low` to 2 low - 1: add how many capacities above `low` are fast enough.
    low += bisect(range(low + 1, 2 * low), limit_s, key=padded_total_s)
    return low, isinf(padded_total_s(low + 1))


def _breakeven_inferences(recompile: Costs, costs: Costs, updates: int, inferences: int) -> float | None:
    """Return how many inferences an update may bring before padding loses; None where it never does."""
    (compile_s, mask_s, inference_s), own = recompile.sums_s, costs.sums_s
    saved_s, lost_s = compile_s + mask_s - own[0] - own[1], (own[2] - inference_s) / inferences
    return None if lost_s <= 0.0 or not updates else saved_s / lost_s


def _notes(toolchain: Toolchain, course: Sequence[Size], batches: Strategy) -> list[str]:
    fixed = toolchain.compile_fixed
    notes = [
        f"compiled by {toolchain.name}: {fixed.text} and more, {fixed.source}; --set toolchain... sets yours"
    ]
    if len({size.nodes for size in course}) > KNOTS:
        notes.append(f"latencies are estimated at {KNOTS} numbers of nodes and interpolated between them")
    notes.append(
        "mask: entries that change at the mean degree, written by the CPU at random addresses; written again "
        "where a version for another number of nodes is run"
    )
    how = "in order of their numbers" if batches.accuracy is not None else "at random"
    notes.append(
        f"mini-batches: nodes are put into batches {how}, which loses {batches.lost_edges:.0%} of the edges; "
        "an inference runs all batches"
    )
    return notes


def _conclusion(strategies: Sequence[Strategy]) -> str:
    """Name the fastest strategy that keeps all edges, and a still faster one that drops some."""
    exact = [s for s in strategies if s.lost_edges == 0.0]
    best, first = min(exact, key=lambda s: s.total_s), strategies[0]
    if best is first:
        text = f"Best: {best.name}, {best.total_s:.3g} s in all: padding costs more than it saves."
    else:
        time_ratio, memory_ratio = first.total_s / best.total_s, first.memory_bytes / best.memory_bytes
        saved = f"{_times(time_ratio)} less time and {_times(memory_ratio)} less memory"
        saved += " than to recompile each time"
        text = f"Best: {best.name}, {best.total_s:.3g} s in all: {saved}."
    fastest = min(strategies, key=lambda s: s.total_s)
    if fastest.lost_edges > 0.0:
        text += f" Quicker still, but without {fastest.lost_edges:.0%} of the edges: {fastest.name}."
    return text


def _times(ratio: float) -> str:
    return f"{ratio:.3g}x" if ratio < 100.0 else f"{ratio:,.0f}x"
