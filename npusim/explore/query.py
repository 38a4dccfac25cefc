"""SQL over the results of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import duckdb
from pydantic import Field

from npusim.documents import Document
from npusim.errors import NpusimError
from npusim.explore.manifest import read_manifest
from npusim.explore.store import Store

TABLE = "points"
"""Name of the table of kept points."""


class Answer(Document):
    """Rows that a query found."""

    schema_: Literal["npusim.query/1"] = Field("npusim.query/1", alias="schema")
    """Version of this document."""
    rows: list[dict[str, Any]]
    """One entry per row: column to value; null where a value is missing or not finite."""

    def to_json(self) -> str:
        """Return the document as JSON; values that JSON lacks, such as intervals of time, as text."""
        return self.model_dump_json(by_alias=True, indent=2, fallback=str)


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
