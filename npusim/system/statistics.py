"""Means and percentiles of simulated times, with confidence intervals by batch means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BATCHES = 20
"""Batches of successive answers, which are taken as independent (Law, Simulation Modeling, 9.5.3)."""
WARM_UP = 0.05
"""Share of the first answers that is left out, as the system begins empty."""
_T = 2.0930
"""97.5 % quantile of Student's t with `BATCHES` - 1 degrees of freedom."""
SAME = 0.01
"""Relative change of a mean that counts as none."""
PERCENTILES = {"p50_s": 0.5, "p90_s": 0.9, "p99_s": 0.99, "p999_s": 0.999}

Interval = tuple[float, float]


def steady(times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the times without those of the warm-up."""
    return times_s[int(WARM_UP * len(times_s)) :]


def mean_of(values: NDArray[np.float64]) -> float:
    """Return the mean; of equal values exactly that value."""
    least = float(values.min())
    return least + float((values - least).mean())


def figures(times_s: NDArray[np.float64]) -> dict[str, tuple[float, Interval | None]]:
    """Return mean and percentiles with their 95 % intervals; None where there are too few values.

    Parameters
    ----------
    times_s : array of shape (answers,)
        In the order of the answers, without warm-up; at least one.
    """
    batches = np.array_split(times_s, BATCHES) if len(times_s) >= 2 * BATCHES else []
    values = {"mean_s": (mean_of(times_s), [mean_of(batch) for batch in batches])}
    for name, share in PERCENTILES.items():
        # A percentile of a batch needs values above it.
        enough = len(times_s) * (1.0 - share) >= BATCHES
        of_batches = [float(np.quantile(batch, share)) for batch in batches] if enough else []
        values[name] = (float(np.quantile(times_s, share)), of_batches)
    return {name: (value, _interval(value, by_batch)) for name, (value, by_batch) in values.items()}


def _interval(value: float, by_batch: list[float]) -> Interval | None:
    if not by_batch:
        return None
    half = _T * float(np.std(by_batch, ddof=1)) / BATCHES**0.5
    return max(0.0, value - half), value + half


def decides(change: Interval | None) -> bool:
    """Return whether an interval of a relative change leaves out 0, or is within `SAME` of it."""
    return change is not None and (min(change) > 0.0 or max(change) < 0.0 or max(map(abs, change)) <= SAME)


def paired_change(replications: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> Interval | None:
    """Return the 95 % interval of the relative change of the mean, from answers to the same requests.

    Differences of successive requests are taken in batches; None where there are too few answers.

    Parameters
    ----------
    replications : sequence of (before_s, after_s)
        Response times in the order of the answers, from runs with one seed each; the shorter one counts.
    """
    pairs = [(steady(b[: len(a)]), steady(a[: len(b)])) for b, a in replications]
    differences = np.concatenate([after_s - before_s for before_s, after_s in pairs])
    if len(differences) < 2 * BATCHES:
        return None
    means = np.array([batch.mean() for batch in np.array_split(differences, BATCHES)])
    half = _T * float(np.std(means, ddof=1)) / BATCHES**0.5
    middle, scale = float(differences.mean()), mean_of(np.concatenate([before_s for before_s, _ in pairs]))
    return (middle - half) / scale, (middle + half) / scale
