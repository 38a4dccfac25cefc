"""Fronts of sweeps: which points of a chunk are kept, the front of kept points, and how sure it is.

The best points of all chunks are among the best of each chunk, so a chunk keeps its own best alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from npusim.arch import load_soc
from npusim.documents import Document
from npusim.errors import ConfigError, NpusimError, UnknownNameError
from npusim.explore.axes import axes_without_cost, resolve_axes, run_on
from npusim.explore.campaign import base_soc, campaign_of, graph_at, overrides_of
from npusim.explore.query import kept_files, query
from npusim.explore.spaces import Space, parse_keep, wrong_sense
from npusim.explore.sql import TABLE
from npusim.explore.store import POINT, Manifest, Store, numbers_in
from npusim.mapping import map_graph
from npusim.metrics import METRICS, SAMPLES, admitted, column_of, objectives
from npusim.scenario import name_of
from npusim.studies.pareto import corner_of, front, scaled, stand_ins
from npusim.studies.uncertainty import draw

if TYPE_CHECKING:
    from npusim.explore.sweep import SweepResult

ON_FRONT = "on_front"
"""Column: share of the drawn machines on which a point is on the front of the kept points."""
BOUND_COLUMNS = ("{}_low", "{}_high")
"""Columns with the ends of the 90 % interval of a metric."""
_LASTING = 0.9
"""Share of drawn machines on which a point must be on the front to be counted as lasting."""
_MOST_DOMINATED = 2000


def keep_points(space: Space, totals: Any) -> Any:
    """Return the positions of the points of a range that `space.keep` keeps, ascending.

    Parameters
    ----------
    totals : array of TOTAL_DTYPE, shape (points,)
        The latency of a point that cannot run the network is infinite.
    """
    scores = {name: METRICS[name].values(totals) for name in ("latency_s", *space.metrics)}
    places = np.flatnonzero(admitted(scores, space.constraints))
    if space.keep == "all" or not len(places):
        return places
    return places[best_of(space, {name: scores[name][places] for name in space.objectives})]


def best_of(space: Space, scores: Mapping[str, Any]) -> Any:
    """Return the positions of the points that `space.keep` keeps, ascending; ties keep the first."""
    values, (rule, count) = objectives(scores, space.objectives), parse_keep(space.keep)
    return front(values) if rule == "pareto" else np.sort(np.argsort(values[0], kind="stable")[:count])


def with_intervals(table: Any, space: Space, tick: Callable[[int, int], None]) -> Any:
    """Return an Arrow table of kept points with 90 % intervals, and the share of draws on the front.

    Each metric that the space minimises or maximises, and the latency, get two more columns. Numbers that
    points share are drawn alike for all points, so their errors cancel where points are compared. `tick` is
    called after each point with the points that are done and all.
    """
    campaign = campaign_of(space)
    names = list(dict.fromkeys(["latency_s", *space.objectives]))
    drawn = np.empty((len(names), table.num_rows, SAMPLES))
    for p, number in enumerate(table[POINT].to_numpy()):
        chosen = campaign.settings_at(campaign.points.coordinates([int(number)])[0])
        soc = load_soc(str(chosen.get("soc", space.soc)), overrides_of(space, chosen, of_workload=False))
        totals = draw([map_graph(graph_at(space, chosen), soc, run_on(soc, space.run))]).totals[0]
        drawn[:, p] = [METRICS[name].values(totals) for name in names]
        tick(p + 1, table.num_rows)
    for name, values in zip(names, drawn, strict=True):
        for column, ends in zip(BOUND_COLUMNS, np.percentile(values, [5.0, 95.0], axis=1), strict=True):
            table = table.append_column(column.format(name), pa.array(ends, pa.float64()))
    if parse_keep(space.keep)[0] == "pareto":
        shares = share_on_front(dict(zip(names, drawn, strict=True)), space)
        table = table.append_column(ON_FRONT, pa.array(shares, pa.float64()))
    return table


def share_on_front(drawn: dict[str, Any], space: Space) -> Any:
    """Return for each point the share of samples in which no other point dominates it.

    Parameters
    ----------
    drawn : dict of str to array of float, shape (points, samples)
        Metrics on the drawn machines.
    """
    count = np.zeros(len(drawn["latency_s"]))
    for values in np.moveaxis(objectives(drawn, space.objectives), 2, 0):
        count[front(values)] += 1
    return count / SAMPLES


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
    folder, manifest, files = kept_files(directory)
    names = [*_known(minimise, "minimise"), *_known(maximise, "maximise")]
    names = manifest.space.objectives if minimise is None and maximise is None else names
    columns = list(dict.fromkeys([POINT, *_columns_for(names, files[0], folder)]))
    kept = _kept(folder, files, columns, where)
    if not kept.num_rows:
        raise NpusimError(f"{folder}: no kept point fulfils {where or 'the constraints of the space'}")
    if not 0.0 <= tolerance < 1.0:
        raise ConfigError(f"{tolerance:g}", key="tolerance", allowed="a share from 0 to below 1")
    numbers = {name: numbers_in(kept, name) for name in columns}
    scores = {name: np.asarray(column_of(name, numbers)) for name in names}
    values = objectives(scores, names)
    places = front(values)
    values = values[:, places]
    behind = np.setdiff1d(np.arange(kept.num_rows), places)
    behind = behind[:: max(1, -(-len(behind) // _MOST_DOMINATED))]
    order = np.lexsort(values[::-1])
    rows, ordered = _rows(files, numbers[POINT][places]), values[:, order]
    listed, stands_in = rows.take(order).to_pylist(), stand_ins(ordered, tolerance)
    swept = Store(folder).swept(manifest)
    notes = [*_notes(manifest, swept, names, where), *_ties(listed, ordered, manifest), *_free(manifest)]
    if ON_FRONT in listed[0]:
        notes.append(_robust(listed, manifest.space))
    return Front(
        title=manifest.space.title or str(folder),
        workload=name_of(manifest.space.workload),
        soc=manifest.space.soc,
        beaten=[{name: float(scores[name][i]) for name in names} for i in behind],
        minimise=names,
        where=where,
        points=swept,
        compared=kept.num_rows,
        front=len(places),
        axes=list(manifest.space.axes),
        units=manifest.units,
        knee=rows.slice(knee(values), 1).to_pylist()[0],
        rows=listed,
        tolerance=tolerance,
        stands_in=stands_in.tolist(),
        notes=notes,
    )


def _columns_for(names: Sequence[str], file: str, folder: Path) -> Iterator[str]:
    """Yield the columns that metrics are computed from; ConfigError where one is missing."""
    kept = [name for name in pq.read_schema(file).names if name in METRICS]
    for metric in names:
        of, used = METRICS[metric].of, defaultdict[str, Any](lambda: np.ones(1))
        if metric in kept:
            used[metric]
        elif of is not None:
            of(used)
        if not used or not used.keys() <= {*kept}:
            allowed = (
                f"a metric that the sweep kept ({', '.join(kept)}); "
                f"a space that names {metric} as an objective or under `constraints` keeps it too"
            )
            raise ConfigError(f"the metric {metric}", file=str(folder), allowed=allowed)
        yield from used


def _kept(folder: Path, files: Sequence[str], columns: Sequence[str], where: str | None) -> Any:
    """Return some columns of the kept points that fulfil a condition in SQL, in order, as an Arrow table."""
    if where:
        listed = ", ".join(f'"{name}"' for name in columns)
        return query(folder, f"SELECT {listed} FROM {TABLE} WHERE (\n{where}\n) ORDER BY {POINT}")
    return pa.concat_tables(pq.ParquetFile(file).read(columns=columns) for file in files)


def _rows(files: Sequence[str], numbers: Any) -> Any:
    """Return the points with these numbers and all their columns, in order, as an Arrow table."""
    from pyarrow.dataset import dataset, field  # imports pandas, which no sweep needs

    return dataset(files).to_table(filter=field(POINT).isin(pa.array(numbers)))


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


def _ties(rows: Sequence[Mapping[str, Any]], values: Any, manifest: Manifest) -> Iterator[str]:
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
