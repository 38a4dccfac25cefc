"""Kept points of a sweep: which points of a range are kept, and reading them part by part.

All points that meet the constraints are kept, or the front, or the best few. The best points of all chunks
are among the best of each, so a chunk keeps its own best alone. Reading holds only the columns and rows in
use in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from npusim.cost import TOTAL_DTYPE, compiled_parallel_or_plain
from npusim.errors import NpusimError
from npusim.explore.pareto import WORST, finite_front, front
from npusim.explore.query import TABLE, query
from npusim.explore.spaces import Space, parse_keep
from npusim.explore.store import POINT, Store
from npusim.metrics import METRICS, objectives

_BLOCK, _POINT_MS = 4096, 0.01
"""Points that a core reads in turn, and the time of one as plain Python."""
_COLUMNS = list(TOTAL_DTYPE.names or ())
_LATENCY = _COLUMNS.index("latency_s")


@compiled_parallel_or_plain(lambda figures, *_: _POINT_MS * len(figures))
def _select_objectives(
    figures: Any,
    wanted: Any,
    signs: Any,
    bounded: Any,
    low: Any,
    high: Any,
    worst: float,
    values: Any,
    good: Any,
) -> None:
    for block in numba.prange((figures.shape[0] + _BLOCK - 1) // _BLOCK):
        for p in range(block * _BLOCK, min((block + 1) * _BLOCK, figures.shape[0])):
            admitted = figures[p, _LATENCY] < np.inf
            for b in range(bounded.shape[0]):
                figure = figures[p, bounded[b]]
                admitted = admitted and low[b] <= figure <= high[b]
            good[p] = admitted
            for w in range(wanted.shape[0]):
                values[w, p] = signs[w] * figures[p, wanted[w]] if admitted else worst


def select_objectives(
    totals: Any, minimise: Sequence[str], constraints: Mapping[Any, Any]
) -> tuple[Any, Any]:
    """Return the objectives of points, and which keep to the constraints.

    Parameters
    ----------
    totals : array of TOTAL_DTYPE, shape (points,)
        The latency of a point that cannot run the network is infinite.

    Returns
    -------
    values : array of float64, shape (metrics, points)
        Less is better; as bad as can be where a point is not admitted.
    good : array of bool, shape (points,)
    """
    figures = totals.view(np.float64).reshape(len(totals), len(_COLUMNS))
    columns, derived = _COLUMNS, {*minimise, *constraints} - set(_COLUMNS)
    if derived:
        columns = [*_COLUMNS, *derived]
        figures = np.column_stack([figures, *(METRICS[name].values(totals) for name in derived)])
    wanted = np.array([columns.index(name) for name in minimise], np.int64)
    signs = np.array([METRICS[name].sign for name in minimise])
    bounded = np.array([columns.index(name) for name in constraints], np.int64)
    low = np.array([-np.inf if b.min is None else b.min for b in constraints.values()], np.float64)
    high = np.array([np.inf if b.max is None else b.max for b in constraints.values()], np.float64)
    values, good = np.empty((len(wanted), len(totals))), np.empty(len(totals), np.bool_)
    _select_objectives(figures, wanted, signs, bounded, low, high, WORST, values, good)
    return values, good


def keep(space: Space, totals: Any) -> tuple[Any, int]:
    """Return the points of a range that are kept, and how many are admitted: of a front those kept.

    Parameters
    ----------
    totals : array of TOTAL_DTYPE, shape (points,)

    Returns
    -------
    kept : array of int64
        Positions in the range, ascending.
    count : int
    """
    values, good = select_objectives(totals, space.objectives, space.constraints)
    count = int(np.count_nonzero(good))
    rule, best = parse_keep(space.keep)
    if rule == "all" or count == 0:
        return np.flatnonzero(good), count
    places = np.flatnonzero(good)
    if rule == "pareto":
        kept = places[finite_front(np.ascontiguousarray(values[:, places]))]
        return kept, len(kept)
    # Of equally good points those with smaller numbers, which stand first.
    return np.sort(places[np.argsort(values[0, places], kind="stable")[:best]]), count


def best_of(space: Space, scores: Mapping[str, Any]) -> Any:
    """Return the positions, ascending, of the points that `space.keep` asks for among some."""
    rule, count = parse_keep(space.keep)
    values = objectives(scores, space.objectives)
    if rule == "pareto":
        return front(values)
    if rule == "top":
        # Of equally good points those with smaller numbers, which stand first.
        return np.sort(np.argsort(values[0], kind="stable")[:count])
    return np.arange(values.shape[1])


_ROWS = 1 << 18
"""Rows that are read at a time."""


class _UsedColumns(dict[str, Any]):
    """Columns of ones that records which of them are read."""

    def __missing__(self, name: str) -> Any:
        self[name] = np.ones(1)
        return self[name]


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
        self._files = Store(directory).files(chunks)
        if not self._files:
            raise NpusimError(f"{directory}: no chunk is finished yet")
        schema = pq.read_schema(self._files[0])
        self.metrics = [name for name in schema.names if name in METRICS]
        """Metrics that have a column."""

    def columns_for(self, metric: str) -> list[str] | None:
        """Return the columns that a metric is read from or follows from; None where one is missing."""
        if metric in self.metrics:
            return [metric]
        of, used = METRICS[metric].of, _UsedColumns()
        if of is None:
            return None
        of(used)
        return list(used) if set(self.metrics).issuperset(used) else None

    def batches(self, columns: Collection[str]) -> Iterator[dict[str, Any]]:
        """Yield some columns and the points' numbers, part by part, as arrays by name."""
        names = list(dict.fromkeys([POINT, *columns]))
        for batch in self._filtered(names) if self._where else self._all(names):
            yield {name: np.from_dlpack(batch[name]) for name in names}  # without pandas

    def _all(self, names: list[str]) -> Iterator[Any]:
        for path in self._files:
            with pq.ParquetFile(path) as file:
                yield from file.iter_batches(_ROWS, columns=names)

    def _filtered(self, names: list[str]) -> Iterator[Any]:
        listed = ", ".join(f'"{name}"' for name in names)
        table = query(
            self._directory, f"SELECT {listed} FROM {TABLE} WHERE (\n{self._where}\n) ORDER BY {POINT}"
        )
        yield from table.to_batches(_ROWS)

    def rows(self, numbers: Any) -> Any:
        """Return the points of some numbers with all their columns, in order, as an Arrow table."""
        wanted, tables = np.sort(np.asarray(numbers, np.int64)), []
        for path in self._files:
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    here = np.asarray(file.read_row_group(group, columns=[POINT])[POINT])
                    places = np.searchsorted(wanted, here).clip(max=len(wanted) - 1)
                    mask = wanted[places] == here
                    if mask.any():
                        tables.append(file.read_row_group(group).filter(pa.array(mask)))
        return pa.concat_tables(tables)
