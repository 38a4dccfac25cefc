"""Check of lab 5: shares of energy, and the clocks of least energy with and without idle power."""

from collections.abc import Iterator
from functools import cache
from math import isclose
from typing import Annotated

from pydantic import Field

from npusim.course.machine import estimate, machine
from npusim.engines import Estimate

CLOCKS = [step / 10 for step in range(4, 27)]
Clock = Annotated[float, Field(ge=0.4, le=2.6)]
NEAR = 1.01


@cache
def _cost(clock_ghz: float) -> Estimate:
    return estimate("resnet-50", machine("core-ultra-series2", f"npu.dpu.clock={clock_ghz:g}GHz"))


def check_shares(waiting_percent: float) -> Iterator[tuple[bool, str, str]]:
    sheet = _cost(1.95)
    waiting = 100 * (sheet.energy.static_j + sheet.energy.idle_j) / sheet.energy_j
    hint = "add `static_j` and `idle_j`, and divide by `energy_j`"
    if isclose(waiting_percent, 100 - waiting, rel_tol=0.03):
        hint = "that is the share of switching"
    yield isclose(waiting_percent, waiting, rel_tol=0.03), f"{waiting_percent:.0f} % is not switching", hint


def check_clock(best_clock_ghz: Clock) -> Iterator[tuple[bool, str, str]]:
    costs = [_cost(clock) for clock in CLOCKS]
    least = min(cost.energy_j for cost in costs)
    energy = _cost(best_clock_ghz).energy_j
    hint = "slower: switching falls with V^2"
    if best_clock_ghz < CLOCKS[min(range(len(costs)), key=lambda at: costs[at].energy_j)]:
        hint = "faster: static and idle power last longer than you save"
    claim = f"{best_clock_ghz:g} GHz takes {1e3 * energy:.2f} mJ, the least within 1 %"
    yield energy <= NEAR * least, claim, hint


def check_clock_without_idle(best_clock_without_idle_ghz: Clock) -> Iterator[tuple[bool, str, str]]:
    least = min(cost.energy_j - cost.energy.idle_j for cost in map(_cost, CLOCKS))
    cost = _cost(best_clock_without_idle_ghz)
    rest = cost.energy_j - cost.energy.idle_j
    claim = (
        f"{best_clock_without_idle_ghz:g} GHz takes {1e3 * rest:.2f} mJ without idle, the least within 1 %"
    )
    hint = "without idle power a long inference costs less: is the clock the same as before?"
    yield rest <= NEAR * least, claim, hint
