"""The time line of a run: every task with its unit, its begin and end, and what it waited for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np


class TaskKind(IntEnum):
    """What a task is."""

    SYNC = 0
    """Nothing is done: a point in time that others wait for."""
    RESERVE = 1
    """Room in SRAM is reserved; granted in the order of the program."""
    ENTER = 2
    """A phase of work enters the NPU: whose turn it is to reserve."""
    LEAVE = 3
    """It has all the room it needs: the next phase may reserve."""
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


@dataclass(frozen=True, slots=True)
class ExecutionUnit:
    """Hardware that does one task at a time: a DMA engine, a MAC grid, a DSP, a CPU or GPU."""

    name: str
    """Such as npu.tile0.dpu."""
    group: str
    """Its name in an estimate, such as npu.dpu."""
    context: int = 0
    """Context that it is part of; 0 for what all contexts share."""


@dataclass(frozen=True)
class Timeline:
    """Columns over tasks; a row is a task of one inference. Times in s from the begin of the run.

    Rows stand inference by inference, in program order. Rows of kind SYNC, RESERVE, ENTER and LEAVE take no
    time and have no unit; they are kept because others wait for them. Where equal steps are folded a row
    stands for several (`times`), and what is seen in a period is drawn out over all periods like it.
    """

    workload: str
    soc: str
    techniques: str
    units: tuple[ExecutionUnit, ...]
    """Units by number."""
    operators: tuple[str, ...]
    """Operator names by number."""
    types: tuple[str, ...]
    """OpenVINO type of each operator."""
    parts: tuple[str, ...]
    """Part of the network that each operator belongs to."""
    kind: Any
    """int8 array, shape (tasks,): `TaskKind`."""
    unit: Any
    """int16 array, shape (tasks,): number of the unit, -1 for none."""
    operator: Any
    """int32 array, shape (tasks,): number of the operator, -1 for none."""
    inference: Any
    """int32 array, shape (tasks,)."""
    ready: Any
    """float64 array, shape (tasks,): when all that a task waits for was over (s)."""
    start: Any
    """float64 array, shape (tasks,), s."""
    end: Any
    """float64 array, shape (tasks,), s."""
    cause: Any
    """int64 array, shape (tasks,): the task whose end made it ready, or gave it room; -1 for none."""
    bytes: Any
    """float64 array, shape (tasks,): bytes moved, or reserved."""
    macs: Any
    """float64 array, shape (tasks,)."""
    times: Any
    """float64 array, shape (tasks,): tasks of equal steps that a row stands for, itself counted; its bytes,
    MACs, energy and time are those of all of them.
    """
    energy_j: Any
    """float64 array, shape (tasks,): energy of the work beyond idle power, spread evenly over the task."""
    idle_w: float
    """Power of the package while all devices idle."""
    static_w: dict[str, float]
    """Further power of each NPU while any of its units works: leakage, fabric, clock tree."""
    followers: tuple[Any, Any]
    """Who waits for a task of the program: (where each task's followers begin, follower); the same for every
    inference.
    """
    slot: Any
    """int32 array, shape (inferences,): which request in flight an inference is."""
    begun: Any
    """float64 array, shape (inferences,): when it was asked for (s)."""
    ended: Any
    """float64 array, shape (inferences,), s."""
    sram_time: Any
    """float64 array, shape (changes,): when the bytes in use in SRAM changed (s) ..."""
    sram_bytes: Any
    """... and to what: float64 array, shape (changes,)."""
    dram_time: Any
    """float64 array, shape (changes,): when the traffic on DRAM changed (s) ..."""
    dram_bytes_per_s: Any
    """... and to what: float64 array, shape (changes,)."""
    dram_limit_bytes_per_s: float
    """What DRAM sustains for all devices together."""
    sram_capacity: float
    """Bytes of SRAM of all tiles in use, over all contexts."""
    sram_peak_bytes: float
    """Most bytes in use at any time in the tiles of one context."""
    left_out: int = 0
    """Inferences that were not acted out, as they repeat others, or not to their end: of these the curves of
    SRAM and DRAM show what they did meanwhile.
    """

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
        """Tasks that others stand for."""
        return float((self.times - 1.0).sum() + self.left_out * self.per_inference)

    @cached_property
    def working(self) -> Any:
        """Rows that take time on a unit, or call a runtime: int64 array."""
        kinds = (TaskKind.SYNC, TaskKind.RESERVE, TaskKind.ENTER, TaskKind.LEAVE)
        return np.flatnonzero(~np.isin(self.kind, [int(k) for k in kinds]))

    @cached_property
    def by_unit(self) -> tuple[Any, ...]:
        """Rows of each unit in order of their start: a tuple of int64 arrays, one per unit."""
        order = np.lexsort((np.arange(len(self)), self.start))
        unit = self.unit[order]
        return tuple(order[unit == u] for u in range(len(self.units)))

    @cached_property
    def before(self) -> Any:
        """The task that its unit did before, or -1: int64 array, shape (tasks,)."""
        found = np.full(len(self), -1, np.int64)
        for rows in self.by_unit:
            found[rows[1:]] = rows[:-1]
        return found

    @cached_property
    def _by_operator(self) -> tuple[Any, Any]:
        """Rows of the first inference on units, operator by operator, and where each operator's begin."""
        working = np.flatnonzero(self.unit[: self.per_inference] >= 0)
        operator = self.operator[working]
        order = np.argsort(operator, kind="stable")
        return working[order], np.searchsorted(operator[order], np.arange(len(self.operators) + 1))

    def rows_of(self, operator: int, inference: int = 0) -> Any:
        """Return the rows of an operator's tasks on units in one inference: int64 array."""
        rows, starts = self._by_operator
        return rows[starts[operator] : starts[operator + 1]] + inference * self.per_inference

    def busy_s(self, inferences: Any = None) -> dict[str, float]:
        """Busy time of each unit, by name, in some inferences or all; a DSP that is being called rests."""
        spent = np.where(self.kind == TaskKind.LAUNCH, 0.0, self.end - self.start)
        if inferences is not None:
            spent = np.where(np.isin(self.inference, inferences), spent, 0.0)
        return {u.name: float(spent[rows].sum()) for u, rows in zip(self.units, self.by_unit, strict=True)}

    @cached_property
    def npu_phases(self) -> dict[str, tuple[Any, Any]]:
        """Of each NPU begins and ends of the times in which any of its units works (s), float64, rising."""
        return {name: self._phases(name) for name in self.static_w}

    def _phases(self, device: str) -> tuple[Any, Any]:
        on_npu = np.array([unit.group.startswith(f"{device}.") for unit in self.units] + [False])
        rows = self.working[on_npu[self.unit[self.working]]]
        order = np.argsort(self.start[rows], kind="stable")
        begin, end = self.start[rows][order], np.maximum.accumulate(self.end[rows][order])
        apart = np.flatnonzero(begin[1:] > end[:-1]) + 1
        first, last = np.append(0, apart), np.append(apart, len(rows)) - 1
        return (begin[first], end[last]) if len(rows) else (np.zeros(0), np.zeros(0))

    def group_busy_s(self, inferences: Any = None) -> dict[str, float]:
        """Busy time of each group (npu.dpu, npu.dsp, npu.dma, cpu, gpu): of the busiest unit in each context.

        What contexts have of their own is added up over them: divided by the inferences it is the time that
        one takes.
        """
        busy = self.busy_s(inferences)
        longest: dict[tuple[str, int], float] = {}
        for unit in self.units:
            key = (unit.group, unit.context)
            longest[key] = max(longest.get(key, 0.0), busy[unit.name])
        groups: dict[str, float] = {}
        for (group, _), busy_s in longest.items():
            groups[group] = groups.get(group, 0.0) + busy_s
        return groups

    def utilisation(self) -> dict[str, float]:
        """Busy time of each unit over the length of the run, by name."""
        return {name: busy / self.makespan_s for name, busy in self.busy_s().items()}

    def span_s(self, operator: int, inference: int = 0) -> tuple[float, float]:
        """Begin of an operator's first task and end of its last (s) in one inference; (0, 0) if none."""
        rows = self.rows_of(operator, inference)
        if not len(rows):
            return 0.0, 0.0
        return float(self.start[rows].min()), float(self.end[rows].max())

    def track(self, row: int) -> str:
        """Name of the track a row is drawn on: its unit, or the runtime call of its request."""
        if self.unit[row] >= 0:
            return self.units[int(self.unit[row])].name
        return f"host.launch{self.slot[self.inference[row]]}"

    def operator_of(self, row: int) -> str:
        """Name of a row's operator; empty for none."""
        number = int(self.operator[row])
        return self.operators[number] if number >= 0 else ""
