"""Commands that list, explain and collect: list, schema, report, learn."""

from __future__ import annotations

import json
import shlex
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import npusim
from npusim.api.exploring import READ_FILES, REPORTED, document_names
from npusim.cli.options import WRITTEN, Command, argument, option
from npusim.cli.output import RESULTS, Destination, Progress, write_html
from npusim.errors import ConfigError, NpusimError

if TYPE_CHECKING:
    from npusim.reporting.pages import Result

LIST = Command(
    "npusim.api.exploring:list",
    {"catalogue": argument("WHAT", noun="catalogue"), **WRITTEN},
    page="npusim.reporting.listing:listing_page",
)


def _schema(values: dict[str, Any]) -> None:
    destination = Destination(values["output"], "json")
    schema = npusim.schema(values["name"])
    destination.write_document(lambda: json.dumps(schema, indent=2, ensure_ascii=False))


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


def _report(values: dict[str, Any]) -> None:
    from npusim.api.exploring import result_of
    from npusim.reporting.pages import report_html

    runs, output = values["runs"], values["output"]
    destination = Destination(output, None)
    if not destination.is_html:
        raise ConfigError(f"`{output.name}`", file="--output", allowed="a file that ends in .html")
    results = []
    with Progress("results") as progress:
        for number, run in enumerate(runs):
            progress(number, len(runs), run)
            is_file = bool(run) and Path(run).expanduser().exists()
            results.append(result_of(run) if is_file else _result_of_command(run))
    write_html(destination.path, lambda command: report_html(values["title"], results, command))
    typer.echo(f"{output}: {len(results)} result{'s' if len(results) != 1 else ''}")


def _result_of_command(command: str) -> Result:
    """Run a command and return its result."""
    from npusim.api.exploring import result_of
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


LEARN = Command(
    "npusim.api.exploring:learn",
    {
        "lesson": argument("[LESSON]"),
        "port": option("N", min=0, max=65535),
        "data": option("DIR", Path),
        "no_browser": option(),
    },
    run=lambda values: npusim.learn(**values, tell=typer.echo),
)
