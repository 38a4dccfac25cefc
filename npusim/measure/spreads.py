"""Median and spread of repeated readings, and the standard error of the median."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from npusim.measure.document import Spread

__all__ = ["SHORTEST_S", "error_of", "spread_of"]

SHORTEST_S = 1e-9
"""Resolution of the clock: nothing takes 0 s."""
_TURNS_FOR_AN_ERROR = 3
_MEDIAN_OVER_MEAN = math.sqrt(math.pi / 2.0)
"""Standard error of a median over that of a mean, for many normal readings."""
_WIDTH = 2.0 * NormalDist().inv_cdf(0.9)
"""From 10 % to 90 % of a normal variable, in standard deviations."""


def spread_of(turns_s: Sequence[Sequence[float]]) -> Spread | None:
    """Return the median and the 10 % and 90 % quantiles of readings; None where there are none.

    Parameters
    ----------
    turns_s : sequence of sequences of float
        Readings (s), turn by turn. Neighbouring readings are alike, so that the error of the median is told
        by how much the medians of the turns differ, from the third turn on.

    Returns
    -------
    Spread or None

    Examples
    --------
    >>> spread_of([[0.2, 0.1, 0.3]]).median_s
    0.2
    """
    readings_s = [reading for turn in turns_s for reading in turn]
    if not readings_s:
        return None
    low, median, high = (max(float(q), SHORTEST_S) for q in np.quantile(readings_s, (0.1, 0.5, 0.9)))
    error = None
    if len(turns_s) >= _TURNS_FOR_AN_ERROR:
        middles = np.log([max(float(np.median(turn)), SHORTEST_S) for turn in turns_s if len(turn)])
        error = float(_MEDIAN_OVER_MEAN * np.std(middles, ddof=1) / math.sqrt(len(middles)))
    return Spread(median_s=median, low_s=low, high_s=high, repetitions=len(readings_s), error=error)


def error_of(spread: Spread) -> float:
    """Return the relative standard error of a median: as its turns tell, else from spread and repetitions."""
    if spread.error is not None:
        return spread.error
    deviation = math.log(spread.high_s / spread.low_s) / _WIDTH
    beyond = _MEDIAN_OVER_MEAN if spread.repetitions > 2 else 1.0  # the median of one or two is their mean
    return deviation * beyond / math.sqrt(spread.repetitions)
