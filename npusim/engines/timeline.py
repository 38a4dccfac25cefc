"""The time line of a run: every task with its unit, its begin and end, and what it waited for.

What follows from it: the critical path, the idle time of units by cause, and curves of SRAM, DRAM and power.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np


class TaskKind(IntEnum):
    """What a task is."""

    SYNC = 0
    """No work: a point in time that other tasks wait for."""
    RESERVE = 1
    """SRAM is reserved, in program order."""
    ENTER = 2
    """A phase of work enters the NPU: from here on it reserves SRAM."""
    LEAVE = 3
    """A phase holds all the SRAM that it needs: the next phase may enter."""
    DMA_IN = 4
    DMA_OUT = 5
    TRANSFER = 6
    """DMA within SRAM."""
    DPU = 7
    DSP = 8
    CPU = 9
    GPU = 10
    LAUNCH = 11
    """A device's runtime is called."""


_TIMELESS = (TaskKind.SYNC, TaskKind.RESERVE, TaskKind.ENTER, TaskKind.LEAVE)


class ExecutionUnit(NamedTuple):
    """Hardware that does one task at a time: a DMA engine, a MAC grid, a DSP, a CPU or GPU."""

    name: str
    """Such as npu.tile0.dpu."""
    group: str
    """Its name in an estimate, such as npu.dpu."""
    context: int = 0
    """Context that it is part of; 0 for what all contexts share."""


@dataclass(eq=False)
class EventLog:
    """Log of a run: arrays over tasks, over inferences, and over changes of SRAM and of DRAM traffic.

    Tasks stand inference by inference in program order. Times and bytes are float64, in s and bytes, with -1
    for what did not happen; numbers are integers.
    """

    ready: Any
    """End of the last task that each task waits for."""
    start: Any
    end: Any
    cause: Any
    """Task whose end made it ready, or freed SRAM for it; -1: the inference began."""
    unit: Any
    """Number of the unit, -1 for none."""
    slot: Any
    """Request in flight that each inference is."""
    begun: Any
    """When it was requested."""
    ended: Any
    sram_time: Any
    """When the bytes in use in SRAM changed."""
    sram_bytes: Any
    """Bytes in use from then on, over all contexts."""
    sram_peak_bytes: float
    """Most bytes in use at any time in the tiles of one context."""
    dram_time: Any
    """When the traffic on DRAM changed."""
    dram_bytes_per_s: Any
    """Traffic from then on, over all devices."""

    def first(self, inferences: int, tasks: int) -> EventLog:
        """Return the log of the first inferences of `tasks` tasks each; SRAM and DRAM stay as they were."""
        rows = inferences * tasks
        columns = {name: getattr(self, name)[:rows] for name in ("ready", "start", "end", "cause", "unit")}
        columns |= {name: getattr(self, name)[:inferences] for name in ("slot", "begun", "ended")}
        # An inference that is left out may have caused one that is not.
        columns["cause"] = np.where(columns["cause"] < rows, columns["cause"], -1)
        return replace(self, **columns)


