"""Commands that explore a design space: sweep, pareto, query, search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

import npusim
from npusim.cli.options import CORES, FORM, QUIET, WRITTEN, Command, argument, completion, file_option, option
from npusim.cli.output import Destination

_SPACE = {"space": argument("SPACE", autocompletion=completion("npusim.explore.spaces:space_names"))}
_DIRECTORY = {"directory": argument("DIR", Path)}
_NEW_DIRECTORY = {"directory": option("--output -o DIR", Path, default=..., show_default=False)}
_OBJECTIVES = {"minimise": option("METRICS"), "maximise": option("METRICS")}
_RESUME = {"resume": option()}

SWEEP = Command(
    "npusim.explore.sweep:sweep",
    {
        **_SPACE,
        **_NEW_DIRECTORY,
        "keep": option("all|pareto|top:N"),
        **_RESUME,
        "scheduler": option("tcp://HOST:PORT"),
        **CORES,
        "chunk": option("N", int, min=1),
        "intervals": option("--intervals/--no-intervals", bool, show_default=False),
        **QUIET,
        **FORM,
    },
    page="npusim.reporting.exploration:sweep_page",
    page_argument="space",
    counted="points",
    stops="finishing the chunk",
    rated=True,
)


def _pareto(values: dict[str, Any]) -> None:
    output = values.pop("output")
    destination = Destination(output, values.pop("form"))
    front = npusim.pareto(**values)
    destination.write(front)
    if destination.is_html:
        knee = front.knee["point"]
        typer.echo(f"{output}: {front.front} points on the front of {front.points:,}; knee: point {knee}")


PARETO = Command(
    "npusim.explore.fronts:pareto",
    {
        **_DIRECTORY,
        **_OBJECTIVES,
        "where": option("SQL"),
        **FORM,
        "output": file_option(
            "An .html file gets the interactive page, a .json file the front as JSON.",
            "--output -o FILE",
            panel=None,
        ),
    },
    run=_pareto,
)


def _query(values: dict[str, Any]) -> None:
    from npusim.explore.query import MOST_ROWS, Answer, query
    from npusim.explore.store import read_manifest
    from npusim.reporting.exploration import rows_page

    destination = Destination(values["output"], values["form"])
    rows = query(values["directory"], values["sql"], MOST_ROWS)
    units = read_manifest(values["directory"]).units
    destination.write(Answer(rows=rows.to_pylist()), lambda: rows_page(rows, units))


QUERY = Command(
    "npusim.explore.query:query",
    {**_DIRECTORY, "sql": argument("SQL"), **WRITTEN},
    run=_query,
)

SEARCH = Command(
    "npusim.explore.search:search",
    {
        **_SPACE,
        "budget": option("--budget -n N", int, min=1, max=100_000_000, show_default=False),
        **_NEW_DIRECTORY,
        **_OBJECTIVES,
        "seed": option("S", min=0),
        "population": option("P", int, min=4, max=100_000),
        **_RESUME,
        **CORES,
        **QUIET,
        **FORM,
    },
    counted="evaluations",
    stops="finishing the chunk",
    rated=True,
)
