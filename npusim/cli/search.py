"""``npusim search``: the front of a space that is too large to sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npusim.cli import options as opt

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim search gcn-cora --budget 20000 -o found
  npusim search my_space.yaml --minimise latency_s,area_mm2 --budget 5000 --seed 7 -o found
"""


@app.command(epilog=_EXAMPLES)
def search(
    space: opt.SpaceName,
    budget: Annotated[
        int, opt.option("--budget -n N", "Points to evaluate.", min=1, max=100_000_000, show_default=False)
    ],
    output: Annotated[
        Path, opt.option("--output -o DIR", "New directory for front and log.", show_default=False)
    ],
    minimise: opt.Minimise = None,
    maximise: opt.Maximise = None,
    seed: Annotated[int, opt.option("--seed S", "The same seed finds the same.", min=0)] = 0,
    population: Annotated[
        int | None,
        opt.option(
            "--population P",
            "Points of a generation.",
            default="about the square root of the budget",
            min=4,
            max=100_000,
        ),
    ] = None,
    resume: opt.Resume = False,
    cores: opt.Cores = None,
    quiet: opt.Quiet = False,
    form: opt.Format = None,
) -> None:
    """Search a space for its front by evolution (NSGA-II), with random search beside it as the yardstick."""
    from npusim.cli.inputs import use_cores
    from npusim.cli.output import Destination
    from npusim.cli.progress import Progress, Stopper
    from npusim.explore import load_space
    from npusim.explore.fronts import with_objectives
    from npusim.explore.search import search as run

    destination = Destination(None, form)
    loaded = with_objectives(load_space(space), minimise, maximise)
    use_cores(cores)
    stopper = Stopper("finishing the chunk")
    with Progress("evaluations", quiet, rate=True) as progress, stopper.listening():
        result = run(
            loaded,
            output,
            budget=budget,
            seed=seed,
            population=population,
            resume=resume,
            progress=progress,
            stop=stopper,
        )

    from npusim.report.exploration import search_page

    destination.write(lambda: search_page(result), result)