@dataclass(eq=False)
class Timeline(EventLog):
    """A run's log with what its tasks do. Times in s from the begin of the run.

    Rows of kind SYNC, RESERVE, ENTER and LEAVE take no time and have no unit; they are kept because other
    tasks wait for them. Where equal steps are folded a row stands for several (`repeats`), and what happens
    in a period is stretched over all periods like it.
    """

    workload: str
    soc: str
    techniques: str
    units: tuple[ExecutionUnit, ...]
    operators: tuple[str, ...]
    types: tuple[str, ...]
    """OpenVINO type of each operator."""
    parts: tuple[str, ...]
    """Part of the network that each operator belongs to."""
    kind: Any
    """`TaskKind`."""
    operator: Any
    """Number of the operator, -1 for none."""
    inference: Any
    bytes: Any
    """Bytes moved, or reserved."""
    macs: Any
    repeats: Any
    """Equal tasks that a row stands for, and that its figures are totals over."""
    energy_j: Any
    """Energy beyond idle power, spread evenly over the task."""
    idle_w: float
    """Power of the package while all devices idle."""
    static_w: dict[str, float]
    """Further power of each NPU while any of its units works: leakage, fabric, clock tree."""
    followers: tuple[Any, Any]
    """First follower of each task of the program, and all followers; the same for every inference."""
    dram_limit_bytes_per_s: float
    """What DRAM sustains for all devices together."""
    sram_capacity: float
    """Bytes of SRAM of all tiles in use, over all contexts."""
    left_out: int = 0
    """Inferences that were not simulated to their end, as they repeat others; no curve shows them."""

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def inferences(self) -> int:
        """Inferences in the run."""
        return len(self.ended)

    @property
    def per_inference(self) -> int:
        """Tasks of one inference."""
        return len(self.kind) // self.inferences

    @property
    def makespan_s(self) -> float:
        """Time from the begin of the run to its end."""
        return float(self.ended.max())

    @property
    def folded(self) -> float:
        """Tasks that were not simulated because others stand for them."""
        per_inference = round(float(self.repeats.sum()) / self.inferences)
        return float(per_inference * (self.inferences + self.left_out) - len(self))

    @cached_property
    def working(self) -> Any:
        """Rows that take time on a unit, or call a runtime: int64 array."""
        return np.flatnonzero(~np.isin(self.kind, _TIMELESS))

    @cached_property
    def by_unit(self) -> tuple[Any, ...]:
        """Rows of each unit in order of their start: a tuple of int64 arrays, one per unit."""
        order = np.lexsort((np.arange(len(self)), self.start))
        unit = self.unit[order]
        return tuple(order[unit == number] for number in range(len(self.units)))

    @cached_property
    def before(self) -> Any:
        """The previous task of its unit, or -1: int64 array, shape (tasks,)."""
        previous = np.full(len(self), -1, np.int64)
        for rows in self.by_unit:
            previous[rows[1:]] = rows[:-1]
        return previous

    @cached_property
    def _by_operator(self) -> tuple[Any, Any]:
        """Rows of the first inference on units by operator, and the place of each operator's first."""
        working = np.flatnonzero(self.unit[: self.per_inference] >= 0)
        operator = self.operator[working]
        order = np.argsort(operator, kind="stable")
        return working[order], np.searchsorted(operator[order], np.arange(len(self.operators) + 1))

    def rows_of(self, operator: int, inference: int = 0) -> Any:
        """Return the rows of an operator's tasks on units in one inference: int64 array."""
        rows, starts = self._by_operator
        return rows[starts[operator] : starts[operator + 1]] + inference * self.per_inference

    def busy_s(self, inferences: Any = None) -> dict[str, float]:
        """Return the busy time of each unit by name, in some inferences (default: all).

        A DSP is not busy while its kernel is launched.
        """
        spent_s = np.where(self.kind == TaskKind.LAUNCH, 0.0, self.end - self.start)
        if inferences is not None:
            spent_s = np.where(np.isin(self.inference, inferences), spent_s, 0.0)
        return {u.name: float(spent_s[rows].sum()) for u, rows in zip(self.units, self.by_unit, strict=True)}

    @cached_property
    def npu_phases(self) -> dict[str, tuple[Any, Any]]:
        """Begins and ends of the times in which an NPU works (s), by NPU: float64, ascending."""
        return {name: self._phases(name) for name in self.static_w}

    def _phases(self, device: str) -> tuple[Any, Any]:
        on_npu = np.array([unit.group.startswith(f"{device}.") for unit in self.units] + [False])
        rows = self.working[on_npu[self.unit[self.working]]]
        order = np.argsort(self.start[rows], kind="stable")
        begin, end = self.start[rows][order], np.maximum.accumulate(self.end[rows][order])
        gaps = np.flatnonzero(begin[1:] > end[:-1]) + 1
        first, last = np.append(0, gaps), np.append(gaps, len(rows)) - 1
        return (begin[first], end[last]) if len(rows) else (np.zeros(0), np.zeros(0))

    def group_busy_s(self, inferences: Any = None) -> dict[str, float]:
        """Return the busy time of each group of units (npu.dpu, npu.dsp, npu.dma, cpu, gpu).

        It is the busy time of the busiest unit per context, summed over contexts. Divided by the number of
        inferences, it is the time of one.
        """
        busy_s = self.busy_s(inferences)
        longest: dict[tuple[str, int], float] = {}
        for unit in self.units:
            key = (unit.group, unit.context)
            longest[key] = max(longest.get(key, 0.0), busy_s[unit.name])
        return _sums((group, seconds) for (group, _), seconds in longest.items())

    def span_s(self, operator: int, inference: int = 0) -> tuple[float, float]:
        """Return begin of an operator's first task and end of its last in one inference (s); (0, 0): none."""
        rows = self.rows_of(operator, inference)
        if not len(rows):
            return 0.0, 0.0
        return float(self.start[rows].min()), float(self.end[rows].max())

    def track(self, row: int) -> str:
        """Return the name of the trace track of a row: its unit, or the runtime calls of its request."""
        if self.unit[row] >= 0:
            return self.units[int(self.unit[row])].name
        return f"host.launch{self.slot[self.inference[row]]}"

    def operator_of(self, row: int) -> str:
        """Return the name of a row's operator; empty for none."""
        number = int(self.operator[row])
        return self.operators[number] if number >= 0 else ""


