"""The document of a stream: costs of each way to keep up with a changing graph, and the best by rate.

An update takes `update_s` and an inference `latency_s`, one after the other, so that at u updates a second
(1 - u update_s) / latency_s inferences a second are left. The ways are straight lines over u, and the best of
them is the upper envelope of these lines.
"""

from collections.abc import Sequence
from math import inf
from typing import Literal

from pydantic import Field

from npusim.documents import Part
from npusim.engines.document_head import Notes, UnderStack
from npusim.studies.stream.stored import StoredFeatures

Name = Literal["recompile", "recompile on nodes", "pad and mask", "several kept blobs", "mini-batches"]
"""Ways to keep up with the updates; see `Strategy`."""


class Strategy(Part):
    """One way to keep up with the updates.

    recompile: the mask is a constant, so every change needs a compilation; recompile on nodes: the mask is an
    input, so only another number of nodes does; pad and mask: compiled for a capacity, and again only when it
    is exceeded; several kept blobs: compiled for several capacities beforehand, the smallest that holds the
    graph is run; mini-batches: compiled for a batch of nodes, edges between batches are lost.
    """

    name: Name
    """Which way it is."""
    techniques: str
    """Canonical technique stack at the start."""
    compilations: int
    """How often the network is compiled, the first time included."""
    versions: int
    """Different compiled versions that were needed."""
    compile_s: float
    """Time of all compilations, in s."""
    mask_s: float
    """Time in which the CPU corrects the mask, in s."""
    inference_s: float
    """Time of all inferences, in s."""
    total_s: float
    """Sum of the three, in s."""
    memory_bytes: float
    """Memory of all versions, if each is kept, in bytes."""
    largest_version_bytes: float
    """Memory of the largest version, in bytes."""
    cumulative_s: list[float]
    """Time spent after each update, in s; the first entry is the compilation before the first of them."""
    compiled_nodes: list[int]
    """Nodes that it is compiled for before the first update: of each blob, of a batch."""
    startup_s: float
    """Time of the compilations before the first update, in s."""
    update_s: float
    """Mean time that an update takes after that, in s: compilations, and the CPU's work on the mask."""
    latency_s: float
    """Mean time of an inference on the whole graph, all batches of it, in s."""
    most_updates_per_s: float | None
    """Updates a second that it keeps up with at most; null where updates take no time."""
    lost_edges: float
    """Share of the edges that it leaves out."""
    accuracy: float | None
    """Share of test nodes classified correctly with the edges that are left; null: not trained."""
    accuracy_of_all_edges: float | None
    """The same with all edges."""
    answer_s: float | None = None
    """Mean time from a request to its answer at the rates asked for, in s; null: none asked for, or more than
    it keeps up with."""
    answer_p99_s: float | None = None
    """99th percentile of it, in s."""
    in_force_s: float | None = None
    """Mean time from an update to its end, in s."""


class CapacityCost(Part):
    """Pad and mask with one capacity."""

    capacity: int
    """Nodes it is compiled for at the start."""
    compilations: int
    """How often the network is compiled, the first time included."""
    total_s: float
    """Time in all, in s."""
    memory_bytes: float
    """Memory of all versions, in bytes."""
    latency_s: float
    """Latency of an inference at this capacity, in s."""


class BestAtRate(Part):
    """Rates of updates at which one way leaves time for most inferences."""

    strategy: str
    """Name of the way to keep up."""
    from_updates_per_s: float
    """Lowest rate, in updates a second."""
    to_updates_per_s: float | None
    """Highest rate; null where no rate ends it."""
    from_inferences_per_s: float
    """Inferences a second in the time that updates leave, at the lowest rate."""
    to_inferences_per_s: float
    """The same at the highest rate; 0 where the updates take all the time."""


