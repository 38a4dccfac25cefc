"""``npusim query``: SQL over the results of a sweep."""

from __future__ import annotations

from typing import Annotated

import typer

from npusim.cli.options import Directory, Format, Output, argument

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim query results 'SELECT * FROM points ORDER BY latency_s LIMIT 5'
  npusim query results 'SELECT "npu.tiles", min(latency_s) FROM points GROUP BY 1 ORDER BY 1' --format json
"""


@app.command(epilog=_EXAMPLES)
def query(
    directory: Directory,
    sql: Annotated[
        str,
        argument(
            "SQL",
            "A query of the table `points`: a column for each axis by its path, in double quotes, "
            "and one for each metric.",
        ),
    ],
    form: Format = None,
    output: Output = None,
) -> None:
    """Ask the results of a sweep in SQL (DuckDB)."""
    from npusim.cli.output import Destination
    from npusim.explore.query import MOST_ROWS, Answer
    from npusim.explore.query import query as ask

    destination = Destination(output, form)
    answer = ask(directory, sql, MOST_ROWS)

    from npusim.explore.store import read_manifest
    from npusim.report.exploration import rows_page

    destination.write(
        lambda: rows_page(answer, read_manifest(directory).units),
        Answer(rows=answer.to_pylist()),
    )
