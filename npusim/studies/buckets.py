"""Buckets: sizes to compile a network for, where the number of nodes changes with each request.

A device with compiled shapes pads a graph to the smallest bucket that holds it. For each number of buckets,
the capacities with the least mean latency over given sizes are found by dynamic programming over the sizes
(or over quantiles of many); each size has edges at the mean degree of the network's own graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import numpy as np

from npusim.arch.loading import load_toolchain
from npusim.documents import Part
from npusim.errors import ConfigError, InfeasibleError, NpusimError
from npusim.scenario import Scenario
from npusim.studies.stream.following import Versions
from npusim.studies.stream.updates import Size
from npusim.techniques import legal

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
