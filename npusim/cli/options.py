"""The options that several commands share, each written once: same name, same words, same completion.

Like the controls of rental cars: whoever has driven one finds the indicator in the next.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npusim.cli.choosing import choice_option
from npusim.cli.completing import complete_soc, complete_stack, complete_workload

__all__ = [
    "DEFAULT_SOC",
    "Device",
    "Format",
    "Hint",
    "Output",
    "Requests",
    "Settings",
    "Shapes",
    "SocName",
    "TechniqueStack",
    "Tiles",
    "WorkloadName",
]

DEFAULT_SOC = "core-ultra-series2"

_RUN, _OUTPUT = "How it runs", "Output"

WorkloadName = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        help="A name from `npusim list workloads`, a workload YAML, an OpenVINO .xml or an .onnx file.",
        autocompletion=complete_workload,
        show_default=False,
    ),
]
SocName = Annotated[
    str,
    typer.Option(
        "--soc",
        metavar="NAME|FILE",
        help="Machine: a name from `npusim list socs` or a SoC YAML.",
        autocompletion=complete_soc,
    ),
]
TechniqueStack = Annotated[
    str,
    typer.Option(
        "--techniques",
        "-t",
        metavar="STACK",
        help="Techniques joined by +, such as stagr+quantgr or nodepad:capacity=3000+grad.",
        autocompletion=complete_stack,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a value of the SoC (npu.sram.per_tile=2MiB) or of the workload (workload.hidden=128). "
        "Repeatable.",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="INPUT=[N,...]",
        help="Fixed shape of an input that a model file leaves open. Repeatable.",
    ),
]
Hint = Annotated[
    str,
    choice_option(
        "--hint",
        ("latency", "throughput"),
        "One inference at a time, or several in flight.",
        rich_help_panel=_RUN,
    ),
]
Requests = Annotated[
    int | None,
    typer.Option(
        "--requests",
        min=1,
        metavar="R",
        help="Inferences in flight. [dim]\\[default: the SoC's for the hint][/dim]",
        rich_help_panel=_RUN,
    ),
]
Tiles = Annotated[
    int | None,
    typer.Option(
        "--tiles",
        min=1,
        metavar="T",
        help="NPU tiles an inference is compiled for. [dim]\\[default: the SoC's for the hint][/dim]",
        rich_help_panel=_RUN,
    ),
]
Device = Annotated[
    str,
    choice_option(
        "--device",
        ("auto", "npu", "cpu", "gpu"),
        "Device that runs the operators; auto takes the NPU for what it can do.",
        rich_help_panel=_RUN,
    ),
]
Format = Annotated[
    str | None,
    choice_option(
        "--format",
        ("table", "json"),
        "Table to read, or one JSON document. [dim]\\[default: table; json where -o ends in .json][/dim]",
        rich_help_panel=_OUTPUT,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to a file instead of the terminal.",
        rich_help_panel=_OUTPUT,
    ),
]
