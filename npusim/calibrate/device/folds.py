"""Folds of a cross-validation: each row is predicted by a fit that never saw it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from npusim.calibrate.device.fit import DeviceFit, FitResult
from npusim.calibrate.device.rows import DeviceRow
from npusim.calibrate.device.times import Floats

__all__ = ["deal", "held_out"]


def deal(rows: Sequence[DeviceRow], folds: int, seed: int) -> list[int]:
    """Return the fold of each row.

    Rows of the same network go into one fold, however they were run; networks of a family are spread over all
    folds.

    Parameters
    ----------
    rows : sequence of DeviceRow
    folds : int
        At least 2; no more than there are networks are used.
    seed : int
        Seed of the shuffle.
    """
    random = np.random.default_rng(seed)
    families: dict[str, dict[str, None]] = {}
    for row in rows:
        families.setdefault(row.family, {})[row.instance] = None
    dealt: dict[str, int] = {}
    for family in sorted(families):
        instances = sorted(families[family])
        for i in random.permutation(len(instances)):
            dealt[instances[i]] = len(dealt) % folds
    return [dealt[row.instance] for row in rows]


def held_out(
    fit: DeviceFit,
    best: FitResult,
    folds: Sequence[int],
    progress: Callable[[int, int], None] | None = None,
) -> Floats:
    """Return the logarithm of each row's time as predicted by the fit to the other folds, shape (rows,)."""
    dealt = np.array(folds)
    found = best.predicted.copy()
    numbers = sorted(set(folds))
    if len(numbers) < 2:
        return found
    for done, number in enumerate(numbers, start=1):
        out = dealt == number
        logs = fit.refit(best, ~out)
        found[out] = fit.predicted(logs, np.flatnonzero(out).tolist())
        if progress is not None:
            progress(done, len(numbers))
    return found
