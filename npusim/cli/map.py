"""``npusim map``: which device should run which operator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from npusim.cli import options as opt

if TYPE_CHECKING:
    from npusim.mapping import Granularity

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim map gcn-cora
  npusim map gat-cora --techniques effop --devices npu,cpu --minimise energy
  npusim map vig-s --granularity block
  npusim map sage-max-cora --hint throughput --format json
  npusim measure gcn-cora --device CPU -o cpu.json && npusim map gcn-cora --profile cpu.json
"""


@app.command(name="map", epilog=_EXAMPLES)
def map_(
    workload: opt.WorkloadName,
    soc: opt.SocName = opt.DEFAULT_SOC,
    techniques: opt.TechniqueStack = "none",
    minimise: Annotated[
        str,
        opt.option("--minimise", "What the placement is to make least.", choices=("latency", "energy")),
    ] = "latency",
    devices: Annotated[
        str | None,
        opt.option(
            "--devices LIST",
            "Devices to choose from, parted by commas.",
            default="all there are",
            autocompletion=lambda: ["npu,cpu,gpu", "npu,cpu", "npu,gpu", "cpu,gpu"],
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        list[Path] | None,
        opt.option(
            "--profile FILE",
            "Measured times of this network's operators on a device, from `npusim measure WORKLOAD`: they "
            "replace the model's. Repeatable: a file for each device.",
            show_default=False,
        ),
    ] = None,
    granularity: Annotated[
        str,
        opt.option("--granularity", "What is placed as one.", choices=("operator", "layer", "block")),
    ] = "operator",
    settings: opt.Settings = None,
    shapes: opt.Shapes = None,
    hint: opt.Hint = "latency",
    requests: opt.Requests = None,
    tiles: opt.Tiles = None,
    form: opt.Format = None,
    output: opt.Output = None,
) -> None:
    """Place a network over NPU, CPU and GPU at the least latency or energy.

    Counts what every operator costs on each device, the launches, and transfers between devices; the table
    shows what a split after each operator would cost. With several inferences in flight, latency means the
    time between two of them.
    """
    from npusim.cli.inputs import scenario_of
    from npusim.cli.output import Destination

    destination = Destination(output, form)
    scenario = scenario_of(workload, soc, techniques, settings, shapes, hint, requests, tiles)

    from npusim.api import place

    result = place(
        scenario,
        minimise="energy" if minimise == "energy" else "latency",
        devices=None if devices is None else [name.strip().lower() for name in devices.split(",")],
        profiles=profile or (),
        granularity=cast("Granularity", granularity),
    )

    from npusim.report.placement import placement_page

    destination.write(lambda: placement_page(result), result)
