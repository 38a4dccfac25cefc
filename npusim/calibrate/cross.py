"""Cross-validation: every row predicted by a fit without it and without its near-duplicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from npusim.calibrate.fits import TrainingRows, fit_named, shipped_rows, table_of
from npusim.calibrate.least_squares import Floats
from npusim.validation.figures import Figures
from npusim.validation.running import Judged, judge, machines_of
from npusim.validation.suite import figures_path

FOLDS = 5
HELD_OUT = "(held out)"
"""End of a cross-validated suite's name."""
_SEED = 0


def cross_validate(
    judged: Judged, figures: str | Path | None = None, tick: Callable[[], None] = lambda: None
) -> Judged:
    """Predict each row of a suite with numbers fitted to the other folds.

    Parameters
    ----------
    judged : Judged
        The suite with its errors; rows of each of its groups are spread over all folds.
    figures : str or Path, optional
        The file that the suite was run on; default: the shipped one.

    Returns
    -------
    Judged
        The suite with held-out predictions, named ``SUITE (held out)``. The fit keeps all rows of other
        suites.
    """
    suite = judged.suite
    assert suite.fit is not None, "a suite without a fit has nothing to hold out"
    table, fit = table_of(suite), fit_named(suite.fit).fit
    path = figures_path(suite, figures)
    assert path is not None, "a table has a file"
    rows = table.read(suite, path)
    fold = folds_of(rows["npu"], judged.row_groups, rows.keys(suite.near_duplicates), rows[suite.measured])
    predicted = np.full(len(rows), np.nan)
    for name, machine in machines_of(suite).items():
        own = rows["npu"] == name
        for number in range(FOLDS):
            test = own & (fold == number)
            if test.any():
                training = _without(judged.name, rows.where(own & ~test), name)
                predicted[test] = table.predict(rows.where(test), fit(machine, training).machine)
            tick()
    evidence = replace(judged.evidence, predicted=predicted, notes=())
    return judge(f"{judged.name} {HELD_OUT}", suite, evidence)


def folds_of(
    machines: NDArray[np.object_], groups: list[str], duplicates: Sequence[str], measured: Floats
) -> NDArray[np.int64]:
    """Assign rows to folds: near-duplicates together, evenly by machine, group and size.

    Parameters
    ----------
    measured : array, shape (rows,)
        Measured values; each of five that follow each other in size goes to another fold.

    Returns
    -------
    array of int, shape (rows,)
        Fold of each row, 0 to 4; always the same for the same rows.
    """
    random = np.random.default_rng(_SEED)
    members: dict[tuple[str, str], dict[str, float]] = {}
    for machine, group, duplicate, value in zip(machines, groups, duplicates, measured, strict=True):
        members.setdefault((machine, group), {}).setdefault(duplicate, value)
    fold_of: dict[str, int] = {}
    for key in sorted(members):
        fresh = sorted(
            (value, duplicate) for duplicate, value in members[key].items() if duplicate not in fold_of
        )
        for position, (_, duplicate) in enumerate(fresh):
            if position % FOLDS == 0:
                order = random.permutation(FOLDS)
            fold_of[duplicate] = int(order[position % FOLDS])
    return np.array([fold_of[duplicate] for duplicate in duplicates])


def _without(suite: str, kept: Figures, machine: str) -> TrainingRows:
    """Return training rows: the kept rows of one suite, all shipped rows of the others."""
    shipped = shipped_rows(machine)
    return lambda name: kept if name == suite else shipped(name)
