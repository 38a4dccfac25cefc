"""``npusim prune``: channels of a trained GNN pruned for real, its answers, work, memory and time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli.options import Data, Format, GnnName, Output, Settings, option
from npusim.errors import ConfigError

if TYPE_CHECKING:
    from npusim.arch import Soc

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim prune sage-concat-cora --budget 4 --scheme full --data planetoid --models pruned
  npusim prune gcn-cora --budget 2,4,8 --seeds 0-2 --data planetoid -o pruned.json
  npusim prune sage-concat-cora --budget 2,4,8 --multiple 16 --soc core-ultra-series2 --data planetoid
"""
_SCHEMES = ("full", "batched")


@app.command(epilog=_EXAMPLES)
def prune(
    workload: GnnName,
    budget: Annotated[
        str, option("--budget LIST", "Times fewer channels, such as 4 or 2,4,8; above 1.", show_default=False)
    ],
    scheme: Annotated[
        str,
        option(
            "--scheme",
            "full: all layers, attributes kept; batched: layer 2 and what the neighbours' branch of layer 1 "
            "reads.",
            choices=_SCHEMES,
        ),
    ] = "full",
    multiple: Annotated[
        str,
        option(
            "--multiple N|auto",
            "Channels of a branch are kept in multiples of N; auto: of what the machines of --soc work on "
            "side by side, 16 on a MAC grid.",
        ),
    ] = "1",
    data: Data = None,
    seeds: Annotated[str, option("--seeds LIST", "Trainings, such as 0-2 or 0,3,7.")] = "0",
    soc: Annotated[
        str | None,
        option(
            "--soc LIST", "Machines to cost the pruned networks on, parted by commas.", show_default=False
        ),
    ] = None,
    models: Annotated[
        Path | None,
        option(
            "--models DIR",
            "Folder for parameters (.pt), workloads (.yaml) and OpenVINO models (.xml); NAME-1x is whole.",
            show_default=False,
        ),
    ] = None,
    settings: Settings = None,
    form: Format = None,
    output: Output = None,
) -> None:
    """Prune the channels of a trained GNN (GCNP): LASSO beside random and largest-weight choices.

    Trains on Planetoid's public split, prunes on the training nodes and their graph, refits, trains again.
    `npusim estimate DIR/NAME-4x.yaml` costs what was written. Needs the extra `gnn`.
    """
    from npusim.cli.accuracy import parse_seeds
    from npusim.cli.output import Destination
    from npusim.cli.progress import Progress
    from npusim.scenario import split_settings

    destination = Destination(output, form)
    of_workload, of_soc = split_settings(settings or ())
    if of_soc:
        path, allowed = ".".join(of_soc[0].path), "settings of the workload, such as workload.hidden=128"
        raise ConfigError(f"`{path}`", file=of_soc[0].origin, allowed=allowed)
    budgets, parsed_seeds = parse_budgets(budget), parse_seeds(seeds)
    socs = [name.strip() for name in soc.split(",")] if soc else []
    kept = parse_multiple(multiple, socs)

    from npusim.pruning.pruned_networks import Plan, run_pruning

    plan = Plan(budgets, scheme, kept, seeds=parsed_seeds, socs=socs)
    with Progress(lines=False) as tell:
        report = run_pruning(workload, plan, data, models, of_workload, tell.share)

    from npusim.pruning.page import pruning_page

    destination.write(lambda: pruning_page(report), report)


def parse_multiple(text: str, socs: list[str]) -> int:
    """Return the multiple in which channels are kept; a misspelt machine is told before minutes of work.

    Raises
    ------
    ConfigError
        For anything but a whole number of at least 1, or ``auto`` without a machine.
    UnknownNameError
        For a machine that there is not.
    """
    from npusim.arch import load_soc

    machines = [load_soc(name) for name in socs]
    if text == "auto" and machines:
        return max(_side_by_side(machine) for machine in machines)
    if not text.isdecimal() or not 1 <= int(text[:9]) <= 4096:
        allowed = "a whole number from 1 to 4096, or auto with --soc"
        raise ConfigError(f"`{text}`", file="--multiple", allowed=allowed)
    return int(text)


def _side_by_side(machine: Soc) -> int:
    """Return the channels that a machine's MAC grid, or without one its host, works on side by side."""
    from npusim.arch import Npu

    grids = [device.dpu.channel_lanes for device in machine.devices.values() if isinstance(device, Npu)]
    lanes = (getattr(device, "product_lanes", None) or 1.0 for device in machine.devices.values())
    return max(grids) if grids else int(max(lanes))


def parse_budgets(text: str) -> list[float]:
    """Return the budgets that ``2,4,8`` names.

    Raises
    ------
    ConfigError
        Where a part is no number above 1.

    Examples
    --------
    >>> parse_budgets("2,4")
    [2.0, 4.0]
    """
    found = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            value = 0.0
        if not 1.0 < value < 1e6:
            raise ConfigError(
                f"`{text}`", file="--budget", allowed="numbers above 1, such as 4 or 2,4,8; 4 keeps a quarter"
            )
        found.append(value)
    return list(dict.fromkeys(found))
