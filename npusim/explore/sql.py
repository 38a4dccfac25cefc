"""One statement of SQL that selects from Parquet files; runs in a child process, with few imports."""

from glob import escape
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa

from npusim.errors import ConfigError, NpusimError

TABLE = "points"
"""Name of the table of kept points."""
MOST_BYTES = 2 << 30
"""Memory of a query."""
_MOST_SHOWN_BYTES = 64 << 20
"""Size of an answer that is printed or written as text."""
_LONGEST, _MOST_BRACKETS = 5_000, 200
"""Characters of a query and its opening brackets: a parser's memory grows with the square of both."""
_CLOSED = {
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "enable_external_access": "false",
    "enable_progress_bar": "false",
    "max_memory": f"'{MOST_BYTES >> 20}MiB'",
    "max_temp_directory_size": "'0MiB'",
    "python_enable_replacements": "false",
    "threads": "4",
}
"""What keeps a query from files, networks, variables of Python, and from the memory of others."""


def write_answer(stream: BinaryIO, files: list[str], sql: str, most_rows: int | None = None) -> None:
    """Write the answer of a query over Parquet files as an Arrow stream.

    Parameters
    ----------
    most_rows : int, optional
        Rows beyond which the query is refused.

    Raises
    ------
    NpusimError
        Where the query is wrong, does more than select, or its answer is too large.
    """
    with duckdb.connect() as connection:
        patterns = [escape(file) for file in files]  # DuckDB takes a name for a pattern
        allowed = ", ".join("'" + file.replace("'", "''") + "'" for file in {*files, *patterns})
        connection.execute(f"SET allowed_paths = [{allowed}]")
        for key, value in _CLOSED.items():
            connection.execute(f"SET {key} = {value}")
        connection.execute("SET lock_configuration = true")
        relation = None
        try:
            relation = connection.read_parquet(patterns)
            connection.register(TABLE, relation)
            _refuse_all_but_one_select(sql)
            _write_rows(stream, connection.sql(sql).to_arrow_reader(), most_rows)
        except (duckdb.Error, RuntimeError) as error:
            reason = str(error).strip().split("\n\n")[0]
            if relation is not None:
                columns = ", ".join(f'"{name}"' for name in relation.columns)
                reason += f"\nthe table `{TABLE}` has the columns {columns}"
            raise NpusimError(reason) from None


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


def _write_rows(stream: BinaryIO, reader: Any, most_rows: int | None) -> None:
    """Write batches as they come, refused as soon as they have too many rows or bytes."""
    rows = size = 0
    most_bytes = MOST_BYTES if most_rows is None else _MOST_SHOWN_BYTES
    with pa.ipc.new_stream(stream, reader.schema) as writer:
        for batch in reader:
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > (most_rows or rows):
                raise NpusimError(f"the answer has more than {most_rows:,} rows; add a LIMIT")
            if size > most_bytes:
                most = f"{most_bytes >> 20} MiB of memory"
                raise NpusimError(f"the answer takes more than {most}; ask for less")
            writer.write_batch(batch)
