"""``npusim report``: several results as one HTML page to hand on."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli.options import argument, option

if TYPE_CHECKING:
    from npusim.documents import Document
    from npusim.report.pages import Result

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim report "estimate gcn-cora -t stagr" "whatif gcn-cora" -o report.html
  npusim report before.json after.json results -o report.html
  npusim report fitted.json "validate granite" --title "Our laptop" -o report.html
"""
_ALLOWED = "a JSON file that npusim wrote, the directory of a sweep, or a command in quotes"


@app.command(epilog=_EXAMPLES)
def report(
    runs: Annotated[
        list[str],
        argument("RUN...", "JSON files that npusim wrote, directories of sweeps, or commands in quotes."),
    ],
    output: Annotated[Path, option("--output -o FILE", "The page, an .html file.")],
    title: Annotated[str, option("--title TEXT", "Heading of the page.")] = "npusim report",
) -> None:
    """Write several results as one HTML page: a summary, then the figures, tables and source of each.

    The page needs no other file and no network. A command in quotes is run, so that the page names what made
    its result and has all of its pictures; a JSON file is named with its SHA-256.
    """
    from npusim.cli.output import Destination, write_html
    from npusim.errors import ConfigError

    destination = Destination(output, None)
    if not destination.is_html:
        raise ConfigError(f"`{output.name}`", file="--output", allowed="a file that ends in .html")
    results = list(_results(runs))

    from npusim.report.pages import report_html

    write_html(destination.path, lambda command: report_html(title, results, command))
    typer.echo(f"{output}: {len(results)} result{'s' if len(results) != 1 else ''}")


def _results(runs: Sequence[str]) -> Iterator[Result]:
    from npusim.cli.progress import Progress
    from npusim.report.pages import Result

    with Progress("results") as tell:
        for number, run in enumerate(runs):
            tell(number, len(runs), run)
            path = Path(run).expanduser()
            if run and path.is_dir():
                from npusim.explore.fronts import pareto

                yield Result(pareto(path), "", f"directory {run}")
            elif path.is_file():
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                yield Result(_read(path), "", f"{run}, SHA-256 {digest}")
            else:
                yield _made(run)


def _read(path: Path) -> Document:
    """Read a document of any kind."""
    from npusim.config.reading import read_json
    from npusim.errors import ConfigError, shown
    from npusim.report.pages import DOCUMENTS, loaded

    data = read_json(path).data
    schema = data.get("schema") if isinstance(data, dict) else None
    name = str(schema).partition("/")[0].removeprefix("npusim.")
    if schema is None or name not in DOCUMENTS:
        found = "no key `schema`" if schema is None else shown(schema)
        raise ConfigError(found, file=str(path), line=1, allowed=f"{_ALLOWED}: one of {', '.join(DOCUMENTS)}")
    model: type[Document] = loaded(DOCUMENTS[name].model)
    return model.read(path, "npusim")


def _made(command: str) -> Result:
    """Run a command and return its result."""
    from npusim.cli.output import TAKEN
    from npusim.cli.program import command_names
    from npusim.cli.running import run
    from npusim.errors import ConfigError, NpusimError
    from npusim.explore.fronts import pareto
    from npusim.explore.sweep import SweepResult
    from npusim.report.pages import Result

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"`{command}` ({error})", file="RUN", allowed=_ALLOWED) from None
    words = words[1:] if words[:1] == ["npusim"] else words
    if not words or words[0] not in command_names():
        raise ConfigError(f"`{command}`, which is no file", file="RUN", allowed=_ALLOWED)
    token = TAKEN.set([])
    try:
        status = copy_context().run(run, words)
        taken = TAKEN.get()
    finally:
        TAKEN.reset(token)
    if not taken:
        raise NpusimError(f"`npusim {shlex.join(words)}` ended with status {status} and gave no result")
    document, page = taken[-1]
    if isinstance(document, SweepResult):  # its points lie in the directory
        return Result(pareto(document.directory), shlex.join(["npusim", *words]), "")
    return Result(document, shlex.join(["npusim", *words]), "", page)
