"""What a package sustains under its limits of power and heat, when inferences follow each other.

A burst ends where the running mean of the power reaches the power limit (Intel's PL1, with PL2 and tau), or
die or skin reach their highest temperature. Heat flows from the die through the skin to the room; both have a
heat capacity. From then on the package pauses between inferences, as with `package.throttle`.
"""

from __future__ import annotations

import numpy as np

from npusim.arch import Soc
from npusim.cost import throttled_interval_s
from npusim.engines.estimate import Estimate, Sustained
from npusim.engines.limits import limits_of
from npusim.errors import ConfigError


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
    limits = limits_of(package)
    idle_w = estimate.energy.idle_j * estimate.throughput_per_s
    steady_w, most_w = float(limits.most_w.min()), float(package.burst_limit)
    held_by = limits.names[int(limits.most_w.argmin())]
    if min(steady_w, most_w) <= idle_w:
        limit = held_by if steady_w <= most_w else "package.burst_limit"
        allowed = f"above {idle_w:.3g} W, which the idle package draws"
        raise ConfigError(
            f"{min(steady_w, most_w):.3g} W at the limit of {limit}", key="package", allowed=allowed
        )
    burst_w = min(estimate.power_w, most_w)
    ends_s = {name: limits.reached_s(i, idle_w, burst_w) for i, name in enumerate(limits.names)}
    ends_by = min(ends_s, key=lambda name: ends_s[name])
    work_j = estimate.energy_j - estimate.energy.idle_j

    def rate(power_w: float) -> float:
        return 1.0 / float(throttled_interval_s(1.0 / estimate.throughput_per_s, work_j, idle_w, power_w))

    is_held, final_w = np.isfinite(ends_s[ends_by]), min(burst_w, steady_w)
    figures = Sustained(
        burst_per_s=rate(burst_w),
        burst_w=burst_w,
        burst_s=ends_s[ends_by] if is_held else None,
        ends_by=ends_by if is_held else "",
        held_by=held_by if is_held else "",
        throughput_per_s=rate(final_w),
        power_w=final_w,
        energy_j=final_w / rate(final_w),
        course=limits.course(idle_w, burst_w),
    )
    return estimate.model_copy(update={"sustained": figures})


def energy_in_period(estimate: Estimate, period_s: float) -> float:
    """Return the energy of a package that runs an inference once a period and idles else (J).

    A fast clock races to idle; a slow one has less energy in the work. Infinite where the inference takes
    longer than the period.
    """
    if estimate.latency_s > period_s:
        return float("inf")
    idle_w = estimate.energy.idle_j * estimate.throughput_per_s
    return estimate.energy_j - estimate.energy.idle_j + idle_w * period_s
