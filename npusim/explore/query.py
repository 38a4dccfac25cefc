"""SQL over the results of a sweep: one statement that selects, over that table alone, within bounds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ConfigDict, Field

from npusim.confined import confined
from npusim.documents import Document
from npusim.errors import FileError, NpusimError, is_text
from npusim.explore.sql import MOST_BYTES
from npusim.explore.store import POINT, Manifest, Store, read_manifest

if TYPE_CHECKING:
    from npusim.explore.sweep import SweepResult

MOST_ROWS = 1_000_000
"""Rows of an answer that is printed or written as text."""
_MOST_SECONDS = 8.0
"""Time of a query."""


class Answer(Document):
    """Rows that a query found."""

    model_config = ConfigDict(ser_json_bytes="hex")
    schema_: Literal["npusim.query/1"] = Field("npusim.query/1", alias="schema")
    """Version of this document."""
    rows: list[dict[str, Any]]
    """One entry per row: column to value; null where a value is missing or not finite."""

    def to_json(self) -> str:
        """Return the document as JSON; values that JSON lacks, such as intervals of time, as text."""
        return self.model_dump_json(by_alias=True, indent=2, fallback=str)


def query(directory: str | Path | SweepResult, sql: str, most: int | None = None) -> Any:
    """Ask the results of a sweep in SQL (DuckDB).

    Parameters
    ----------
    directory : str, Path or SweepResult
        Directory that `npusim sweep` wrote.
    sql : str
        A query of the table `points`: a column for each axis by its path, in double quotes, and one for each
        metric.
    most : int, optional
        Rows beyond which the query is refused.

    Returns
    -------
    pyarrow.Table

    Raises
    ------
    FileError
        Where the directory holds no results, or damaged ones.
    NpusimError
        Where the query is wrong, does more than select, or takes too long or too much memory; says why.

    Examples
    --------
    >>> import npusim
    >>> swept = npusim.sweep({"workload": "gcn-cora", "axes": {"npu.tiles": [1, 2, 4]}})
    >>> npusim.query(swept, "SELECT count(*) AS points FROM points").to_pylist()
    [{'points': 3}]

    Command lines
    -------------
    npusim query results 'SELECT * FROM points ORDER BY latency_s LIMIT 5'
    npusim query results 'SELECT "npu.tiles", min(latency_s) FROM points GROUP BY 1 ORDER BY 1' --format json
    """
    content = confined(
        "npusim.explore.sql:write_answer",
        kept_files(directory)[2],
        sql,
        most,
        seconds=_MOST_SECONDS,
        most_bytes=MOST_BYTES,
        what="the query",
        remedy="ask for less, or open the Parquet files with a tool of your own",
    )
    return pa.ipc.open_stream(content).read_all()


def kept_files(swept: str | Path | SweepResult) -> tuple[Path, Manifest, list[str]]:
    """Return a sweep's directory, its manifest, and the files of its kept points.

    Raises
    ------
    NpusimError
        Where there is no file yet, or the results are damaged.
    """
    folder = Path(swept if isinstance(swept, str | Path) else swept.directory)
    manifest = read_manifest(folder)
    files = [str(path.resolve()) for path in Store(folder).files(manifest.chunks)]
    if not files:
        raise NpusimError(f"{folder}: no chunk is finished yet")
    if not is_text(files[0]):  # DuckDB opens no such path
        raise FileError(files[0], "lies in a folder whose name is not UTF-8", "rename the folder")
    return folder, manifest, files


def points_table(directory: str | Path) -> Any:
    """Return the kept points of a sweep as an Arrow table, in order."""
    tables = [pq.ParquetFile(file).read() for file in kept_files(directory)[2]]
    return pa.concat_tables(tables).sort_by(POINT)


class KeptPoints(Document):
    """A result whose main table is the points that it wrote into a directory."""

    WRITTEN: ClassVar[str] = "kept"
    """Name of that table."""
    seconds: float
    """Time of this run, in s."""
    directory: str
    """Where the results are."""

    @classmethod
    def tables(cls) -> tuple[str, ...]:
        """Return the names of the tables; the points that are written come first."""
        return (cls.WRITTEN, *super().tables())

    def records(self, table: str | None = None) -> list[dict[str, Any]]:
        """Return the points that are written, with axes and metrics as columns; or another table."""
        if table not in (None, self.WRITTEN):
            return super().records(table)
        return cast(list[dict[str, Any]], points_table(self.directory).to_pylist())
