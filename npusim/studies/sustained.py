"""What a package sustains under its limits of power and heat, when inferences follow each other.

A burst ends where the running mean of the power reaches the power limit (Intel's PL1, with PL2 and tau), or
die or skin reach their highest temperature. Heat flows from the die through the skin to the room; both have a
heat capacity. From then on the package pauses between inferences, as with `package.throttle`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npusim.arch import Soc
from npusim.cost import throttled_interval_s
from npusim.engines.estimate import Estimate, Sustained
from npusim.engines.limits import Limits, limits_of
from npusim.errors import ConfigError
from npusim.studies.perturbation import deviates, numbers_in, quantiles, sampled

_DRAWN = ("burst_per_s", "burst_w", "burst_s", "throughput_per_s", "power_w", "energy_j")
"""Figures with an interval."""


def with_sustained(estimate: Estimate, soc: Soc) -> Estimate:
    """Return an estimate with what the machine reaches in a burst without pause, and what it sustains.

    Parameters
    ----------
    estimate : Estimate
        Its throughput and energy, without a pause.

    Raises
    ------
    ConfigError
        Where the sheet has no `package`, or a limit is below the power of the idle package.

    Examples
    --------
    >>> import npusim
    >>> soc = npusim.load_soc("core-ultra-series2")
    >>> s = with_sustained(npusim.estimate("gcn-cora", soc), soc).sustained
    >>> s.throughput_per_s == s.burst_per_s, s.ends_by
    (True, '')
    """
    package = soc.package
    if package is None:
        raise ConfigError("no package", file=soc.name, allowed="a sheet with a power limit", key="package")
    load = _Load(1.0 / estimate.throughput_per_s, estimate.energy_j, estimate.energy.idle_j)
    limits, highest_w = limits_of(package), float(package.burst_limit)
    least_w, held_by = min((float(limits.most_w.min()), ""), (highest_w, "package.burst_limit"))
    if least_w <= load.idle_w:
        limit = held_by or limits.names[int(limits.most_w.argmin())]
        allowed = f"above {load.idle_w:.3g} W, which the idle package draws"
        raise ConfigError(f"{least_w:.3g} W at the limit of {limit}", key="package", allowed=allowed)
    figures = load.sustained(limits, highest_w)
    course = limits.course(load.idle_w, figures.burst_w)
    return estimate.model_copy(update={"sustained": figures.model_copy(update={"course": course})})


class _Load(NamedTuple):
    """Inferences that follow each other without a pause."""

    interval_s: float
    energy_j: float
    idle_j: float

    @property
    def idle_w(self) -> float:
        """Power of the idle package."""
        return self.idle_j / self.interval_s

    def rate(self, power_w: float) -> float:
        """Return the inferences per second at a mean power; 0 where the idle package exceeds it."""
        work_j = self.energy_j - self.idle_j
        return 1.0 / float(throttled_interval_s(self.interval_s, work_j, self.idle_w, power_w))

    def sustained(self, limits: Limits, highest_w: float) -> Sustained:
        """Return the burst, of at most `highest_w`, and what follows, without its course."""
        steady_w, power_w = float(limits.most_w.min()), self.energy_j / self.interval_s
        burst_w = min(power_w, highest_w)
        ends_s = {name: limits.reached_s(i, self.idle_w, burst_w) for i, name in enumerate(limits.names)}
        ends_by, final_w = min(ends_s, key=lambda name: ends_s[name]), min(burst_w, steady_w)
        is_held, per_s = np.isfinite(ends_s[ends_by]), self.rate(final_w)
        return Sustained(
            burst_per_s=self.rate(burst_w),
            burst_w=burst_w,
            burst_s=ends_s[ends_by] if is_held else None,
            ends_by=ends_by if is_held else "",
            held_by=limits.names[int(limits.most_w.argmin())] if is_held else "",
            throughput_per_s=per_s,
            power_w=final_w,
            energy_j=final_w / per_s if per_s > 0.0 else float("inf"),
        )


def sustained_intervals(figures: Sustained, soc: Soc, totals: Any) -> Sustained:
    """Return what a package sustains with its 90 % intervals.

    Parameters
    ----------
    totals : array of TOTAL_DTYPE, shape (samples,)
        An inference on drawn machines; the numbers of the package are drawn here, as they state.
    """
    numbers = [number for number, stated in numbers_in(("package",), soc.package) if stated]
    normals, drawn = deviates([number.name for number in numbers], len(totals), seed=0), []
    for total, normal in zip(totals, normals, strict=True):
        package = sampled(soc, numbers, normal).package
        load = _Load(1.0 / float(total["throughput_per_s"]), float(total["energy_j"]), float(total["idle_j"]))
        if package is not None:
            drawn.append(load.sustained(limits_of(package), float(package.burst_limit)))
    values = {name: np.array([getattr(draw, name) for draw in drawn], float) for name in _DRAWN}
    intervals = {name: quantiles(column) for name, column in values.items() if np.isfinite(column).all()}
    return figures.model_copy(update={"intervals": intervals})


def energy_in_period(estimate: Estimate, period_s: float) -> float:
    """Return the energy of a package that runs an inference once a period and idles else (J).

    A fast clock races to idle; a slow one has less energy in the work. Infinite where the inference takes
    longer than the period.
    """
    if estimate.latency_s > period_s:
        return float("inf")
    idle_w = estimate.energy.idle_j * estimate.throughput_per_s
    return estimate.energy_j - estimate.energy.idle_j + idle_w * period_s
