"""The kept points of a sweep, read part by part: no more in memory than the columns and rows in use."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from npusim.errors import NpusimError
from npusim.explore.query import TABLE, query
from npusim.explore.store import POINT, Store
from npusim.metrics import METRICS

_ROWS = 1 << 18
"""Rows that are read at a time."""


class _Asked(dict[str, Any]):
    """Columns of ones that notes which of them are asked for."""

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
        of, asked = METRICS[metric].of, _Asked()
        if of is None:
            return None
        of(asked)
        return list(asked) if set(self.metrics).issuperset(asked) else None

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
        found = query(
            self._directory, f"SELECT {listed} FROM {TABLE} WHERE (\n{self._where}\n) ORDER BY {POINT}"
        )
        yield from found.to_batches(_ROWS)

    def rows(self, numbers: Any) -> Any:
        """Return the points of some numbers with all their columns, in order, as an Arrow table."""
        wanted, found = np.sort(np.asarray(numbers, np.int64)), []
        for path in self._files:
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    here = np.asarray(file.read_row_group(group, columns=[POINT])[POINT])
                    places = np.searchsorted(wanted, here).clip(max=len(wanted) - 1)
                    mask = wanted[places] == here
                    if mask.any():
                        found.append(file.read_row_group(group).filter(pa.array(mask)))
        return pa.concat_tables(found)
