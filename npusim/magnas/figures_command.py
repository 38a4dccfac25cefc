"""``npusim magnas figures``: tables and figures of mapping, ours beside the published ones."""

from __future__ import annotations

from typing import Annotated

from npusim.cli import options as opt

FIGURES_EXAMPLES = """
[dim]Examples[/dim]
  npusim magnas figures
  npusim magnas figures --only table3,figure8
  npusim magnas figures -o figures.json
"""
_Only = Annotated[
    str | None,
    opt.option(
        "--only LIST",
        "Of table3, table4, table5, figure7, figure8, figure9, figure10, parted by commas.",
        default="all",
        show_default=False,
    ),
]


def figures(only: _Only = None, form: opt.Format = None, output: opt.Output = None) -> None:
    """Show MaGNAS's tables and figures of mapping, operating points and search beside the paper's.

    Tables 3 to 5 and Figures 7 and 8 are of a Jetson AGX Xavier's GPU and DLA, Figures 9 and 10 of three
    arrays with other dataflows. Numbers that the paper gives stand beside ours; what it says of directions
    is told to hold or not.
    """
    from npusim.cli.output import Destination
    from npusim.cli.progress import Progress
    from npusim.magnas.figures import mapping_figures

    destination = Destination(output, form)
    with Progress("tables and figures") as progress:
        names = () if only is None else [name.strip().lower() for name in only.split(",")]
        found = mapping_figures(names, progress)

    from npusim.magnas.page import figures_page

    destination.write(lambda: figures_page(found), found)
