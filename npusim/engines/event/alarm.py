"""An alarm clock on simpy's agenda that can be set anew.

simpy's events fire once and cannot be taken back. An alarm is set earlier by a further event, and set later
by letting the old one ring in vain: whoever is woken looks at the clock and, if nothing is due, sets the
alarm again. Rung events are used again, so a long run makes a handful of objects, not millions.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from simpy.core import Environment
from simpy.events import Event

__all__ = ["Alarm"]


class Alarm:
    """Calls back at a time, or earlier.

    Parameters
    ----------
    env : simpy.Environment
    ring : callable
        Called with the simpy event; must set the alarm again where nothing is due yet.
    """

    __slots__ = ("_calls", "_env", "_idle", "_ring", "_times")

    def __init__(self, env: Environment, ring: Callable[[Any], None]) -> None:
        self._env, self._ring = env, ring
        self._calls: list[Callable[[Any], None]] = [self._rang]
        self._idle: list[Any] = []
        self._times: list[float] = []
        """When events on the agenda will ring, soonest first."""

    def set(self, at: float) -> None:
        """Make sure that the alarm rings at `at` (s) or before."""
        times = self._times
        if times and times[0] <= at:
            return
        heappush(times, at)
        if self._idle:
            event = self._idle.pop()
        else:
            event = Event(self._env)
            event._ok, event._value = True, None
        event.callbacks = self._calls
        self._env.schedule(event, delay=at - self._env.now)

    def _rang(self, event: Any) -> None:
        heappop(self._times)
        self._idle.append(event)
        self._ring(event)
