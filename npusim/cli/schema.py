"""``npusim schema``: the JSON schema of what npusim reads and writes."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from npusim.cli.options import Output, argument
from npusim.report.pages import DOCUMENTS, loaded

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

FILES = {
    "soc": "npusim.arch:Soc",
    "workload": "npusim.workloads:workload_file",
    "dataset": "npusim.workloads:DatasetStatistics",
    "stacks": "npusim.techniques.stack:NamedStacks",
    "toolchain": "npusim.arch.loading:Toolchain",
    "suite": "npusim.validation:Suite",
    "space": "npusim.explore:Space",
    "measurement-suite": "npusim.measure.suites:MeasurementSuite",
}
"""Module and model, or function that returns the model, of each kind of file that npusim reads."""


def models() -> dict[str, str]:
    """Return module and model of each kind of file that npusim reads, and of document that it writes."""
    return FILES | {name: kind.model for name, kind in DOCUMENTS.items()}


@app.command(
    epilog="\n[dim]Examples[/dim]\n  npusim schema soc\n  npusim schema estimate -o estimate.schema.json"
)
def schema(
    name: Annotated[
        str,
        argument(
            "NAME",
            f"A file that npusim reads ({', '.join(FILES)}) or a document that it writes "
            f"({', '.join(DOCUMENTS)}).",
            kind="schema",
            choices=tuple(models()),
        ),
    ],
    output: Output = None,
) -> None:
    """Print the JSON schema of a file or document: every key with its meaning, unit and bounds."""
    from npusim.cli.output import Destination
    from npusim.config import schema_of

    destination = Destination(output, "json")
    named = loaded(models()[name])
    found = schema_of(named if isinstance(named, type) else named())
    destination.write_document(lambda: json.dumps(found, indent=2, ensure_ascii=False))
