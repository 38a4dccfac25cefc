"""``npusim calibrate``: a SoC fitted to measurements of one of its devices, with error bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from npusim.cli.options import OUTPUT, Format, Quiet, argument, complete_soc, option
from npusim.errors import ConfigError, FileError, shown

_WHAT, _FIT = "What is fitted", "How it is fitted"

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim measure --suite default --device CPU -o run.json
  npusim calibrate generic-cpu --measurements run.json -o fitted.yaml --report report.html
  npusim estimate gcn-cora --soc fitted.yaml --device cpu
  npusim calibrate core-ultra-series2 --measurements day1.json day2.json -o fitted.yaml --hold npu.dma
"""


Machine = Annotated[
    str,
    argument(
        "SOC", "Machine to fit: a name from `npusim list socs` or a SoC YAML.", autocompletion=complete_soc
    ),
]
MoreFiles = Annotated[list[Path] | None, argument("[FILE]...", "Further files of measurements.")]
Measurements = Annotated[
    list[Path] | None,
    option(
        "--measurements -m FILE",
        "Measurements that `npusim measure` wrote; several files of one device are joined.",
        show_default=False,
    ),
]
FittedFile = Annotated[
    Path | None,
    option(
        "--output -o FILE.yaml", "Write the fitted SoC: the file of SOC with other numbers.", panel=OUTPUT
    ),
]
ReportFile = Annotated[
    Path | None,
    option(
        "--report FILE.html",
        "Write a page with the fit before and after, what is left, and every number.",
        panel=OUTPUT,
    ),
]
Name = Annotated[
    str | None, option("--name NAME", "Short name of the fitted SoC.", default="that of SOC", panel=OUTPUT)
]
Free = Annotated[
    list[str] | None,
    option(
        "--free PATH",
        "Fit this number, or all below this path, and no others. Repeatable.",
        default="all uncertain numbers of the device and the DRAM that bear on a measured row",
        panel=_WHAT,
    ),
]
Hold = Annotated[
    list[str] | None,
    option("--hold PATH", "Leave this number, or all below this path, as it is. Repeatable.", panel=_WHAT),
]
FitNetworks = Annotated[
    bool,
    option(
        "--fit-networks", "Fit to whole networks too. By default they are predicted as a check.", panel=_WHAT
    ),
]
ModelPlaces = Annotated[
    list[str] | None,
    option(
        "--model NAME=FILE", "Where a model file lies that the measurement names. Repeatable.", panel=_WHAT
    ),
]
Unsteady = Annotated[
    bool,
    option(
        "--unsteady",
        "Fit to rows too whose readings spread over more than half of their median: the machine was busy.",
        panel=_WHAT,
    ),
]
ForceSoc = Annotated[
    bool, option("--force-soc", "Take the measurement of a chip that is none of this SoC's.", panel=_WHAT)
]
Folds = Annotated[int, option("--folds K", "Parts of the cross-validation.", panel=_FIT, min=2)]
Seed = Annotated[int, option("--seed N", "Seed of the cross-validation.", panel=_FIT, min=0)]


@app.command(epilog=_EXAMPLES)
def calibrate(
    soc: Machine,
    more: MoreFiles = None,
    measurements: Measurements = None,
    output: FittedFile = None,
    report: ReportFile = None,
    name: Name = None,
    free: Free = None,
    hold: Hold = None,
    fit_networks: FitNetworks = False,
    keep_unsteady: Unsteady = False,
    model: ModelPlaces = None,
    force_soc: ForceSoc = False,
    folds: Folds = 5,
    seed: Seed = 0,
    quiet: Quiet = False,
    form: Format = None,
) -> None:
    """Fit a SoC to measurements of its NPU, GPU or CPU, and say how far to trust it.

    Numbers that the measurement does not determine stay as they are and are named. The error is told on rows
    that the fit did not see.
    """
    from npusim.cli.output import Destination, file_target, write_html
    from npusim.cli.progress import Progress
    from npusim.files import write_whole

    files = [*(measurements or ()), *(more or ())]
    if name is not None:
        _refuse_odd_name(name)
    if not files:
        raise ConfigError(
            "no file of measurements", file="--measurements", allowed="files that `npusim measure` wrote"
        )
    for file in files:
        if files.count(file) > 1:
            raise ConfigError(f"`{file}` a second time", file="--measurements", allowed="each file once")
    destination = Destination(None, form)
    sheet = file_target(output, "--output", (".yaml", ".yml"))
    page_file = file_target(report, "--report", (".html",))
    _refuse_overwriting(sheet, soc, files)

    from npusim.calibrate.device import FitOptions
    from npusim.calibrate.device import calibrate as fit

    with Progress("", quiet) as progress:
        options = FitOptions(
            free=free or (),
            hold=hold or (),
            folds=folds,
            seed=seed,
            force_soc=force_soc,
            fit_networks=fit_networks,
            keep_unsteady=keep_unsteady,
            name=name,
        )
        found = fit(soc, files, options, files=_models(model or ()), progress=progress)
    result = found.report.model_copy(update={"output": None if sheet is None else sheet.name})
    if sheet is not None:
        write_whole(sheet, found.text.encode())

    from npusim.report.calibration import calibration_page

    page = calibration_page(result, None if sheet is None else str(output))
    write_html(page_file, page.html)
    destination.write(lambda: page, result)


def _refuse_overwriting(sheet: Path | None, soc: str, files: Sequence[Path]) -> None:
    """Refuse to write the fitted SoC over what it is made from."""
    from npusim.arch import soc_file

    if sheet is None or not sheet.exists():
        return
    for one in (soc_file(soc), *files):
        if one.exists() and one.samefile(sheet):
            raise FileError(str(sheet), "is what the fit starts from", "name another file for -o")


def _refuse_odd_name(name: str) -> None:
    """Refuse a name that the fitted data sheet could not have."""
    if not name.strip() or not name.isprintable() or len(name) > 200:
        raise ConfigError(shown(name), file="--name", allowed="a name on one line, at most 200 characters")


def _models(texts: Sequence[str]) -> dict[str, Path]:
    """Return where model files lie, from ``NAME=FILE``; a bare FILE goes by its own name."""
    found: dict[str, Path] = {}
    for text in texts:
        name, equals, place = text.partition("=")
        path = Path(place if equals else text)
        if not path.is_file():
            raise FileError(str(path), "there is no such file", "give --model NAME=FILE")
        found[name if equals else path.name] = path
    return found
