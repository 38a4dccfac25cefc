"""Commands that measure and check: measure, calibrate, validate, accuracy, trace, export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from npusim.cli.options import (
    DATA,
    FORM,
    GNN,
    OUTPUT,
    QUIET,
    RUN,
    WRITTEN,
    Command,
    argument,
    complete_gnn,
    complete_soc,
    complete_stacks,
    complete_workload,
    option,
    scenario_changes,
)
from npusim.errors import ConfigError, FileError, NpusimError, UnknownNameError, shown

if TYPE_CHECKING:
    from npusim.cli.output import Destination
    from npusim.measuring import Measurement
    from npusim.reporting.page import Page

_CLASSES = ("NPU", "GPU", "CPU")
_FROM, _WHAT, _FIT = "Files of other tools", "What is fitted", "How it is fitted"


class InterruptedMeasurementError(NpusimError):
    """Ctrl-C in a measurement; says what became of it."""

    exit_status = 130


def _device(value: str | None) -> str | None:
    """Refuse what can be no device; OpenVINO says whether it is there."""
    if value is None:
        return None
    if value.partition(".")[0].upper() not in _CLASSES:
        raise UnknownNameError("value of --device", value, _CLASSES)
    return value.upper()


def _complete_measurement_suite(incomplete: str) -> list[str]:
    """Return shipped suites of measurements that begin as written."""
    from npusim.measuring.suites import suite_names

    return [name for name in suite_names() if name.startswith(incomplete)]


def _measure(values: dict[str, Any]) -> None:
    from npusim.api.trusting import measure
    from npusim.cli.output import HTML_ENDINGS, Destination, Progress, Stopper
    from npusim.measuring.running import NothingMeasuredError

    output = values.pop("output")
    is_page = output is not None and output.suffix in HTML_ENDINGS
    file, terminal = Destination(output, None if is_page else "json"), Destination(None, values.pop("form"))
    values |= scenario_changes(values, ("techniques", "shapes", "settings"))
    stop = Stopper("finishing this repetition")
    progress = Progress("rows", values.pop("quiet"))
    try:
        with progress, stop.listening():
            result = measure(**values, progress=progress, stop=stop)
    except NothingMeasuredError:
        if stop.wanted:
            raise KeyboardInterrupt from None
        raise
    _hand_over(result, file, terminal)
    if not result.complete:
        where = (
            f"stands in {file.path}, marked as not complete" if file.path else "is shown; -o FILE keeps it"
        )
        rows = f"{len(result.rows)} of {progress.total} rows"
        raise InterruptedMeasurementError(f"interrupted; what was measured ({rows}) {where}")


def _hand_over(result: Measurement, file: Destination, terminal: Destination) -> None:
    """Write the file, if there is one, and show the table; JSON goes to one place only."""
    if file.is_html:
        file.write(result)
    elif file.path is not None:
        file.write_document(result.to_json)
    if file.path is None or not terminal.is_json:
        terminal.write(result)


MEASURE = Command(
    "npusim.api.trusting:measure",
    {
        "network": argument("WORKLOAD", autocompletion=complete_workload),
        "suite": option("NAME|FILE", autocompletion=_complete_measurement_suite),
        "device": option("NPU|GPU|CPU", callback=_device),
        "settings": option(
            "--set workload.KEY=VALUE",
            many=True,
            default=None,
            help="Change a value of the workload (workload.hidden=128). Repeatable.",
        ),
        "hint": option(panel=RUN),
        "requests": option("R", int, panel=RUN, min=1, max=1024),
        "tiles": option("T", int, panel=RUN, min=1),
        "precision": option(panel=RUN),
        "seconds": option("S", float, panel=RUN, min=0.05, max=3600),
        "hwinfo": option("FILE", Path, panel=RUN),
        "processor_time": option(panel=RUN),
        "soc": option("NAME|FILE", panel=OUTPUT, autocompletion=complete_soc),
        "tool": option("--from", panel=_FROM),
        "platform": option("NAME", panel=_FROM),
        "model": option("FILE", panel=_FROM),
        "output": option(
            "--output -o FILE",
            Path,
            help="Write the measurement as JSON (`npusim schema measurement`), or as a page where it ends in "
            ".html; the table is shown as well.",
            default=None,
            panel=OUTPUT,
        ),
        **QUIET,
        "form": option(
            "--format",
            help="Table to read, or the JSON document, on the terminal. None: table",
            default=None,
            choices=("table", "json"),
            panel=OUTPUT,
        ),
    },
    """
