"""``npusim trace``: summary of traces written by ``npusim estimate --engine event --trace``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npusim.cli.options import Format, Output, argument

_EXAMPLES = """
[dim]Examples[/dim]
  npusim estimate gcn-cora --engine event --trace simulated.json
  npusim trace diff profiling.json simulated.json
  npusim trace diff before.json after.json -o both.html
"""

app = typer.Typer(rich_markup_mode="rich", add_completion=False, epilog=_EXAMPLES, no_args_is_help=True)


@app.callback(epilog=_EXAMPLES)
def trace() -> None:
    """Compare time lines, measured or simulated."""


@app.command(epilog=_EXAMPLES)
def diff(
    measured: Annotated[Path, argument("FIRST", "A profiling.json of Intel's NPU profiler, or a trace.")],
    simulated: Annotated[Path, argument("SECOND", "A trace of npusim, or a second profiling.json.")],
    form: Format = None,
    output: Output = None,
) -> None:
    """Align two traces by layer and show where they part, the largest differences first."""
    from npusim.cli.output import Destination
    from npusim.measure.traces import diff_traces

    destination = Destination(output, form)
    found = diff_traces(measured, simulated)

    from npusim.measure.traces import read_trace
    from npusim.report.trace_diff import diff_page

    destination.write(
        lambda: diff_page(found, lambda: (read_trace(measured).events, read_trace(simulated).events)), found
    )
