"""Commands that explore a design space, and those that list, explain and collect results."""

from __future__ import annotations

import json
import shlex
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import npusim
from npusim.api.exploring import READ_FILES, REPORTED, document_names, result_of
from npusim.cli.options import (
    CORES,
    FORM,
    QUIET,
    WRITTEN,
    Command,
    argument,
    by_name,
    completion,
    option,
)
from npusim.cli.output import RESULTS, Destination, Progress, say, write_html
from npusim.errors import ConfigError, NpusimError

if TYPE_CHECKING:
    from npusim.reporting.pages import Result

_SPACE = {"space": argument("SPACE", autocompletion=completion("npusim.explore.spaces:space_names"))}
_DIRECTORY = {"directory": argument("DIR", Path)}
_NEW_DIRECTORY = {"directory": option("--output -o DIR", Path, default=...)}
_OBJECTIVES = by_name("minimise=METRICS maximise=METRICS")

SWEEP = Command(
    "npusim.explore.sweep:sweep",
    {
        **_SPACE,
        **_NEW_DIRECTORY,
        **by_name("keep=all|pareto|top:N resume scheduler=tcp://HOST:PORT intervals"),
        **CORES,
        **by_name("chunk", min=1),
        **QUIET,
        **FORM,
    },
    page="npusim.reporting.exploration:sweep_page",
    page_argument="space",
    counted="points",
    stops="finishing the chunk",
    rated=True,
)

PARETO = Command(
    "npusim.explore.fronts:pareto",
    {**_DIRECTORY, **_OBJECTIVES, **by_name("where=SQL"), **by_name("tolerance", min=0, max=1), **WRITTEN},
)


def _query(values: dict[str, Any]) -> None:
    from npusim.explore.query import MOST_ROWS, Answer, query
    from npusim.explore.store import Store, read_manifest
    from npusim.reporting.exploration import rows_page

    destination = Destination(values["output"], values["form"])
    rows = query(values["directory"], values["sql"], MOST_ROWS)
    manifest = read_manifest(values["directory"])
    swept = Store(values["directory"]).swept(manifest)
    if swept < manifest.points:
        say(f"not finished: {swept:,} of {manifest.points:,} points are swept", on_error=True)
    destination.write(Answer(rows=rows.to_pylist()), lambda: rows_page(rows, manifest.units))


QUERY = Command("npusim.explore.query:query", {**_DIRECTORY, "sql": argument("SQL"), **WRITTEN}, run=_query)

SEARCH = Command(
    "npusim.explore.search:search",
    {
        **_SPACE,
        "budget": option("--budget -n N", min=1, max=100_000_000),
        **_NEW_DIRECTORY,
        **_OBJECTIVES,
        "seed": option(min=0),
        "population": option(min=4, max=100_000),
        **by_name("resume"),
        **CORES,
        **QUIET,
        **FORM,
    },
    counted="evaluations",
    stops="finishing the chunk",
    rated=True,
)

LIST = Command(
    "npusim.api.exploring:list",
    {"catalogue": argument("WHAT"), **WRITTEN},
    page="npusim.reporting.listing:listing_page",
)


def _schema(values: dict[str, Any]) -> None:
    destination = Destination(values["output"], "json")
    destination.write_json(json.dumps(npusim.schema(values["name"]), indent=2, ensure_ascii=False))


SCHEMA = Command(
    "npusim.api.exploring:schema",
    {
        "name": argument(
            "NAME",
            help=f"A file that npusim reads ({', '.join(READ_FILES)}) or a document that it writes "
            f"({', '.join(document_names())}).",
            noun="schema",
            choices=(*READ_FILES, *document_names()),
        ),
        "output": WRITTEN["output"],
    },
    run=_schema,
)


_WITHOUT_RESULT = ("learn", "report", "schema", "export")
"""Commands that make no document; the first never ends."""
_MOST_RESULTS = 100
"""Results of one page."""


def _report(values: dict[str, Any]) -> None:
    from npusim.reporting.pages import report_html

    runs, output = values["runs"], values["output"]
    destination = Destination(output, None)
    if destination.form != "html":
        raise ConfigError(f"`{output.name}`", file="--output", allowed="a file that ends in .html")
    if len(runs) > min(len(set(runs)), _MOST_RESULTS):
        raise ConfigError(f"{len(runs)} results", file="RUN", allowed=f"at most {_MOST_RESULTS}, each once")
    results = []
    with Progress("results") as progress:
        for number, run in enumerate(runs):
            progress(number, len(runs), run)
            is_file = bool(run) and Path(run).expanduser().exists()
            results.append(result_of(run) if is_file else _result_of_command(run))
    write_html(destination.path, lambda command: report_html(values["title"], results, command))
    say(f"{output}: {len(results)} result{'s' if len(results) != 1 else ''}")


def _result_of_command(command: str) -> Result:
    """Run a command and return its result."""
    from npusim.cli.program import command_names, run
    from npusim.explore.sweep import SweepResult
    from npusim.reporting.pages import Result

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"`{command}` ({error})", file="RUN", allowed=REPORTED) from None
    words = words[1:] if words[:1] == ["npusim"] else words
    if not words or words[0] not in command_names():
        raise ConfigError(f"`{command}`, which is no file", file="RUN", allowed=REPORTED)
    if words[0] in _WITHOUT_RESULT:
        raise ConfigError(f"`{words[0]}`, which has no result", file="RUN", allowed=REPORTED)
    results: list[Any] = []
    context = copy_context()
    context.run(RESULTS.set, results)
    status = context.run(run, words)
    if not results:
        raise NpusimError(f"`npusim {shlex.join(words)}` ended with status {status} and gave no result")
    document, page = results[-1]
    if isinstance(document, SweepResult):
        document, page = result_of(document).document, None
    return Result(document, shlex.join(["npusim", *words]), "", page)


REPORT = Command(
    "npusim.api.exploring:report",
    {
        "runs": argument("RUN...", many=True, default=...),
        "output": option("--output -o FILE", Path, default=...),
        **by_name("title"),
    },
    run=_report,
)


def _learn(values: dict[str, Any]) -> None:
    if npusim.learn(**values, tell=say) is False:
        raise typer.Exit(1)


LEARN = Command(
    "npusim.api.exploring:learn",
    {
        "lesson": argument("[LESSON]"),
        "lab": argument("[LAB]"),
        **by_name("port data no_browser export"),
    },
    run=_learn,
)
