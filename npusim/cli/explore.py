"""Commands that explore a design space: sweep, pareto, query, search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from npusim.cli.options import (
    CORES,
    FORM,
    QUIET,
    WRITTEN,
    Command,
    argument,
    complete_space,
    option,
)

_SPACE = {"space": argument("SPACE", autocompletion=complete_space)}
_DIRECTORY = {"directory": argument("DIR", Path)}
_OBJECTIVES = {"minimise": option("METRICS"), "maximise": option("METRICS")}
_RESUME = {"resume": option()}


def _new_directory(about: str) -> dict[str, Any]:
    return {"directory": option("--output -o DIR", Path, help=about, default=..., show_default=False)}


SWEEP = Command(
    "npusim.api.exploring:sweep",
    {
        **_SPACE,
        **_new_directory("New directory for the results."),
        "keep": option("all|pareto|top:N"),
        **_RESUME,
        "scheduler": option("tcp://HOST:PORT"),
        **CORES,
        "chunk": option("N", int, min=1),
        "intervals": option("--intervals/--no-intervals", bool, show_default=False),
        **QUIET,
        **FORM,
    },
    """
npusim sweep gcn-cora -o results
npusim sweep my_space.yaml -o results --keep top:100
npusim sweep my_space.yaml -o results --resume
npusim sweep my_space.yaml -o results --scheduler tcp://192.168.0.10:8786
""",
    page="npusim.reporting.exploration:sweep_page",
    page_argument="space",
    counted="points",
    stops="finishing the chunk",
    rated=True,
)


def _pareto(values: dict[str, Any]) -> None:
    from npusim.api.exploring import pareto
    from npusim.cli.output import Destination

    output = values.pop("output")
    destination = Destination(output, values.pop("form"))
    front = pareto(**values)
    destination.write(front)
    if destination.is_html:
        knee = front.knee["point"]
        typer.echo(f"{output}: {front.front} points on the front of {front.points:,}; knee: point {knee}")


PARETO = Command(
    "npusim.api.exploring:pareto",
    {
        **_DIRECTORY,
        **_OBJECTIVES,
        "where": option("SQL"),
        **FORM,
        "output": option(
            "--output -o FILE",
            Path,
            help="An .html file gets the interactive page, a .json file the front as JSON.",
            default=None,
        ),
    },
    """
npusim pareto results
npusim pareto results --minimise latency_s,area_mm2 --where 'energy_j < 0.002' -o front.html
""",
    run=_pareto,
)


def _query(values: dict[str, Any]) -> None:
    from npusim.api.exploring import query
    from npusim.cli.output import Destination
    from npusim.explore.query import MOST_ROWS, Answer
    from npusim.explore.store import read_manifest
    from npusim.reporting.exploration import rows_page

    destination = Destination(values["output"], values["form"])
    rows = query(values["directory"], values["sql"], MOST_ROWS)
    units = read_manifest(values["directory"]).units
    destination.write(Answer(rows=rows.to_pylist()), lambda: rows_page(rows, units))


QUERY = Command(
    "npusim.api.exploring:query",
    {**_DIRECTORY, "sql": argument("SQL"), **WRITTEN},
    """
npusim query results 'SELECT * FROM points ORDER BY latency_s LIMIT 5'
npusim query results 'SELECT "npu.tiles", min(latency_s) FROM points GROUP BY 1 ORDER BY 1' --format json
""",
    run=_query,
)

SEARCH = Command(
    "npusim.api.exploring:search",
    {
        **_SPACE,
        "budget": option("--budget -n N", int, min=1, max=100_000_000, show_default=False),
        **_new_directory("New directory for front and log."),
        **_OBJECTIVES,
        "seed": option("S", min=0),
        "population": option("P", int, min=4, max=100_000),
        **_RESUME,
        **CORES,
        **QUIET,
        **FORM,
    },
    """
npusim search gcn-cora --budget 20000 -o found
npusim search my_space.yaml --minimise latency_s,area_mm2 --budget 5000 --seed 7 -o found
""",
    counted="evaluations",
    stops="finishing the chunk",
    rated=True,
)
