"""``npusim validate``: predictions beside measured and published figures, with error limits."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npusim.cli.options import Data, Format, Output, argument, option

if TYPE_CHECKING:
    from npusim.cli.output import Destination
    from npusim.validation import Judged

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim validate
  npusim validate silicon-dpu silicon-dma --html validation.html
  npusim validate dsp --figures my_kernels.csv --format json
  npusim validate accuracy --data planetoid
  npusim validate silicon-dma --cross-validate
  npusim validate --parameters
"""


def _complete_suite() -> list[str]:
    from npusim.validation.suite import suite_names

    return suite_names()


@app.command(epilog=_EXAMPLES)
def validate(
    suites: Annotated[
        list[str] | None,
        argument(
            "[SUITE]...",
            "Names from `npusim list suites`; none: all.",
            autocompletion=_complete_suite,
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        option("--figures FILE", "Run the one named suite on another file of the same form."),
    ] = None,
    html: Annotated[
        Path | None, option("--html FILE", "Also write scatter plots and residuals as one HTML file.")
    ] = None,
    cross_validate: Annotated[
        bool,
        option(
            "--cross-validate",
            "Also predict each row with parameters fitted to four fifths of the others.",
        ),
    ] = False,
    parameters: Annotated[
        bool,
        option("--parameters", "Instead list the numbers of the equations that rest on no measured row."),
    ] = False,
    data: Data = None,
    form: Format = None,
    output: Output = None,
) -> None:
    """Compare predictions with measured and published figures; exit status 1 where a limit is missed.

    An error is |predicted - measured| / measured. Limits stand in validate/SUITE.yaml. The last column is the
    error of Intel's own neural cost model on the same kind of rows.
    """
    from npusim.cli.output import Destination, file_target, write_html

    destination = Destination(output, form)
    if parameters:
        _write_parameters(destination)
        return
    html_file = file_target(html, "--html", (".html", ".htm"))

    from npusim.locate import DATA_VARIABLE
    from npusim.validation.document import Validation
    from npusim.validation.running import run_suites

    if data is not None:  # the suite `accuracy` alone looks for it
        os.environ[DATA_VARIABLE] = str(data)

    judged = run_suites(suites or (), figures)
    held_out = _held_out(judged, figures) if cross_validate else {}
    document = Validation(suites=[entry.result() for entry in (*judged, *held_out.values())])

    from npusim.report.validation import validation_page

    destination.write(lambda: validation_page(judged, held_out), document)
    write_html(html_file, lambda command: validation_page(judged, held_out).html(command))
    if not document.ok:
        raise typer.Exit(1)


def _write_parameters(destination: Destination) -> None:
    from npusim.validation.document import unmeasured

    found = unmeasured()

    from npusim.report.validation import unmeasured_page

    destination.write(lambda: unmeasured_page(found), found)


def _held_out(judged: list[Judged], figures: Path | None) -> dict[str, Judged]:
    """Cross-validate the suites that a fit stands behind."""
    from npusim.calibrate.fits import FOLDS, cross_validate
    from npusim.cli.progress import Progress

    fitted = [entry for entry in judged if entry.suite.fit is not None]
    total = FOLDS * sum(len(entry.suite.machines) for entry in fitted)
    done = count()
    with Progress("fits", lines=False) as progress:

        def tick() -> None:
            progress(next(done), total)

        return {entry.name: cross_validate(entry, figures, tick) for entry in fitted}
