"""The call that compares predictions with measured and published figures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from npusim.api.asking import Progress, refuse_ignored
from npusim.errors import ConfigError, as_list, shown
from npusim.locate import DATA_VARIABLE

if TYPE_CHECKING:
    from npusim.validation import Judged
    from npusim.validation.document import Unmeasured, Validation


def validate(
    suites: str | Sequence[str] = (),
    *,
    figures: str | Path | None = None,
    cross_validate: bool = False,
    leave_class_out: bool = False,
    parameters: bool = False,
    data: str | Path | None = None,
    progress: Progress | None = None,
) -> Validation | Unmeasured:
    """Compare predictions with measured and published figures; exit status 1 where a limit is missed.

    An error is |predicted - measured| / measured. Limits stand in validate/SUITE.yaml. The last column is the
    error of Intel's own neural cost model on the same kind of rows.

    Parameters
    ----------
    suites : sequence of str, or str with commas
        Names from `npusim list suites`; none: all.
    figures : str or Path, optional
        Run the one named suite on another file of the same form.
    cross_validate : bool
        Also predict each row with parameters fitted to four fifths of the others.
    leave_class_out : bool
        Instead predict published networks by fits without their class (small CNNs, transformers), their
        machine or their NPU generation.
    parameters : bool
        Instead list the numbers of the equations that rest on no measured row.
    data : str or Path, optional
        Folder with the raw data sets, as cora/raw/ind.cora.x and so on. None: the environment variable
        NPUSIM_DATA
    progress : callable, optional
        Called with the fits done and their number.

    Returns
    -------
    Validation or Unmeasured
        Errors by suite and group, `ok` where all limits are kept; or the numbers without a measured row.

    Examples
    --------
    >>> import npusim
    >>> npusim.validate("magnas").ok
    True

    Command lines
    -------------
        npusim validate
        npusim validate silicon-dpu silicon-dma --html validation.html
        npusim validate dsp --figures my_kernels.csv --format json
        npusim validate accuracy --data planetoid
        npusim validate silicon-dma --cross-validate
        npusim validate --leave-class-out
        npusim validate --parameters
    """
    from npusim.validation.document import unmeasured

    if parameters:
        chosen = {"suites": as_list(suites), "figures": figures}
        refuse_ignored(chosen, "no such argument with `parameters`, which lists the numbers of all suites")
        return unmeasured()
    return validation_of(*judged(suites, figures, cross_validate, leave_class_out, data, progress))


def validation_of(suites: Sequence[Judged], held_out: Mapping[str, Judged]) -> Validation:
    """Return judged suites as a document."""
    from npusim.validation.document import Validation

    return Validation(suites=[entry.result() for entry in (*suites, *held_out.values())])


def judged(
    suites: str | Sequence[str],
    figures: str | Path | None,
    cross_validate: bool,
    leave_class_out: bool,
    data: str | Path | None,
    progress: Progress | None = None,
) -> tuple[list[Judged], dict[str, Judged]]:
    """Return the suites as they were judged, and those that a fit stands behind cross-validated."""
    from npusim.validation.running import run_suites

    if leave_class_out:
        others = {"suites": as_list(suites), "figures": figures, "cross_validate": cross_validate}
        refuse_ignored(others, "no such argument with `leave_class_out`, which has rows of its own")
        from npusim.calibration.published_fits import left_out

        return [left_out(progress)], {}
    if data is not None:  # the suite `accuracy` alone looks for it
        if not Path(data).expanduser().is_dir():
            raise ConfigError(shown(str(data)), file="--data", allowed="a folder")
        os.environ[DATA_VARIABLE] = str(data)
    results = run_suites(as_list(suites), figures)
    if not cross_validate:
        return results, {}
    from npusim.calibration.fits import FOLDS
    from npusim.calibration.fits import cross_validate as predict_folds

    fitted = [entry for entry in results if entry.suite.fit is not None]
    total, done = FOLDS * sum(len(entry.suite.machines) for entry in fitted), count()

    def tick() -> None:
        if progress is not None:
            progress(next(done), total)

    return results, {entry.name: predict_folds(entry, figures, tick) for entry in fitted}
