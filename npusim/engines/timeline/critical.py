"""The critical path: the chain of tasks that made the run as long as it was, and why each followed the one
before.

Reading a detective story backwards: at the last page, ask what had to happen just before, and again, until
the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.engines.timeline.kinds import Kind
from npusim.engines.timeline.timeline import Timeline

__all__ = ["Link", "Summary", "critical_path", "summary"]


@dataclass(frozen=True, slots=True)
class Link:
    """A task on the critical path and why it could not be earlier."""

    task: int
    """Row of the time line."""
    reason: str
    """What it waited for last: "begin", "data", "sram" (room in SRAM), "unit" (its unit was busy) or
    "launch".
    """
    waited_s: float
    """Time between the end of the link before and its own start: latency of DMA."""
    worked_s: float
    """Its own length."""


def critical_path(line: Timeline, inference: int | None = None) -> list[Link]:
    """Return the critical path of an inference, first link first.

    Parameters
    ----------
    line : Timeline
    inference : int, optional
        None: the one that ended last.

    Returns
    -------
    list of Link
        Their waits and lengths add up to the time from the begin of the chain to its end.
    """
    number = int(np.argmax(line.ended)) if inference is None else inference
    row = (number + 1) * line.per_inference - 1
    links: list[Link] = []
    while row >= 0:
        kind = Kind(int(line.kind[row]))
        earlier, why = _before(line, row)
        if line.unit[row] >= 0 or kind is Kind.LAUNCH:
            begin = line.end[earlier] if earlier >= 0 else line.begun[line.inference[row]]
            links.append(
                Link(row, "", float(line.start[row] - begin), float(line.end[row] - line.start[row]))
            )
        # What stands between two working tasks says more exactly why the later one waited.
        if links and links[-1].reason in ("", "data"):
            last = links[-1]
            links[-1] = Link(last.task, why, last.waited_s, last.worked_s)
        row = earlier
    return links[::-1]


def _before(line: Timeline, row: int) -> tuple[int, str]:
    """Return the task that a row waited for last, and what that means."""
    cause = int(line.cause[row])
    kind = Kind(int(line.kind[row]))
    previous = int(line.before[row])
    if previous >= 0 and line.end[previous] >= line.start[row] and line.start[row] > line.ready[row]:
        return previous, "unit"
    if cause < 0:
        return -1, "begin"
    if kind in (Kind.RESERVE, Kind.ENTER) and line.start[row] > line.ready[row]:
        return cause, "sram"
    return cause, "launch" if Kind(int(line.kind[cause])) is Kind.LAUNCH else "data"


@dataclass(frozen=True, slots=True)
class Summary:
    """The critical path, added up: how much of it each kind of unit and each reason is."""

    by_unit: dict[str, float]
    """Seconds of the path spent working, by group of units (and `launch`)."""
    waiting_s: float
    """Seconds of the path spent on nothing but latency of DMA."""
    by_reason: dict[str, float]
    """Seconds of links, by what they had waited for."""
    by_operator: dict[str, float]
    """Seconds of links, by operator."""


def summary(line: Timeline, path: list[Link]) -> Summary:
    """Add up a critical path."""
    by_unit: dict[str, float] = {}
    by_reason: dict[str, float] = {}
    by_operator: dict[str, float] = {}
    waiting = 0.0
    for link in path:
        group = line.units[line.unit[link.task]].group if line.unit[link.task] >= 0 else "launch"
        length = link.worked_s + link.waited_s
        _add(by_unit, group, link.worked_s)
        _add(by_reason, link.reason, length)
        _add(by_operator, line.operator_of(link.task) or group, length)
        waiting += link.waited_s
    return Summary(by_unit, waiting, by_reason, by_operator)


def _add(sums: dict[str, Any], key: str, value: float) -> None:
    sums[key] = sums.get(key, 0.0) + value