class Followed(UnderStack):
    """A stream of updates and what it costs to follow it; all strategies share the techniques."""

    schema_: Literal["npusim.stream/1"] = Field("npusim.stream/1", alias="schema")
    toolchain: str
    """Name of the compiler."""
    updates: int
    """Updates of the graph."""
    inferences_per_update: int
    """Inferences after each update."""
    seed: int | None
    """Seed of a generated stream; null for a stream from a file."""
    nodes: tuple[int, int, int]
    """Nodes before the first update, after the last, and most at any time."""
    edges: tuple[int, int, int]
    """The same of undirected edges."""
    capacity: int
    """Nodes that pad and mask is compiled for."""
    strategies: list[Strategy]
    """The ways to keep up."""
    best_by_rate: list[BestAtRate]
    """The lossless way that leaves time for most inferences, by rising rate of updates up to the highest."""
    breakeven_capacity: int | None
    """Largest capacity at which pad and mask takes no longer than to recompile; null where none is."""
    breakeven_is_limit: bool
    """Whether it still pays at that capacity, and the search or the memory ends there."""
    breakeven_inferences: float | None
    """Inferences between updates at which padding costs what it saves; null where padding is free."""
    capacities: list[CapacityCost]
    """Pad and mask with other capacities."""
    notes: Notes
    stored_features: StoredFeatures | None = None
    """Batches of target nodes with stored hidden features; null where none were asked for."""
    conclusion: str
    """One sentence: which way is the quickest, and by how much."""


_ROUNDING = 1e-9
"""Relative distance of rates that are the same."""


def sustained_per_s(strategy: Strategy, updates_per_s: float) -> float:
    """Return the inferences a second that updates leave time for; 0 where it cannot keep up."""
    return max(0.0, 1.0 - updates_per_s * strategy.update_s) / strategy.latency_s


def best_by_rate(strategies: Sequence[Strategy]) -> list[BestAtRate]:
    """Return the strategy that sustains most inferences in each interval of the update rate.

    At u updates a second a strategy sustains (1 - u update_s) / latency_s inferences a second: a line over u.
    The best strategies are found by a walk along the upper envelope of these lines, from u = 0 on.

    Parameters
    ----------
    strategies : sequence of Strategy
        Those that lose edges are left out, and those that were never run.
    """
    lossless = [s for s in strategies if s.lost_edges == 0.0 and s.latency_s > 0.0]
    best_rates: list[BestAtRate] = []
    rate, is_last = 0.0, False
    while lossless and not is_last:
        # The highest line here; of equal ones that which falls least.
        best = max(lossless, key=lambda s: (sustained_per_s(s, rate), -_fall(s)))
        limit = best.most_updates_per_s if best.most_updates_per_s is not None else inf
        crossing = min((_crossing(best, other, rate) for other in lossless), default=inf)
        # The best line reaches zero before another crosses it: no strategy keeps up with more updates.
        is_last = crossing >= limit * (1.0 - _ROUNDING)
        end = limit if is_last else crossing
        if end > rate * (1.0 + _ROUNDING):  # else several lines cross here
            best_rates.append(_best_between(best, rate, end))
        lossless = [s for s in lossless if _fall(s) < _fall(best)]  # only flatter lines can overtake later
        rate = end
    return best_rates


def _best_between(best: Strategy, start: float, end: float) -> BestAtRate:
    """Return what the best strategy sustains between two rates of updates."""
    per_s_at_start = per_s_at_end = sustained_per_s(best, start)
    if end < inf:  # else updates take no time
        # Updates take all the time at the limit; the formula would leave a rounding error.
        per_s_at_end = 0.0 if end == best.most_updates_per_s else sustained_per_s(best, end)
    return BestAtRate(
        strategy=best.name,
        from_updates_per_s=start,
        to_updates_per_s=end if end < inf else None,
        from_inferences_per_s=per_s_at_start,
        to_inferences_per_s=per_s_at_end,
    )


def _fall(strategy: Strategy) -> float:
    """Return the inferences that an update takes the time of."""
    return strategy.update_s / strategy.latency_s


def _crossing(best: Strategy, other: Strategy, rate: float) -> float:
    """Return the rate above which another way sustains more; infinite where it never does."""
    fall = _fall(best) - _fall(other)
    if fall <= 0.0:
        return inf
    return max(rate, (1.0 / best.latency_s - 1.0 / other.latency_s) / fall)
