"""Kept points of a sweep: which points of a chunk are kept, reading them in batches, and their front.

The best points of all chunks are among the best of each chunk, so a chunk keeps its own best alone. Reading
holds only the columns and rows in use in memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from npusim.cost import TOTAL_DTYPE
from npusim.documents import Document
from npusim.errors import ConfigError, NpusimError, UnknownNameError
from npusim.explore.axes import axes_without_cost, resolve_axes
from npusim.explore.campaign import base_soc
from npusim.explore.query import files_of, folder_of, query
from npusim.explore.robustness import ON_FRONT
from npusim.explore.spaces import Space, parse_keep, wrong_sense
from npusim.explore.sql import TABLE
from npusim.explore.store import POINT, Manifest, Store, read_manifest
from npusim.metrics import METRICS, column_of, objectives
from npusim.scenario import name_of
from npusim.studies.pareto import WORST, corner_of, finite_front, front, scaled, stand_ins

if TYPE_CHECKING:
    from npusim.explore.sweep import SweepResult

IntVector = NDArray[np.int64]
Matrix = NDArray[np.float64]
_COLUMNS = list(TOTAL_DTYPE.names or ())
_ROWS = 1 << 18
"""Rows that are read at a time."""
_LASTING = 0.9
"""Share of drawn machines on which a point must be on the front to be counted as lasting."""
_MOST_DOMINATED = 2000
_MOST_WAITING = 1 << 18
"""Points of unmerged fronts of batches that start a merge, in addition to the merged front."""


def select_objectives(
    totals: Any, minimise: Sequence[str], constraints: Mapping[Any, Any]
) -> tuple[Any, Any]:
    """Return the objectives of points, and which points keep to the constraints.

    Parameters
    ----------
    totals : array of TOTAL_DTYPE, shape (points,)
        The latency of a point that cannot run the network is infinite.

    Returns
    -------
    values : array of float64, shape (metrics, points)
        Less is better; `WORST` where a point is not admitted.
    good : array of bool, shape (points,)
        Whether a point can run the network and keeps to the constraints.
    """
    figures = totals.view(np.float64).reshape(len(totals), len(_COLUMNS))
    columns, derived = _COLUMNS, {*minimise, *constraints} - set(_COLUMNS)
    if derived:
        columns = [*_COLUMNS, *derived]
        figures = np.column_stack([figures, *(METRICS[name].values(totals) for name in derived)])
    good = totals["latency_s"] < np.inf
    for name, bound in constraints.items():
        low, high = bound.ends
        figure = figures[:, columns.index(name)]
        good &= (low <= figure) & (figure <= high)
    signed = [METRICS[name].sign * figures[:, columns.index(name)] for name in minimise]
    return np.where(good, np.stack(signed), WORST), good


def keep_points(space: Space, totals: Any) -> tuple[Any, int]:
    """Return the points of a range that `space.keep` keeps, and how many keep to the constraints.

    Parameters
    ----------
    totals : array of TOTAL_DTYPE, shape (points,)

    Returns
    -------
    kept : array of int64
        Positions in the range, ascending.
    count : int
        Where a front is kept, the number of its points.
    """
    values, good = select_objectives(totals, space.objectives, space.constraints)
    places = np.flatnonzero(good)
    rule, _ = parse_keep(space.keep)
    if rule == "all" or not len(places):
        return places, len(places)
    if rule == "pareto":
        kept = places[finite_front(np.ascontiguousarray(values[:, places]))]
        return kept, len(kept)
    return places[_best(space, values[:, places])], len(places)


def best_of(space: Space, scores: Mapping[str, Any]) -> Any:
    """Return the positions of the points that `space.keep` keeps, ascending."""
    values = objectives(scores, space.objectives)
    return front(values) if parse_keep(space.keep)[0] == "pareto" else _best(space, values)


def _best(space: Space, values: Any) -> Any:
    """Return the positions of the best points in the first objective, ascending; ties keep the first."""
    return np.sort(np.argsort(values[0], kind="stable")[: parse_keep(space.keep)[1]])


class KeptPoints:
    """The kept points of a sweep that fulfil a condition, in order.

    Parameters
    ----------
    directory : Path
        Where a sweep wrote its results.
    chunks : int
        Chunks of the sweep.
    where : str, optional
        A condition in SQL on axes and metrics.

    Raises
    ------
    FileError
        Where files are damaged.
    NpusimError
        Where there is none yet.
    """

    def __init__(self, directory: Path, chunks: int, where: str | None = None) -> None:
        self._directory, self._where = directory, where
        self._files = files_of(directory, chunks)
        self.metrics = [name for name in pq.read_schema(self._files[0]).names if name in METRICS]
        """Metrics that have a column."""

    def columns_for(self, metric: str) -> list[str]:
        """Return the columns that a metric is computed from; ConfigError where one is missing."""
        if metric in self.metrics:
            return [metric]
        of, used = METRICS[metric].of, defaultdict[str, Any](lambda: np.ones(1))
        if of is not None:
            of(used)
            if set(self.metrics).issuperset(used):
                return list(used)
        allowed = (
            f"a metric that the sweep kept ({', '.join(self.metrics)}); "
            f"a space that names {metric} as an objective or under `constraints` keeps it too"
        )
        raise ConfigError(f"the metric {metric}", file=str(self._directory), allowed=allowed)

    def batches(self, columns: Collection[str]) -> Iterator[dict[str, Any]]:
        """Yield the points batch by batch: their numbers and some columns, as arrays by name."""
        names = list(dict.fromkeys([POINT, *columns]))
        for batch in self._read(names):
            yield {name: np.from_dlpack(batch[name]) for name in names}  # without pandas

    def _read(self, names: list[str]) -> Iterator[Any]:
        if self._where:
            listed = ", ".join(f'"{name}"' for name in names)
            statement = f"SELECT {listed} FROM {TABLE} WHERE (\n{self._where}\n) ORDER BY {POINT}"
            yield from query(self._directory, statement).to_batches(_ROWS)
            return
        for path in self._files:
            with pq.ParquetFile(path) as file:
                yield from file.iter_batches(_ROWS, columns=names)

    def rows(self, numbers: IntVector) -> Any:
        """Return the points with these numbers and all their columns, in order, as an Arrow table."""
        from pyarrow.dataset import dataset, field  # imports pandas, which no sweep needs

        return dataset(self._files).to_table(filter=field(POINT).isin(pa.array(numbers)))


class Front(Document):
    """The points of a sweep that no other of its kept points dominates."""

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
    tolerance: float = 0.0
    """Share of a metric within which points count as one on pages."""
    stands_in: list[int] = Field(default_factory=list)
    """For each of `rows` the place of the row that stands for it; empty: each stands for itself."""
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
    directory: str | Path | SweepResult,
    minimise: str | Sequence[str] | None = None,
    where: str | None = None,
    maximise: str | Sequence[str] | None = None,
    tolerance: float = 0.005,
) -> Front:
    """Find the Pareto front of a sweep, and its knee.

    Parameters
    ----------
    directory : str, Path or SweepResult
        Directory that `npusim sweep` wrote.
    minimise : sequence of str, or str with commas, optional
        Metrics separated by commas, such as latency_s,energy_j,area_mm2. None: the objectives of the space
    where : str, optional
        A condition, such as '"npu.tiles" <= 4'.
    maximise : sequence of str, or str with commas, optional
        Metrics to maximise, such as throughput_per_s. None: the objectives of the space
    tolerance : float
        Share of a metric within which points are one on pages, the cheapest; the front itself stays exact

    Raises
    ------
    NpusimError
        Where no point fulfils the condition.

    Examples
    --------
    >>> import npusim
    >>> swept = npusim.sweep({"workload": "gcn-cora", "axes": {"npu.tiles": [1, 2, 4]}})
    >>> npusim.pareto(swept, "latency_s,area_mm2").front
    3

    Command lines
    -------------
        npusim pareto results
        npusim pareto results --minimise latency_s,area_mm2 --where 'energy_j < 0.002' -o front.html
    """
    folder = folder_of(directory)
    manifest = read_manifest(folder)
    names = [*_known(minimise, "minimise"), *_known(maximise, "maximise")]
    names = manifest.space.objectives if minimise is None and maximise is None else names
    kept = KeptPoints(folder, manifest.chunks, where)
    columns = [column for name in names for column in kept.columns_for(name)]
    compared, numbers, places, values = _front(kept, names, columns)
    if not compared:
        raise NpusimError(f"{folder}: no kept point fulfils {where or 'the constraints of the space'}")
    if not 0.0 <= tolerance < 1.0:
        raise ConfigError(f"{tolerance:g}", key="tolerance", allowed="a share from 0 to below 1")
    order = np.lexsort(values[::-1])
    rows, ordered = kept.rows(numbers), values[:, order]
    listed, stands_in = rows.take(order).to_pylist(), stand_ins(ordered, tolerance)
    swept = Store(folder).swept(manifest)
    notes = [*_notes(manifest, swept, names, where), *_ties(listed, ordered, manifest), *_free(manifest)]
    if ON_FRONT in listed[0]:
        notes.append(_robust(listed, manifest.space))
    return Front(
        title=manifest.space.title or str(folder),
        workload=name_of(manifest.space.workload),
        soc=manifest.space.soc,
        beaten=_dominated(kept, names, columns, compared, places),
        minimise=names,
        where=where,
        points=swept,
        compared=compared,
        front=len(places),
        axes=list(manifest.space.axes),
        units=manifest.units,
        knee=rows.slice(knee(values), 1).to_pylist()[0],
        rows=listed,
        tolerance=tolerance,
        stands_in=stands_in.tolist(),
        notes=notes,
    )


def _front(
    kept: KeptPoints, names: Sequence[str], columns: list[str]
) -> tuple[int, IntVector, IntVector, Matrix]:
    """Return the number of compared points, and of the front: numbers, places and objectives.

    Each batch of points has its own front. The front of all points is the front of these fronts.
    """
    compared, waiting = 0, 0
    merged = _joined([(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((len(names), 0)))])
    parts = [merged]
    for batch in kept.batches(columns):
        values = objectives(_scores(batch, names), names)
        best = front(values)
        parts.append((batch[POINT][best], compared + best, values[:, best]))
        compared, waiting = compared + len(batch[POINT]), waiting + len(best)
        if waiting > _MOST_WAITING + len(merged[0]):
            merged = _joined(parts)
            parts, waiting = [merged], 0
    return compared, *_joined(parts)


def _joined(parts: list[tuple[IntVector, IntVector, Matrix]]) -> tuple[IntVector, IntVector, Matrix]:
    """Return the front of the union of several fronts."""
    numbers, places, values = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    best = front(values)
    return numbers[best], places[best], values[:, best]


def _dominated(
    kept: KeptPoints, names: Sequence[str], columns: list[str], compared: int, places: IntVector
) -> list[dict[str, float]]:
    """Return the metrics of dominated points, evenly sampled where there are too many."""
    dominated = compared - len(places)
    order = np.arange(0, dominated, max(1, -(-dominated // _MOST_DOMINATED)))
    # Place among all points: place among the dominated ones plus the number of front points before it.
    sampled = order + np.searchsorted(places - np.arange(len(places)), order, side="right")
    rows, first = [], 0
    for batch in kept.batches(columns):
        last = first + len(batch[POINT])
        sampled_here = sampled[np.searchsorted(sampled, first) : np.searchsorted(sampled, last)] - first
        scores = _scores({name: column[sampled_here] for name, column in batch.items()}, names)
        rows += [{name: float(scores[name][i]) for name in names} for i in range(len(sampled_here))]
        first = last
    return rows


def _scores(columns: Mapping[str, Matrix], names: Sequence[str]) -> dict[str, Matrix]:
    scores = {name: column_of(name, columns) for name in names}
    return {name: score for name, score in scores.items() if score is not None}


def _known(metrics: str | Sequence[str] | None, key: str) -> list[str]:
    """Return metrics given as a list or a text with commas; raise for unknown ones and a wrong sense."""
    names = [name.strip() for name in (metrics.split(",") if isinstance(metrics, str) else metrics or ())]
    for name in names:
        if name not in METRICS:
            raise UnknownNameError("metric", name, METRICS)
    wrong = wrong_sense(names, key)
    if wrong is not None:
        raise ConfigError(wrong[0], key=key, allowed=wrong[1])
    return list(dict.fromkeys(names))


def _notes(manifest: Manifest, swept: int, names: list[str], where: str | None) -> Iterator[str]:
    """Yield a note where the sweep is not finished, or kept too few points for this front."""
    space, points = manifest.space, manifest.points
    if swept < points:
        yield f"the sweep is not finished: {swept:,} of {points:,} points are compared; --resume goes on"
    is_answered = space.keep == "pareto" and where is None and set(names) == set(space.objectives)
    if space.keep != "all" and not is_answered:
        kept = f"the sweep kept {space.keep} of {', '.join(space.objectives)}"
        yield f"{kept}: points it left out are not compared; sweep with --keep all for other questions"


def _ties(rows: Sequence[Mapping[str, Any]], values: Matrix, manifest: Manifest) -> Iterator[str]:
    """Yield a note where points of the front are equal in all metrics."""
    stands_in = stand_ins(values, 0.0)
    tied = [(rows[i], rows[stand]) for i, stand in enumerate(stands_in) if i != stand]
    axes = [axis for axis in manifest.space.axes if any(row[axis] != other[axis] for row, other in tied)]
    if tied:
        yield f"{len(tied):,} points equal another one in every metric: {', '.join(axes)} has no effect there"


def _robust(rows: Sequence[Mapping[str, Any]], space: Space) -> str:
    """Return how many points of a front stay on it when the data sheet's uncertain numbers are drawn."""
    lasting = sum(row[ON_FRONT] >= _LASTING for row in rows)
    return (
        f"{lasting:,} of {len(rows):,} points are on the front of {', '.join(space.objectives)} on at least "
        f"{_LASTING:.0%} of the machines that the data sheet's uncertainties allow (column {ON_FRONT}): "
        "errors that two points share do not change which is better"
    )


def _free(manifest: Manifest) -> Iterator[str]:
    """Yield a note on axes that change no area, power or energy of work."""
    try:
        soc = base_soc(manifest.space)
        free = axes_without_cost(resolve_axes(manifest.space, soc), soc, manifest.space.run)
    except NpusimError:  # the machine's file is no longer where it was
        free = []
    if free:
        yield f"no area, power or energy in the model: {', '.join(free)}; a front has the fastest value"


def knee(objectives: Any) -> int:
    """Return the knee: the point nearest to the best of every objective, scaled to its range.

    Parameters
    ----------
    objectives : array of float, shape (objectives, points)
        The front; less is better. Where all are positive, ratios count instead of differences.
    """
    values = np.log(objectives) if np.all(objectives > 0.0) else np.asarray(objectives, float)
    return int(np.argmin(np.sum(scaled(values, corner_of(values)) ** 2, axis=0)))
