"""``npusim pareto``: the points of a sweep that no other beats, as a table and an interactive page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npusim.cli.options import Directory, Format, Maximise, Minimise, option

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim pareto results
  npusim pareto results --minimise latency_s,area_mm2 --where 'energy_j < 0.002' -o front.html
"""


@app.command(epilog=_EXAMPLES)
def pareto(
    directory: Directory,
    minimise: Minimise = None,
    maximise: Maximise = None,
    where: Annotated[str | None, option("--where SQL", "A condition, such as '\"npu.tiles\" <= 4'.")] = None,
    form: Format = None,
    output: Annotated[
        Path | None,
        option(
            "--output -o FILE", "An .html file gets the interactive page, a .json file the front as JSON."
        ),
    ] = None,
) -> None:
    """Find the front of a sweep: the points that no other beats in all metrics, and the knee among them."""
    from npusim.cli.output import Destination
    from npusim.explore.fronts import pareto as front_of

    destination = Destination(output, form)
    found = front_of(directory, minimise, where, maximise)
    from npusim.report.exploration import pareto_page

    destination.write(lambda: pareto_page(found), found)
    if destination.is_html:
        knee = found.knee["point"]
        typer.echo(f"{output}: {found.front} points on the front of {found.points:,}; knee: point {knee}")