npusim measure --device NPU -o run.json
npusim measure --device CPU -o cpu.json --seconds 1
npusim measure --suite aggregation -o aggregation.json
npusim measure gcn-cora --techniques stagr+quantgr --device NPU
npusim measure my_model.onnx --shape x=5000,128 --device GPU --hint latency -o run.json
npusim measure tiny/ --device NPU -o tiny.json
npusim measure pruned/ --device CPU --hint latency --soc fitted.yaml
npusim measure out/ --from benchmark_app -o run.json
npusim measure profiling.json --from npu-profiling --model my_model.xml -o run.json
""",
    fields=("techniques", "shapes"),
    run=_measure,
)


def _calibrate(values: dict[str, Any]) -> None:
    from npusim.api.trusting import calibrate
    from npusim.cli.output import Destination, Progress, file_target, write_html
    from npusim.files import write_whole

    files = [*(values.pop("measurements") or ()), *(values.pop("more") or ())]
    if values["name"] is not None:
        _refuse_odd_name(values["name"])
    if not files:
        allowed = "files that `npusim measure` wrote"
        raise ConfigError("no file of measurements", file="--measurements", allowed=allowed)
    for file in files:
        if files.count(file) > 1:
            raise ConfigError(f"`{file}` a second time", file="--measurements", allowed="each file once")
    output = values.pop("output")
    destination = Destination(None, values.pop("form"))
    sheet = file_target(output, "--output", (".yaml", ".yml"))
    page_file = file_target(values.pop("report"), "--report", (".html",))
    _refuse_overwriting(sheet, values["soc"], files)
    values["networks"] = _models(values["networks"] or ())
    with Progress("", values.pop("quiet")) as progress:
        fitted = calibrate(
            measurements=files,
            progress=progress,
            **values | {"free": values["free"] or (), "hold": values["hold"] or ()},
        )
    result = fitted.report.model_copy(update={"output": None if sheet is None else sheet.name})
    if sheet is not None:
        write_whole(sheet, fitted.text.encode())
    from npusim.reporting.calibration import calibration_page

    page = calibration_page(result, None if sheet is None else str(output))
    write_html(page_file, page.html)
    destination.write(result, lambda: page)


def _refuse_overwriting(sheet: Path | None, soc: str, files: Sequence[Path]) -> None:
    """Refuse to write the fitted SoC over a file that the fit reads."""
    from npusim.arch import soc_file

    if sheet is None or not sheet.exists():
        return
    for file in (soc_file(soc), *files):
        if file.exists() and file.samefile(sheet):
            raise FileError(str(sheet), "is what the fit starts from", "name another file for -o")


def _refuse_odd_name(name: str) -> None:
    """Refuse a name that the fitted data sheet could not have."""
    if not name.strip() or not name.isprintable() or len(name) > 200:
        raise ConfigError(shown(name), file="--name", allowed="a name on one line, at most 200 characters")


def _models(texts: Sequence[str]) -> dict[str, Path]:
    """Return where model files lie, from ``NAME=FILE``; a bare FILE goes by its own name."""
    files: dict[str, Path] = {}
    for text in texts:
        name, equals, place = text.partition("=")
        path = Path(place if equals else text)
        if not path.is_file():
            raise FileError(str(path), "there is no such file", "give --model NAME=FILE")
        files[name if equals else path.name] = path
    return files


CALIBRATE = Command(
    "npusim.api.trusting:calibrate",
    {
        "soc": argument("SOC", autocompletion=complete_soc),
        "more": argument("[FILE]...", Path, many=True, help="Further files of measurements.", default=None),
        "measurements": option("--measurements -m FILE", Path, many=True, default=None, show_default=False),
        "output": option(
            "--output -o FILE.yaml",
            Path,
            help="Write the fitted SoC: the file of SOC with other numbers.",
            default=None,
            panel=OUTPUT,
        ),
        "report": option(
            "FILE.html",
            Path,
            help="Write a page with the fit before and after, what is left, and every number.",
            default=None,
            panel=OUTPUT,
        ),
        "name": option("NAME", panel=OUTPUT),
        "free": option("PATH", many=True, panel=_WHAT),
        "hold": option("PATH", many=True, panel=_WHAT),
        "fit_networks": option(panel=_WHAT),
        "keep_unsteady": option("--unsteady", panel=_WHAT),
        "networks": option("--model NAME=FILE", many=True, panel=_WHAT),
        "force_soc": option(panel=_WHAT),
        "folds": option("K", panel=_FIT, min=2),
        "seed": option("N", panel=_FIT, min=0),
        **QUIET,
        **FORM,
    },
    """
