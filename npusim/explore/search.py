"""Search of a space that is too large to sweep: NSGA-II against random search, resumable from a log.

A generation of NSGA-II is one call of each of pymoo's operators on positions of axes. pymoo's own algorithm
keeps an object for each individual, which takes longer than evaluating it. No point is evaluated twice.

Source: Deb, Pratap, Agarwal, Meyarivan: A fast and elitist multiobjective genetic algorithm: NSGA-II, IEEE
Transactions on Evolutionary Computation 6(2), 2002.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from pymoo.operators.crossover.sbx import cross_sbx
from pymoo.operators.mutation.pm import mut_pm

from npusim.documents import Part
from npusim.errors import NpusimError
from npusim.explore.campaign import Campaign, campaign_of
from npusim.explore.fronts import with_objectives
from npusim.explore.query import KeptPoints
from npusim.explore.spaces import Space, load_space
from npusim.explore.store import (
    MANIFEST,
    Store,
    equations,
    manifest_of,
    not_empty,
    space_hash,
    table_of,
    write_whole,
)
from npusim.explore.sweep import Interrupted
from npusim.files import parquet_bytes, read_arrays
from npusim.metrics import admitted, objectives
from npusim.studies.evolution import ranked
from npusim.studies.pareto import front, hypervolume_shares

_FILE = "search.npz"
_EVERY = 20
"""Generations between two writings of the log."""
_INFEASIBLE = 1e3
"""Objective (a logarithm) of a point that cannot run the network."""
_STEPS = 20
_CROSSED, _MUTATED, _AXES_CROSSED = 0.9, 0.9, 0.5
"""Shares of pairs that are crossed, of children that mutate, and of the axes of a pair that are crossed."""
_SPREAD = 5.0
"""Index of the distributions of crossing and mutation: children lie this near to their parents."""
_TRIES = 20
"""Times that parents are drawn for children that are new, before points are drawn at random."""
_MOST_DRAWN = 8
"""Children that are drawn at a time, in populations: the more of them are known, the more are drawn."""


class Evolution:
    """A population that proposes points and learns their objectives.

    Parameters
    ----------
    sizes : sequence of int
        Values of each axis.
    population : int
        Points of a generation.
    seed : int
        Runs with the same seed propose the same points.
    """

    def __init__(self, sizes: Sequence[int], population: int, seed: int) -> None:
        self._sizes, self._population = np.asarray(sizes, np.int64), population
        self._random = np.random.default_rng([seed, 0])
        self._asked, self._new_share = np.empty(0, np.int64), 1.0
        self._points = np.empty((0, len(sizes)), np.int64)
        self._values, self._good = np.empty((0, 0)), np.empty(0, bool)
        self._rank, self._crowding = np.empty(0, np.int64), np.empty(0)

    def ask(self) -> Any:
        """Return new points to evaluate, shape (points, axes); no rows once the whole space was proposed."""
        parts: list[Any] = []
        wanted = self._population
        for _ in range(_TRIES if len(self._points) else 0):
            count = int(min(np.ceil(wanted / self._new_share), _MOST_DRAWN * self._population))
            parts.append(self._new(self._children(count), wanted))
            wanted -= len(parts[-1])
            if wanted == 0:
                return np.concatenate(parts)
        parts.append(self._new(self._anywhere(wanted), wanted))
        return np.concatenate(parts)

    def tell(self, points: Any, values: Any, good: Any) -> None:
        """Choose the next parents among the population and newly evaluated points.

        Parameters
        ----------
        values : array of float, shape (points, objectives)
            Finite; less is better.
        good : array of bool, shape (points,)
            Whether a point may become a parent.
        """
        if not len(self._points):
            self._values = np.empty((0, values.shape[1]))
        points = np.concatenate([self._points, points])
        values, good = np.concatenate([self._values, values]), np.concatenate([self._good, good])
        places = np.flatnonzero(good)
        rank, crowding = ranked(values[places], places, len(points), self._population)
        best = np.lexsort([self._random.random(len(points)), -crowding, rank])[: self._population]
        self._points, self._values, self._good = points[best], values[best], good[best]
        self._rank, self._crowding = rank[best], crowding[best]

    def _children(self, wanted: int) -> Any:
        """Return children of parents chosen by binary tournaments on front rank, then crowding distance."""
        random, count = self._random, len(self._points)
        drawn = random.integers(0, count, (2, 2 * -(-wanted // 2)))
        order = np.empty(count, np.int64)
        order[np.lexsort([random.random(count), -self._crowding, self._rank])] = np.arange(count)
        parents = np.where(order[drawn[0]] < order[drawn[1]], drawn[0], drawn[1])
        pairs = self._points[parents].astype(float).reshape(2, -1, len(self._sizes))
        low, high = np.zeros(len(self._sizes)), self._sizes - 1.0
        column = (pairs.shape[1], 1)
        spread, half = np.full(column, _SPREAD), np.full(column, 0.5)
        crossed = cross_sbx(pairs, low, high, spread, _AXES_CROSSED, half, random_state=random)
        children = np.where(random.random(column) < _CROSSED, np.rint(crossed), pairs)
        children = children.reshape(-1, len(self._sizes))
        shares = np.full(len(children), min(0.5, 1.0 / len(self._sizes)))
        spreads = np.full(len(children), _SPREAD)
        mutated = mut_pm(children, low, high, spreads, shares, False, random_state=random)
        mutates = random.random((len(children), 1)) < _MUTATED
        return np.where(mutates, np.rint(mutated), children).astype(np.int64)

    def _new(self, points: Any, most: int) -> Any:
        """Return at most `most` points that were not proposed before, and record them as proposed."""
        numbers = np.ravel_multi_index(tuple(points.T), self._sizes)
        first = np.sort(np.unique(numbers, return_index=True)[1])
        places = np.searchsorted(self._asked, numbers[first])
        is_known = np.append(self._asked, -1)[places] == numbers[first]
        self._new_share = max(np.count_nonzero(~is_known) / max(len(points), 1), 1.0 / _MOST_DRAWN)
        kept = first[~is_known][:most]
        self._asked = np.sort(np.concatenate([self._asked, numbers[kept]]), kind="stable")
        return points[kept]

    def _anywhere(self, count: int) -> Any:
        """Return random points; where few are left in the space, only points not proposed before."""
        total = int(np.prod(self._sizes))
        if total - len(self._asked) > 4 * len(self._asked) + count:
            return self._random.integers(0, self._sizes, (8 * count, len(self._sizes)))
        untried = np.setdiff1d(np.arange(total), self._asked)
        drawn = self._random.permutation(untried)[:count]
        return np.stack(np.unravel_index(drawn, self._sizes), axis=1)


_Answers = tuple[Any, Any, Any]
"""Points, their objectives, and whether they are admitted, in the order of evaluation."""


class SearchLog:
    """The log of one search; it is resumed with the same label alone."""

    def __init__(self, store: Store, label: str, resume: bool) -> None:
        self.store, self.file = store, store.directory / _FILE
        self.count = 0
        """Points evaluated so far."""
        self._label = label
        self._parts: list[_Answers] = []
        self._old: _Answers | None = None
        if resume and os.path.lexists(self.file):
            arrays = read_arrays(self.file, remedy="search into another directory")
            known, *old = (arrays.get(name, np.empty(0)) for name in ("label", "points", "values", "good"))
            if str(known) != label:
                raise NpusimError(
                    f"{store.directory}: cannot be resumed: it holds a search of another space, seed, "
                    "population or version of npusim; search into another directory"
                )
            self._old = old[0], old[1], old[2]
        elif any(entry.name[:1] != "." for entry in store.directory.iterdir()):
            raise not_empty(store.directory)

    def answers(self, points: Any, evaluate: Callable[[Any], tuple[Any, Any]]) -> tuple[Any, Any]:
        """Return (objectives, whether admitted) of points, from an earlier run's log where possible."""
        start, self.count = self.count, self.count + len(points)
        span = slice(start, self.count)
        if self._old is not None and np.array_equal(self._old[0][span], points):
            values, good = self._old[1][span], self._old[2][span]
        else:
            values, good = evaluate(points)
        self._parts.append((points, values, good))
        if self._old is None and len(self._parts) % _EVERY == 0:
            self.save()
        return values, good

    def all(self) -> _Answers:
        """Return all points, their objectives and whether they are admitted."""
        points, values, good = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        return points, values, good

    def save(self) -> None:
        """Write the log; FileError where the disk takes no more."""
        points, values, good = self.all()
        buffer = io.BytesIO()
        np.savez(buffer, label=np.array(self._label), points=points, values=values, good=good)
        write_whole(self.file, buffer.getvalue())


