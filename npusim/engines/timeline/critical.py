"""Critical path: the tasks that determine a run's length, and why each followed the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.engines.timeline.timeline import TaskKind, Timeline


@dataclass(frozen=True, slots=True)
class CriticalTask:
    """A task on the critical path and why it could not be earlier."""

    row: int
    """Row of the time line."""
    reason: str
    """What it waited for last: "begin", "data", "sram" (room in SRAM), "unit" (its unit was busy) or
    "launch".
    """
    waited_s: float
    """Time between the end of the task before and its own start: latency of DMA."""
    worked_s: float
    """Its own length."""


def critical_path(line: Timeline, inference: int | None = None) -> list[CriticalTask]:
    """Return the critical path of an inference, first task first.

    Parameters
    ----------
    inference : int, optional
        None: the one that ended last.

    Returns
    -------
    list of CriticalTask
        Their waits and lengths add up to the time from the begin of the chain to its end.
    """
    number = int(np.argmax(line.ended)) if inference is None else inference
    row = (number + 1) * line.per_inference - 1
    tasks: list[CriticalTask] = []
    while row >= 0:
        kind = TaskKind(int(line.kind[row]))
        earlier, why = _before(line, row)
        if line.unit[row] >= 0 or kind is TaskKind.LAUNCH:
            begin = line.end[earlier] if earlier >= 0 else line.begun[line.inference[row]]
            tasks.append(
                CriticalTask(row, "", float(line.start[row] - begin), float(line.end[row] - line.start[row]))
            )
        # What stands between two working tasks says more exactly why the later one waited.
        if tasks and tasks[-1].reason in ("", "data"):
            last = tasks[-1]
            tasks[-1] = CriticalTask(last.row, why, last.waited_s, last.worked_s)
        row = earlier
    return tasks[::-1]


def _before(line: Timeline, row: int) -> tuple[int, str]:
    """Return the task that a row waited for last, and what that means."""
    cause = int(line.cause[row])
    kind = TaskKind(int(line.kind[row]))
    previous = int(line.before[row])
    if previous >= 0 and line.end[previous] >= line.start[row] and line.start[row] > line.ready[row]:
        return previous, "unit"
    if cause < 0:
        return -1, "begin"
    if kind in (TaskKind.RESERVE, TaskKind.ENTER) and line.start[row] > line.ready[row]:
        return cause, "sram"
    return cause, "launch" if TaskKind(int(line.kind[cause])) is TaskKind.LAUNCH else "data"


@dataclass(frozen=True, slots=True)
class PathSummary:
    """The critical path, added up: how much of it each kind of unit and each reason is."""

    by_unit: dict[str, float]
    """Seconds of the path spent working, by group of units (and `launch`)."""
    waiting_s: float
    """Seconds of the path spent on nothing but latency of DMA."""
    by_reason: dict[str, float]
    """Seconds of its tasks, by what they had waited for."""
    by_operator: dict[str, float]
    """Seconds of its tasks, by operator."""


def path_summary(line: Timeline, path: list[CriticalTask]) -> PathSummary:
    """Add up a critical path."""
    by_unit: dict[str, float] = {}
    by_reason: dict[str, float] = {}
    by_operator: dict[str, float] = {}
    waiting = 0.0
    for task in path:
        group = line.units[line.unit[task.row]].group if line.unit[task.row] >= 0 else "launch"
        length = task.worked_s + task.waited_s
        _add(by_unit, group, task.worked_s)
        _add(by_reason, task.reason, length)
        _add(by_operator, line.operator_of(task.row) or group, length)
        waiting += task.waited_s
    return PathSummary(by_unit, waiting, by_reason, by_operator)


def _add(sums: dict[str, Any], key: str, value: float) -> None:
    sums[key] = sums.get(key, 0.0) + value