npusim measure --suite default --device CPU -o run.json
npusim calibrate generic-cpu --measurements run.json -o fitted.yaml --report report.html
npusim estimate gcn-cora --soc fitted.yaml --device cpu
npusim calibrate core-ultra-series2 --measurements day1.json day2.json -o fitted.yaml --hold npu.dma
""",
    run=_calibrate,
)


def _complete_suite() -> list[str]:
    from npusim.validation.suite import suite_names

    return suite_names()


def _validate(values: dict[str, Any]) -> None:
    from npusim.api.trusting import judged, validate, validation_of
    from npusim.cli.output import Destination, Progress, page_target

    destination = Destination(values["output"], values["form"])
    names, figures = values["suites"] or (), values["figures"]
    if values["parameters"]:
        from npusim.reporting.validation import unmeasured_page

        unmeasured: Any = validate(names, figures=figures, parameters=True)
        destination.write(unmeasured, lambda: unmeasured_page(unmeasured))
        return
    page_file = page_target(values["html"])
    with Progress("fits", lines=False) as progress:
        suites, held_out = judged(names, figures, values["cross_validate"], values["data"], progress)
    document = validation_of(suites, held_out)

    from npusim.reporting.validation import validation_page

    page = validation_page(suites, held_out)
    destination.write(document, lambda: page)
    page_file(document, page)
    if not document.ok:
        raise typer.Exit(1)


VALIDATE = Command(
    "npusim.api.trusting:validate",
    {
        "suites": argument("[SUITE]...", many=True, autocompletion=_complete_suite),
        "figures": option("FILE", Path),
        "html": option(
            "FILE", Path, help="Also write scatter plots and residuals as one HTML file.", default=None
        ),
        "cross_validate": option(),
        "parameters": option(),
        **DATA,
        **WRITTEN,
    },
    """
npusim validate
npusim validate silicon-dpu silicon-dma --html validation.html
npusim validate dsp --figures my_kernels.csv --format json
npusim validate accuracy --data planetoid
npusim validate silicon-dma --cross-validate
npusim validate --parameters
""",
    run=_validate,
)

ACCURACY = Command(
    "npusim.api.trusting:accuracy",
    {
        "network": argument("WORKLOAD...", many=True, autocompletion=complete_gnn),
        "techniques": option("--techniques -t STACK", autocompletion=complete_stacks),
        **DATA,
        "seeds": option("LIST"),
        "retrain": option(),
        **WRITTEN,
    },
    """
npusim accuracy gat-cora --techniques effop+grax1+grax2:form=rank2 --data planetoid
npusim accuracy gcn-cora gcn-citeseer -t stagr+quantgr,grad+nodepad --seeds 0-2
npusim accuracy sage-max-cora -t accuracy --format json
""",
    fields=("settings",),
    counted="",
)


def _trace(values: dict[str, Any]) -> None:
    from npusim.api.trusting import trace
    from npusim.cli.output import Destination

    destination = Destination(values["output"], values["form"])
    difference = trace(values["first"], values["second"])

    def page() -> Page:
        from npusim.measuring.traces import read_trace
        from npusim.reporting.trace_diff import diff_page

        return diff_page(
            difference, lambda: (read_trace(values["first"]).events, read_trace(values["second"]).events)
        )

    destination.write(difference, page)


_TRACES = """
npusim estimate gcn-cora --engine event --trace simulated.json
npusim trace diff profiling.json simulated.json
npusim trace diff before.json after.json -o both.html
"""
TRACE = (
    "Compare time lines, measured or simulated.",
    {
        "diff": Command(
            "npusim.api.trusting:trace",
            {"first": argument("FIRST", Path), "second": argument("SECOND", Path), **WRITTEN},
            _TRACES,
            run=_trace,
        )
    },
    _TRACES,
)


def _export(values: dict[str, Any]) -> None:
    from npusim.api.trusting import export

    result = export(**values | scenario_changes(values, ("techniques", "settings")), tell=typer.echo)
    if not isinstance(result, Path):
        typer.echo(
            f"{result.path}: {result.workload} with {result.techniques}, {result.operators} operators, "
            f"test accuracy {result.test_accuracy:.1%}"
        )


EXPORT = Command(
    "npusim.api.trusting:export",
    {
        "network": GNN,
        "output": option("--output -o FILE", Path, show_default=False),
        **DATA,
        "weights": option("FILE", Path),
    },
    """
npusim export gcn-cora --data planetoid -o gcn.xml
npusim export gat-cora --data planetoid -t stagr+effop -o gat.xml
npusim export llama-tiny -o tiny
npusim export llama3.2-1b --weights model_weights.pth --set workload.weights=int8 -o llama
""",
    fields=("techniques", "settings"),
    run=_export,
)
