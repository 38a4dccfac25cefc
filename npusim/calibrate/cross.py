"""Cross-validation: every row predicted by a fit without it and without its near-duplicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from npusim.calibrate.least_squares import Floats
from npusim.calibrate.unit_fit import TrainingRows, fit_named, shipped_rows, table_of
from npusim.validation.evidence import Evidence
from npusim.validation.figures import Figures
from npusim.validation.running import Judged, figures_path, judge, machines_of

FOLDS = 5
HELD_OUT = "(held out)"
"""What a cross-validated suite's name ends in."""
_SEED = 0


def cross_validate(
    judged: Judged, figures: str | Path | None = None, tick: Callable[[], None] = lambda: None
) -> Judged:
    """Predict each row of a suite with numbers fitted to the other folds.

    Parameters
    ----------
    judged : Judged
        The suite as it was run; its groups decide how folds are made, so that each fold has some of each.
    figures : str or Path, optional
        The file it was run on, where that is not the shipped one.

    Returns
    -------
    Judged
        The suite with held-out predictions, named ``SUITE (held out)``. Rows of other suites that the fit
        uses are all kept.
    """
    suite = judged.suite
    assert suite.fit is not None, "a suite without a fit has nothing to hold out"
    table, fit = table_of(suite), fit_named(suite.fit)
    path = figures_path(suite, figures)
    assert path is not None, "a table has a file"
    all_rows = table.read(suite, path)
    fold = folds_of(all_rows["npu"], judged.row_groups, table.duplicates(all_rows), table.measured(all_rows))
    predicted = np.full(len(all_rows), np.nan)
    for name, machine in machines_of(suite).items():
        mine = all_rows["npu"] == name
        for number in range(FOLDS):
            test = mine & (fold == number)
            if test.any():
                rows = _without(judged.name, all_rows.where(mine & ~test), name)
                fitted = fit(machine, rows).machine
                predicted[test] = table.predict(all_rows.where(test), fitted)
            tick()
    evidence: Evidence = replace(judged.evidence, predicted=predicted, notes=())
    return judge(f"{judged.name} {HELD_OUT}", suite, evidence)


def folds_of(
    machines: NDArray[np.object_], groups: list[str], duplicates: Sequence[str], measured: Floats
) -> NDArray[np.int64]:
    """Assign rows to folds: near-duplicates together, evenly by machine, group and size.

    Parameters
    ----------
    measured : array, shape (rows,)
        Measured values: of five that follow each other in size, each goes to another fold.

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
    """Return training rows: the kept ones of one suite, all shipped ones of the others."""
    shipped = shipped_rows(machine)
    return lambda name: kept if name == suite else shipped(name)
