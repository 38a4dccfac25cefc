"""``npusim measure``: times of networks on a device of this machine, or imported from other tools."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from npusim.cli.options import (
    OUTPUT,
    RUN,
    Quiet,
    Shapes,
    TechniqueStack,
    argument,
    complete_soc,
    complete_workload,
    option,
)
from npusim.errors import ConfigError, NpusimError, UnknownNameError

if TYPE_CHECKING:
    from npusim.arch import Soc
    from npusim.cli.output import Destination
    from npusim.measure import Measurement
    from npusim.measure.models import Sources
    from npusim.measure.suites import Item

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


_TOOLS = ("benchmark_app", "npu-profiling", "openvino-benchmarks")
_CLASSES = ("NPU", "GPU", "CPU")
_FROM = "Files of other tools"

_EXAMPLES = """
[dim]Examples[/dim]
  npusim measure --device NPU -o run.json
  npusim measure --device CPU -o cpu.json --seconds 1
  npusim measure --suite aggregation -o aggregation.json
  npusim measure gcn-cora --techniques stagr+quantgr --device NPU
  npusim measure my_model.onnx --shape x=5000,128 --device GPU --hint latency -o run.json
  npusim measure tiny/ --device NPU -o tiny.json
  npusim measure pruned/ --device CPU --hint latency --soc fitted.yaml
  npusim measure out/ --from benchmark_app -o run.json
  npusim measure profiling.json --from npu-profiling --model my_model.xml -o run.json
