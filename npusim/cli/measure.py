"""``npusim measure``: what networks take on a device of this machine, or what others' tools wrote down."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from npusim.cli.choosing import choice_option
from npusim.cli.completing import complete_workload
from npusim.cli.exploring import Quiet
from npusim.cli.options import TechniqueStack
from npusim.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from npusim.cli.output import Destination
    from npusim.measure import Measurement
    from npusim.measure.suites import Item

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_TOOLS = ("benchmark_app", "npu-profiling", "openvino-benchmarks")
_CLASSES = ("NPU", "GPU", "CPU")
_Hint = Literal["latency", "throughput"]
_HINTS: tuple[_Hint, ...] = ("latency", "throughput")
_RUN, _FROM, _OUTPUT = "How it runs", "Files of other tools", "Output"

_EXAMPLES = """
[dim]Examples[/dim]
  npusim measure --device NPU -o run.json
  npusim measure --device CPU -o cpu.json --seconds 1
  npusim measure gcn-cora --techniques stagr+quantgr --device NPU
  npusim measure my_model.xml --device GPU --hint latency -o run.json
  npusim measure out/ --from benchmark_app -o run.json
  npusim measure profiling.json --from npu-profiling --model my_model.xml -o run.json
"""


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


@app.command(epilog=_EXAMPLES)
def measure(
    workload: Annotated[
        str | None,
        typer.Argument(
            metavar="WORKLOAD",
            help="A workload's name or YAML file, an OpenVINO .xml or an .onnx file; with --from what the "
            "other tool wrote. [dim]\\[default: the suite][/dim]",
            autocompletion=complete_workload,
            show_default=False,
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            metavar="NAME|FILE",
            help="What to measure where no WORKLOAD is named (`npusim schema measurement-suite`). "
            "[dim]\\[default: default, which takes under 10 minutes][/dim]",
            autocompletion=_complete_suite,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="NPU|GPU|CPU",
            help="Device that runs; GPU.1 is a second one. [dim]\\[default: NPU][/dim]",
            callback=_device,
        ),
    ] = None,
    techniques: TechniqueStack = "none",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="workload.KEY=VALUE",
            help="Change a value of the workload (workload.hidden=128). Repeatable.",
        ),
    ] = None,
    hint: Annotated[
        str,
        choice_option(
            "--hint",
            ("latency", "throughput", "both"),
            "One inference at a time, several in flight, or a row of each; for a WORKLOAD.",
            rich_help_panel=_RUN,
        ),
    ] = "both",
    requests: Annotated[
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
    ] = None,
    tiles: Annotated[
        int | None,
        typer.Option(
            "--tiles",
            min=1,
            metavar="T",
            help="Tiles of the NPU to compile for. [dim]\\[default: the compiler's choice][/dim]",
            rich_help_panel=_RUN,
        ),
    ] = None,
    precision: Annotated[
        str | None,
        choice_option(
            "--precision",
            ("f32", "bf16", "f16"),
            "Format of floating point to compute in. [dim]\\[default: f32 on a CPU, f16 elsewhere][/dim]",
            rich_help_panel=_RUN,
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            min=0.05,
            max=3600,
            metavar="S",
            help="Time for a row, without compiling; slow networks take longer.",
            rich_help_panel=_RUN,
        ),
    ] = 2.0,
    hwinfo: Annotated[
        Path | None,
        typer.Option(
            "--hwinfo",
            metavar="FILE",
            help="Log that HWiNFO is writing meanwhile: energy on Windows.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    tool: Annotated[
        str | None,
        choice_option(
            "--from", _TOOLS, "Take in what this tool wrote; nothing is run.", rich_help_panel=_FROM
        ),
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option(
            "--platform",
            metavar="NAME",
            help="Chip, where the file does not tell or has several.",
            rich_help_panel=_FROM,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="FILE",
            help="Model that ran, where the file does not tell (npu-profiling).",
            rich_help_panel=_FROM,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the measurement as JSON (`npusim schema measurement`); the table is shown as well.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    quiet: Quiet = False,
    form: Annotated[
        str | None,
        choice_option(
            "--format",
            ("table", "json"),
            "Table to read, or the JSON document, on the terminal. [dim]\\[default: table][/dim]",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
) -> None:
    """Measure networks on a device of this machine with OpenVINO, or take in what Intel's tools measured.

    Ctrl-C keeps what was measured. Nothing that tells whose machine it is gets written.
    """
    from npusim.cli.output import Destination

    file = Destination(output, "json")
    shown = Destination(None, form)
    if tool is not None:
        result = _taken_in(tool, workload, device, platform, model)
        _hand_over(result, file, shown)
        return
    for option, given in (("--platform", platform), ("--model", model)):
        if given is not None:
            raise ConfigError(f"`{given}`", file=option, allowed="only with --from, which takes in a file")
    chosen = {
        "--techniques": techniques != "none",
        "--set": bool(settings),
        "--requests": requests is not None,
    }
    items, files = (
        _suite_items(suite, chosen | {"--hint": hint != "both"})
        if workload is None
        else _workload_items(workload, suite, techniques, settings or [], hint, requests)
    )
    _run(items, files, file, shown, quiet, device or "NPU", precision, seconds, tiles, hwinfo)


def _suite_items(suite: str | None, chosen: dict[str, bool]) -> tuple[tuple[Item, ...], dict[str, Path]]:
    from npusim.measure.suites import load_suite

    for option, given in chosen.items():
        if given:
            raise ConfigError(
                "no WORKLOAD for it to change",
                file=option,
                allowed="with a WORKLOAD; a suite's rows say their own",
            )
    return load_suite(suite or "default").items, {}


def _workload_items(
    workload: str, suite: str | None, techniques: str, settings: list[str], hint: str, requests: int | None
) -> tuple[tuple[Item, ...], dict[str, Path]]:
    from npusim.cli.measuring import measured_model, row_name
    from npusim.measure.models import graph_of
    from npusim.measure.suites import Item

    if suite is not None:
        raise ConfigError(
            f"`{suite}`", file="--suite", allowed=f"a suite or the workload `{workload}`, not both"
        )
    ref, files = measured_model(workload, techniques, settings)
    if ref.kind == "workload":
        graph_of(ref, files=files)  # what cannot be built is refused in its own words, before anything runs
    hints = _HINTS if hint == "both" else [one for one in _HINTS if one == hint]
    return tuple(Item(id=row_name(ref, one), model=ref, hint=one, requests=requests) for one in hints), files


def _run(
    items: tuple[Item, ...],
    files: dict[str, Path],
    file: Destination,
    shown: Destination,
    quiet: bool,
    device: str,
    precision: str | None,
    seconds: float,
    tiles: int | None,
    hwinfo: Path | None,
) -> None:
    """Measure, hand the result over, and say so where it was interrupted."""
    from npusim.cli.measuring import Board, InterruptedMeasurementError, stopper
    from npusim.measure.running import NothingMeasuredError
    from npusim.measure.running import measure as run

    stop = stopper()
    try:
        with Board(quiet) as board, stop.listening():
            result = run(
                items,
                device,
                precision=precision,
                budget_s=seconds,
                tiles=tiles,
                files=files,
                progress=board,
                stop=stop,
                hwinfo=hwinfo,
            )
    except NothingMeasuredError:
        if stop.wanted:
            raise KeyboardInterrupt from None
        raise
    _hand_over(result, file, shown)
    if not result.complete:
        where = (
            f"stands in {file.path}, marked as not complete" if file.path else "is shown; -o FILE keeps it"
        )
        kept = f"what was measured ({len(result.rows)} of {len(items)} rows) {where}"
        raise InterruptedMeasurementError(f"interrupted; {kept}")


def _hand_over(result: Measurement, file: Destination, shown: Destination) -> None:
    """Write the file, if one was asked for, and show the table; JSON goes to one place only."""
    if file.path is not None:
        file.write_document(result.to_json)
    if file.path is None or not shown.is_json:

        def page() -> RenderableType:
            from npusim.report.measurement import measurement_page

            return measurement_page(result)

        shown.write(page, result.to_json)


def _taken_in(
    tool: str, path: str | None, device: str | None, platform: str | None, model: str | None
) -> Measurement:
    """Return what another tool measured."""
    from npusim.measure import imports
    from npusim.measure.devices import kind_of

    if path is None:
        raise ConfigError(
            "no file to read", file=f"--from {tool}", allowed=f"npusim measure FILE --from {tool}"
        )
    if tool == "benchmark_app":
        return imports.from_benchmark_app(path, kind=kind_of(device) if device else None, name=platform)
    if tool == "npu-profiling":
        return imports.from_npu_profiling(path, model=model, name=platform)
    return imports.choose_platform(imports.from_openvino_benchmarks(path), platform)
