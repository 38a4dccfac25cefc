"""Commands that measure and check: measure, calibrate, validate, accuracy, trace, export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

import npusim
from npusim.cli import options
from npusim.cli.options import OUTPUT, RUN, Command, argument, option
from npusim.cli.output import (
    HTML_ENDINGS,
    Destination,
    Progress,
    Stopper,
    file_target,
    say,
    write_html,
    write_page,
)
from npusim.errors import ConfigError, FileError, NpusimError, UnknownNameError, shown
from npusim.files import write_whole

_CLASSES = ("NPU", "GPU", "CPU")
_MEASURED_SUITES = options.completion("npusim.measuring.suites:suite_names")
_JUDGED_SUITES = options.completion("npusim.validation.suite:suite_names")
_FROM, _WHAT, _FIT = "Files of other tools", "What is fitted", "How it is fitted"


class InterruptedMeasurementError(NpusimError):
    """Ctrl-C in a measurement; says what became of it."""

    exit_status = 130


def _device(value: str | None) -> str | None:
    """Refuse what can be no device; OpenVINO says whether it is there."""
    if value is not None and value.partition(".")[0].upper() not in _CLASSES:
        raise UnknownNameError("value of --device", value, _CLASSES)
    return value and value.upper()


def _measure(values: dict[str, Any]) -> None:
    """Measure; write the file, if there is one, and show the table. JSON goes to one place only.

    Parameters
    ----------
    settings : sequence of str
        Change a value of the workload (workload.hidden=128). Repeatable.
    output : Path, optional
        Write the measurement as JSON (`npusim schema measurement`), or as a page where it ends in .html; the
        table is shown as well.
    resume : bool
        Continue an interrupted measurement in -o FILE.json, which is written after every 32 rows.
    """
    from npusim.measuring.document import read_measurement
    from npusim.measuring.running import NothingMeasuredError

    output = values.pop("output")
    is_page = output is not None and output.suffix in HTML_ENDINGS
    file, terminal = Destination(output, None if is_page else "json"), Destination(None, values.pop("form"))
    values |= options.scenario_changes(values, ("techniques", "shapes", "settings"))
    stop = Stopper("finishing this repetition")
    progress = Progress("rows", values.pop("quiet"))
    kept = file.path if file.form == "json" and values["tool"] is None else None
    if values.pop("resume"):
        if kept is None:
            raise ConfigError("no file", file="--resume", allowed="with -o FILE.json, which is continued")
        values["earlier"] = read_measurement(kept) if kept.exists() else None
    if kept is not None:
        values["save"] = lambda measurement: file.write_json(measurement.to_json())
    try:
        with progress, stop.listening():
            result = npusim.measure(**values, progress=progress, stop=stop)
    except NothingMeasuredError:
        if stop.wanted:
            raise KeyboardInterrupt from None
        raise
    if file.path is not None:
        file.write(result)
    if file.path is None or terminal.form != "json":
        terminal.write(result)
    if not result.complete:
        where = (
            f"stands in {file.path}, marked as not complete" if file.path else "is shown; -o FILE keeps it"
        )
        rows = f"{len(result.rows)} of {progress.total} rows"
        raise InterruptedMeasurementError(f"interrupted; what was measured ({rows}) {where}")


MEASURE = Command(
    "npusim.api.trusting:measure",
    {
        "network": argument("WORKLOAD", autocompletion=options.complete_workload),
        "operators": option("--for"),
        "compare": option("NETWORK", autocompletion=options.complete_workload),
        "suite": option("NAME|FILE", autocompletion=_MEASURED_SUITES),
        "device": option("NPU|GPU|CPU", callback=_device),
        "settings": option("--set workload.KEY=VALUE", default=None),
        **options.by_name("hint requests tiles precision seconds hwinfo=FILE processor_time", RUN),
        "soc": option("NAME|FILE", panel=OUTPUT, autocompletion=options.complete_soc),
        "tool": option("--from", panel=_FROM),
        **options.by_name("platform=NAME model=FILE", _FROM),
        "output": options.OUTPUT_FILE,
        **options.by_name("resume", OUTPUT),
        **options.QUIET,
        **options.form("Table to read, or the JSON document, on the terminal. None: table"),
    },
    fields=("techniques", "shapes"),
    run=_measure,
)


def _calibrate(values: dict[str, Any]) -> None:
    """Fit, and write the data sheet and a page of the fit.

    Parameters
    ----------
    more : Path, optional
        Further files of measurements.
    output : Path, optional
        Write the fitted SoC: the file of SOC with other numbers.
    report : Path, optional
        Write a page with the fit before and after, what is left, and every number.
    """
    from npusim.arch import soc_file
    from npusim.reporting.calibration import calibration_page

    files = [*(values.pop("measurements") or ()), *(values.pop("more") or ())]
    output, name = values.pop("output"), values["name"]
    if name is not None and (not name.strip() or not name.isprintable() or len(name) > 200):
        raise ConfigError(shown(name), file="--name", allowed="a name on one line, at most 200 characters")
    if not files:
        allowed = "files that `npusim measure` wrote"
        raise ConfigError("no file of measurements", file="--measurements", allowed=allowed)
    for file in files:
        if files.count(file) > 1:
            raise ConfigError(f"`{file}` a second time", file="--measurements", allowed="each file once")
    destination = Destination(None, values.pop("form"))
    sheet = file_target(output, "--output", (".yaml", ".yml"))
    page_file = file_target(values.pop("report"), "--report", (".html",))
    if sheet is not None and sheet.exists():
        for file in (soc_file(values["soc"]), *files):
            if file.exists() and file.samefile(sheet):
                raise FileError(str(sheet), "is what the fit starts from", "name another file for -o")
    values["networks"] = dict(map(_model, values["networks"] or ()))
    values |= {"free": values["free"] or (), "hold": values["hold"] or ()}
    with Progress("", values.pop("quiet")) as progress:
        fitted = npusim.calibrate(measurements=files, progress=progress, **values)
    result = fitted.report.model_copy(update={"output": None if sheet is None else sheet.name})
    if sheet is not None:
        write_whole(sheet, fitted.text.encode())
    page = calibration_page(result, None if sheet is None else str(output))
    write_html(page_file, page.html)
    destination.write(result, lambda: page)


def _model(text: str) -> tuple[str, Path]:
    """Return the name of a model file and where it lies, from ``NAME=FILE`` or a bare FILE."""
    name, equals, place = text.partition("=")
    path = Path(place if equals else text)
    if not path.is_file():
        raise FileError(str(path), "there is no such file", "give --model NAME=FILE")
    return name if equals else path.name, path


CALIBRATE = Command(
    "npusim.calibration.device:calibrate",
    {
        "soc": argument("SOC", autocompletion=options.complete_soc),
        "more": argument("[FILE]...", many=True, default=None),
        "measurements": option("--measurements -m FILE", Path, many=True, default=None),
        "output": options.OUTPUT_FILE,
        **options.by_name("report=FILE.html name", OUTPUT),
        **options.by_name("free=PATH hold=PATH fit_networks force_soc", _WHAT),
        "keep_unsteady": option("--unsteady", panel=_WHAT),
        "networks": option("--model NAME=FILE", panel=_WHAT),
        **options.by_name("folds", _FIT, min=2),
        **options.by_name("seed", _FIT, min=0),
        **options.QUIET,
        **options.FORM,
    },
    run=_calibrate,
)


def _validate(values: dict[str, Any]) -> None:
    """Judge suites, and show them.

    Parameters
    ----------
    html : Path, optional
        Also write scatter plots and residuals as one HTML file.
    """
    from npusim.api.validating import judged, validation_of
    from npusim.reporting.validation import unmeasured_page, validation_page

    destination = Destination(values["output"], values["form"])
    names, figures = values["suites"] or (), values["figures"]
    if values["parameters"]:
        unmeasured: Any = npusim.validate(names, figures=figures, parameters=True)
        destination.write(unmeasured, lambda: unmeasured_page(unmeasured))
        return
    page_file = file_target(values["html"], "--html", HTML_ENDINGS)
    with Progress("fits", lines=False) as progress:
        folds, classes = values["cross_validate"], values["leave_class_out"]
        suites, held_out = judged(names, figures, folds, classes, values["data"], progress)
    document, page = validation_of(suites, held_out), validation_page(suites, held_out)
    destination.write(document, lambda: page)
    write_page(page_file, document, page)
    if not document.ok:
        raise typer.Exit(1)


VALIDATE = Command(
    "npusim.api.validating:validate",
    {
        "suites": argument("[SUITE]...", many=True, autocompletion=_JUDGED_SUITES),
        **options.by_name("figures=FILE html=FILE cross_validate leave_class_out parameters data=DIR"),
        **options.WRITTEN,
    },
    run=_validate,
)

ACCURACY = Command(
    "npusim.api.trusting:accuracy",
    {
        "network": argument("WORKLOAD...", many=True, autocompletion=options.complete_gnn),
        "techniques": option("--techniques -t STACK", autocompletion=options.complete_stacks),
        **options.by_name("data=DIR seeds=LIST batch retrain"),
        **options.WRITTEN,
    },
    fields=("settings",),
    counted="",
)


def _trace(values: dict[str, Any]) -> None:
    from npusim.measuring.traces import read_trace
    from npusim.reporting.timeline import diff_page

    destination = Destination(values["output"], values["form"])
    files = values["first"], values["second"]
    difference = npusim.trace(*files)

    def events() -> tuple[Any, Any]:
        first, second = (read_trace(file).events for file in files)
        return first, second

    destination.write(difference, lambda: diff_page(difference, events))
    if not difference.layers:
        raise typer.Exit(1)


_TRACES = {"first": argument("FIRST", Path), "second": argument("SECOND", Path), **options.WRITTEN}
_DIFF = Command("npusim.api.trusting:trace", _TRACES, run=_trace)
TRACE = ("Compare time lines, measured or simulated.", {"diff": _DIFF})


def _export(values: dict[str, Any]) -> None:
    from npusim.reporting.advice import agreement_line
    from npusim.studies.agreement import Agreement

    result = npusim.export(**values | options.scenario_changes(values, ("techniques", "settings")), tell=say)
    if isinstance(result, Agreement):
        say(f"{values['output']}: {agreement_line(result)}")
    elif not isinstance(result, Path):
        say(
            f"{result.path}: {result.workload} with {result.techniques}, {result.operators} operators, "
            f"test accuracy {result.test_accuracy:.1%}"
        )


EXPORT = Command(
    "npusim.api.trusting:export",
    {
        "network": options.GNN,
        "output": option("--output -o FILE", Path),
        **options.by_name("data=DIR weights=FILE"),
    },
    fields=("techniques", "settings"),
    run=_export,
)


def _soc(values: dict[str, Any]) -> None:
    """Write the sheet, and say what it could not; without a file, write the sheet alone.

    Parameters
    ----------
    output : Path, optional
        Write the data sheet to a file, and what it could not say to the terminal.
    """
    target = file_target(values["output"], "--output", (".yaml", ".yml"))
    text = npusim.soc(values["files"])
    if target is None:
        say(text)
        return
    write_whole(target, text.encode())
    say(f"{target}: a data sheet\n" + "\n".join(text.partition("\nschema")[0].splitlines()))


_FILES = {"files": argument("FILE [MAPPING]", Path, many=True), "output": options.OUTPUT_FILE}
_IMPORT = Command("npusim.api.trusting:soc", _FILES, run=_soc)
SOC = ("Bring machines of other tools in.", {"import": _IMPORT})