"""


class InterruptedMeasurementError(NpusimError):
    """Ctrl-C in a measurement; says what became of it."""

    exit_status = 130


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


Measured = Annotated[
    str | None,
    argument(
        "WORKLOAD",
        "A workload's name or YAML file, an OpenVINO .xml or an .onnx file, a folder of .xml files, or a "
        "language model's folder of `npusim export`; with --from what the other tool wrote. "
        "[dim]\\[default: the suite][/dim]",
        autocompletion=complete_workload,
    ),
]
Suite = Annotated[
    str | None,
    option(
        "--suite NAME|FILE",
        "What to measure where no WORKLOAD is named (`npusim schema measurement-suite`).",
        default="default, which takes under 10 minutes",
        autocompletion=_complete_suite,
    ),
]
MeasuredDevice = Annotated[
    str | None,
    option(
        "--device NPU|GPU|CPU", "Device that runs; GPU.1 is a second one.", default="NPU", callback=_device
    ),
]
WorkloadSettings = Annotated[
    list[str] | None,
    option("--set workload.KEY=VALUE", "Change a value of the workload (workload.hidden=128). Repeatable."),
]
Hints = Annotated[
    str,
    option(
        "--hint",
        "One inference at a time, several in flight, or a row of each; for a WORKLOAD.",
        choices=("latency", "throughput", "both"),
        panel=RUN,
    ),
]
InFlight = Annotated[
    int | None,
    option(
        "--requests R",
        "Inferences in flight, for a WORKLOAD.",
        default="1 for latency, the device's optimum for throughput",
        panel=RUN,
        min=1,
        max=1024,
    ),
]
CompiledTiles = Annotated[
    int | None,
    option(
        "--tiles T", "Tiles of the NPU to compile for.", default="the compiler's choice", panel=RUN, min=1
    ),
]
Precision = Annotated[
    str | None,
    option(
        "--precision",
        "Format of floating point to compute in.",
        choices=("f32", "bf16", "f16"),
        default="f32 on a CPU, f16 elsewhere",
        panel=RUN,
    ),
]
Seconds = Annotated[
    float | None,
    option(
        "--seconds S",
        "Time for a row, without compiling; slow networks take longer.",
        default="2",
        panel=RUN,
        min=0.05,
        max=3600,
    ),
]
HwinfoLog = Annotated[
    Path | None,
    option("--hwinfo FILE", "Log that HWiNFO is writing meanwhile: energy on Windows.", panel=RUN),
]
ProcessorTime = Annotated[
    bool,
    option(
        "--processor-time",
        "Read the processor's time of one thread, not the clock: on a CPU that other programs keep busy.",
        panel=RUN,
    ),
]
Predicting = Annotated[
    str | None,
    option(
        "--soc NAME|FILE",
        "Show this machine's estimate beside each row: one fitted by `npusim calibrate`, or a shipped one.",
        autocompletion=complete_soc,
        panel=OUTPUT,
    ),
]
Tool = Annotated[
    str | None, option("--from", "Take in what this tool wrote; nothing is run.", choices=_TOOLS, panel=_FROM)
]
Platform = Annotated[
    str | None, option("--platform NAME", "Chip, where the file does not tell or has several.", panel=_FROM)
]
Model = Annotated[
    str | None,
    option("--model FILE", "Model that ran, where the file does not tell (npu-profiling).", panel=_FROM),
]
MeasurementFile = Annotated[
    Path | None,
    option(
        "--output -o FILE",
        "Write the measurement as JSON (`npusim schema measurement`), or as a page where it ends in "
        ".html; the table is shown as well.",
        panel=OUTPUT,
    ),
]
Shown = Annotated[
    str | None,
    option(
        "--format",
        "Table to read, or the JSON document, on the terminal.",
        choices=("table", "json"),
        default="table",
        panel=OUTPUT,
    ),
]


@app.command(epilog=_EXAMPLES)
def measure(
    workload: Measured = None,
    suite: Suite = None,
    device: MeasuredDevice = None,
    techniques: TechniqueStack = "none",
    settings: WorkloadSettings = None,
    shapes: Shapes = None,
    hint: Hints = "both",
    requests: InFlight = None,
    tiles: CompiledTiles = None,
    precision: Precision = None,
    seconds: Seconds = None,
    hwinfo: HwinfoLog = None,
    processor_time: ProcessorTime = False,
    soc: Predicting = None,
    tool: Tool = None,
    platform: Platform = None,
    model: Model = None,
    output: MeasurementFile = None,
    quiet: Quiet = False,
    form: Shown = None,
) -> None:
    """Measure networks on a device of this machine with OpenVINO, or take in what Intel's tools measured.

    Ctrl-C keeps what was measured. Nothing that tells whose machine it is gets written.
    """
    from npusim.cli.output import HTML_ENDINGS, Destination

    file = Destination(output, None if output is not None and output.suffix in HTML_ENDINGS else "json")
    shown = Destination(None, form)
    chosen: dict[str, object] = {
        "--techniques": techniques if techniques != "none" else None,
        "--set": settings[0] if settings else None,
        "--requests": requests,
        "--hint": hint if hint != "both" else None,
        "--shape": shapes[0] if shapes else None,
    }
    running = {"precision": precision, "budget_s": seconds, "tiles": tiles, "hwinfo": hwinfo}
    if tool is not None:
        named = zip(("--precision", "--seconds", "--tiles", "--hwinfo"), running.values(), strict=True)
        chosen |= {"--suite": suite, "--processor-time": processor_time, "--soc": soc, **dict(named)}
        _refuse(chosen, f"no option of running: --from {tool} runs nothing")
        _hand_over(_taken_in(tool, workload, device, platform, model), file, shown)
        return
    _refuse({"--platform": platform, "--model": model}, "only with --from, which takes in a file")
    files: Sources = {}
    if workload is None:
        _refuse(chosen, "with a WORKLOAD; a suite's rows say their own")
        items = _suite_items(suite or "default")
    else:
        _refuse({"--suite": suite}, f"a suite or the workload `{workload}`, not both")
        from npusim.cli.inputs import parse_shapes
        from npusim.measure.suites import items_of
        from npusim.scenario import Scenario

        given = parse_shapes(shapes or ())
        asked = Scenario(workload, techniques=techniques, settings=settings or (), shapes=given)
        items, files = items_of(asked, hint, requests)
    of_pytorch = any(item.of_pytorch for item in items)
    machine = _machine(soc, "CPU" if of_pytorch else device or "NPU")
    if of_pytorch:
        _refuse({"--processor-time": processor_time}, "not with this suite, which reads it always")
        result = _aggregations(items, device, quiet, running)
    else:
        how = {"files": files, "processor_time": processor_time, **_given(running)}
        result = _measured(items, device or "NPU", quiet, how)
    result = result if machine is None else _predicted(result, machine, files)
    _hand_over(result, file, shown)
    if not result.complete:
        _say_what_is_kept(f"{len(result.rows)} of {len(items)} rows", file.path)


def _machine(soc: str | None, device: str) -> Soc | None:
    """Return the machine of --soc: what is wrong with it is told before anything runs."""
    if soc is None:
        return None
    from npusim.arch import load_soc
    from npusim.measure.devices import kind_of

    machine = load_soc(soc)
    if not machine.has(kind_of(device)):
        raise ConfigError(f"`{soc}`", file="--soc", allowed=f"a machine with a {kind_of(device).upper()}")
    return machine


def _predicted(result: Measurement, machine: Soc, files: Sources) -> Measurement:
    from npusim.measure.predicting import predicted

    return predicted(result, machine, files)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _refuse(given: Mapping[str, object], allowed: str) -> None:
    """Refuse options that would do nothing."""
    for name, value in given.items():
        if value:
            raise ConfigError(f"`{value}`", file=name, allowed=allowed)


def _suite_items(suite: str) -> tuple[Item, ...]:
    from npusim.measure.suites import load_suite

    return load_suite(suite).items


def _measured(items: tuple[Item, ...], device: str, quiet: bool, how: dict[str, Any]) -> Measurement:
    """Measure; KeyboardInterrupt where Ctrl-C came before the first reading."""
    from npusim.cli.progress import Progress, Stopper
    from npusim.measure.running import NothingMeasuredError
    from npusim.measure.running import measure as run

    stop = Stopper("finishing this repetition")
    try:
        with Progress("rows", quiet) as progress, stop.listening():
            return run(items, device, progress=progress, stop=stop, **how)
    except NothingMeasuredError:
        if stop.wanted:
            raise KeyboardInterrupt from None
        raise


def _aggregations(
    items: tuple[Item, ...], device: str | None, quiet: bool, running: Mapping[str, object]
) -> Measurement:
    """Measure what PyTorch Geometric runs."""
    from npusim.cli.progress import Progress, Stopper
    from npusim.measure.running import NothingMeasuredError

    budget = running["budget_s"]
    others = {"--precision": running["precision"], "--tiles": running["tiles"], "--hwinfo": running["hwinfo"]}
    _refuse(others, "no such option: PyTorch Geometric runs this suite in fp32 on the CPU")
    _refuse({"--device": device if device not in (None, "CPU") else None}, "CPU for this suite")
    from npusim.measure.aggregation import measure_aggregations  # slow: it loads PyTorch

    stop = Stopper("finishing this repetition")
    try:
        with Progress("rows", quiet) as progress, stop.listening():
            seconds = {} if budget is None else {"budget_s": float(str(budget))}
            return measure_aggregations(items, progress=progress, stop=stop, **seconds)
    except NothingMeasuredError:
        if stop.wanted:
            raise KeyboardInterrupt from None
        raise


def _say_what_is_kept(rows: str, path: Path | None) -> NoReturn:
    where = f"stands in {path}, marked as not complete" if path else "is shown; -o FILE keeps it"
    raise InterruptedMeasurementError(f"interrupted; what was measured ({rows}) {where}")


def _hand_over(result: Measurement, file: Destination, shown: Destination) -> None:
    """Write the file, if one was asked for, and show the table; JSON goes to one place only."""
    from npusim.report.measurement import measurement_page

    if file.is_html:
        file.write(lambda: measurement_page(result), result)
    elif file.path is not None:
        file.write_document(result.to_json)
    if file.path is None or not shown.is_json:
        shown.write(lambda: measurement_page(result), result)


def _taken_in(
    tool: str, path: str | None, device: str | None, platform: str | None, model: str | None
) -> Measurement:
    """Return what another tool measured."""
    from npusim.measure import imports
    from npusim.measure.benchmark_app import from_benchmark_app
    from npusim.measure.devices import kind_of

    if path is None:
        raise ConfigError(
            "no file to read", file=f"--from {tool}", allowed=f"npusim measure FILE --from {tool}"
        )
    if tool == "benchmark_app":
        return from_benchmark_app(path, kind=kind_of(device) if device else None, name=platform)
    if tool == "npu-profiling":
        return imports.from_npu_profiling(path, model=model, name=platform)
    return imports.choose_platform(imports.from_openvino_benchmarks(path), platform)
