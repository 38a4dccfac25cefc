"""Time budget of a row: how it is divided among warm-up, readings, energy and profiling."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Pace"]

_HEADLINE, _WARM_UP, _COUNTERS = 0.6, 0.15, 0.25
"""Shares of a row's time: readings, warm-up, counters. Readings matter most."""


@dataclass(frozen=True)
class Pace:
    """How a row's time is spent.

    Attributes
    ----------
    budget_s : float
        Time for one row, without compilation (s); slow networks take longer for the sake of the minima.
    rounds : int
        Turns that each network gets, alternating with the others.
    least : int
        Readings that even a slow network gives.
    most : int
        Readings of a turn after which more tell nothing.
    energy_s : float
        Length of the run over which energy is counted (s).
    others_cores : float
        Cores that other programs may take during a turn; where they take more it is repeated.
    """

    budget_s: float = 2.0
    rounds: int = 8
    least: int = 5
    most: int = 500
    energy_s: float = 1.0
    others_cores: float = 0.25

    @property
    def warm_up_s(self) -> float:
        """How long to run before the first reading (s)."""
        return _WARM_UP * self.budget_s

    @property
    def turn_s(self) -> float:
        """Length of one turn (s)."""
        return _HEADLINE * self.budget_s / self.rounds

    def turns(self, inference_s: float) -> int:
        """Return how many turns a network gets: all, or as many as slow ones need for the least readings."""
        if inference_s <= self.turn_s:
            return self.rounds
        return max(self.least, min(self.rounds, math.ceil(_HEADLINE * self.budget_s / inference_s)))

    def profiled_runs(self, inference_s: float) -> int:
        """Return how often to run with profiling."""
        return max(self.least, min(self.most, int(_COUNTERS * self.budget_s / inference_s)))