def _sums(values: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the sum of the values of each key, from pairs of key and value."""
    sums: dict[str, float] = {}
    for key, value in values:
        sums[key] = sums.get(key, 0.0) + value
    return sums


@dataclass(frozen=True, slots=True)
class CriticalTask:
    """A task on the critical path and why it could not be earlier."""

    row: int
    """Row of the time line."""
    reason: str
    """What it waited for last: "begin", "data", "sram" (none was free), "unit" (it was busy) or "launch"."""
    waited_s: float
    """Time between the end of the task before and its own start: latency of DMA."""
    worked_s: float
    """Its own length."""


def critical_path(line: Timeline) -> list[CriticalTask]:
    """Return the critical path of the inference that ended last, first task first.

    Returns
    -------
    list of CriticalTask
        Their waits and lengths add up to the time from the first task's begin to the last one's end.
    """
    row = (int(np.argmax(line.ended)) + 1) * line.per_inference - 1
    tasks: list[CriticalTask] = []
    while row >= 0:
        earlier, reason = _before(line, row)
        if line.unit[row] >= 0 or line.kind[row] == TaskKind.LAUNCH:
            begin_s = line.end[earlier] if earlier >= 0 else line.begun[line.inference[row]]
            waited_s, worked_s = line.start[row] - begin_s, line.end[row] - line.start[row]
            tasks.append(CriticalTask(row, "", float(waited_s), float(worked_s)))
        # A task without a unit between two others says more exactly why the later one waited.
        if tasks and tasks[-1].reason in ("", "data"):
            tasks[-1] = replace(tasks[-1], reason=reason)
        row = earlier
    return tasks[::-1]


def _before(line: Timeline, row: int) -> tuple[int, str]:
    """Return the row that a task waited for last, and the reason; -1 for none."""
    cause, previous = int(line.cause[row]), int(line.before[row])
    has_waited = line.start[row] > line.ready[row]
    if previous >= 0 and line.end[previous] >= line.start[row] and has_waited:
        return previous, "unit"
    if cause < 0:
        return -1, "begin"
    if line.kind[row] in (TaskKind.RESERVE, TaskKind.ENTER) and has_waited:
        return cause, "sram"
    return cause, "launch" if line.kind[cause] == TaskKind.LAUNCH else "data"


@dataclass(slots=True)
class PathSummary:
    """Time of the critical path by unit, by reason and by operator."""

    by_unit: dict[str, float]
    """Seconds of the path spent working, by group of units (and `launch`)."""
    waiting_s: float
    """Seconds of the path in which only DMA's latency runs."""
    by_reason: dict[str, float]
    """Seconds of its tasks, by the reason why they waited."""
    by_operator: dict[str, float]
    """Seconds of its tasks, by operator."""


def path_summary(line: Timeline, path: list[CriticalTask]) -> PathSummary:
    """Return the time of a critical path by unit, reason and operator."""
    units = [line.units[line.unit[t.row]].group if line.unit[t.row] >= 0 else "launch" for t in path]
    operators = [line.operator_of(t.row) or unit for t, unit in zip(path, units, strict=True)]
    spent_s = [t.worked_s + t.waited_s for t in path]
    return PathSummary(
        by_unit=_sums(zip(units, (t.worked_s for t in path), strict=True)),
        waiting_s=sum((t.waited_s for t in path), 0.0),
        by_reason=_sums(zip((t.reason for t in path), spent_s, strict=True)),
        by_operator=_sums(zip(operators, spent_s, strict=True)),
    )


CAUSES = ("data", "work", "sram", "latency", "launch", "end")
"""Why a unit is idle: DMA still moves operands; another unit must finish first; no SRAM is free; a transfer's
latency runs; a runtime or an operator is being called; nothing is left to do. Each gap on a unit ends with a
task that could not start earlier: the unit waited for what that task waited for."""

_MOVES = (TaskKind.DMA_IN, TaskKind.DMA_OUT, TaskKind.TRANSFER)


def idle_causes(line: Timeline) -> dict[str, dict[str, float]]:
    """Return the idle time of each unit by cause (s).

    Returns
    -------
    dict of str to dict of str to float
        By unit's name, then by cause of `CAUSES`; with the busy time they add up to the length of the run.
    """
    return {unit.name: _idle_of_unit(line, rows) for unit, rows in zip(line.units, line.by_unit, strict=True)}


def _idle_of_unit(line: Timeline, rows: Any) -> dict[str, float]:
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
    """Return why a task waited, by the kind of the nearest preceding task that took time."""
    while True:
        cause = int(line.cause[row])
        if cause < 0:
            return "end"  # the inference had not begun
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
    """Return by unit name the time that ready tasks waited because the unit was busy (s)."""
    queued = {}
    for unit, rows in zip(line.units, line.by_unit, strict=True):
        previous = line.before[rows]
        busy_until = np.where(previous >= 0, line.end[previous], 0.0)
        waited = np.minimum(line.start[rows], busy_until) - line.ready[rows]
        queued[unit.name] = float(np.maximum(waited, 0.0).sum())
    return queued


class StepFunction(NamedTuple):
    """Values that each hold from their time until the next."""

    time_s: Any
    """Rising times, shape (steps,)."""
    value: Any


def _sum_of_rates(start: Any, end: Any, amount: Any) -> StepFunction:
    """Return the total rate over time of amounts, each spread evenly from its start to its end."""
    has_length = end > start
    start, end = start[has_length], end[has_length]
    rate = amount[has_length] / (end - start)
    times, places = np.unique(np.concatenate((start, end)), return_inverse=True)
    change = np.bincount(places, np.concatenate((rate, -rate)), len(times)) if len(times) else np.zeros(0)
    value = np.cumsum(change)
    # Sums of many rates leave a residue of rounding where nothing moves.
    floor = 1e-9 * value.max(initial=0.0)
    return StepFunction(times, np.where(value > floor, value, 0.0))


def sram_in_use(line: Timeline) -> StepFunction:
    """Return the bytes in use in SRAM over time, summed over all tiles."""
    return StepFunction(line.sram_time, line.sram_bytes)


def dram_bandwidth(line: Timeline) -> StepFunction:
    """Return the traffic to and from DRAM over time (B/s)."""
    return StepFunction(line.dram_time, line.dram_bytes_per_s)


def power(line: Timeline) -> StepFunction:
    """Return the power of the package over time (W): tasks, static power of working NPUs, idle power."""
    rows = line.working
    spans = [(line.start[rows], line.end[rows], line.energy_j[rows])]
    for device, (begin, end) in line.npu_phases.items():
        spans.append((begin, end, line.static_w[device] * (end - begin)))
    work = _sum_of_rates(*map(np.concatenate, zip(*spans, strict=True)))
    return StepFunction(work.time_s, work.value + line.idle_w)
