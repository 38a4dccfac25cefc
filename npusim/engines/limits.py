"""Limits of a package: a running mean of its power, and the heat of die and skin."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, repeat
from typing import Any

import numpy as np

from npusim.arch.silicon import Package
from npusim.engines.estimate import RUNNING_MEAN, Moment

_STEPS, _MOMENTS = 4800, 160
"""Steps of the course, over five times its longest time constant, and moments, closer at the start."""
_LEAST_RESPONSE = 1e-9
"""Share of the highest response to a step's power below which a later moment no longer feels it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Quantities that follow the power of the package with delay, and their limits: x' = A x + b power."""

    names: list[str]
    matrix: Any
    """A, shape (quantities, quantities), 1/s."""
    inflow: Any
    """b, shape (quantities,)."""
    most: Any
    """Highest values, shape (quantities,): W for the running mean, K above the room for temperatures."""

    @property
    def per_watt(self) -> Any:
        """Steady values per watt, shape (quantities,)."""
        return -np.linalg.solve(self.matrix, self.inflow)

    @property
    def most_w(self) -> Any:
        """Power at which each quantity stays at its limit (W), shape (quantities,)."""
        return self.most / self.per_watt

    def reached_s(self, i: int, idle_w: float, power_w: float) -> float:
        """Return when a step from idle power brings a quantity to its limit (s); infinite: never."""
        if power_w <= self.most_w[i]:
            return float("inf")
        from scipy.optimize import brentq  # 0.3 s that no other estimate needs

        rates, modes = np.linalg.eig(self.matrix)
        weights = modes[i] * np.linalg.solve(modes, self.per_watt * (idle_w - power_w))
        beyond = self.per_watt[i] * power_w - self.most[i]

        def excess(t: float) -> float:
            return float((beyond + weights @ np.exp(rates * t)).real)

        end = 1.0
        while excess(end) < 0.0:
            end *= 2.0
        return float(brentq(excess, 0.0, end))

    def course(self, idle_w: float, burst_w: float) -> list[Moment]:
        """Return power and quantities over time, at the highest power that keeps each limit."""
        governor, moments = Governor(self, idle_w), []
        kept = {*np.geomspace(1, _STEPS, _MOMENTS).astype(int)}
        for i in range(_STEPS + 1):
            power_w = max(idle_w, min(burst_w, governor.highest_w()))
            if i in kept:
                figures = dict(zip(self.names, governor.state.tolist(), strict=True))
                moments.append(Moment(time_s=i * governor.step_s, power_w=power_w, figures=figures))
            governor.advance(power_w)
        return moments


class Governor:
    """The state of a package from idle on, in steps, and the highest power of the next step."""

    def __init__(self, limits: Limits, idle_w: float) -> None:
        from scipy.linalg import expm

        self.step_s = 5.0 * float(-1.0 / np.linalg.eigvals(limits.matrix).real.max()) / _STEPS
        self._decay = decay = expm(limits.matrix * self.step_s)
        self._gain = gain = (np.eye(len(decay)) - decay) @ limits.per_watt
        # A hot die heats the skin even at idle power: a step leaves room for what follows at idle.
        later = np.stack([*accumulate(repeat(decay, _STEPS - 1), np.matmul, initial=np.eye(len(decay)))])
        response = (later @ gain).ravel()
        feels = response > _LEAST_RESPONSE * response.max()
        room = limits.most - idle_w * (limits.per_watt - later @ limits.per_watt)
        self._room_w = room.ravel()[feels] / response[feels]
        self._per_state = (later @ decay).reshape(-1, len(decay))[feels] / response[feels, None]
        self.state = limits.per_watt * idle_w
        """Value of each quantity of the limits."""

    def highest_w(self) -> float:
        """Return the highest mean power of the next step that keeps each limit (W)."""
        return float((self._room_w - self._per_state @ self.state).min())

    def advance(self, power_w: float) -> None:
        """Go on by a step at a mean power."""
        self.state = self._decay @ self.state + self._gain * power_w


def limits_of(package: Package) -> Limits:
    """Return the limits of a package: the running mean of its power, and temperatures if it has them."""
    tau_s, heat = float(package.averaging_time), package.thermal
    if heat is None:
        one = np.array([1.0 / tau_s])
        return Limits([RUNNING_MEAN], -np.diag(one), one, np.array([float(package.power_limit)]))
    to_skin, to_room = 1.0 / heat.die.resistance, 1.0 / heat.skin.resistance
    flows = np.array([[-to_skin, to_skin], [to_skin, -to_skin - to_room]])
    matrix = np.zeros((3, 3))
    matrix[0, 0] = -1.0 / tau_s
    matrix[1:, 1:] = flows / np.array([[heat.die.capacity], [heat.skin.capacity]])
    inflow = np.array([1.0 / tau_s, 1.0 / heat.die.capacity, 0.0])
    most = np.array([package.power_limit, heat.die.most_rise, heat.skin.most_rise], float)
    return Limits([RUNNING_MEAN, "die", "skin"], matrix, inflow, most)
