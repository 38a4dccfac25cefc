"""``npusim accuracy``: what techniques do to the answers of trained models on real data."""

from __future__ import annotations

from typing import Annotated

import typer

from npusim.cli.options import (
    Data,
    Format,
    Output,
    Settings,
    argument,
    complete_gnn,
    complete_stacks,
    option,
)
from npusim.errors import ConfigError

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim accuracy gat-cora --techniques effop+grax1+grax2:form=rank2 --data planetoid
  npusim accuracy gcn-cora gcn-citeseer -t stagr+quantgr,grad+nodepad --seeds 0-2
  npusim accuracy sage-max-cora -t accuracy --format json
"""
_MOST_SEEDS = 1000


@app.command(epilog=_EXAMPLES)
def accuracy(
    workloads: Annotated[
        list[str],
        argument(
            "WORKLOAD...",
            "GNNs: names from `npusim list workloads`, or workload YAMLs of kind gnn.",
            autocompletion=complete_gnn,
        ),
    ],
    techniques: Annotated[
        str,
        option(
            "--techniques -t STACK",
            "A stack, stacks parted by commas, or a named list (accuracy: every technique). "
            "The model without techniques is always judged.",
            autocompletion=complete_stacks,
        ),
    ] = "accuracy",
    data: Data = None,
    seeds: Annotated[str, option("--seeds LIST", "Trainings, such as 0-2 or 0,3,7.")] = "0",
    settings: Settings = None,
    retrain: Annotated[
        bool, option("--retrain", "Train even where the cache has the trained parameters.")
    ] = False,
    form: Format = None,
    output: Output = None,
) -> None:
    """Judge technique stacks by the answers of models trained on real data.

    Accuracy on the test nodes, agreement with the model without techniques on all nodes, and the largest
    difference of a log-probability, in fp32, in fp16 and, with quantgr, in 8 bits. Training takes seconds a
    model and is kept in the cache; needs the extra `gnn`.
    """
    from npusim.cli.output import Destination
    from npusim.cli.progress import Progress
    from npusim.scenario import split_settings
    from npusim.techniques.stack import listed

    destination = Destination(output, form)
    of_workload, of_soc = split_settings(settings or ())
    if of_soc:
        raise ConfigError(
            f"`{'.'.join(of_soc[0].path)}`",
            file=of_soc[0].origin,
            allowed="settings of the workload, such as workload.hidden=128: accuracy depends on no machine",
        )
    chosen, parsed_seeds = [str(stack) for stack in listed(techniques)], parse_seeds(seeds)

    from npusim.accuracy.judging import judge

    with Progress(lines=False) as tell:
        report = judge(workloads, chosen, data, parsed_seeds, of_workload, retrain, tell=tell.share)

    from npusim.report.accuracy import accuracy_page

    destination.write(lambda: accuracy_page(report), report)


def parse_seeds(text: str) -> list[int]:
    """Return the seeds that ``0-2`` or ``0,3,7`` names.

    Raises
    ------
    ConfigError
        Where a part is no whole number and no range.

    Examples
    --------
    >>> parse_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and 0 <= int(last) - int(first) < _MOST_SEEDS):
            raise ConfigError(
                f"`{text}`", file="--seeds", allowed="whole numbers and ranges, such as 0-2 or 0,3,7"
            )
        seeds |= dict.fromkeys(range(int(first), int(last) + 1))
    return list(seeds)
