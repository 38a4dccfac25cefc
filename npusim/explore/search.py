"""Search of a space that is too large to sweep: NSGA-II beside random search, resumable from a log."""

from __future__ import annotations

import io
import os
import time
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from npusim.documents import Document, Part
from npusim.errors import FileError, NpusimError
from npusim.explore.campaign import Campaign, campaign_of
from npusim.explore.evolution import Evolution
from npusim.explore.pareto import corner_of, corner_of_unit, front, hypervolume, scaled
from npusim.explore.query import points_table
from npusim.explore.spaces import Space, load_space
from npusim.explore.store import (
    MANIFEST,
    Store,
    equations,
    manifest_of,
    space_hash,
    table_of,
    to_bytes,
    write_whole,
)
from npusim.explore.sweep import Interrupted
from npusim.metrics import admitted, objectives

_FILE = "search.npz"
_EVERY = 20
"""Generations between two writings of the log."""


class SearchLog:
    """The log of one search.

    Parameters
    ----------
    seed, population : int
        They belong to the search: with others it would ask other questions.
    """

    def __init__(self, directory: Path, space: Space, seed: int, population: int, resume: bool) -> None:
        self.directory = directory
        self.asked = 0
        self.population = population
        self.file = directory / _FILE
        self._label = f"{space_hash(space)} {equations()} seed {seed} population {population}"
        self._parts: list[tuple[Any, Any, Any]] = []
        self._old: tuple[Any, Any, Any] | None = None
        if resume and os.path.lexists(self.file):
            self._old = self._read()
        elif any(entry.name[:1] != "." for entry in directory.iterdir()):
            raise FileError(
                str(directory), "is not empty", "add --resume to go on with it, or name another directory"
            )

    def answers(self, points: Any, ask: Callable[[Any], tuple[Any, Any]]) -> tuple[Any, Any]:
        """Return (objectives, whether admitted) of points: from the log where it has them, else by asking."""
        start, self.asked = self.asked, self.asked + len(points)
        old = self._old
        if (
            old is not None
            and self.asked <= len(old[0])
            and np.array_equal(old[0][start : self.asked], points)
        ):
            values, good = old[1][start : self.asked], old[2][start : self.asked]
        else:
            values, good = ask(points)
        self._parts.append((points, values, good))
        if old is None and len(self._parts) % _EVERY == 0:
            self.save()
        return values, good

    def all(self) -> tuple[Any, Any, Any]:
        """Return all points, their objectives and whether they are admitted, in the order of asking."""
        points, values, good = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        return points, values, good

    def save(self) -> None:
        """Write the log; FileError where the disk takes no more."""
        points, values, good = self.all()
        buffer = io.BytesIO()
        np.savez(buffer, label=np.array(self._label), points=points, values=values, good=good)
        write_whole(self.file, buffer.getvalue())

    def _read(self) -> tuple[Any, Any, Any]:
        damaged = FileError(
            str(self.file), "is no log of a search, or damaged", "search into another directory"
        )
        if not self.file.is_file():
            raise damaged
        try:
            # What npusim writes is not compressed, so that no more is in memory than on the disk.
            with zipfile.ZipFile(self.file) as packed:
                if any(part.compress_type != zipfile.ZIP_STORED for part in packed.infolist()):
                    raise damaged
            with np.load(self.file, allow_pickle=False) as found:
                label, parts = str(found["label"]), [found[name] for name in ("points", "values", "good")]
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
            raise damaged from None
        if label != self._label:
            raise NpusimError(
                f"{self.directory}: cannot be resumed: it holds a search of another space, seed, "
                "population or version of npusim; search into another directory"
            )
        if [part.ndim for part in parts] != [2, 2, 1] or len({len(part) for part in parts}) != 1:
            raise damaged
        return parts[0], parts[1], parts[2]


_INFEASIBLE = 1e3
"""Objective (a logarithm) of a point that cannot run the network."""
_STEPS = 20


class SearchStep(Part):
    """How far both searches are after some evaluations."""

    evaluations: int
    """Points evaluated by each."""
    evolution: float
    """Hypervolume of the front that evolution has found, relative to the best of both at the end."""
    chance: float
    """The same of random search."""


class SearchResult(Document):
    """What a search found."""

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
    seconds: float
    """Time of this run, in s."""
    directory: str
    """Where front and log are."""

    @classmethod
    def tables(cls) -> tuple[str, ...]:
        """Return the names of the tables: `front`, the points that are written, stands on disk."""
        return ("front", "steps")

    def records(self, table: str | None = None) -> list[dict[str, Any]]:
        """Return the points that are written, with axes and metrics as columns; or the steps."""
        return (
            points_table(self.directory).to_pylist() if table in (None, "front") else super().records(table)
        )


def _evaluated(campaign: Campaign, points: Any) -> tuple[Any, Any]:
    """Return the objectives of points, shape (points, objectives), and whether they may be taken."""
    scores = campaign.scores_at(points)
    space = campaign.space
    return objectives(scores, space.objectives).T, admitted(scores, space.constraints)


