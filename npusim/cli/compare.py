"""``npusim compare``: networks, SoCs or technique stacks side by side, operator by operator."""

from __future__ import annotations

from typing import Annotated

import typer

from npusim.cli import options as opt

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim compare gcn-cora stagr stagr+quantgr
  npusim compare gcn-cora core-ultra-series1 core-ultra-series2 --techniques stagr
  npusim compare gcn-cora gat-cora --hint throughput
  npusim compare before.onnx after.onnx -o comparison.html
  npusim compare monday.json today.json      (written by npusim estimate -o)
"""


@app.command(epilog=_EXAMPLES)
def compare(
    what: Annotated[
        list[str],
        opt.argument(
            "A B ...",
            "Networks, SoCs or technique stacks, by name or file: several of one kind, and one of another "
            "that holds for all. Or files that `npusim estimate -o FILE.json` wrote.",
        ),
    ],
    soc: opt.SocName = opt.DEFAULT_SOC,
    techniques: opt.TechniqueStack = "none",
    settings: opt.Settings = None,
    shapes: opt.Shapes = None,
    hint: opt.Hint = "latency",
    requests: opt.Requests = None,
    tiles: opt.Tiles = None,
    device: opt.Device = "auto",
    swap_operands: opt.SwapOperands = "none",
    engine: opt.Engine = "analytical",
    form: opt.Format = None,
    output: opt.Output = None,
) -> None:
    """Compare networks, SoCs or technique stacks side by side, operator by operator.

    Operators are matched by name; ratios are those to the first. Options say what holds for all.
    """
    from npusim.cli.inputs import SWAPS, parse_shapes
    from npusim.cli.output import Destination

    destination = Destination(output, form)
    options = {
        "soc": (soc, opt.DEFAULT_SOC), "techniques": (techniques, "none"), "hint": (hint, "latency"),
        "requests": (requests, None), "tiles": (tiles, None), "device": (device, "auto"),
        "settings": (settings or (), ()), "shapes": (parse_shapes(shapes or ()), {}),
        "swap_operands": (SWAPS[swap_operands], False),
    }  # fmt: skip
    chosen = {name: value for name, (value, default) in options.items() if value != default}

    from npusim.api import compare as compared

    result = compared(*what, engine=engine, **chosen)

    from npusim.report.side_by_side import comparison_page

    destination.write(lambda: comparison_page(result), result)