class SearchStep(Part):
    """Progress of both searches after some evaluations."""

    evaluations: int
    """Points evaluated by each."""
    evolution: float
    """Hypervolume of the front of NSGA-II, relative to the common front of both searches at the end."""
    chance: float
    """The same of random search."""


class SearchResult(KeptPoints):
    """Result of a search."""

    schema_: Literal["npusim.search/1"] = Field("npusim.search/1", alias="schema")
    """Version of this document."""
    points: int
    """Points of the space."""
    evaluations: int
    """Points that evolution evaluated; random search evaluated as many."""
    front: int
    """Points on the front that evolution found."""
    minimise: list[str]
    """Metrics of the front."""
    steps: list[SearchStep]
    """Hypervolume of both over evaluations."""
    WRITTEN: ClassVar[str] = "front"


def _evaluated(campaign: Campaign, points: Any) -> tuple[Any, Any]:
    """Return the objectives of points, shape (points, objectives), and whether they are admitted."""
    scores = campaign.scores_at(points)
    space = campaign.space
    return objectives(scores, space.objectives).T, admitted(scores, space.constraints)


def _logarithms(values: Any) -> Any:
    """Return the logarithms of objectives, with their sign: evolution then compares ratios."""
    with np.errstate(divide="ignore"):
        logarithms = np.sign(values) * np.log(np.abs(values))
    return np.where(np.isfinite(logarithms), logarithms, _INFEASIBLE)


