"""SQL over the results of a sweep: one statement that selects, over that table alone, within bounds."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import duckdb
import pyarrow as pa
from pydantic import Field

from npusim.documents import Document
from npusim.errors import ConfigError, NpusimError
from npusim.explore.store import Store, read_manifest

if TYPE_CHECKING:
    from npusim.explore.sweep import SweepResult

TABLE = "points"
"""Name of the table of kept points."""

MOST_ROWS = 1_000_000
"""Rows of an answer that is printed or written as text."""
_LONGEST, _MOST_BRACKETS = 5_000, 200
"""Characters of a query and its opening brackets: a parser's memory grows with the square of both."""
_MOST_SECONDS, _MOST_BYTES, _MOST_SHOWN_BYTES = 8.0, 2 << 30, 64 << 20
"""Time and memory of a query, and size of its answer."""
_CLOSED = {
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "enable_external_access": "false",
    "enable_progress_bar": "false",
    "max_memory": f"'{_MOST_BYTES >> 20}MiB'",
    "max_temp_directory_size": "'0MiB'",
    "python_enable_replacements": "false",
}
"""What keeps a query from files, networks, variables of Python, and from the memory of others."""

_Result = TypeVar("_Result")


class Answer(Document):
    """Rows that a query found."""

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
    folder = folder_of(directory)
    files = [str(path) for path in Store(folder).files(read_manifest(folder).chunks)]
    if not files:
        raise NpusimError(f"{folder}: no chunk is finished yet")
    with duckdb.connect() as connection:
        allowed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
        connection.execute(f"SET allowed_paths = [{allowed}]")
        for key, value in _CLOSED.items():
            connection.execute(f"SET {key} = {value}")
        connection.execute("SET lock_configuration = true")
        try:
            relation = connection.read_parquet(files)
            connection.register(TABLE, relation)
            _refuse_all_but_one_select(sql)
            return _in_time(connection, lambda: _fetched(connection.sql(sql), most))
        except (duckdb.Error, RuntimeError) as error:
            columns = ", ".join(f'"{name}"' for name in relation.columns)
            reason = str(error).strip().split("\n\n")[0]
            raise NpusimError(f"{reason}\nthe table `{TABLE}` has the columns {columns}") from None


def folder_of(swept: str | Path | SweepResult) -> Path:
    """Return the directory of a sweep's results."""
    return Path(swept if isinstance(swept, str | Path) else swept.directory)


def _refuse_all_but_one_select(sql: str) -> None:
    if len(sql) > _LONGEST or sum(map(sql.count, "([{")) > _MOST_BRACKETS:
        allowed = f"at most {_LONGEST:,} characters and {_MOST_BRACKETS} brackets"
        raise ConfigError(f"a query of {len(sql):,} characters", file="SQL", allowed=allowed)
    statements = duckdb.extract_statements(sql)
    if len(statements) != 1:
        raise ConfigError(f"{len(statements)} statements", file="SQL", allowed="one SELECT statement")
    if statements[0].type != duckdb.StatementType.SELECT:
        kind = statements[0].type.name
        raise ConfigError(f"a statement {kind}", file="SQL", allowed="a SELECT: results are only read")


def _in_time(connection: Any, work: Callable[[], _Result]) -> _Result:
    """Return what some work of a connection returns; NpusimError after the time limit, also after Ctrl-C."""
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(work)
        try:
            is_late = bool(wait([outcome], _MOST_SECONDS).not_done)
        finally:  # also after Ctrl-C
            if not outcome.done():
                connection.interrupt()
    if is_late:
        raise NpusimError(
            f"the query takes more than {_MOST_SECONDS:g} seconds; ask for less, or open the Parquet files "
            "with a tool of your own"
        )
    return outcome.result()


def _fetched(answer: Any, most_rows: int | None) -> Any:
    """Return an answer as a table, refused as soon as it has too many rows or bytes."""
    reader = answer.to_arrow_reader()
    batches: list[Any] = []
    rows = size = 0
    most_bytes = _MOST_BYTES if most_rows is None else _MOST_SHOWN_BYTES
    for batch in reader:
        batches.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows > (most_rows or rows):
            raise NpusimError(f"the answer has more than {most_rows:,} rows; add a LIMIT")
        if size > most_bytes:
            raise NpusimError(f"the answer takes more than {most_bytes >> 20} MiB of memory; ask for less")
    return pa.Table.from_batches(batches, reader.schema)


def points_table(directory: str | Path) -> Any:
    """Return the kept points of a sweep as an Arrow table, in order."""
    return query(directory, f"SELECT * FROM {TABLE} ORDER BY point")
