"""Simulated time: an agenda of actions, and a timer that can be set to an earlier time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class Clock:
    """Calls actions in the order of their times; of equal times, first what was asked for first."""

    __slots__ = ("_agenda", "_asked", "now")

    def __init__(self) -> None:
        self.now = 0.0
        """Simulated time (s)."""
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._asked = 0

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call an action `delay_s` from now, at least 0."""
        self._asked += 1
        heappush(self._agenda, (self.now + delay_s, self._asked, action))

    def run(self) -> None:
        """Call actions until none is left."""
        agenda = self._agenda
        while agenda:
            self.now, _, action = heappop(agenda)
            action()


class Timer:
    """Calls an action at a time, or earlier.

    A call cannot be taken back: a timer that is set to an earlier time calls twice. The action looks at the
    clock and, where nothing is due, sets the timer again.
    """

    __slots__ = ("_action", "_clock", "_times")

    def __init__(self, clock: Clock, action: Callable[[], None]) -> None:
        self._clock, self._action = clock, action
        self._times: list[float] = []
        """When it will call, soonest first."""

    def set(self, at: float) -> None:
        """Make sure that the action is called at `at` (s) or before."""
        if not self._times or at < self._times[0]:
            heappush(self._times, at)
            self._clock.after(at - self._clock.now, self._call)

    def _call(self) -> None:
        heappop(self._times)
        self._action()