def search(
    space: str | Path | Space | Mapping[str, Any],
    directory: str | Path,
    budget: int,
    *,
    minimise: str | Sequence[str] | None = None,
    maximise: str | Sequence[str] | None = None,
    seed: int = 0,
    population: int | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> SearchResult:
    """Search a space for its Pareto front by NSGA-II, with random search as the baseline.

    Parameters
    ----------
    space : str, Path, Space or mapping
        A design space: a shipped name such as gcn-cora, or a YAML file (`npusim schema space`).
    directory : str or Path
        New directory for front and log.
    budget : int
        Points to evaluate; random search evaluates as many.
    minimise : sequence of str, or str with commas, optional
        Metrics separated by commas, such as latency_s,energy_j,area_mm2. None: the objectives of the space
    maximise : sequence of str, or str with commas, optional
        Metrics to maximise, such as throughput_per_s. None: the objectives of the space
    seed : int
        Seed of the random numbers; the same seed gives the same result.
    population : int, optional
        Points of a generation. None: about the square root of the budget
    resume : bool
        Continue the unfinished search in the directory.
    progress : callable, optional
        Called after each generation with the evaluations done and the budget.
    stop : callable, optional
        Called after each generation; True stops the search.

    Raises
    ------
    NpusimError
        For a continuous axis, or a directory that holds other files or another search.
    Interrupted
        Where `stop` returned True.

    Command lines
    -------------
        npusim search gcn-cora --budget 20000 -o found
        npusim search my_space.yaml --minimise latency_s,area_mm2 --budget 5000 --seed 7 -o found
    """
    start_s = time.perf_counter()
    space = with_objectives(load_space(space), minimise, maximise)
    store = Store(Path(directory))
    store.refuse_impossible()
    campaign = campaign_of(space)
    campaign.refuse_wrong_values()
    campaign.refuse_idle_axes()
    for axis in campaign.axes:
        if axis.is_continuous:
            raise NpusimError(f"axes.{axis.path}: a search needs values, `step` or `count`")
    size = population or int(np.clip(4 * round(np.sqrt(budget) / 4), 20, 1000))
    store.make()
    with store.locked():
        label = f"{space_hash(space)} {equations()} seed {seed} population {size}"
        log = SearchLog(store, label, resume)
        evolution = Evolution([axis.size for axis in campaign.axes], size, seed)
        while log.count < budget:
            points = evolution.ask()
            if not len(points):
                break  # all of the space is evaluated
            values, good = log.answers(points, partial(_evaluated, campaign))
            evolution.tell(points, _logarithms(values), good)
            if progress is not None:
                progress(min(log.count, budget), budget)
            if stop is not None and log.count < budget and stop():
                log.save()
                raise Interrupted(f"stopped after {log.count:,} of {budget:,} evaluations; --resume goes on")
        log.save()
        return _report(campaign, log, seed, budget, start_s)


def _report(campaign: Campaign, log: SearchLog, seed: int, budget: int, start_s: float) -> SearchResult:
    """Write the front, run random search with as many evaluations, and return the comparison."""
    points, values, good = (part[:budget] for part in log.all())
    sizes = [axis.size for axis in campaign.axes]
    random = np.random.default_rng([seed, 1])
    drawn = np.stack([random.integers(0, size, len(points)) for size in sizes], axis=1)
    steps = _compare((values, good), _evaluated(campaign, drawn))
    kept = np.flatnonzero(good)[front(values[good].T)]
    kept = kept[np.unique(points[kept], axis=0, return_index=True)[1]]
    scores, numbers = campaign.scores_at(points[kept]), np.ravel_multi_index(tuple(points[kept].T), sizes)
    coordinates, names = points[kept].astype(float), campaign.space.metrics
    write_whole(log.store.result, parquet_bytes(table_of(campaign.axes, numbers, coordinates, scores, names)))
    manifest = manifest_of(campaign.space, campaign.axes, campaign.total, campaign.total)
    manifest.write(log.store.directory / MANIFEST)  # for query and pareto
    log.store.finish(log.store.directory / MANIFEST, log.store.result, log.file)
    return SearchResult(
        points=campaign.total,
        evaluations=len(points),
        front=len(kept),
        minimise=list(campaign.space.objectives),
        steps=steps,
        seconds=time.perf_counter() - start_s,
        directory=str(log.store.directory),
    )


def _compare(evolution: tuple[Any, Any], chance: tuple[Any, Any]) -> list[SearchStep]:
    """Return the hypervolume of both searches after some evaluations, relative to their common front.

    Parameters
    ----------
    evolution, chance : tuple of array
        Objectives of the points in the order of evaluation, and whether each point is admitted.
    """
    all_values = np.vstack([values[good] for values, good in (evolution, chance)]).T
    if not all_values.shape[1]:
        return []
    count = len(evolution[0])
    ends = np.unique(np.geomspace(max(1, count // 100), count, _STEPS).astype(int)).tolist()
    shares = [
        hypervolume_shares((values[:end][good[:end]].T for end in ends), all_values)
        for values, good in (evolution, chance)
    ]
    return [
        SearchStep(evaluations=end, evolution=own, chance=by_chance)
        for end, own, by_chance in zip(ends, *shares, strict=True)
    ]
