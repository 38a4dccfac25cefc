"""The options of `npusim measure`, which no other command has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npusim.cli.options import choice_option, complete_workload
from npusim.errors import UnknownNameError

_TOOLS = ("benchmark_app", "npu-profiling", "openvino-benchmarks")
_CLASSES = ("NPU", "GPU", "CPU")
_RUN, _FROM, _OUTPUT = "How it runs", "Files of other tools", "Output"


def _device(value: str | None) -> str | None:
    """Refuse what can be no device; whether it is there OpenVINO says."""
    if value is None:
        return None
    if value.partition(".")[0].upper() not in _CLASSES:
        raise UnknownNameError("value of --device", value, _CLASSES)
    return value.upper()


def _complete_suite(incomplete: str) -> list[str]:
    """Return shipped suites of measurements that begin as written."""
    from npusim.measure.suites import suite_names

    return [name for name in suite_names() if name.startswith(incomplete)]


What = Annotated[
    str | None,
    typer.Argument(
        metavar="WORKLOAD",
        help="A workload's name or YAML file, an OpenVINO .xml or an .onnx file; with --from what the "
        "other tool wrote. [dim]\\[default: the suite][/dim]",
        autocompletion=complete_workload,
        show_default=False,
    ),
]
Suite = Annotated[
    str | None,
    typer.Option(
        "--suite",
        metavar="NAME|FILE",
        help="What to measure where no WORKLOAD is named (`npusim schema measurement-suite`). "
        "[dim]\\[default: default, which takes under 10 minutes][/dim]",
        autocompletion=_complete_suite,
    ),
]
MeasuredDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NPU|GPU|CPU",
        help="Device that runs; GPU.1 is a second one. [dim]\\[default: NPU][/dim]",
        callback=_device,
    ),
]
WorkloadSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="workload.KEY=VALUE",
        help="Change a value of the workload (workload.hidden=128). Repeatable.",
    ),
]
Hints = Annotated[
    str,
    choice_option(
        "--hint",
        ("latency", "throughput", "both"),
        "One inference at a time, several in flight, or a row of each; for a WORKLOAD.",
        rich_help_panel=_RUN,
    ),
]
InFlight = Annotated[
    int | None,
    typer.Option(
        "--requests",
        min=1,
        max=1024,
        metavar="R",
        help="Inferences in flight, for a WORKLOAD. [dim]\\[default: 1 for latency, the device's optimum "
        "for throughput][/dim]",
        rich_help_panel=_RUN,
    ),
]
NpuTiles = Annotated[
    int | None,
    typer.Option(
        "--tiles",
        min=1,
        metavar="T",
        help="Tiles of the NPU to compile for. [dim]\\[default: the compiler's choice][/dim]",
        rich_help_panel=_RUN,
    ),
]
Precision = Annotated[
    str | None,
    choice_option(
        "--precision",
        ("f32", "bf16", "f16"),
        "Format of floating point to compute in. [dim]\\[default: f32 on a CPU, f16 elsewhere][/dim]",
        rich_help_panel=_RUN,
    ),
]
Seconds = Annotated[
    float | None,
    typer.Option(
        "--seconds",
        min=0.05,
        max=3600,
        metavar="S",
        help="Time for a row, without compiling; slow networks take longer. [dim]\\[default: 2][/dim]",
        rich_help_panel=_RUN,
    ),
]
HwinfoFile = Annotated[
    Path | None,
    typer.Option(
        "--hwinfo",
        metavar="FILE",
        help="Log that HWiNFO is writing meanwhile: energy on Windows.",
        rich_help_panel=_RUN,
    ),
]
Tool = Annotated[
    str | None,
    choice_option("--from", _TOOLS, "Take in what this tool wrote; nothing is run.", rich_help_panel=_FROM),
]
Platform = Annotated[
    str | None,
    typer.Option(
        "--platform",
        metavar="NAME",
        help="Chip, where the file does not tell or has several.",
        rich_help_panel=_FROM,
    ),
]
RanModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="FILE",
        help="Model that ran, where the file does not tell (npu-profiling).",
        rich_help_panel=_FROM,
    ),
]
MeasurementFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the measurement as JSON (`npusim schema measurement`); the table is shown as well.",
        rich_help_panel=_OUTPUT,
    ),
]
Shown = Annotated[
    str | None,
    choice_option(
        "--format",
        ("table", "json"),
        "Table to read, or the JSON document, on the terminal. [dim]\\[default: table][/dim]",
        rich_help_panel=_OUTPUT,
    ),
]
