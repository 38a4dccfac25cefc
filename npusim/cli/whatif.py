"""``npusim whatif``: what technique stacks would give, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli import options as opt
from npusim.errors import ConfigError

if TYPE_CHECKING:
    from npusim.studies import WhatIf

_MOST_COMBINATIONS = 1_000
_MODEL_FILES = (".xml", ".onnx")


def refuse_unjudgeable(workload: str) -> None:
    """Refuse a model file: it holds no data set that its answers could be compared with."""
    if workload.endswith(_MODEL_FILES):
        raise ConfigError(
            f"the model file `{workload}`",
            file="--accuracy",
            allowed="a workload that npusim trains: a name from `npusim list workloads`, or a workload YAML",
        )


def with_accuracy(result: WhatIf, workload: str, settings: Sequence[str], data: Path | None) -> WhatIf:
    """Return a comparison with the accuracy of each stack, of one training on the raw data in a folder."""
    from npusim.accuracy.judging import judge
    from npusim.cli.progress import Progress
    from npusim.scenario import split_settings

    found: dict[tuple[str, str], float] = {}
    points = {_of_workload(variant.at): None for variant in result.variants}
    with Progress(lines=False) as tell:
        for point in points:
            stacks = [v.techniques for v in result.variants if _of_workload(v.at) == point]
            of_workload, _ = split_settings([*settings, *point])
            report = judge([workload], stacks, data, overrides=of_workload, tell=tell.share)
            # The last of a stack's number formats is what the machine computes in.
            found |= {("".join(point), one.techniques): one.accuracy for one in report.results}
    variants = [
        variant.model_copy(
            update={"accuracy": found.get(("".join(_of_workload(variant.at)), variant.techniques))}
        )
        for variant in result.variants
    ]
    return result.model_copy(update={"variants": variants})


def _of_workload(at: dict[str, str]) -> tuple[str, ...]:
    """Return the settings of a point that change the model; 8 bits stand in the stack as quantgr."""
    own = {path: value for path, value in at.items() if path.startswith("workload.")}
    return tuple(f"{path}={value}" for path, value in own.items() if value != "int8")


app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim whatif gcn-cora
  npusim whatif gcn-cora --hint throughput --tiles 4 --stack paper --html waterfall.html
  npusim whatif gat-cora --stack stagr,stagr+quantgr,stagr+effop+quantgr
  npusim whatif gcn-cora --set npu.sparsity.decompress_activations=true
  npusim whatif gcn-cora --stack symg,cacheg,symg+cacheg --over npu.sram.per_tile=1MiB,2MiB,4MiB
"""


Stacks = Annotated[
    str,
    opt.option(
        "--stack LIST",
        "A named list (paper, all, storage), or stacks parted by commas. The first is the baseline; "
        "for a single one that is `none`. Stacks that need a ready-made matrix get stagr. Default: what "
        "fits the network, stacked by gain.",
        autocompletion=opt.complete_stacks,
    ),
]
Over = Annotated[
    list[str] | None,
    opt.option(
        "--over PATH=V1,V2,...",
        "Compare at each of these values, and find where stacks change places. Repeatable: every "
        "combination.",
    ),
]
Seed = Annotated[
    int, opt.option("--seed N", "Seed of the draws behind the 90 % intervals.", panel=opt.RUN, min=0)
]
HtmlFile = Annotated[
    Path | None,
    opt.option(
        "--html FILE",
        "Also write the waterfall, or the charts of --over, as one HTML file.",
        panel=opt.OUTPUT,
    ),
]
Accuracy = Annotated[
    bool,
    opt.option(
        "--accuracy",
        "Also train the model on its real data, found by --data, and say how many test nodes each stack "
        "classifies correctly. Needs the extra `gnn`.",
    ),
]


@app.command(epilog=_EXAMPLES)
def whatif(
    workload: opt.WorkloadName,
    soc: opt.SocName = opt.DEFAULT_SOC,
    stack: Stacks = "default",
    over: Over = None,
    settings: opt.Settings = None,
    shapes: opt.Shapes = None,
    hint: opt.Hint = "latency",
    requests: opt.Requests = None,
    tiles: opt.Tiles = None,
    device: opt.Device = "auto",
    swap_operands: opt.SwapOperands = "none",
    seed: Seed = 0,
    html: HtmlFile = None,
    form: opt.Format = None,
    output: opt.Output = None,
    accuracy: Accuracy = False,
    data: opt.Data = None,
) -> None:
    """Compare technique stacks: what would SymG, CacheG or INT8 give this network?

    Starts from the best that runs today with the same results; the network without techniques stands above
    it on each device. Then a waterfall of what each technique adds, with 90 % intervals that follow from the
    uncertainties of the data sheet, what was left out and why, and what more of each resource saved when it
    was tried on the best stack.
    """
    from npusim.cli.inputs import scenario_of
    from npusim.cli.output import Destination, file_target, write_html

    destination = Destination(output, form)
    html_file = file_target(html, "--html", (".html", ".htm"))
    axes = parse_over(over or ())

    if accuracy:
        refuse_unjudgeable(workload)
    scenario = scenario_of(
        workload, soc, "none", settings, shapes, hint, requests, tiles, device, swap_operands
    )

    from npusim.api import whatif as compared

    result = compared(scenario, stacks=stack, over=axes, seed=seed)
    if accuracy:
        result = with_accuracy(result, workload, settings or (), data)

    from npusim.report.whatif import whatif_page

    destination.write(lambda: whatif_page(result), result)
    write_html(html_file, lambda command: whatif_page(result).html(command))


def parse_over(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each setting that is varied: ``npu.tiles=2,4`` and the like.

    Raises
    ------
    ConfigError
        Where one is no ``PATH=V1,V2,...``, or a path or a value stands twice.
    """
    axes: dict[str, list[str]] = {}
    for text in texts:
        path, equals, listed = (part.strip() for part in text.partition("="))
        values = [value.strip() for value in listed.split(",")]
        if not equals or not path or not all(values):
            raise ConfigError(
                f"`{text}`", file="--over", allowed="PATH=V1,V2,... such as npu.sram.per_tile=1MiB,2MiB"
            )
        if path in axes or len(set(values)) < len(values):
            what = f"the path `{path}`" if path in axes else f"a value in `{text}`"
            raise ConfigError(f"{what} a second time", file="--over", allowed="each path and each value once")
        axes[path] = values
    combinations = prod(map(len, axes.values()))
    if combinations > _MOST_COMBINATIONS:
        allowed = f"at most {_MOST_COMBINATIONS:,}; `npusim sweep` evaluates more"
        raise ConfigError(f"{combinations:,} combinations", file="--over", allowed=allowed)
    return axes
