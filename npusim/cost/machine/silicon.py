"""How memories and supplies change away from the data sheet; `configs/technology` holds the laws.

A sheet's energies and areas hold at its own sizes, clock and voltage. Elsewhere they move by ratios of laws,
which are exactly 1 at the sheet's own point.
"""

from __future__ import annotations

import math

import numpy as np

from npusim.arch.silicon import MOST_TERMS, Term
from npusim.compiling.kernels import compiled
from npusim.compiling.records import Floats

LAW_SIZE = 4 * MOST_TERMS
"""Numbers of a law in a record."""
_HALVINGS = 60


def law_column(terms: list[Term], scale: float = 1.0) -> Floats:
    """Return the terms of a law as a column of a record, shape (LAW_SIZE,)."""
    column = np.zeros(LAW_SIZE)
    for t, (factor, *exponents) in enumerate(terms):
        column[4 * t : 4 * t + 4] = (factor * scale, *exponents)
    return column


@compiled
def sram_law(law: Floats, capacity_bytes: float, word_bytes: float, banks: float) -> float:
    """Return a quantity of an SRAM array by its law, shape (LAW_SIZE,)."""
    total, capacity, word, bank = 0.0, math.log(capacity_bytes), math.log(word_bytes), math.log(banks)
    for t in range(0, LAW_SIZE, 4):
        if law[t] <= 0.0:
            break
        total += law[t] * math.exp(law[t + 1] * capacity + law[t + 2] * word + law[t + 3] * bank)
    return float(total)


@compiled
def clock_at(voltage: float, threshold: float, alpha: float) -> float:
    """Return the clock of a voltage up to a constant: the alpha-power law (Sakurai and Newton, 1990)."""
    return float(max(0.0, voltage - threshold) ** alpha / voltage)


@compiled
def supply_voltage(voltage: float, clock_ratio: float, threshold: float, alpha: float, least: float) -> float:
    """Return the voltage for another clock; `voltage` supports the rated clock, and `least` is the lowest."""
    if clock_ratio == 1.0 or voltage <= threshold:
        return float(voltage)
    clock = clock_ratio * clock_at(voltage, threshold, alpha)
    low, high = threshold, voltage
    while clock_at(high, threshold, alpha) < clock and high < 1e3:  # where alpha <= 1, none may reach it
        high *= 2.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if clock_at(middle, threshold, alpha) < clock:
            low = middle
        else:
            high = middle
    return float(max(high, min(least, voltage)))
