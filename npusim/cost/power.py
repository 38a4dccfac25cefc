"""How power follows clock and voltage, and what a limit of the package does.

    leakage ~ voltage                  dynamic ~ clock * voltage^2

A current that leaks does not depend on the clock; charging and discharging a capacitance takes its charge
times the voltage, once a cycle. Powers are rated at one clock and voltage (`npusim.arch.power`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from npusim.cost.jit import compiled


class DramRates(NamedTuple):
    """What devices need to know of main memory."""

    latency_s: float
    j_per_byte: float
    """Energy of a byte, at the voltage."""
    clock_ratio: float
    """Clock over the rated one."""
    voltage_ratio: float
    """Voltage over the rated one."""


@compiled
def leakage_scale(voltage_ratio: float) -> float:
    """Leakage power at a voltage over that at the rated voltage."""
    return float(voltage_ratio)


@compiled
def dynamic_scale(clock_ratio: float, voltage_ratio: float) -> float:
    """Dynamic power at a clock and voltage over that at the rated point."""
    return float(clock_ratio * voltage_ratio * voltage_ratio)


@compiled
def throttled_interval_s(interval_s: float, work_j: float, idle_w: float, limit_w: float) -> float:
    """Return the time between two inferences at which the package's mean power is within its limit (s).

    The limit is one of seconds, many inferences long: the package works at its clocks and pauses in between.

    Parameters
    ----------
    work_j : float
        Energy of an inference beyond idle power.
    limit_w : float
        The limit; 0 for none. Infinite time where idle power alone exceeds it.
    """
    if limit_w <= 0.0:
        return interval_s
    room_w = limit_w - idle_w
    return max(interval_s, work_j / room_w) if room_w > 0.0 else np.inf
