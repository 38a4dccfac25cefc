"""``npusim advise``: which techniques pay on a network, and what to rewrite for the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npusim.cli import options as opt

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim advise gat-cora
  npusim advise gcn-cora --data planetoid               # train it, and say what the stacks cost in accuracy
  npusim advise model.py:net --soc core-ultra-series1   # net: (torch module, example inputs), or a function
  npusim advise model.py:net --export rewritten.xml     # the stack to try, with the module's own numbers
  npusim advise model.onnx --values inputs.npz --export rewritten.xml
"""

Values = Annotated[
    Path | None,
    opt.option(
        "--values FILE.npz",
        "Values of a model file's inputs (edges, features): what is made ready beforehand follows from them, "
        "and answers are compared on them. A module brings its own.",
        show_default=False,
    ),
]
Export = Annotated[
    Path | None,
    opt.option(
        "--export FILE.xml",
        "Write the network under the stack to try as OpenVINO IR, and compare its answers with the "
        "original's on this machine's CPU.",
        panel=opt.OUTPUT,
    ),
]
KeepAnswers = Annotated[
    float,
    opt.option(
        "--keep-answers SHARE",
        "Least share of rows whose answer the stack to try keeps, where the network's numbers are known.",
        min=0.0,
        max=1.0,
    ),
]
Seed = Annotated[
    int, opt.option("--seed N", "Seed of the draws behind the 90 % intervals.", panel=opt.RUN, min=0)
]


@app.command(epilog=_EXAMPLES)
def advise(
    workload: opt.WorkloadName,
    soc: opt.SocName = opt.DEFAULT_SOC,
    settings: opt.Settings = None,
    shapes: opt.Shapes = None,
    values: Values = None,
    export: Export = None,
    data: opt.Data = None,
    keep_answers: KeepAnswers = 0.95,
    hint: opt.Hint = "latency",
    requests: opt.Requests = None,
    tiles: opt.Tiles = None,
    seed: Seed = 0,
    form: opt.Format = None,
    output: opt.Output = None,
) -> None:
    """Say which techniques pay on a network, which would if it were written otherwise, and what to try.

    Takes a workload, a model file, or a module of a Python file, which it runs: `model.py:net`.
    """
    from npusim.cli.inputs import scenario_of
    from npusim.cli.output import Destination

    destination = Destination(output, form)
    scenario = scenario_of(workload, soc, "none", settings, shapes, hint, requests, tiles)

    from npusim.api import advise as advice_on

    result = advice_on(
        scenario, values=values, export=export, data=data, keep_answers=keep_answers, seed=seed
    )

    from npusim.report.advice import advice_page

    destination.write(lambda: advice_page(result), result)
