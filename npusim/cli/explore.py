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
from npusim.cli.options import CORES, FORM, QUIET, WRITTEN, Command, argument, completion, file_option, option
from npusim.cli.output import RESULTS, Destination, Progress, say, write_html
from npusim.errors import ConfigError, NpusimError

if TYPE_CHECKING:
    from npusim.reporting.pages import Result

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
        say(f"{output}: {front.front} points on the front of {front.points:,}; knee: point {knee}")


PARETO = Command(
    "npusim.explore.fronts:pareto",
    {
        **_DIRECTORY,
        **_OBJECTIVES,
        "where": option("SQL"),
        "tolerance": option("SHARE", min=0.0, max=1.0),
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
    from npusim.explore.store import Store, read_manifest
    from npusim.reporting.exploration import rows_page

    destination = Destination(values["output"], values["form"])
    rows = query(values["directory"], values["sql"], MOST_ROWS)
    manifest = read_manifest(values["directory"])
    swept = Store(values["directory"]).swept(manifest)
    if swept < manifest.points:
        say(f"not finished: {swept:,} of {manifest.points:,} points are swept", on_error=True)
    destination.write(Answer(rows=rows.to_pylist()), lambda: rows_page(rows, manifest.units))


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

LIST = Command(
    "npusim.api.exploring:list",
    {"catalogue": argument("WHAT", noun="catalogue"), **WRITTEN},
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
    if not destination.is_html:
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
        "title": option("TEXT"),
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
        "lab": argument("[LAB]", Path),
        "port": option("N", min=0, max=65535),
        "data": option("DIR", Path),
        "no_browser": option(),
        "export": option("DIR", Path),
    },
    run=_learn,
)
