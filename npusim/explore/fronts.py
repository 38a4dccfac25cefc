"""The front of a sweep as a document: the points on it, and its knee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from npusim.documents import Document
from npusim.errors import ConfigError, NpusimError, UnknownNameError
from npusim.explore.kept import KeptPoints
from npusim.explore.pareto import front
from npusim.explore.spaces import Space, wrong_sense
from npusim.explore.store import POINT, Manifest, Store, read_manifest
from npusim.metrics import METRICS, column_of, objectives
from npusim.scenario import name_of

IntVector = NDArray[np.int64]
Matrix = NDArray[np.float64]
_MOST_BEATEN = 2000
_MOST_WAITING = 1 << 18
"""Points of fronts of parts that wait to be compared with each other, beyond those that are left."""


class Front(Document):
    """The points of a sweep that no other of its kept points beats."""

    schema_: Literal["npusim.pareto/1"] = Field("npusim.pareto/1", alias="schema")
    """Version of this document."""
    title: str
    """Title of the space."""
    workload: str
    """Network of the space; where an axis varies it, the one that the axis begins from."""
    soc: str
    """Machine of the space, in the same way."""
    minimise: list[str]
    """Metrics of the front: those that are minimised, then those that are maximised."""
    where: str | None
    """Condition that the points fulfil."""
    points: int
    """Points of the space that are swept: all, once the sweep is finished."""
    compared: int
    """Points that were kept and fulfil the condition."""
    front: int
    """Points on the front."""
    axes: list[str]
    """Paths of the axes."""
    units: dict[str, str]
    """SI units of the axes that have one, by path."""
    knee: dict[str, Any]
    """The point where giving up a little of one metric stops buying much of another."""
    rows: list[dict[str, Any]]
    """The points on the front in the order of the first metric: number, axes and metrics."""
    beaten: list[dict[str, float]]
    """The minimised metrics of further points, which others beat: of very many an even selection."""
    notes: list[str]
    """What one should know before believing the front."""


def with_objectives(
    space: Space, minimise: str | Sequence[str] | None, maximise: str | Sequence[str] | None = None
) -> Space:
    """Return a space with other objectives; where both are None, the space itself."""
    if minimise is None and maximise is None:
        return space
    less, more = _known(minimise, "minimise"), _known(maximise, "maximise")
    return Space.model_validate({**space.model_dump(by_alias=True), "minimise": less, "maximise": more})


def pareto(
    directory: str | Path,
    minimise: str | Sequence[str] | None = None,
    where: str | None = None,
    maximise: str | Sequence[str] | None = None,
) -> Front:
    """Return the front of the points that a sweep kept.

    Parameters
    ----------
    directory : str or Path
        Where a sweep wrote its results.
    minimise, maximise : str or sequence of str, optional
        Metrics of which less, or more, is better; where neither is given: those of the space.
    where : str, optional
        A condition in SQL on axes and metrics.

    Raises
    ------
    NpusimError
        Where no point fulfils the condition.
    """
    manifest = read_manifest(Path(directory))
    given = minimise is not None or maximise is not None
    chosen = [*_known(minimise, "minimise"), *_known(maximise, "maximise")]
    names = chosen if given else manifest.space.objectives
    kept = KeptPoints(Path(directory), manifest.chunks, where)
    columns = _columns(kept, names, directory)
    compared, numbers, places, values = _front(kept, names, columns)
    if not compared:
        raise NpusimError(f"{directory}: no kept point fulfils {where or 'the constraints of the space'}")
    found = kept.rows(numbers)
    order = np.lexsort(values[::-1])
    swept = swept_points(Path(directory), manifest)
    return Front(
        title=manifest.space.title or str(directory),
        workload=name_of(manifest.space.workload),
        soc=manifest.space.soc,
        beaten=_beaten(kept, names, columns, compared, places),
        minimise=names,
        where=where,
        points=swept,
        compared=compared,
        front=len(places),
        axes=list(manifest.space.axes),
        units=manifest.units,
        knee=found.slice(knee(values), 1).to_pylist()[0],
        rows=found.take(order).to_pylist(),
        notes=[*_unfinished(swept, manifest.points), *_notes(manifest.space, names, where)],
    )


def _columns(kept: KeptPoints, names: Sequence[str], directory: str | Path) -> list[str]:
    """Return the columns that hold metrics, or that they are worked out from."""
    columns: list[str] = []
    for name in names:
        found = kept.columns_for(name)
        if found is None:
            raise ConfigError(
                f"the metric {name}", file=str(directory),
                allowed=f"a metric that the sweep kept ({', '.join(kept.metrics)}); "
                f"a space that names {name} as an objective or under `constraints` keeps it too",
            )  # fmt: skip
        columns += found
    return columns


def _front(
    kept: KeptPoints, names: Sequence[str], columns: list[str]
) -> tuple[int, IntVector, IntVector, Matrix]:
    """Return how many points are compared; of the front numbers, places among them, and objectives.

    A part of the points has its own front; the front of all is that of these.
    """
    compared, waiting = 0, 0
    found = _joined([(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((len(names), 0)))])
    parts = [found]
    for batch in kept.batches(columns):
        values = objectives(_scores(batch, names), names)
        best = front(values)
        parts.append((batch[POINT][best], compared + best, values[:, best]))
        compared, waiting = compared + len(batch[POINT]), waiting + len(best)
        if waiting > _MOST_WAITING + len(found[0]):
            found = _joined(parts)
            parts, waiting = [found], 0
    return compared, *_joined(parts)


def _joined(parts: list[tuple[IntVector, IntVector, Matrix]]) -> tuple[IntVector, IntVector, Matrix]:
    """Return the front of several fronts."""
    numbers, places, values = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    best = front(values)
    return numbers[best], places[best], values[:, best]


def _beaten(
    kept: KeptPoints, names: Sequence[str], columns: list[str], compared: int, places: IntVector
) -> list[dict[str, float]]:
    """Return the metrics of an even selection of the points that are not on the front."""
    behind = compared - len(places)
    order = np.arange(0, behind, max(1, -(-behind // _MOST_BEATEN)))
    # So many points behind the front stand before each point of the front.
    wanted = order + np.searchsorted(places - np.arange(len(places)), order, side="right")
    found, first = [], 0
    for batch in kept.batches(columns):
        last = first + len(batch[POINT])
        here = wanted[np.searchsorted(wanted, first) : np.searchsorted(wanted, last)] - first
        scores = _scores({name: column[here] for name, column in batch.items()}, names)
        found += [{name: float(scores[name][i]) for name in names} for i in range(len(here))]
        first = last
    return found


def _scores(columns: Mapping[str, Matrix], names: Sequence[str]) -> dict[str, Matrix]:
    scores = {name: column_of(name, columns) for name in names}
    return {name: score for name, score in scores.items() if score is not None}


def swept_points(directory: Path, manifest: Manifest) -> int:
    """Return how many points of a space are swept so far."""
    done = Store(directory).finished()
    if done is None:
        return manifest.points
    return sum(min(manifest.chunk, manifest.points - index * manifest.chunk) for index in done)


def _unfinished(swept: int, points: int) -> list[str]:
    if swept == points:
        return []
    return [f"the sweep is not finished: {swept:,} of {points:,} points are compared; --resume goes on"]


def _known(metrics: str | Sequence[str] | None, key: str) -> list[str]:
    """Return the names of metrics, a list or a text with commas; refuse unknown ones and the other sense."""
    names = [name.strip() for name in (metrics.split(",") if isinstance(metrics, str) else metrics or ())]
    for name in names:
        if name not in METRICS:
            raise UnknownNameError("metric", name, METRICS)
    wrong = wrong_sense(names, key)
    if wrong is not None:
        raise ConfigError(wrong[0], key=key, allowed=wrong[1])
    return list(dict.fromkeys(names))


def _notes(space: Space, names: list[str], where: str | None) -> list[str]:
    """Say where the sweep kept too little for the question."""
    if space.keep == "all" or (
        set(names) == set(space.objectives) and where is None and space.keep == "pareto"
    ):
        return []
    kept = f"the sweep kept {space.keep} of {', '.join(space.objectives)}"
    return [f"{kept}: points it left out are not compared; sweep with --keep all for other questions"]


def knee(objectives: Any) -> int:
    """Return the knee: the point nearest to the best of every objective, scaled to its range.

    Parameters
    ----------
    objectives : array of float, shape (objectives, points)
        The front; less is better. Where all are positive, ratios count instead of differences.
    """
    values = np.log(objectives) if np.all(objectives > 0.0) else np.asarray(objectives, float)
    low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    scaled = (values - low) / np.where(high > low, high - low, 1.0)
    return int(np.argmin(np.sum(scaled**2, axis=0)))
