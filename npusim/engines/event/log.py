"""What happened, as columns: a ship's log with one line a task, ruled before the voyage.

A task's number in the log is inference x tasks of the program + number in the program.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

__all__ = ["Log"]


@dataclass(slots=True)
class Log:
    """Times of every task of every inference, in s; -1 where it never came to pass."""

    ready: array[float]
    """When everything a task waits for was over."""
    start: array[float]
    end: array[float]
    cause: array[int]
    """The task whose end made it ready, or gave it room; -1: the begin of the inference."""
    slot: array[int]
    """Which of the requests in flight an inference is."""
    begun: array[float]
    """When an inference was asked for."""
    ended: array[float]
    sram_time: array[float]
    """When the bytes in use in SRAM changed ..."""
    sram_bytes: array[float]
    """... and to what."""

    @classmethod
    def of(cls, tasks: int, inferences: int, in_flight: int) -> Log:
        """Return an empty log."""
        total = tasks * inferences

        def times(count: int) -> array[float]:
            return array("d", [-1.0]) * count

        return cls(
            times(total), times(total), times(total), array("q", [-1]) * total, array("i", [0]) * inferences,
            times(inferences), times(inferences), array("d"), array("d"),
        )  # fmt: skip

    def sram(self, time_s: float, used_bytes: float) -> None:
        """Note the bytes in use in SRAM."""
        times = self.sram_time
        if times and times[-1] == time_s:
            self.sram_bytes[-1] = used_bytes
        else:
            times.append(time_s)
            self.sram_bytes.append(used_bytes)
