"""``npusim measure``: what networks take on a device of this machine, or what others' tools wrote down."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import typer

from npusim.cli.exploring import Quiet
from npusim.cli.measure_options import (
    Hints,
    HwinfoFile,
    InFlight,
    MeasuredDevice,
    MeasurementFile,
    NpuTiles,
    Platform,
    Precision,
    RanModel,
    Seconds,
    Shown,
    Suite,
    Tool,
    What,
    WorkloadSettings,
)  # fmt: skip
from npusim.cli.options import TechniqueStack
from npusim.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from npusim.cli.output import Destination
    from npusim.measure import Measurement
    from npusim.measure.suites import Item

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_Hint = Literal["latency", "throughput"]
_HINTS: tuple[_Hint, ...] = ("latency", "throughput")

_EXAMPLES = """
[dim]Examples[/dim]
  npusim measure --device NPU -o run.json
  npusim measure --device CPU -o cpu.json --seconds 1
  npusim measure gcn-cora --techniques stagr+quantgr --device NPU
  npusim measure my_model.xml --device GPU --hint latency -o run.json
  npusim measure out/ --from benchmark_app -o run.json
  npusim measure profiling.json --from npu-profiling --model my_model.xml -o run.json
"""


@app.command(epilog=_EXAMPLES)
def measure(
    workload: What = None,
    suite: Suite = None,
    device: MeasuredDevice = None,
    techniques: TechniqueStack = "none",
    settings: WorkloadSettings = None,
    hint: Hints = "both",
    requests: InFlight = None,
    tiles: NpuTiles = None,
    precision: Precision = None,
    seconds: Seconds = None,
    hwinfo: HwinfoFile = None,
    tool: Tool = None,
    platform: Platform = None,
    model: RanModel = None,
    output: MeasurementFile = None,
    quiet: Quiet = False,
    form: Shown = None,
) -> None:
    """Measure networks on a device of this machine with OpenVINO, or take in what Intel's tools measured.

    Ctrl-C keeps what was measured. Nothing that tells whose machine it is gets written.
    """
    from npusim.cli.output import Destination

    file = Destination(output, "json")
    shown = Destination(None, form)
    chosen: dict[str, object] = {
        "--techniques": techniques if techniques != "none" else None,
        "--set": settings[0] if settings else None,
        "--requests": requests,
        "--hint": hint if hint != "both" else None,
    }
    running = {"precision": precision, "budget_s": seconds, "tiles": tiles, "hwinfo": hwinfo}
    if tool is not None:
        named = zip(("--precision", "--seconds", "--tiles", "--hwinfo"), running.values(), strict=True)
        chosen |= {"--suite": suite, **dict(named)}
        _refuse(chosen, f"no option of running: --from {tool} runs nothing")
        _hand_over(_taken_in(tool, workload, device, platform, model), file, shown)
        return
    _refuse({"--platform": platform, "--model": model}, "only with --from, which takes in a file")
    files: dict[str, Path] = {}
    if workload is None:
        _refuse(chosen, "with a WORKLOAD; a suite's rows say their own")
        items = _suite_items(suite or "default")
    else:
        _refuse({"--suite": suite}, f"a suite or the workload `{workload}`, not both")
        items, files = _workload_items(workload, techniques, settings or [], hint, requests)
    how = {name: value for name, value in running.items() if value is not None}
    result = _measured(items, device or "NPU", quiet, {"files": files, **how})
    _hand_over(result, file, shown)
    if not result.complete:
        _say_what_is_kept(f"{len(result.rows)} of {len(items)} rows", file.path)


def _refuse(given: Mapping[str, object], allowed: str) -> None:
    """Refuse options that would do nothing."""
    for option, value in given.items():
        if value:
            raise ConfigError(f"`{value}`", file=option, allowed=allowed)


def _suite_items(suite: str) -> tuple[Item, ...]:
    from npusim.measure.suites import load_suite

    return load_suite(suite).items


def _workload_items(
    workload: str, techniques: str, settings: list[str], hint: str, requests: int | None
) -> tuple[tuple[Item, ...], dict[str, Path]]:
    """Return a row for each hint, and where the file of the workload lies."""
    from npusim.cli.measuring import measured_model, row_name
    from npusim.measure.models import graph_of
    from npusim.measure.suites import Item

    ref, files = measured_model(workload, techniques, settings)
    if ref.kind == "workload":
        graph_of(ref, files=files)  # what cannot be built is refused in its own words, before anything runs
    hints = _HINTS if hint == "both" else [one for one in _HINTS if one == hint]
    return tuple(Item(id=row_name(ref, one), model=ref, hint=one, requests=requests) for one in hints), files


def _measured(items: tuple[Item, ...], device: str, quiet: bool, how: dict[str, Any]) -> Measurement:
    """Measure; KeyboardInterrupt where Ctrl-C came before the first reading."""
    from npusim.cli.measuring import Board, stopper
    from npusim.measure.running import NothingMeasuredError
    from npusim.measure.running import measure as run

    stop = stopper()
    try:
        with Board(quiet) as board, stop.listening():
            return run(items, device, progress=board, stop=stop, **how)
    except NothingMeasuredError:
        if stop.wanted:
            raise KeyboardInterrupt from None
        raise


def _say_what_is_kept(rows: str, path: Path | None) -> NoReturn:
    from npusim.cli.measuring import InterruptedMeasurementError

    where = f"stands in {path}, marked as not complete" if path else "is shown; -o FILE keeps it"
    raise InterruptedMeasurementError(f"interrupted; what was measured ({rows}) {where}")


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
