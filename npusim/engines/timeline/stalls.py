"""Idle time of each unit by cause, and time that ready tasks queued.

Every gap on a unit ends with a task that could not start earlier. What that task was waiting for is what the
unit was waiting for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.engines.timeline.timeline import TaskKind, Timeline

CAUSES = ("data", "work", "sram", "latency", "launch", "end")
"""Why a unit is idle: operands are still on their way in or out by DMA; another unit must finish first; there
is no room in SRAM; DMA has been asked but the first byte is not there yet; a runtime or an operator is being
called; nothing is left to do."""

_MOVES = (int(TaskKind.DMA_IN), int(TaskKind.DMA_OUT), int(TaskKind.TRANSFER))


def idle_causes(line: Timeline) -> dict[str, dict[str, float]]:
    """Return the idle time of each unit by cause (s).

    Returns
    -------
    dict of str to dict of str to float
        By unit's name, then by cause of `CAUSES`; with the busy time they add up to the length of the run.
    """
    return {unit.name: _of_unit(line, rows) for unit, rows in zip(line.units, line.by_unit, strict=True)}


def _of_unit(line: Timeline, rows: Any) -> dict[str, float]:
    idle = dict.fromkeys(CAUSES, 0.0)
    if not len(rows):
        idle["end"] = line.makespan_s
        return idle
    called = rows[line.kind[rows] == TaskKind.LAUNCH]
    idle["launch"] = float((line.end[called] - line.start[called]).sum())
    free = np.concatenate(([0.0], line.end[rows[:-1]]))
    gaps = line.start[rows] - free
    for at in np.flatnonzero(gaps > 0.0):
        row, since = rows[at], float(free[at])
        ready = max(since, float(line.ready[row]))
        idle["latency"] += float(line.start[row]) - ready
        if ready > since:
            idle[_cause(line, int(row))] += ready - since
    idle["end"] = max(0.0, line.makespan_s - float(line.end[rows[-1]]))
    return idle


def _cause(line: Timeline, row: int) -> str:
    """Follow what a task waited for back to something that took time."""
    while True:
        cause = int(line.cause[row])
        if cause < 0:
            return "end"  # the inference had not begun: nothing was left to do
        kind = int(line.kind[cause])
        if kind in (TaskKind.RESERVE, TaskKind.ENTER) and line.start[cause] > line.ready[cause]:
            return "sram"
        if kind in _MOVES:
            return "data"
        if kind == TaskKind.LAUNCH:
            return "launch"
        if line.unit[cause] >= 0:
            return "work"
        row = cause


def queueing_s(line: Timeline) -> dict[str, float]:
    """Return by unit the time that ready tasks waited because it was busy (s, over all tasks)."""
    found = {}
    for unit, rows in zip(line.units, line.by_unit, strict=True):
        previous = line.before[rows]
        busy_until = np.where(previous >= 0, line.end[previous], 0.0)
        waited = np.minimum(line.start[rows], busy_until) - line.ready[rows]
        found[unit.name] = float(np.maximum(waited, 0.0).sum())
    return found
