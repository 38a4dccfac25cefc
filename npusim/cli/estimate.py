"""``npusim estimate``: what one inference of a network costs on a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from npusim.cli.options import (
    DEFAULT_SOC,
    Device,
    Format,
    Hint,
    Output,
    Requests,
    Settings,
    Shapes,
    SocName,
    TechniqueStack,
    Tiles,
    WorkloadName,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim estimate gcn-cora
  npusim estimate gat-cora --techniques stagr+effop+quantgr --hint throughput
  npusim estimate gcn-cora --set npu.tiles=4 --set workload.hidden=128
  npusim estimate my_model.xml --soc core-ultra-series1 --format json
  npusim estimate my_model.onnx --shape 'input=\\[1,3,224,224]' -o result.json
"""


@app.command(epilog=_EXAMPLES)
def estimate(
    workload: WorkloadName,
    soc: SocName = DEFAULT_SOC,
    techniques: TechniqueStack = "none",
    settings: Settings = None,
    shapes: Shapes = None,
    hint: Hint = "latency",
    requests: Requests = None,
    tiles: Tiles = None,
    device: Device = "auto",
    form: Format = None,
    output: Output = None,
) -> None:
    """Estimate latency, throughput, energy and memory traffic of a network."""
    from npusim.cli.inputs import load_inputs
    from npusim.cli.output import Destination

    destination = Destination(output, form)
    graph, machine = load_inputs(workload, soc, settings, shapes)

    import npusim.engines
    from npusim.techniques import apply

    rewritten = apply(graph, techniques)
    result = npusim.engines.estimate(
        rewritten, machine, hint=hint, requests=requests, tiles=tiles, device=device
    )

    def page() -> RenderableType:
        from npusim.report.estimate import estimate_page

        return estimate_page(result)

    destination.write(page, result.to_json)
