"""``npusim calibrate``: a SoC fitted to measurements of one of its devices, with error bars."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from npusim.cli.calibration_options import (
    FitNetworks,
    FittedFile,
    FittedSoc,
    Folds,
    FoldSeed,
    ForceSoc,
    Free,
    Hold,
    Measurements,
    ModelFiles,
    MoreFiles,
    NewName,
    ReportFile,
)
from npusim.cli.exploring import Quiet
from npusim.cli.options import Format
from npusim.errors import ConfigError, FileError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from npusim.calibrate.device.calibrating import Progress

__all__ = ["app"]

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim measure --suite default --device CPU -o run.json
  npusim calibrate generic-cpu --measurements run.json -o fitted.yaml --report report.html
  npusim estimate gcn-cora --soc fitted.yaml --device cpu
  npusim calibrate core-ultra-series2 --measurements day1.json day2.json -o fitted.yaml --hold npu.dma
"""
_SAY_EVERY_S = 5.0


@app.command(epilog=_EXAMPLES)
def calibrate(
    soc: FittedSoc,
    more: MoreFiles = None,
    measurements: Measurements = None,
    output: FittedFile = None,
    report: ReportFile = None,
    name: NewName = None,
    free: Free = None,
    hold: Hold = None,
    fit_networks: FitNetworks = False,
    model: ModelFiles = None,
    force_soc: ForceSoc = False,
    folds: Folds = 5,
    seed: FoldSeed = 0,
    quiet: Quiet = False,
    form: Format = None,
) -> None:
    """Fit a SoC to measurements of its NPU, GPU or CPU, and say how far to trust it.

    Numbers that the measurement does not determine stay as they are and are named. The error is told on rows
    that the fit did not see.
    """
    from npusim.cli.output import Destination, write_whole

    files = [*(measurements or ()), *(more or ())]
    if not files:
        raise ConfigError(
            "no file of measurements", file="--measurements", allowed="files that `npusim measure` wrote"
        )
    destination = Destination(None, form)
    sheet, page_file = _place(output, (".yaml", ".yml")), _place(report, (".html",))
    _refuse_overwriting(sheet, soc, files)

    from npusim.calibrate.device.calibrating import calibrate as fit

    with _stages(quiet) as progress:
        found = fit(
            soc,
            files,
            free=free or (),
            hold=hold or (),
            folds=folds,
            seed=seed,
            force_soc=force_soc,
            fit_networks=fit_networks,
            files=_models(model or ()),
            name=name,
            progress=progress,
        )
    result = found.report.model_copy(update={"output": None if sheet is None else sheet.name})
    if sheet is not None:
        write_whole(sheet, found.text.encode())
    if page_file is not None:
        from npusim.report.calibration_html import calibration_html

        write_whole(page_file, calibration_html(result).encode())

    def page() -> RenderableType:
        from npusim.report.calibration import calibration_page

        return calibration_page(result, None if sheet is None else str(output))

    destination.write(page, result.to_json)


def _place(path: Path | None, endings: tuple[str, ...]) -> Path | None:
    """Return where a file goes, or refuse it before the work begins."""
    from npusim.cli.output import Destination

    if path is None:
        return None
    if path.suffix not in endings:
        option = "--report" if ".html" in endings else "--output"
        raise ConfigError(
            f"`{path.name}`", file=option, allowed=f"a file that ends in {' or '.join(endings)}"
        )
    return Destination(path, "json").path


def _refuse_overwriting(sheet: Path | None, soc: str, files: Sequence[Path]) -> None:
    """Refuse to write the fitted SoC over what it is made from."""
    from npusim.arch import soc_file

    if sheet is None or not sheet.exists():
        return
    for one in (soc_file(soc), *files):
        if one.exists() and one.samefile(sheet):
            raise FileError(str(sheet), "is what the fit starts from", "name another file for -o")


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


@contextmanager
def _stages(quiet: bool) -> Iterator[Progress | None]:
    """Lend what shows on standard error how far the work is."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield show


def _lines() -> Any:
    said = time.monotonic()

    def show(what: str, done: int, total: int) -> None:
        nonlocal said
        if time.monotonic() - said > _SAY_EVERY_S:
            said = time.monotonic()
            print(f"{done} of {total} {what}", file=sys.stderr, flush=True)

    return show
