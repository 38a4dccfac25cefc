"""``npusim whatif``: what technique stacks would give, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli.completing import complete_stacks
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
    Tiles,
    WorkloadName,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from npusim.graph import Graph

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim whatif gcn-cora
  npusim whatif gcn-cora --hint throughput --tiles 4 --techniques paper
  npusim whatif gat-cora --techniques stagr,stagr+quantgr,stagr+effop+quantgr
  npusim whatif gcn-cora --set npu.sparsity.decompress_activations=true
"""


@app.command(epilog=_EXAMPLES)
def whatif(
    workload: WorkloadName,
    soc: SocName = DEFAULT_SOC,
    techniques: Annotated[
        str,
        typer.Option(
            "--techniques",
            "-t",
            metavar="LIST",
            help="A named list (default, paper, all), or stacks parted by commas. The first is the baseline; "
            "for a single one that is `none`.",
            autocompletion=complete_stacks,
        ),
    ] = "default",
    settings: Settings = None,
    shapes: Shapes = None,
    hint: Hint = "latency",
    requests: Requests = None,
    tiles: Tiles = None,
    device: Device = "auto",
    form: Format = None,
    output: Output = None,
) -> None:
    """Compare technique stacks: what would SymG, CacheG or INT8 give this network?

    A table and a chart of latency, throughput, energy, DRAM traffic and speed-up. Stacks that the network
    does not allow are left out with the reason; the last line says what bounds the best one.
    """
    from npusim.cli.inputs import load_inputs
    from npusim.cli.output import Destination

    destination = Destination(output, form)
    graph, machine = load_inputs(workload, soc, settings, shapes)
    stacks = _chosen(graph, techniques)

    import npusim.engines

    result = npusim.engines.whatif(
        graph, machine, stacks, hint=hint, requests=requests, tiles=tiles, device=device
    )

    def page() -> RenderableType:
        from npusim.report.whatif import whatif_page

        return whatif_page(result)

    destination.write(page, result.to_json)


def _chosen(graph: Graph, techniques: str) -> list[str]:
    """Return the stacks to compare, the baseline first; the engine leaves out what does not fit."""
    from npusim.techniques import NONE, variants

    chosen = [str(stack) for stack, _ in variants(graph, techniques)]
    return [NONE, *chosen] if len(chosen) == 1 else chosen
