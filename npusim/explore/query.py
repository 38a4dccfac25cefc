"""SQL over the results of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from npusim.errors import NpusimError
from npusim.explore.manifest import read_manifest
from npusim.explore.store import Store

__all__ = ["TABLE", "points_table", "query"]

TABLE = "points"
"""Name of the table of kept points."""


def query(directory: str | Path, sql: str) -> Any:
    """Ask the results of a sweep in SQL (DuckDB).

    Parameters
    ----------
    directory : str or Path
        Where a sweep wrote its results.
    sql : str
        A query of the table `points`: the column `point`, one for each axis by its path (in double quotes,
        because paths have dots) and one for each metric.

    Returns
    -------
    pyarrow.Table

    Raises
    ------
    FileError
        Where the directory holds no results.
    NpusimError
        Where the query is wrong; says why.
    """
    found = Path(directory)
    read_manifest(found)
    files = [str(path) for path in Store(found).files()]
    if not files:
        raise NpusimError(f"{directory}: no chunk is finished yet")
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        relation = connection.read_parquet(files)
        connection.register(TABLE, relation)
        try:
            answer = connection.sql(sql)
            return answer.to_arrow_table() if answer is not None else None
        except duckdb.Error as error:
            columns = ", ".join(f'"{name}"' for name in relation.columns)
            raise NpusimError(
                f"{str(error).strip()}\nthe table `{TABLE}` has the columns {columns}"
            ) from None


def points_table(directory: str | Path, where: str | None = None) -> Any:
    """Return the kept points of a sweep, those that fulfil a condition in SQL, as an Arrow table in order."""
    condition = f" WHERE {where}" if where else ""
    return query(directory, f"SELECT * FROM {TABLE}{condition} ORDER BY point")
