"""Rates of updates: inferences a second that each way to keep up sustains, and the best way.

An update takes `update_s` and an inference `latency_s`, one after the other, so that at u updates a second
(1 - u update_s) / latency_s inferences a second are left. The ways are straight lines over u, and the best of
them is the upper envelope of these lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from npusim.studies.stream.document import BestAtRate, Strategy

_ROUNDING = 1e-9
"""Relative distance of rates that are the same."""


def sustained_per_s(strategy: Strategy, updates_per_s: float) -> float:
    """Return the inferences a second that updates leave time for; 0 where it cannot keep up."""
    return max(0.0, 1.0 - updates_per_s * strategy.update_s) / strategy.latency_s


def best_by_rate(strategies: Sequence[Strategy]) -> list[BestAtRate]:
    """Return the strategies that sustain most inferences, by rate of updates from 0 upwards.

    Parameters
    ----------
    strategies : sequence of Strategy
        Those that lose edges are left out, and those that were never run.
    """
    exact = [s for s in strategies if s.lost_edges == 0.0 and s.latency_s > 0.0]
    best_rates: list[BestAtRate] = []
    rate, ended = 0.0, False
    while exact and not ended:
        # The highest line here; of equal ones that which falls least.
        best = max(exact, key=lambda s: (sustained_per_s(s, rate), -_fall(s)))
        last = best.most_updates_per_s if best.most_updates_per_s is not None else inf
        crossing = min((_crossing(best, other, rate) for other in exact), default=inf)
        ended = crossing >= last * (1.0 - _ROUNDING)
        end = last if ended else crossing
        if end > rate * (1.0 + _ROUNDING):
            here = sustained_per_s(best, rate)
            best_rates.append(
                BestAtRate(
                    strategy=best.name,
                    from_updates_per_s=rate,
                    to_updates_per_s=None if end == inf else end,
                    from_inferences_per_s=here,
                    to_inferences_per_s=here if end == inf else 0.0 if ended else sustained_per_s(best, end),
                )
            )
        exact = [s for s in exact if _fall(s) < _fall(best)]
        rate = end
    return best_rates


def _fall(strategy: Strategy) -> float:
    """Return the inferences that are lost per update: its time over that of an inference."""
    return strategy.update_s / strategy.latency_s


def _crossing(best: Strategy, other: Strategy, rate: float) -> float:
    """Return the update rate above which another strategy sustains more; infinite if there is none."""
    fall = _fall(best) - _fall(other)
    if fall <= 0.0:
        return inf
    return max(rate, (1.0 / best.latency_s - 1.0 / other.latency_s) / fall)
