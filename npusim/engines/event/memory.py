"""DRAM and the road to it, shared fairly by whoever moves data at the moment.

A water main with several taps: alone, a tap gives what its own pipe lets through; with all taps open the main
is divided, and a tap with a thin pipe leaves more for the others. One process looks after the main: when a
tap is opened or closed it works out all flows anew and sets one alarm for the next vessel to be full. No
resource, process or event is made for a single transfer.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ulp
from typing import Any

from simpy.core import Environment

from npusim.engines.event.alarm import Alarm

__all__ = ["SharedMemory"]


class SharedMemory:
    """DRAM bandwidth under max-min fairness.

    Flows are counted in seconds: what is left of a flow is the time it would take with all DMA engines at
    work and nobody else.

    Parameters
    ----------
    env : simpy.Environment
    engines : int
        DMA engines; flows 0 to engines - 1 are theirs and share their road evenly, further flows are hosts'.
    hosts : int
        Number of flows of hosts.
    bytes_per_s : float
        What DRAM sustains for all devices together.
    done : callable
        Called with the number of a flow when it has ended.
    """

    def __init__(
        self, env: Environment, engines: int, hosts: int, bytes_per_s: float, done: Callable[[int], None]
    ) -> None:
        count = engines + hosts
        self._env, self._engines, self._total, self._done = env, engines, bytes_per_s, done
        self._left_s = [0.0] * count
        self._speed = [0.0] * count
        self._top = [0.0] * count
        self._rate = [0.0] * count
        self._active: list[int] = []
        self._hosts_active = 0
        self._since = 0.0
        self._alarm = Alarm(env, self._ring)

    def begin(self, flow: int, seconds: float, top_speed: float, bytes_per_s: float) -> None:
        """Start a flow.

        Parameters
        ----------
        flow : int
            Its number; must not be active.
        seconds : float
            Time it takes at speed 1: for an engine, with all engines at work.
        top_speed : float
            How much faster it may be where the others leave room.
        bytes_per_s : float
            Bytes of DRAM it moves at speed 1; 0 where it does not touch DRAM.
        """
        self._advance()
        self._left_s[flow], self._top[flow], self._rate[flow] = seconds, top_speed, bytes_per_s
        self._active.append(flow)
        if flow >= self._engines:
            self._hosts_active += 1
        self._share()

    def _advance(self) -> None:
        now = self._env.now
        passed = now - self._since
        if passed > 0.0:
            left, speed = self._left_s, self._speed
            for flow in self._active:
                left[flow] -= speed[flow] * passed
        self._since = now

    def _share(self) -> None:
        """Divide the bandwidth anew and set the alarm for the next flow to end."""
        engines, rate, speed = self._engines, self._rate, self._speed
        on_road = 0
        for flow in self._active:
            if flow < engines and rate[flow] > 0.0:
                on_road += 1
        limit = engines / on_road if on_road else 0.0
        for flow in self._active:
            top = self._top[flow]
            speed[flow] = limit if flow < engines and rate[flow] > 0.0 and limit < top else top
        if self._hosts_active:
            self._fill()
        if self._active:
            left = self._left_s
            soonest = min([left[flow] / speed[flow] for flow in self._active])
            self._alarm.set(self._env.now + max(soonest, 0.0))

    def _fill(self) -> None:
        """Cut flows down to what DRAM gives when hosts and engines together ask for more: an equal part each,
        or what it asks for.
        """
        speed, rate = self._speed, self._rate
        asking = sorted((speed[flow] * rate[flow], flow) for flow in self._active if rate[flow] > 0.0)
        left, count = self._total, len(asking)
        for wanted, flow in asking:
            given = min(wanted, left / count)
            speed[flow] = given / rate[flow]
            left -= given
            count -= 1

    def _ring(self, _: Any) -> None:
        self._advance()
        left = self._left_s
        # Rounding must not leave a sliver: what ends within a few units in the last place ends now.
        sliver = 8.0 * ulp(self._env.now)
        ended = [flow for flow in self._active if left[flow] <= sliver * self._speed[flow]]
        if not ended:
            self._share()
            return
        for flow in ended:
            self._active.remove(flow)
            if flow >= self._engines:
                self._hosts_active -= 1
        self._share()
        for flow in sorted(ended):
            self._done(flow)