def _logarithms(values: Any) -> Any:
    """Return objectives as evolution compares them: ratios count, not differences; the sign stays."""
    with np.errstate(divide="ignore"):
        found = np.sign(values) * np.log(np.abs(values))
    return np.where(np.isfinite(found), found, _INFEASIBLE)


def search(
    space: str | Path | Space | Mapping[str, Any],
    directory: str | Path,
    *,
    budget: int,
    seed: int = 0,
    population: int | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> SearchResult:
    """Search a space for its front with a budget of evaluations.

    Parameters
    ----------
    space : str, Path, mapping or Space
        As for `npusim.sweep`, with values or steps on every axis; what to minimise stands in it.
    directory : str or Path
        Where front and log go; new or empty unless `resume`.
    budget : int
        Points to evaluate, by evolution and by random search each.
    seed : int
        The same seed gives the same search.
    population : int, optional
        Points of a generation; default: about the square root of the budget.
    resume : bool
        Go on with an earlier search of the same space and seed, whose budget may have been smaller.
    progress, stop : callable, optional
        Told of evaluations done and to do; asked after each generation whether to stop.

    Raises
    ------
    NpusimError
        For a continuous axis, or a directory that holds something else.
    Interrupted
        Where `stop` said so.
    """
    began = time.perf_counter()
    space = load_space(space)
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
        log = SearchLog(store.directory, space, seed, size, resume)
        return _searched(campaign, log, seed, budget, progress, stop, began)


def _searched(
    campaign: Campaign,
    log: SearchLog,
    seed: int,
    budget: int,
    progress: Callable[[int, int], None] | None,
    stop: Callable[[], bool] | None,
    began: float,
) -> SearchResult:
    """Evolve a population until the budget is spent."""
    evolution = Evolution([axis.size for axis in campaign.axes], log.population, seed)
    while log.asked < budget:
        points = evolution.ask()
        if not len(points):
            break  # all of the space is evaluated
        values, good = log.answers(points, partial(_evaluated, campaign))
        evolution.tell(points, _logarithms(values), good)
        if progress is not None:
            progress(min(log.asked, budget), budget)
        if stop is not None and log.asked < budget and stop():
            log.save()
            raise Interrupted(f"stopped after {log.asked:,} of {budget:,} evaluations; --resume goes on")
    log.save()
    return _report(campaign, log, seed, budget, began)


def _report(campaign: Campaign, log: SearchLog, seed: int, budget: int, began: float) -> SearchResult:
    """Write the front, search at random beside, and compare."""
    asked, values, good = (part[:budget] for part in log.all())
    random = np.random.default_rng([seed, 1])
    drawn = np.stack([random.integers(0, axis.size, len(asked)) for axis in campaign.axes], axis=1)
    chance, allowed = _evaluated(campaign, drawn)
    steps = _compare(values, good, chance, allowed)
    places = np.flatnonzero(good)
    kept = places[front(values[good].T)]
    kept = kept[np.unique(asked[kept], axis=0, return_index=True)[1]]
    scores = campaign.scores_at(asked[kept])
    numbers = np.ravel_multi_index(tuple(asked[kept].T), [axis.size for axis in campaign.axes])
    points, names = asked[kept].astype(float), campaign.space.metrics
    table = table_of(campaign.axes, numbers, points, scores, int(good.sum()), names)
    store = Store(log.directory)
    write_whole(store.result, to_bytes(table))
    manifest = manifest_of(campaign.space, campaign.axes, campaign.total, campaign.total)
    manifest.write(log.directory / MANIFEST)  # for query and pareto
    store.finish(log.directory / MANIFEST, store.result, log.file)
    return SearchResult(
        points=campaign.total,
        evaluations=len(asked),
        front=len(kept),
        minimise=list(campaign.space.objectives),
        steps=steps,
        seconds=time.perf_counter() - began,
        directory=str(log.directory),
    )


def _compare(values: Any, good: Any, chance: Any, allowed: Any) -> list[SearchStep]:
    """Return the hypervolume of both searches over evaluations, relative to the front of both together."""
    count = len(values)
    together = np.vstack([values[good], chance[allowed]]).T
    if not together.shape[1]:
        return []
    corner = corner_of(together[:, front(together)])
    ends = np.unique(np.geomspace(max(1, count // 100), count, _STEPS).astype(int))
    whole = hypervolume(scaled(together, corner), corner_of_unit(len(together)))
    return [
        SearchStep(
            evaluations=int(end),
            evolution=hypervolume(scaled(values[:end][good[:end]].T, corner), corner_of_unit(len(together)))
            / whole,
            chance=hypervolume(scaled(chance[:end][allowed[:end]].T, corner), corner_of_unit(len(together)))
            / whole,
        )
        for end in ends
    ]
