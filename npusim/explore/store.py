"""Results on disk: one Parquet file a chunk, whole or not there at all."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from npusim import files
from npusim.explore.axes import Axis
from npusim.metrics import METRICS

write_whole = partial(files.write_whole, remedy="what is written already stays valid: make room and resume")

POINT = "point"
"""Column with the number of a point."""

_ADMITTED = b"npusim.admitted"


class Store:
    """A directory of results."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.chunks = directory / "chunks"
        self.result = directory / "kept.parquet"

    def chunk(self, index: int) -> Path:
        """Return the file of a chunk."""
        return self.chunks / f"{index:08d}.parquet"

    def done(self, total: int) -> list[bool]:
        """Tell of each chunk whether its file is there."""
        present = {path.name for path in self.chunks.glob("*.parquet")} if self.chunks.is_dir() else set()
        return [self.chunk(i).name in present for i in range(total)]

    def write_chunk(self, index: int, content: bytes) -> None:
        """Write a chunk; FileError where the disk takes no more."""
        self.chunks.mkdir(exist_ok=True)
        write_whole(self.chunk(index), content)

    def clear_drafts(self) -> None:
        """Remove what a killed run left half-written."""
        for draft in [*self.directory.glob(".*.draft"), *self.chunks.glob(".*.draft")]:
            with suppress(OSError):
                draft.unlink()

    def files(self) -> list[Path]:
        """Return the files that hold the points that were kept: the merged one, or all chunks."""
        return [self.result] if self.result.exists() else sorted(self.chunks.glob("*.parquet"))

    def tables(self, columns: list[str] | None = None) -> Iterator[Any]:
        """Yield the chunks as Arrow tables, in order."""
        for path in sorted(self.chunks.glob("*.parquet")):
            yield pq.read_table(path, columns=columns)

    def admitted(self) -> int:
        """Return how many points of all chunks keep to the constraints."""
        metadata = (pq.read_metadata(path).metadata for path in sorted(self.chunks.glob("*.parquet")))
        return sum(int(m[_ADMITTED]) for m in metadata)


def table_of(
    axes: tuple[Axis, ...], numbers: Any, coordinates: Any, scores: Any, admitted: int, asked: Collection[str]
) -> Any:
    """Return points as an Arrow table: number, axes by path, metrics.

    Parameters
    ----------
    numbers : array of int64, shape (points,)
    coordinates : array of float, shape (points, axes)
    scores : mapping of metric to array, or array of TOTAL_DTYPE; shape (points,)
    admitted : int
        How many points of the chunk keep to the constraints, kept or not.
    asked : collection of str
        Metrics that the space names; of those that need to be asked for, only these get a column.
    """
    columns: dict[str, Any] = {POINT: pa.array(numbers, pa.int64())}
    for i, axis in enumerate(axes):
        values = axis.values_at(coordinates[:, i])
        if axis.numbers is None:
            columns[axis.path] = pa.array(values, pa.string())
        else:
            columns[axis.path] = pa.array(values.astype(np.int64) if axis.is_whole else values)
    columns |= {
        name: pa.array(np.ascontiguousarray(metric.values(scores)))
        for name, metric in METRICS.items()
        if name in asked or not metric.is_asked
    }
    return pa.table(columns).replace_schema_metadata({_ADMITTED: str(admitted).encode()})


def to_bytes(table: Any) -> bytes:
    """Return a table as the content of a Parquet file; the same table gives the same bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())
