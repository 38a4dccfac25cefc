"""The options of ``npusim calibrate``: what is fitted, how, and where it goes.

Like the order slip of an instrument maker: which strings to tune, which to leave alone, where to send it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npusim.cli.completing import complete_soc

__all__ = [
    "FitNetworks",
    "FittedFile",
    "FittedSoc",
    "FoldSeed",
    "Folds",
    "ForceSoc",
    "Free",
    "Hold",
    "Measurements",
    "ModelFiles",
    "MoreFiles",
    "NewName",
    "ReportFile",
]

_WHAT, _FIT, _OUTPUT = "What is fitted", "How it is fitted", "Output"

FittedSoc = Annotated[
    str,
    typer.Argument(
        metavar="SOC",
        help="Machine to fit: a name from `npusim list socs` or a SoC YAML.",
        autocompletion=complete_soc,
        show_default=False,
    ),
]
MoreFiles = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILE]...", help="Further files of measurements.", show_default=False),
]
Measurements = Annotated[
    list[Path] | None,
    typer.Option(
        "--measurements",
        "-m",
        metavar="FILE",
        help="Measurements that `npusim measure` wrote; several files of one device are joined.",
        show_default=False,
    ),
]
FittedFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE.yaml",
        help="Write the fitted SoC: the file of SOC with other numbers.",
        rich_help_panel=_OUTPUT,
    ),
]
ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE.html",
        help="Write a page with the fit before and after, what is left, and every number.",
        rich_help_panel=_OUTPUT,
    ),
]
NewName = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="Short name of the fitted SoC. [dim]\\[default: that of SOC][/dim]",
        rich_help_panel=_OUTPUT,
    ),
]
Free = Annotated[
    list[str] | None,
    typer.Option(
        "--free",
        metavar="PATH",
        help="Fit this number, or all below this path, and no others. Repeatable. [dim]\\[default: all "
        "uncertain numbers of the device and the DRAM that bear on a measured row][/dim]",
        rich_help_panel=_WHAT,
    ),
]
Hold = Annotated[
    list[str] | None,
    typer.Option(
        "--hold",
        metavar="PATH",
        help="Leave this number, or all below this path, as it is. Repeatable.",
        rich_help_panel=_WHAT,
    ),
]
FitNetworks = Annotated[
    bool,
    typer.Option(
        "--fit-networks",
        help="Fit to whole networks too. By default they are predicted as a check.",
        rich_help_panel=_WHAT,
    ),
]
ModelFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="NAME=FILE",
        help="Where a model file lies that the measurement names. Repeatable.",
        rich_help_panel=_WHAT,
    ),
]
ForceSoc = Annotated[
    bool,
    typer.Option(
        "--force-soc",
        help="Take the measurement of a chip that is none of this SoC's.",
        rich_help_panel=_WHAT,
    ),
]
Folds = Annotated[
    int,
    typer.Option("--folds", min=2, metavar="K", help="Parts of the cross-validation.", rich_help_panel=_FIT),
]
FoldSeed = Annotated[
    int,
    typer.Option("--seed", min=0, metavar="N", help="Seed of the cross-validation.", rich_help_panel=_FIT),
]
