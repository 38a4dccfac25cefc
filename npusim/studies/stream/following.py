"""Stream of graph updates: recompile, pad and mask, keep several versions, or infer in mini-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf, isinf

from npusim.arch.loading import Toolchain, load_toolchain
from npusim.errors import ConfigError, InfeasibleError, NpusimError
from npusim.scenario import Scenario
from npusim.studies.stream.document import CapacityCost, Followed, Strategy
from npusim.studies.stream.masks import MaskKeeper, entries_changed
from npusim.studies.stream.rates import best_by_rate
from npusim.studies.stream.strategies import (
    KNOTS,
    BatchJudgement,
    Costs,
    Course,
    Versions,
    expected_judgement,
)
from npusim.studies.stream.updates import Size, Update, sizes
from npusim.techniques import EdgeData, Stack, parse, technique_with

_WAYS = (EdgeData.CONSTANT, EdgeData.INPUT, EdgeData.CAPACITY)
"""What the strategies do with the edges: recompile, update a mask, leave room for more nodes."""
_ROUND = 1000
"""Without a capacity, nodes are rounded up to whole thousands, as NodePad does."""
_BLOBS = 4
"""Default number of kept blobs."""
_MOST_TIMES = 64
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
    seed: int | None = None,
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
    inferences, seed : int
        Inferences after each update, at least 1; seed of the stream, for the document.

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
    start, end = course.sizes[0], course.sizes[-1]
    if capacity is not None and capacity < start.nodes:
        allowed = f"at least the {start.nodes} nodes of the graph"
        raise NpusimError(f"--capacity: found {capacity}; allowed: {allowed}")
    chosen = capacity if capacity is not None else -(-course.most // _ROUND) * _ROUND
    blobs, size = _kept_capacities(kept, start, chosen), _batch(batch, start)
    recompile = course.frozen(frozen, [any(update.counts.values()) for update in updates])
    paddings = _paddings(course, chosen)
    judged = judge(size) if judge is not None else expected_judgement(start.nodes, size)
    padded = course.compiled.graph(masked, start, chosen).techniques
    strategies = [
        recompile.strategy("recompile", frozen, [start.nodes]),
        course.by_nodes().strategy("recompile on nodes", masked, [start.nodes]),
        paddings[chosen].strategy("pad and mask", padded, [chosen]),
        course.kept(blobs).strategy("several kept blobs", masked, blobs),
        course.batched(size, judged.lost_edges).strategy("mini-batches", masked, [size], judged),
    ]
    breakeven, at_limit = _breakeven(course, recompile.total_s)
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
        breakeven_is_limit=at_limit,
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
    """Return the stream, and the time to correct the mask at each update (0 at the start)."""
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
    """Return the capacities that are compiled beforehand, ascending; at least one holds the graph."""
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


def _paddings(course: Course, chosen: int) -> dict[int, Costs]:
    """Return the costs at the chosen capacity and at the listed capacities that fit in memory."""
    paddings = {chosen: course.kept([chosen])}
    for nodes in {-(-round(course.most * times) // 10) * 10 for times in _SHOWN}:
        with suppress(InfeasibleError):
            paddings[nodes] = course.kept([nodes])
    return paddings


def _breakeven(course: Course, limit_s: float) -> tuple[int | None, bool]:
    """Return the largest capacity at which padding takes at most `limit_s`, and whether the search ended.

    Capacities above the most nodes of the stream need one compilation, and time only grows with capacity. A
    capacity that does not fit in memory takes infinite time and also ends the search.
    """

    def total_s(nodes: int) -> float:
        with suppress(InfeasibleError):
            return course.kept([nodes]).total_s
        return inf

    most = course.most
    if total_s(most) > limit_s:
        return None, False
    low, high = most, most * 2
    while total_s(high) <= limit_s:
        low, high = high, high * 2
        if low >= most * _MOST_TIMES:
            return low, True
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if total_s(middle) <= limit_s else (low, middle)
    return low, isinf(total_s(high))


def _breakeven_inferences(recompile: Costs, costs: Costs, updates: int, inferences: int) -> float | None:
    """Return the inferences per update above which padding loses; None if it never does."""
    saved_s = sum(recompile.compile_s) + sum(recompile.mask_s) - sum(costs.compile_s) - sum(costs.mask_s)
    lost_s = (sum(costs.inference_s) - sum(recompile.inference_s)) / inferences
    return None if lost_s <= 0.0 or not updates else saved_s / lost_s


def _notes(toolchain: Toolchain, course: Sequence[Size], batches: Strategy) -> list[str]:
    fixed = toolchain.compile_fixed
    notes = [
        f"compiled by {toolchain.name}: {fixed.text} and more, {fixed.source}; --set toolchain... sets yours"
    ]
    if len({size.nodes for size in course}) > KNOTS:
        notes.append(f"latencies are estimated at {KNOTS} numbers of nodes and interpolated between them")
    notes.append(
        "mask: entries that change at the mean degree, written by the CPU at random addresses; written anew "
        "where a version for another number of nodes is run"
    )
    how = "in order of their numbers" if batches.accuracy is not None else "at random"
    notes.append(
        f"mini-batches: nodes are put into batches {how}, which loses {batches.lost_edges:.0%} of the edges; "
        "an inference runs all batches"
    )
    return notes


def _conclusion(strategies: Sequence[Strategy]) -> str:
    exact = [s for s in strategies if s.lost_edges == 0.0]
    best, first = min(exact, key=lambda s: s.total_s), strategies[0]
    if best is first:
        text = f"Best: {best.name}, {best.total_s:.3g} s in all: padding costs more than it saves."
    else:
        gain, less = first.total_s / best.total_s, first.memory_bytes / best.memory_bytes
        saved = f"{_times(gain)} less time and {_times(less)} less memory than to recompile each time"
        text = f"Best: {best.name}, {best.total_s:.3g} s in all: {saved}."
    lossy = min(strategies, key=lambda s: s.total_s)
    if lossy.lost_edges > 0.0:
        text += f" Quicker still, but without {lossy.lost_edges:.0%} of the edges: {lossy.name}."
    return text


def _times(ratio: float) -> str:
    return f"{ratio:.3g}x" if ratio < 100.0 else f"{ratio:,.0f}x"
